"""Kept awake, in three ways and with recorded programs; the worker's log and its cap; what a process does."""

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from living_runs import chosen, gone

from core.machine.locations import REPOSITORY
from core.machine.locks import is_held
from core.runs.process.activity import halted, work_of
from core.runs.process.awake import awake_command, hold_session, keep_awake
from core.runs.process.processes import identify
from core.runs.process.worker_log import TAIL_BYTES, cap_log, log_tail, older_log


def nowhere(_name: str) -> None:
    return None


def test_systemd_is_asked_where_it_runs(tmp_path: Path) -> None:
    def find(name: str) -> str:
        return f"/usr/bin/{name}"

    command = awake_command(False, 42, find, "linux", booted=tmp_path)
    assert command == [
        "/usr/bin/systemd-inhibit", "--what=idle:sleep", "--who=Luthier", "--why=A training run is at work",
        "--mode=block", "tail", "--pid=42", "-f", "/dev/null",
    ]  # fmt: skip
    assert awake_command(False, 42, find, "linux", booted=tmp_path / "missing") is None
    assert awake_command(False, 42, nowhere, "linux", booted=tmp_path) is None
    assert awake_command(False, 42, find, "darwin") == ["/usr/bin/caffeinate", "-is", "-w", "42"]
    assert awake_command(False, 42, nowhere, "darwin") is None


def test_windows_is_held_awake_by_a_thread_that_waits_for_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu'; calc.exe #")
    command = awake_command(True, 42, lambda name: f"/x/{name}")
    assert command[:4] == ["/x/powershell.exe", "-NoProfile", "-NonInteractive", "-EncodedCommand"]
    script = base64.b64decode(command[4]).decode("utf-16-le")
    assert "SetThreadExecutionState([uint32]2147483649)" in script
    named = "& wsl.exe -d 'Ubuntu''; calc.exe #' --exec tail --pid=42 -f /dev/null"
    assert script.endswith(named), "one word, whatever its name"
    assert awake_command(True, 42, nowhere) is None
    monkeypatch.delenv("WSL_DISTRO_NAME")
    assert awake_command(True, 42, lambda name: f"/x/{name}") is None


@pytest.fixture
def interop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on the path of a WSL, for recorded programs of Windows."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu")
    monkeypatch.setattr("core.runs.process.awake._LEAVE_SECONDS", 0.3)
    return tmp_path


def record(folder: Path, name: str, script: str) -> Path:
    program = folder / name
    program.write_text(script)
    program.chmod(0o755)
    return program


def test_the_session_lives_as_long_as_the_block(interop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wsl.exe that writes down its arguments and does what it is told."""
    script = '#!/bin/sh\necho "$@" > "$0.said"\nexec 9>"$0.lock"; flock 9\nshift 3\nexec "$@"\n'
    program = record(interop, "wsl.exe", script)
    with hold_session(wsl=True) as note:
        assert note is None
        said = (interop / "wsl.exe.said").read_text()
        assert said == f"-d Ubuntu --exec tail --pid={os.getpid()} -f /dev/null\n"
        assert is_held(interop / "wsl.exe.lock")
    assert not is_held(interop / "wsl.exe.lock")
    program.write_text("#!/bin/sh\nexit 1\n")  # interop switched off
    with hold_session(wsl=True) as note:
        assert "Keep this terminal open" in note.hint
    with hold_session(wsl=False) as note:
        assert note is None
    program.unlink()
    monkeypatch.setenv("PATH", "")  # without interop
    with hold_session(wsl=True) as note:
        assert note.code == "wsl.session"


def test_what_the_lock_waits_with_is_ended_too(interop: Path) -> None:
    """systemd-inhibit runs its command as a child of its own, and a stubborn one is not waited for long."""
    record(interop, "powershell.exe", '#!/bin/sh\ntrap "" TERM\nsleep 60 &\necho $! > "$0.child"\nwait; wait\n')
    with keep_awake(wsl=True):
        child = interop / "powershell.exe.child"
        assert gone(lambda: not (child.exists() and child.read_text()))
    waiting = identify(int(child.read_text()))
    assert waiting is None or gone(waiting.alive)  # a signal is sent, not yet obeyed, when its sender goes on


@pytest.mark.parametrize(
    ("script", "held"), [("#!/bin/sh\nexec sleep 60\n", 1), ("#!/bin/sh\nexit 1\n", None), ("no program at all", 0)]
)
def test_the_holder_lives_as_long_as_the_block_and_where_there_is_none_nothing_is_said(
    interop: Path, monkeypatch: pytest.MonkeyPatch, script: str, held: int | None
) -> None:
    record(interop, "powershell.exe", script)
    before = _children()
    with keep_awake(wsl=True):
        assert held in (None, len(_children() - before))
    monkeypatch.setenv("PATH", "")
    with keep_awake(wsl=True), keep_awake(wsl=False):
        pass
    assert _children() == before


HOLDER = """
import time
from core.runs.process.awake import keep_awake
from core.runs.process.awake import hold_session
with hold_session(wsl=True) as note, keep_awake(wsl=True):
    print(note, flush=True)
    time.sleep(60)
"""


def test_on_wsl_session_and_wish_end_with_a_supervisor_that_is_killed(interop: Path) -> None:
    """The whole way: a powershell.exe that runs the end of its script, and a wsl.exe that runs what it is told, as
    Windows would."""
    record(interop, "wsl.exe", '#!/bin/sh\necho "$@" >> "$0.said"\nshift 3\nexec "$@"\n')
    script = '#!/bin/sh\nline=$(echo "$4" | base64 -d | tr -d "\\000")\nexec ${line##*& }\n'
    record(interop, "powershell.exe", script)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, cwd=REPOSITORY)
    try:
        assert holder.stdout.readline() == b"None\n", "no warning: the session is held"
        told = interop / "wsl.exe.said"  # a stand-in that has begun may not have written yet
        assert gone(lambda: not told.exists() or told.read_text().count("\n") < 2, 20)
        assert told.read_text().splitlines() == [f"-d Ubuntu --exec tail --pid={holder.pid} -f /dev/null"] * 2
        assert gone(lambda: len(_waiting_for(holder.pid)) < 2, 20)
    finally:
        holder.kill()
        holder.wait()
    assert gone(lambda: bool(_waiting_for(holder.pid)), 20)


def _waiting_for(pid: int) -> list[psutil.Process]:
    return chosen(lambda process: f"--pid={pid}" in process.cmdline())


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


# ── worker.log ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_log_keeps_its_head_and_its_tail_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    assert not cap_log(log)
    log.write_text("one\n")
    assert not cap_log(log)
    assert (log_tail(log), older_log(log).exists()) == (b"one\n", False)
    log.unlink()
    with log.open("ab") as worker, log.open("ab") as supervisor:
        worker.write(b"".join(b"line %07d\n" % number for number in range(1_200_000)))
        worker.flush()
        assert cap_log(log)
        worker.write(b"after the cut\n")
        worker.flush()
        supervisor.write(b"and by the other\n")
    assert log.read_bytes() == b"after the cut\nand by the other\n"
    kept = older_log(log).read_bytes()
    assert kept.startswith(b"line 0000000\n")
    assert kept.endswith(b"line 1199999\n")
    assert "bytes left out …" in kept.decode()
    assert len(kept) < TAIL_BYTES + 300_000
    assert log_tail(log, 44) == b"line 1199999\nafter the cut\nand by the other\n"


def test_a_line_of_which_half_is_seen_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that crosses a page shows its first half before its second."""
    log, read, seen = tmp_path / "worker.log", os.pread, [44, 44]  # five lines, and half of the sixth
    log.write_bytes(b"".join(b"line %02d\n" % number for number in range(20)))

    def halting(descriptor: int, size: int, at: int) -> bytes:
        upto = seen.pop(0) if seen else 160
        return read(descriptor, max(0, min(size, upto - at)), at)

    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: b"" if size < 100 else halting(descriptor, size, at))
    assert cap_log(log, cap_bytes=10)
    assert older_log(log).read_bytes() == b"".join(b"line %02d\n" % number for number in range(20))


def test_a_log_is_cut_under_a_writer_that_never_stops(tmp_path: Path) -> None:
    """50,000 lines at a cap of 20 kB: no line twice, none out of order; what is printed after the cuts is there."""
    log = tmp_path / "worker.log"
    script = (
        "import sys, time\ndef say(n): sys.stdout.write('line %06d\\n' % n); sys.stdout.flush()\n"
        "for n in range(49_999): say(n)\ntime.sleep(0.5); say(49_999)"
    )
    with log.open("ab") as out:
        writer = subprocess.Popen([sys.executable, "-c", script], stdout=out)
    cuts = 0
    while writer.poll() is None:
        cuts += cap_log(log, cap_bytes=20_000)
        time.sleep(0.001)
    assert cuts > 3
    lines = log_tail(log, 10_000).decode().splitlines()[1:]
    assert lines[-1] == "line 049999"
    numbers = [int(line.removeprefix("line ")) for line in lines]
    assert numbers == sorted(numbers)
    assert log.stat().st_size < 2_000_000


def test_a_disk_that_takes_no_copy_still_gets_its_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "worker.log"
    log.write_bytes(b"x" * 1000)
    older_log(log).mkdir()  # cannot be replaced by a file
    assert cap_log(log, cap_bytes=100)
    assert log.stat().st_size == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worker.log", "worker.log.1"]


# ── what a process does ──────────────────────────────────────────────────────────────────────────────────────────────


def test_work_is_seen_in_the_process_and_below_it(tmp_path: Path) -> None:
    """A shell that only waits, and a child of it that computes and reads."""
    busy = "data = open('/proc/self/exe', 'rb')\nwhile True: data.seek(0); data.read(100_000)"
    child = subprocess.Popen(["/bin/sh", "-c", f'{sys.executable} -c "{busy}" & wait'], start_new_session=True)
    try:
        worker = identify(child.pid)
        assert worker is not None
        assert gone(lambda: work_of(worker).cpu_seconds < 0.2)
        assert work_of(worker).moved_bytes > 1e6
        assert not halted(worker)
        os.kill(child.pid, signal.SIGSTOP)
        assert gone(lambda: not halted(worker))
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert (work_of(worker).cpu_seconds, halted(worker)) == (0.0, False)
