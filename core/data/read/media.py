"""Rows that speak of a picture, a film or a sound: a text model cannot see them, so they are left out and counted."""

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from core.data.read.cells import RowError

MEDIA_COLUMNS = frozenset({"image", "images", "video", "videos", "audio", "audios"})
_IMAGE = re.compile(r"(?<!`)<image>(?!`)")
# HTML has elements of these names: a placeholder stands at the beginning or the end of a line.
_FILM_OR_SOUND = re.compile(r"^\s*<(?:video|audio)>|<(?:video|audio)>\s*$", re.MULTILINE)


def refuse_media_columns(values: Mapping[str, Any], used: Container[str]) -> None:
    """Raises RowError where a column of media holds something; one that a role reads (``used``) is read as text."""
    for column, value in values.items():
        if column.lower() in MEDIA_COLUMNS and column not in used and _holds(value):
            raise RowError("row.media", f"the column {column} holds media, which a text model cannot see or hear")


def _holds(value: Any) -> bool:
    """Whether a cell may hold media: a number, true or false is none, nor is a list or a record of nothing else."""
    if isinstance(value, (list, tuple, dict)):
        return any(map(_holds, value.values() if isinstance(value, dict) else value))
    return bool(value) and not isinstance(value, (bool, int, float))


def refuse_placeholders(texts: Iterable[str]) -> None:
    """Raises RowError where a text holds the place of an image, a video or a sound; an element with its end is HTML."""
    for text in texts:
        if ">" not in text or not any(mark in text for mark in ("<image>", "<video>", "<audio>")):
            continue
        found = _IMAGE.search(text) or _FILM_OR_SOUND.search(text)
        if found and f"</{found[0].strip()[1:]}" not in text:
            name = found[0].strip()
            raise RowError("row.media", f"{name} stands for media, which a text model cannot see or hear")
