"""``settings.json``: kept whole, read within bounds, and never a reason to fail."""

from pathlib import Path

import pytest

from core.contract.errors import MachineError
from core.machine.locations import Locations
from core.machine.settings import Settings, read_settings, write_settings


def test_what_was_chosen_is_read_again_and_nothing_is_chosen_at_first(tmp_path: Path) -> None:
    locations = Locations(tmp_path / "home")
    assert read_settings(locations) == Settings(notify=False)
    write_settings(locations, Settings(notify=True))
    assert read_settings(locations).notify
    assert locations.settings.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"notify": "perhaps"}', b"\xff", b'{"notify": true}' + b" " * 70_000]
)
def test_a_file_that_nobody_wrote_so_changes_nothing(tmp_path: Path, content: bytes) -> None:
    locations = Locations(tmp_path)
    locations.settings.write_bytes(content)
    assert read_settings(locations) == Settings()


def test_a_field_of_a_later_version_is_no_fault(tmp_path: Path) -> None:
    locations = Locations(tmp_path)
    locations.settings.write_text('{"version": 9, "notify": true, "later": [1]}', encoding="utf-8")
    assert read_settings(locations).notify


def test_a_disk_that_takes_nothing_is_said(tmp_path: Path) -> None:
    locations = Locations(tmp_path).make()
    locations.settings.mkdir()  # a folder cannot be replaced by a file
    with pytest.raises(MachineError, match=r"settings\.json"):
        write_settings(locations, Settings(notify=True))
