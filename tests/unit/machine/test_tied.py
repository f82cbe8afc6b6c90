"""Children end with the process that started them, also where they are deep in something that nothing interrupts."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.chat import client
from core.contract.config import RunConfig
from core.contract.errors import Fault
from core.machine.children import line_child
from core.machine.children.tied import start_tied
from core.machine.locations import REPOSITORY, Locations
from core.runs.control import gpu_lease

HANGS = "import re; print('{}', flush=True); re.fullmatch('(a|a)+b', 'a' * 60)"
"""Holds Python's lock for ever, so that no thread of the child comes to look at anything."""
UNTIED = {
    "core/machine/children/tied.py", "core/runs/process/processes.py", "core/runs/process/awake.py",
    "core/runs/ranks/start.py",
}  # fmt: skip
"""Supervisors and workers outlive whoever starts them, on purpose; what keeps a machine awake is ended by its own. A
rank inherits descriptors that it cannot name; it leaves when its line ends, and its supervisor ends the whole group."""
PARENT = f"""
import os, sys, threading
from core.machine.children.tied import start_tied
def start():
    kept.append(start_tied([sys.executable, "-c", {HANGS!r}], stdout=-1))
    print(kept[0].stdout.readline() and kept[0].pid, flush=True)
kept = []
thread = threading.Thread(target=start)  # as the window does: the thread ends long before the process
thread.start()
thread.join()
os.read(0, 1)
"""


def is_gone(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_that_hangs_dies_with_its_parent(how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert parent.stdout
    child = int(parent.stdout.readline())
    assert not is_gone(child, 0.2)
    parent.send_signal(how)
    assert is_gone(child, 5)
    parent.communicate()


def test_handles_are_given_back() -> None:
    before = psutil.Process().num_fds()
    for _ in range(5):
        start_tied([sys.executable, "-c", "pass"]).wait()
    assert psutil.Process().num_fds() <= before
    with pytest.raises(FileNotFoundError):
        start_tied(["/not/there"])
    assert psutil.Process().num_fds() <= before


def test_whoever_starts_a_process_ties_it_or_says_why_not() -> None:
    sources = {path: path.read_text("utf-8") for folder in ("core", "studio") for path in Path(folder).rglob("*.py")}
    found = {
        str(path) for path, text in sources.items() if re.search(r"(?<!`)subprocess\.Popen\(|start_new_session", text)
    }
    assert found == UNTIED


# ── whoever waits for a child that hangs ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Try's child, as a hostile file has it: it says nothing, and its threads never run."""
    made: list[Any] = []

    def start(_command: object, **options: Any) -> Any:
        made.append(start_tied([sys.executable, "-c", HANGS.format("")], **options))
        made[0].stdout.readline()
        return made[0]

    monkeypatch.setattr(line_child, "start_tied", start)
    monkeypatch.setattr(line_child, "ENDING_SECONDS", 0.2)
    return made


@pytest.mark.parametrize(("wanted", "code", "said"), [(False, "talk.slow", "a word"), (True, "card.busy", "A run")])
def test_a_model_that_hangs_while_it_loads_is_ended(
    hanging: list[Any], locations: Locations, monkeypatch: pytest.MonkeyPatch, wanted: bool, code: str, said: str
) -> None:
    assert gpu_lease.LOOK_SECONDS + gpu_lease.LEAVING_SECONDS < 5.5, "a run that waits has the card soon"
    monkeypatch.setattr(client, "LOADING_SECONDS", 60 if wanted else 0.5)
    monkeypatch.setattr(gpu_lease, "LEAVING_SECONDS", 0.2)
    monkeypatch.setattr(gpu_lease, "card_wanted", lambda *_: wanted)
    with pytest.raises(Fault, match=said) as caught:
        list(client.ChatClient(locations, RunConfig(), None).load())
    assert caught.value.code == code
    assert hanging[0].returncode == -signal.SIGKILL


ABANDONED = """
from core.machine.children.line_child import LineChild
def held(child):
    try:
        yield
    finally:
        child.close()
loop = [held(LineChild("asyncio", {}))]
next(loop[0])
loop.append(loop)
"""
"""A stream that nobody ended, as of a page that was closed: it is cleared away when the interpreter ends."""


def test_a_stream_that_was_left_does_not_break_the_end_of_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", ABANDONED], cwd=REPOSITORY, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, b"")
