"""Data sets made in the test's own process: what ``work_child`` writes, without the half second that its child takes to
start for each."""

import json
from collections.abc import Callable
from typing import Any

from children_here import ChildHere

from core.data.service import work_child
from core.machine.children.pipe import stopped

MAKERS = {"fix": work_child.fix, "mix": work_child.mix, "edit": work_child.edit}


class MakerHere(ChildHere):
    """Stands in for the child where a data set is made; errors are raised as they are."""

    def ask(
        self,
        request: dict[str, Any],
        about: str = "",
        cancelled: Callable[[], bool] | None = None,
        told: Callable[[Any], None] | None = None,
    ) -> Any:
        """Answers as the child does, through JSON as through its pipe."""

        def tell(said: Any) -> None:
            if cancelled and cancelled():
                raise stopped(about)
            if told:
                told(said)

        asked = json.loads(json.dumps(request))
        return json.loads(json.dumps(MAKERS[request["do"]](asked, tell)))
