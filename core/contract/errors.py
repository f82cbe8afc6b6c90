"""What can go wrong, said to a person::

    Fault                       key, values; code, message (expected and found), hint (what to do)
    ├── ConfigError             a run.yaml or a form: all faults at once, in .problems
    ├── DataError               a file, a row, a mapping, a template
    ├── ModelError              a model folder or its weights
    │   └── HubError            the hub: missing, gated, unreachable
    ├── MachineError            disk, port, memory, driver, GPU
    └── RunError                a run folder, a checkpoint, a command that cannot be obeyed

Every sentence stands in ``core/contract/faults/``, under its key. A key is ``code`` or ``code/case``: programs look at
the code, which is stable; the case chooses the sentence.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from core.contract.faults import TEXTS


class Fault(Exception):  # noqa: N818 - the tree's root; its branches are called errors
    """A fault that a person can do something about: ``raise DataError("data.empty/file", name=path.name)``.

    Args:
        key: of ``TEXTS``; what stands before the slash is the code.
        problems: single faults, a line each, where one error carries several.
        values: what the sentences name, by the names in their braces. All but numbers are kept as text.
    """

    def __init__(self, key: str, /, *, problems: Sequence[str] = (), **values: object) -> None:
        self.key = key
        self.values = {name: value if isinstance(value, int | float) else str(value) for name, value in values.items()}
        self.problems = tuple(problems)
        self.message, self.hint = (sentence.format(**self.values).strip() for sentence in TEXTS[key])
        super().__init__(self.message)

    @property
    def code(self) -> str:
        """The stable part of the key, such as ``data.empty``: never shown, never translated."""
        return self.key.partition("/")[0]

    def __str__(self) -> str:
        return "\n".join([f"{self.message} {self.hint}".strip(), *(f"  - {problem}" for problem in self.problems)])

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).told_by, (self.told(),))

    def told(self) -> dict[str, Any]:
        """The error in JSON values, for a page or another process."""
        values = {
            name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
            for name, value in self.values.items()
        }
        told = {"code": self.code, "message": self.message, "hint": self.hint, "key": self.key, "values": values}
        return {**told, "problems": list(self.problems)} if self.problems else told

    @classmethod
    def told_by(cls, told: Mapping[str, Any], **changed: str) -> Self:
        """The error made again from ``told()``; ``changed`` replaces its message or hint."""
        words = {**told, **changed}
        fault = cls.__new__(cls, words["message"])
        fault.key, fault.values = words.get("key", words["code"]), words.get("values", {})
        fault.message, fault.hint, fault.problems = (
            words["message"],
            words.get("hint", ""),
            tuple(words.get("problems", ())),
        )
        return fault


class ConfigError(Fault):
    """A configuration with faults; ``problems`` lists every one of them, a line each."""


class DataError(Fault):
    """A data file, row, mapping or template that cannot be used as it is."""


class ModelError(Fault):
    """A model folder, its index or its weights that cannot be used as they are."""


class HubError(ModelError):
    """The model hub does not have it, does not give it, or does not answer."""


class MachineError(Fault):
    """The machine lacks something: disk, memory, a port, a driver, a free GPU."""


class RunError(Fault):
    """A run folder or checkpoint that cannot be used, or a command that cannot be obeyed."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text; its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
