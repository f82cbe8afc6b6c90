"""What surrounds the worker: the kernel trial, the words for its death, its environment, WSL, and run.yaml."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import DataChoice, LoraChoice, RunConfig, TrainChoice
from core.contract.errors import ConfigError, RunError
from core.contract.events import Note
from core.machine.hardware import Gpu, Machine
from core.machine.locations import Locations
from core.machine.locks import is_held
from core.runs.folder.job_folder import RUN_ID as PATTERN
from core.runs.folder.job_folder import ExportRequest, JobFolder, new_run_id, slug
from core.runs.folder.run_yaml import dump_config, read_config
from core.runs.process.activity import MemoryKills
from core.runs.process.awake import hold_session, session_command
from core.runs.supervise import kernel_check
from core.runs.supervise.kernel_check import check_kernels, check_kernels_once, forget_kernels, read_answer
from core.runs.supervise.supervisor import main
from core.runs.supervise.worker_process import card_fault_line, exit_words, worker_environment

GPU = Gpu(0, "GPU-1234", "Card", None, None, None)


def never() -> bool:
    return False


def test_the_trial_says_yes_no_or_nothing() -> None:
    assert read_answer(b'warming up\n{"ok": true, "reason": "", "cure": ""}\n') is None
    note = read_answer(b'{"ok": false, "reason": "no C compiler", "cure": "sudo apt install gcc"}')
    assert (note.code, note.text, note.hint) == ("kernels.plain", "no C compiler", "sudo apt install gcc")
    old = read_answer(b'{"ok": false, "reason": "the card is too old", "cure": ""}\n')
    assert (old.text, old.hint) == ("the card is too old", "")
    for silence in (b"", b"Traceback\n  boom", b"[1]", b'{"other": 1}'):
        note = read_answer(silence)
        assert note.hint == "sudo apt install gcc python3-dev"


def test_the_trial_is_a_process_with_a_limit() -> None:
    good = (sys.executable, "-c", "print('{\"ok\": true}')")
    assert check_kernels(never, good) is None
    slow = (sys.executable, "-c", "import time; time.sleep(60)")
    began = time.monotonic()
    note = check_kernels(never, slow, 0.5)
    assert "did not answer" in note.text
    assert check_kernels(lambda: True, slow) is not None
    assert time.monotonic() - began < 5
    missing = check_kernels(never, ("/no/such/program",))
    assert "could not be started" in missing.text


def test_a_death_is_said_with_what_to_do() -> None:
    kills = MemoryKills()
    assert "Resume goes on from step 200." in exit_words(-9, 200, kills)[1]
    assert "SIGSEGV" in exit_words(-11, 0, kills)[0]
    assert "unknown" in exit_words(-250, 0, kills)[0]
    assert "exit code 1" in exit_words(1, 0, kills)[0]
    assert "could see" in exit_words(None, 0, kills)[0]


@pytest.mark.parametrize(
    ("counted", "said", "cured"),
    [
        ((3, 3), "by somebody or another program", False),
        ((3, 4), "because memory ran out", True),
        ((None, None), "by somebody, or because memory ran out", True),
    ],
)
def test_memory_is_blamed_only_where_the_kernel_counted_it(
    monkeypatch: pytest.MonkeyPatch, counted: tuple[int | None, int | None], said: str, cured: bool
) -> None:
    monkeypatch.setattr("core.runs.process.activity._memory_kills", lambda: counted[0])
    kills = MemoryKills()
    monkeypatch.setattr("core.runs.process.activity._memory_kills", lambda: counted[1])
    message, hint = exit_words(-9, 0, kills)
    assert f"killed (signal 9) {said}" in message
    assert ("Close other programs" in hint) == cured


def test_a_worker_that_was_refused_memory_is_no_crash(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n")
    assert "memory ran out" in exit_words(-6, 0, MemoryKills(log))[0]
    assert "SIGABRT" in exit_words(-6, 0, MemoryKills())[0]


def test_a_fault_of_the_card_is_read_from_what_the_last_attempt_printed() -> None:
    fault = "Error an illegal memory access was encountered at line 90 in file /src/csrc/ops.cu"
    assert card_fault_line(f"loading\n{fault}\nbye\n".encode()) == fault
    assert card_fault_line(f"── attempt 1\n{fault}\n── attempt 2\nall went well\n".encode()) == ""
    assert card_fault_line(b"") == card_fault_line(b"\xff\xfe rubbish\n") == ""


def test_what_went_well_is_tried_again_only_where_something_changed(
    locations: Locations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers: list[Note | None] = [Note(code="kernels.plain", text="no"), None, None, None, None, None]
    tried: list[Note | None] = []

    def trial(_interrupted: Callable[[], bool]) -> Note | None:
        tried.append(answers[len(tried)])
        return tried[-1]

    monkeypatch.setattr(kernel_check, "check_kernels", trial)
    assert check_kernels_once(GPU, locations, never) is not None
    assert [check_kernels_once(GPU, locations, never) for _ in range(3)] == [None] * 3
    assert len(tried) == 2, "a failure is not kept, and a success is"
    check_kernels_once(dataclasses.replace(GPU, driver="999.1"), locations, never)
    assert len(tried) == 3
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    check_kernels_once(GPU, locations, never)
    assert len(tried) == 4
    monkeypatch.setenv("CC", "/no/such/compiler")
    check_kernels_once(GPU, locations, never)
    assert len(tried) == 5, "Triton would call one that is not there"
    forget_kernels(locations)
    check_kernels_once(GPU, locations, never)
    assert len(tried) == 6


def test_a_worker_is_told_its_attempt_its_card_and_whether_kernels_work(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    with_card = Machine((GPU,), 1, 0, 0, None, "Linux", False)
    told = worker_environment({"A": "1"}, folder, with_card, 2, plain=True)
    assert (told["A"], told["LUTHIER_ATTEMPT"], told["LUTHIER_JOB"]) == ("1", "2", str(tmp_path))
    assert (told["CUDA_VISIBLE_DEVICES"], told["LUTHIER_KERNELS"]) == ("GPU-1234", "plain")
    chosen = worker_environment({"CUDA_VISIBLE_DEVICES": "1,0"}, folder, with_card, 1, plain=False)
    assert (chosen["CUDA_VISIBLE_DEVICES"], "LUTHIER_KERNELS" in chosen) == ("GPU-1234", False)
    without = Machine((), 1, 0, 0, None, "Linux", False)
    bare = worker_environment({}, folder, without, 1, plain=False)
    assert ("CUDA_VISIBLE_DEVICES" in bare, bare["TORCHDYNAMO_DISABLE"]) == (False, "1")
    assert "TORCHDYNAMO_DISABLE" not in told, "attention is compiled on a card"


def test_segments_grow_on_a_card_but_not_on_wsl_nor_against_a_choice(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)

    def settings(base: dict[str, str], gpus: tuple[Gpu, ...], wsl: bool) -> dict[str, str]:
        told = worker_environment(base, folder, Machine(gpus, 1, 0, 0, None, "Linux", wsl), 1, plain=False)
        return {name: value for name, value in told.items() if name.endswith("ALLOC_CONF")}

    assert settings({}, (GPU,), wsl=False) == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert settings({}, (GPU,), wsl=True) == settings({}, (), wsl=False) == {}
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        own = {name: "max_split_size_mb:512"}
        assert settings(own, (GPU,), wsl=False) == own


def test_the_windows_session_is_held_by_a_command_that_ends_with_us() -> None:
    command = session_command({"WSL_DISTRO_NAME": "Ubuntu"}, "/x/wsl.exe", 42)
    assert command == ["/x/wsl.exe", "-d", "Ubuntu", "--exec", "tail", "--pid=42", "-f", "/dev/null"]
    assert session_command({}, "/x/wsl.exe", 42) is None
    assert session_command({"WSL_DISTRO_NAME": "Ubuntu"}, None, 42) is None


@pytest.fixture
def interop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a ``wsl.exe`` that does what it is told first on the path."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu")

    def make(script: str) -> Path:
        program = tmp_path / "wsl.exe"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    return make


def test_the_session_lives_as_long_as_the_block(
    tmp_path: Path, interop: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded interop: a wsl.exe that writes down its arguments and does what it is told."""
    program = interop('echo "$@" > "$0.said"\nexec 9>"$0.lock"; flock 9\nshift 3\nexec "$@"')
    with hold_session(wsl=True) as note:
        assert note is None
        assert (tmp_path / "wsl.exe.said").read_text().split() == [
            *("-d", "Ubuntu", "--exec", "tail", f"--pid={os.getpid()}", "-f", "/dev/null")
        ]
        assert is_held(tmp_path / "wsl.exe.lock")
    assert not is_held(tmp_path / "wsl.exe.lock")
    program.write_text("#!/bin/sh\nexit 1\n")  # interop switched off
    with hold_session(wsl=True) as note:
        assert "Keep this terminal open" in note.hint
    with hold_session(wsl=False) as note:
        assert note is None
    program.unlink()
    monkeypatch.setenv("PATH", "")  # without interop
    with hold_session(wsl=True) as note:
        assert note.code == "wsl.session"


def test_a_session_that_does_not_leave_holds_nobody_up(
    interop: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = interop('trap "" TERM\nwhile true; do sleep 0.1; done')
    monkeypatch.setattr("core.runs.process.awake._LEAVE_SECONDS", 0.3)
    with hold_session(wsl=True) as note:
        assert note is None
        held = [child for child in psutil.Process().children() if str(program) in child.cmdline()]
        assert len(held) == 1
    assert not held[0].is_running()


@given(st.text(max_size=80))
def test_a_run_id_is_safe_whatever_the_run_is_called(name: str) -> None:
    run_id = new_run_id(RunConfig(name=name))
    assert PATTERN.fullmatch(run_id)
    assert len(slug(name)) <= 40
    model = RunConfig().model.model_copy(update={"name": "Qwen/Qwen3-0.6B"})
    assert "_qwen3-0-6b_" in new_run_id(RunConfig(model=model))


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a\n", "x" * 80, "-rf"])
def test_an_export_cannot_be_called_anything_that_is_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        ExportRequest(name=name)


def test_a_folder_knows_what_kind_of_job_it_is(tmp_path: Path) -> None:
    run = JobFolder(tmp_path / "run")
    job = JobFolder(run.path / "jobs" / "merged")
    job.path.mkdir(parents=True)
    assert (run.kind, run.run_folder) == ("train", run)
    job.export_yaml.write_text("name: merged\nform: merged\ncheckpoint: step-000200\n")
    assert (job.kind, job.run_folder, job.exports) == ("export", run, run.path / "exports")
    assert job.export_request() == ExportRequest(name="merged", form="merged", checkpoint="step-000200")
    job.export_yaml.write_text("name: [")
    with pytest.raises(RunError, match="Expected an export request"):
        job.export_request()


def test_the_newest_checkpoint_is_the_newest_with_a_manifest(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    assert (folder.newest_checkpoint(), folder.newest_step()) == (None, 0)
    for step, whole in (("step-000200", True), ("step-1000000", True), ("step-2000000", False), ("step-x", True)):
        path = folder.checkpoints / step
        path.mkdir(parents=True)
        if whole:
            (path / "MANIFEST.json").touch()
    assert folder.newest_step() == 1_000_000


def test_a_config_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    config = RunConfig(
        name="Ünïcode: 'quoted' #1\nline",
        data=DataChoice(path="/a b/c.jsonl", columns={"prompt": "no: yes"}),
        lora=LoraChoice(target_modules=("q_proj",)),
        train=TrainChoice(learning_rate=1e-5),
    )
    path.write_text(dump_config(config))
    assert read_config(path) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n- b\n", "found list"),
        ("name: [", "is not YAML"),
        ("a: !!python/object/apply:os.system ['touch canary']", "is not YAML"),
        ("train:\n  learning_rte: 1\n  max_length: 1\nmethod: magic\ndata: {path: x}\n", "has 3 faults"),
        ("train: {learning_rte: 1}\ndata: {path: x}\n", "Did you mean 'learning_rate'"),
        ("lora: {target_modules: []}\n", "has 2 faults"),
    ],
)
def test_a_wrong_run_file_is_told_whole(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert said in str(caught.value)
    assert not Path("canary").exists()


def test_a_file_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "missing.yaml")


def test_the_supervisor_wants_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == os.EX_USAGE
    assert main(["/no/such/folder"]) == os.EX_USAGE
    assert "expected the folder of one job" in capsys.readouterr().err
