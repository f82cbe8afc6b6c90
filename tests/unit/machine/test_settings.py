"""Settings of the machine's owner: kept, read back, and never a reason to stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from core.contract.errors import MachineError
from core.machine.locations import Locations
from core.machine.settings import Settings, load, save


def test_settings_come_back_as_they_were_saved(locations: Locations) -> None:
    assert load(locations) == Settings()
    chosen = Settings(price_per_kwh=0.35, currency="€")
    save(locations, chosen)
    assert load(locations) == chosen
    assert [path.name for path in locations.home.iterdir() if path.name.startswith(".settings")] == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"price_per_kwh": -1}', '{"price_per_kwh": NaN}', "\xff"])
def test_a_damaged_file_counts_as_none(text: str, locations: Locations) -> None:
    locations.make()
    (locations.home / "settings.json").write_bytes(text.encode("latin-1"))
    assert load(locations) == Settings()


def test_a_price_below_zero_or_endless_is_refused() -> None:
    for price in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            Settings(price_per_kwh=price)


def test_a_disk_that_does_not_take_them_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="Could not write"):
        save(Locations(tmp_path / "file" / "home"), Settings())
