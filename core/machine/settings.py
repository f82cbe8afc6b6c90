"""What a person has set once for this machine, and no run decides: what electricity costs here.

One small file under the root folder. A file that cannot be read counts as none: the planner then leaves money out.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.contract.errors import MachineError
from core.machine.disk import cure, write_whole
from core.machine.locations import Locations

__all__ = ["Settings", "load", "save"]


class Settings(BaseModel):
    """``price_per_kwh`` in ``currency``; None where nobody said a price."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    price_per_kwh: float | None = Field(None, ge=0, le=1000, allow_inf_nan=False)
    currency: str = Field("EUR", max_length=8)


def load(locations: Locations) -> Settings:
    """The settings as saved, else none."""
    try:
        return Settings.model_validate(json.loads(_file(locations).read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError):
        return Settings()


def save(locations: Locations, settings: Settings) -> None:
    """Keeps the settings.

    Raises:
        MachineError: the disk does not take them.
    """
    try:
        locations.make()
        write_whole(_file(locations), settings.model_dump_json())
    except OSError as error:
        message = f"Could not write {_file(locations)} ({error.strerror or error})."
        raise MachineError("disk.write", message, cure(error)) from error


def _file(locations: Locations) -> Path:
    return locations.home / "settings.json"
