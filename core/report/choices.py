"""What a person chose for all reports: the checks that answers have to pass, and a text file of general knowledge.

report_choices.json    {"version": 1, "checks": […], "general": "/home/me/general.txt"}    in the studio's home
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.contract.errors import MachineError, RunError
from core.machine.disk import cure, read_plain, write_whole
from core.machine.locations import Locations
from core.report.schema import Check

MOST_CHECKS = 20
_MOST_BYTES = 1 << 20


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
    try:
        return ReportChoices.model_validate_json(read_plain(locations.report_choices, _MOST_BYTES))
    except (OSError, ValidationError):
        return ReportChoices()


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
        raise MachineError(
            "disk.write/file", name=locations.report_choices, reason=error.strerror, cure=cure(error, "then try again")
        ) from error
