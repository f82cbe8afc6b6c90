"""What a person chose for all reports: the checks that answers have to pass, and a text file of general knowledge.

report_choices.json    {"version": 1, "checks": […], "general": "/home/me/general.txt"}    in the studio's home
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.contract.errors import RunError
from core.machine.disk import not_written, read_model, write_whole
from core.machine.locations import Locations

CheckKind = Literal["exact", "contains", "number", "regex", "json", "label", "length", "language"]
LengthUnit = Literal["words", "characters"]
MOST_CHECKS = 20
_MOST_BYTES = 1 << 20


class Check(BaseModel):
    """What an answer has to be; a person defines it once, for all runs or for one data file.

    ::

        exact      the answer is ``expected``, blanks at the ends and (``ignore_case``) case aside
        contains   ``expected`` stands in it
        number     its last number is that of ``expected``, at most ``tolerance`` away
        regex      ``expected`` is found in it, as Python's re has it
        json       it is JSON, alone or in a block of code, that fits ``expected``, a JSON schema; empty: any JSON
        label      of ``labels`` it names exactly that one that ``expected`` is
        length     it has from ``least`` to ``most`` words or characters (``unit``); most 0: no end
        language   it is written in ``expected``, a language's English name

    An empty ``expected`` is the row's own answer; of a language that answer's, of a JSON schema and a regular
    expression nothing is asked.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: Annotated[str, Field(min_length=1, max_length=80)]
    kind: CheckKind
    expected: Annotated[str, Field(max_length=20_000)] = ""
    ignore_case: bool = True
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    labels: tuple[str, ...] = ()
    least: Annotated[int, Field(ge=0)] = 0
    most: Annotated[int, Field(ge=0)] = 0
    unit: LengthUnit = "words"
    data: Annotated[str, Field(max_length=200)] = ""
    """Name of the data file whose runs are checked with it; empty: those of every file."""


class ReportChoices(BaseModel):
    """``report_choices.json``."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    version: int = 1
    checks: Annotated[tuple[Check, ...], Field(max_length=MOST_CHECKS)] = ()
    general: str = ""
    """A file of texts (.txt, .jsonl, or any that the data room reads) on which forgetting is measured beside the set
    that comes with the project; empty: none."""

    def checks_for(self, data: str) -> tuple[Check, ...]:
        """The checks of runs over the data file of this name."""
        return tuple(check for check in self.checks if check.data in ("", data))


def read_choices(locations: Locations) -> ReportChoices:
    """What was chosen; nothing where the file is missing or cannot be read."""
    return read_model(locations.report_choices, _MOST_BYTES, ReportChoices) or ReportChoices()


def write_choices(locations: Locations, choices: ReportChoices) -> None:
    """Keeps them.

    Raises:
        RunError: two checks have one name, or the file of general texts is missing.
        MachineError: the disk does not take it.
    """
    names = [check.name for check in choices.checks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RunError("report.check/twice", name=twice)
    if choices.general and not Path(choices.general).expanduser().is_file():
        raise RunError("report.general", path=choices.general)
    try:
        write_whole(locations.make().report_choices, choices.model_dump_json(indent=1))
    except OSError as error:
        raise not_written(locations.report_choices, error, "then try again") from error
