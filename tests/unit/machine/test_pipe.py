"""Children that answer lines of JSON: within limits, replaced when they end, and asked in the order of the askers."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.contract.errors import DataError
from core.machine.children.pipe import Child, Limits, _InOrder

CHILD = """
import time
from core.machine.children.serve import serve
held = []
def sleep(request): time.sleep(60)
def grow(request):
    held.append(bytearray(300 << 20))
    time.sleep(60)
def die(request): raise SystemExit(3)
def fail(request): raise RuntimeError("two\\nlines")
def full(request): raise OSError(28, "No space left on device")
def chat(request): print("a library says something"); return 5
def count(request, tell):
    for number in range(5): tell(number)
    return "counted"
serve({"sleep": sleep, "grow": grow, "die": die, "fail": fail, "chat": chat, "full": full}, {"count": count})
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], Child]]:
    """Starts a child of 200 MB and a second and a half; with True behind a wall."""
    (tmp_path / "little_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made: list[Child] = []

    def start(walled: bool) -> Child:
        made.append(Child("little_child", "reader", Limits(1.5, 60, 200 << 20, walled)))
        assert made[-1].ask({"do": "chat"}) == 5
        return made[-1]

    yield start
    for child in made:
        child.close()


@pytest.fixture
def child(start: Callable[[bool], Child]) -> Child:
    return start(False)


@pytest.mark.parametrize(
    ("do", "walled", "code", "said", "ended"),
    [
        ("sleep", False, "data.time", "rows.csv within 1.5 seconds", True),
        ("grow", False, "data.memory", "less than 200 MB for rows.csv", True),
        # Between two looks at its size a child can take gigabytes: the wall stands without looking.
        ("grow", True, "data.memory", "in rows.csv data that fits the memory", True),
        ("die", False, "data.ended", "exit code 3", True),
        ("fail", False, "data.unexpected", "RuntimeError: two lines", False),
        ("full", False, "disk.full", "No space left on device", False),
    ],
)
def test_a_breach_is_one_line_and_the_next_question_is_answered(
    start: Callable[[bool], Child], do: str, walled: bool, code: str, said: str, ended: bool
) -> None:
    child = start(walled)
    first, begun = child.pid, time.monotonic()
    with pytest.raises(DataError) as caught:
        child.ask({"do": do, "path": "/somewhere/rows.csv"}, "rows.csv")
    assert (caught.value.code, said in str(caught.value), "\n" in str(caught.value)) == (code, True, False)
    assert time.monotonic() - begun < 10
    assert (child.pid is None) == ended
    assert child.ask({"do": "chat"}) == 5
    assert (child.pid != first) == ended


def test_whoever_stops_ends_the_child_at_once(child: Child) -> None:
    begun = time.monotonic()
    with pytest.raises(DataError) as caught:
        child.ask({"do": "sleep"}, "rows.csv", lambda: True)
    assert (caught.value.code, child.pid) == ("data.stopped", None)
    assert time.monotonic() - begun < 1


def test_nobody_is_given_the_answer_to_anothers_question(child: Child) -> None:
    def gone(_: Any) -> None:
        raise RuntimeError("the page is gone")

    with pytest.raises(RuntimeError):
        child.ask({"do": "count"}, told=gone)
    told: list[int] = []
    assert (child.ask({"do": "count"}, told=told.append), told) == ("counted", [0, 1, 2, 3, 4])


def test_a_child_ends_with_its_pipe(child: Child) -> None:
    process = psutil.Process(child.pid)
    assert child._child
    child._child._process.stdin.close()
    assert process.wait(10) in (0, None)
    assert child.ask({"do": "chat"}) == 5, "one that ended is replaced"


def test_who_asked_first_is_served_first_and_who_went_away_is_passed_over() -> None:
    order, held = _InOrder(), threading.Event()
    served: list[int] = []

    def wait(number: int) -> None:
        with order:
            served.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    with order:
        for number, thread in enumerate(threads):
            thread.start()
            while len(order._asking) < number + 2:
                held.wait(0.001)
    for thread in threads:
        thread.join(5)
    assert served == [0, 1, 2, 3]
    order._changed.wait_for = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), order:
        pass
    assert not order._asking, "nobody waits for who went away"


def interrupted(_ready: object) -> None:
    raise KeyboardInterrupt
