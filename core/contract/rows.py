"""Rows of a data file as a table: what is asked of it, what it shows, and changes over the untouched file."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

RowOrder = Literal["file", "longest", "shortest", "findings"]
RowState = Literal["", "used", "left_out", "excluded", "edited"]
"""Which rows: "" all, those that are trained on, those that cannot be, those that a person excluded or edited."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RowWish(_Part):
    """Which rows of the table are asked for. ``first`` and ``count`` are places among the rows that match, in their
    order; every other field narrows them, "" and 0 not."""

    first: int = Field(0, ge=0)
    count: int = Field(60, ge=1, le=500)
    order: RowOrder = "file"
    search: str = Field("", max_length=1_000)
    finding: str = ""
    """Code of a finding of the data doctor."""
    language: str = ""
    label: str = ""
    state: RowState = ""
    tokens_from: int = Field(0, ge=0)
    tokens_to: int = Field(0, ge=0)


class TableRow(_Part):
    """One row as it stands in the file, with the changes made to it."""

    row: int
    """Number of the row in its file, from 1."""
    cells: dict[str, str]
    """Its columns as text, each cut to ``CELL_CHARACTERS``; nested values as JSON."""
    cut: tuple[str, ...] = ()
    """Columns whose text goes on."""
    edited: tuple[str, ...] = ()
    """Columns that a person changed."""
    excluded: bool = False
    problem: str = ""
    """Why it cannot be trained on; "" where it can, or where no mapping is known yet."""
    findings: tuple[str, ...] = ()
    """Codes of the data doctor's findings that name this row."""
    tokens: int | None = None
    """Its length under the model's tokenizer; None where it was not counted."""


class RowTable(_Part):
    """A window of the table. ``matching`` counts the rows that fit the wish, ``rows_in_file`` all that are known."""

    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    matching: int
    rows_in_file: int
    complete: bool = True
    """False while a large file is still read; the counts are of its beginning then."""
    changes: int = 0
    """How many changes are in force, and so can be undone; ``undone`` can be made again."""
    undone: int = 0


class RowChange(_Part):
    """One change of one or several rows: a cell's new text, or rows excluded or taken in again."""

    rows: tuple[int, ...] = Field(min_length=1, max_length=100_000)
    column: str = ""
    value: str = Field("", max_length=1_000_000)
    """The cell's new text, where ``column`` is given."""
    excluded: bool | None = None


CELL_CHARACTERS = 400
"""Characters of a cell in the table; a row that is opened shows all of them."""


class RoleGuess(_Part):
    """What the columns of a file are taken for: roles of a layout to columns, from their names and contents."""

    layout: str
    """A ``Layout``; "" where nothing is proposed."""
    roles: dict[str, str] = {}
    samples: dict[str, str] = {}
    """Each column of the file with the beginning of a value."""
    recognised: bool = False
    """Whether the names alone are known, so that nobody needs to be asked."""
