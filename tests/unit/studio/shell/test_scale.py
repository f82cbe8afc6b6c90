"""One scale of text, room, rounding and shadow: every sheet takes its sizes from the tokens of ``studio.css``."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from core.machine.locations import ASSETS

SHEETS = sorted(ASSETS.glob("*.css"))
TOKENS = (ASSETS / "studio.css").read_text("utf-8").partition("\n}")[0]
TAKEN = {
    "font-size": r"var\(--type-(s|m|l|xl)\)|inherit",
    "font-weight": r"var\(--(plain|strong)\)|inherit",
    "line-height": r"var\(--lead(-tight)?\)|inherit|1",
    "font": r"(var\(--strong\) )?var\(--type-(s|m|l|xl)\)/var\(--lead(-tight)?\) var\(--(sans|mono)\)|inherit",
    "border-radius": r"(var\(--round(-[sml])?\)|0| )+|inherit",
    "box-shadow": r"var\(--shadow\)|none|(inset )?(-?\d(px)? )+var\(--\w+\)",
}
"""What a declaration may say; of a shadow also a line of the box's own."""
ROOM = re.compile(r"(?:(?:row-|column-)?gap|(?:padding|margin)(?:-[\w-]+)?)")


def declared(sheet: Path) -> list[tuple[str, str]]:
    """The declarations of a sheet below its tokens, as name and value."""
    text = sheet.read_text("utf-8").removeprefix(TOKENS)
    return re.findall(r"(?<![\w-])([a-z-]+): ([^;{}]+?)\s*(?=[;}])", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.stem)
def test_a_sheet_takes_text_rounding_and_shadow_from_the_scale(sheet: Path) -> None:
    said = [(name, value) for name, value in declared(sheet) if name in TAKEN or name.endswith("-radius")]
    own = [(name, value) for name, value in said if not re.fullmatch(TAKEN.get(name, TAKEN["border-radius"]), value)]
    assert own == []


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.stem)
def test_a_sheet_takes_its_room_from_the_scale(sheet: Path) -> None:
    """Up to 3 px is optical (a mark beside its letter); what is larger is a step."""
    room = [(name, value) for name, value in declared(sheet) if ROOM.fullmatch(name)]
    assert [(name, value) for name, value in room if re.search(r"\b([4-9]|\d{2,})(\.\d+)?px", value)] == []


def test_the_scale_has_four_sizes_with_clear_steps() -> None:
    sizes = [int(size) for size in re.findall(r"--type-\w+: (\d+)px", TOKENS)]
    assert len(sizes) == 4
    assert all(larger / smaller > 1.14 for smaller, larger in pairwise(sizes))
