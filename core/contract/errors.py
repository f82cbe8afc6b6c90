"""What can go wrong, said to a person.

The tree::

    StudioError                 code, message (expected and found), hint (what to do)
    ├── ConfigError             a run.yaml or a form: all faults at once, in .problems
    ├── DataError               a file, a row, a mapping, a template
    ├── ModelError              a model folder or its weights
    │   └── HubError            the hub: missing, gated, unreachable
    ├── MachineError            disk, port, memory, driver, GPU
    └── RunError                a run folder, a checkpoint, a command that cannot be obeyed

An error crosses processes as ``{"code", "message", "hint"}`` (a ConfigError's with ``"problems"``); the code is stable
and is the key of translations.
"""

from __future__ import annotations

from collections.abc import Sequence


class StudioError(Exception):
    """A fault that a person can do something about.

    Args:
        code: stable key such as ``data.empty``; never shown, never translated.
        message: one line that names what was expected and what was found.
        hint: one line that says what to do.
    """

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[type[StudioError], tuple[object, ...]]:
        return (type(self), (self.code, self.message, self.hint))

    def told(self) -> dict[str, object]:
        """The error as a page or another process is told of it: JSON values."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class ConfigError(StudioError):
    """A configuration with faults; ``problems`` lists every one of them, a line each."""

    def __init__(self, code: str, message: str, hint: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(code, message, hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {problem}" for problem in self.problems)])

    def __reduce__(self) -> tuple[type[StudioError], tuple[object, ...]]:
        return (type(self), (self.code, self.message, self.hint, self.problems))

    def told(self) -> dict[str, object]:
        """With every fault named, so that a page does not end in a colon."""
        return {**super().told(), "problems": list(self.problems)}


class DataError(StudioError):
    """A data file, row, mapping or template that cannot be used as it is."""


class ModelError(StudioError):
    """A model folder, its index or its weights that cannot be used as they are."""


class HubError(ModelError):
    """The model hub does not have it, does not give it, or does not answer."""


class MachineError(StudioError):
    """The machine lacks something: disk, memory, a port, a driver, a free GPU."""


class RunError(StudioError):
    """A run folder or checkpoint that cannot be used, or a command that cannot be obeyed."""


def first_line(error: BaseException) -> str:
    """What somebody else's error says, as far as its first line; its class where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
