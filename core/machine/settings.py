"""What a person chose for this studio, read by the window and by the processes of runs.

settings.json    {"version": 1, "notify": true}    in the studio's home
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from core.machine.disk import not_written, read_model, write_whole
from core.machine.locations import Locations

_MOST_BYTES = 1 << 16


class Settings(BaseModel):
    """``settings.json``. What a browser keeps for itself (its theme, a chart's smoothing) is not here."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    version: int = 1
    notify: bool = False
    """Whether the desktop tells when a run or the queue ends, with every page closed too."""
    kwh_price: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 0.0
    """What a kilowatt-hour costs; 0: nobody wants to know."""
    currency: Annotated[str, Field(max_length=8)] = "€"


def read_settings(locations: Locations) -> Settings:
    """What was chosen; the defaults where the file is missing or cannot be read."""
    return read_model(locations.settings, _MOST_BYTES, Settings) or Settings()


def write_settings(locations: Locations, settings: Settings) -> None:
    """Keeps them, whole or not at all.

    Raises:
        MachineError: the disk does not take it.
    """
    try:
        write_whole(locations.make().settings, settings.model_dump_json(indent=1))
    except OSError as error:
        raise not_written(locations.settings, error, "then try again") from error
