"""The data room's children in the test's own process: what they answer, without the second that each takes to start."""

from collections.abc import Callable
from typing import Any

from core.data.service import reader_child, work_child
from core.machine.children.pipe import Limits


class ChildHere:
    """Stands in for ``core.machine.children.pipe.Child``; who is asked what is counted in ``asked``."""

    asked: list[str] = []  # noqa: RUF012 - one for all, as the fixture that puts it in place is

    def __init__(self, module: str, _name: str, _limits: Limits) -> None:
        self._module = module

    def ask(
        self,
        request: dict[str, Any],
        _about: str = "",
        cancelled: Callable[[], bool] | None = None,
        told: Callable[[Any], None] | None = None,
    ) -> Any:
        """Answers as the child does; errors are raised as they are."""
        self.asked.append(f"{self._module} {request['do']}")
        if self._module == "core.data.service.reader_child":
            return {"check": reader_child.check, "drop": reader_child.drop}[request["do"]](request)
        assert self._module == "core.data.service.work_child"

        def tell(said: Any) -> None:
            if cancelled and cancelled():
                raise AssertionError("a child that is called off is ended")
            if told:
                told(said)

        return work_child.groups(request, tell)

    def close(self) -> None:
        """Nothing runs."""
