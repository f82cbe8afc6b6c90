"""What surrounds the worker: the kernel trial, the words for its death, its environment, its folder, and run.yaml."""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import DataChoice, LoraChoice, RunConfig, TrainChoice
from core.contract.errors import ConfigError, RunError
from core.contract.events import Note
from core.machine.hardware import Gpu, Machine
from core.machine.locations import Locations
from core.runs.folder.job_folder import RUN_ID, ExportRequest, JobFolder, new_run_id, slug
from core.runs.folder.run_yaml import dump_config, read_wish
from core.runs.process import activity
from core.runs.process.activity import MemoryKills
from core.runs.supervise import kernel_check
from core.runs.supervise.kernel_check import check_kernels, check_kernels_once, forget_kernels, read_answer
from core.runs.supervise.worker_process import card_fault, death, worker_environment

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
        assert read_answer(silence).hint == "sudo apt install gcc python3-dev"


def test_the_trial_is_a_process_with_a_limit() -> None:
    good = (sys.executable, "-c", "print('{\"ok\": true}')")
    assert check_kernels(never, good) is None
    slow = (sys.executable, "-c", "import time; time.sleep(60)")
    began = time.monotonic()
    assert "did not answer" in check_kernels(never, slow, 0.5).text
    assert check_kernels(lambda: True, slow) is not None
    assert time.monotonic() - began < 5
    assert "could not be started" in check_kernels(never, ("/no/such/program",)).text


def test_what_went_well_is_tried_again_only_where_something_changed(
    locations: Locations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers, tried = [Note(code="kernels.plain", text="no")], []

    def trial(_interrupted: Callable[[], bool], card: dict[str, str]) -> Note | None:
        tried.append(card["CUDA_VISIBLE_DEVICES"])
        return answers.pop() if answers else None

    monkeypatch.setattr(kernel_check, "check_kernels", trial)
    assert check_kernels_once((GPU,), locations, never) is not None
    assert [check_kernels_once((GPU,), locations, never) for _ in range(3)] == [None] * 3
    assert len(tried) == 2, "a failure is not kept, and a success is"
    check_kernels_once((dataclasses.replace(GPU, driver="999.1"),), locations, never)
    assert len(tried) == 3
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    check_kernels_once((GPU,), locations, never)
    assert len(tried) == 4
    monkeypatch.setenv("CC", "/no/such/compiler")
    check_kernels_once((GPU,), locations, never)
    assert len(tried) == 5, "Triton would call one that is not there"
    forget_kernels(locations)
    check_kernels_once((GPU,), locations, never)
    assert len(tried) == 6
    other = dataclasses.replace(GPU, index=1, uuid="GPU-2", name="NVIDIA GeForce GTX 1080")
    tried.clear()
    assert check_kernels_once((GPU, dataclasses.replace(GPU, uuid="GPU-3")), locations, never) is None, "known"
    answers.append(Note(code="kernels.plain", text="it is too old"))
    assert check_kernels_once((GPU, other), locations, never).text == "GTX 1080 (1): it is too old"  # type: ignore[union-attr]
    assert [check_kernels_once(gpus, locations, never) for gpus in ((GPU, other), (other,), (GPU,))] == [None] * 3
    assert tried == ["GPU-2"] * 2, "on the card that is meant"
    tried.clear()
    old = dataclasses.replace(other, uuid="GPU-4", compute_capability=(7, 0))
    answers.append(Note(code="kernels.plain", text="it is too old"))
    assert check_kernels_once((GPU, old), locations, never) is None, "its own process goes without"
    assert check_kernels_once((old,), locations, never) is not None
    assert tried == ["GPU-4"]


def test_a_success_that_was_forgotten_meanwhile_does_not_come_back(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(_interrupted: Callable[[], bool], card: dict[str, str]) -> None:
        if card["CUDA_VISIBLE_DEVICES"] != GPU.uuid:
            forget_kernels(locations)

    monkeypatch.setattr(kernel_check, "check_kernels", trial)
    other = dataclasses.replace(GPU, uuid="GPU-5", name="NVIDIA GeForce RTX 4090")
    for gpus in ((GPU,), (other,)):
        assert check_kernels_once(gpus, locations, never) is None
    assert len(locations.kernels.read_text(encoding="utf-8").splitlines()) == 1


BAD_ALLOC = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"


@pytest.mark.parametrize(
    ("code", "counted", "printed", "said", "cured"),
    [
        (-9, (3, 3), "", "killed (signal 9) by somebody or another program", False),
        (-9, (3, 4), "", "killed (signal 9) because memory ran out", True),
        (-9, (None, None), "", "killed (signal 9) by somebody, or because memory ran out", True),
        (-6, (3, 3), BAD_ALLOC, "because memory ran out", True),
        (-6, (3, 3), "", "SIGABRT", False),
        (-11, (3, 3), "", "SIGSEGV", False),
        (-250, (3, 3), "", "unknown", False),
        (1, (3, 3), "", "exit code 1", False),
        (None, (3, 3), "", "could see", False),
    ],
)
def test_a_death_is_said_with_what_to_do_and_memory_is_blamed_only_where_it_was_lacking(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int | None,
    counted: tuple[int | None, int | None],
    printed: str,
    said: str,
    cured: bool,
) -> None:
    (tmp_path / "worker.log").write_text(printed)
    monkeypatch.setattr(activity, "_memory_kills", lambda: counted[0])
    kills = MemoryKills(tmp_path / "worker.log")
    monkeypatch.setattr(activity, "_memory_kills", lambda: counted[1])
    fault = death(code, 200, kills)
    assert said in fault.message
    assert ("Close other programs" in fault.hint) == cured
    assert "Resume goes on from step 200." in fault.hint
    assert "Start it again." in death(code, None, kills).hint, "an export has no step"


FAULT = "Error an illegal memory access was encountered at line 90 in file /src/csrc/ops.cu"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        (f"loading\n{FAULT}\nbye\n", FAULT),
        (f"── attempt 1\n{FAULT}\n── attempt 2\nall went well\n", ""),
        ("\udcff\udcfe rubbish\n", ""),
        ("", ""),
    ],
)
def test_a_fault_of_the_card_is_read_from_what_the_last_attempt_printed(
    tmp_path: Path, printed: str, said: str
) -> None:
    (tmp_path / "worker.log").write_text(printed, errors="surrogateescape")
    assert card_fault(tmp_path / "worker.log") == said


def environment(base: dict[str, str], gpus: tuple[Gpu, ...], wsl: bool = False, plain: bool = False) -> dict[str, str]:
    machine = Machine(gpus, 1, 0, 0, None, "Linux", wsl)
    return worker_environment(base, JobFolder(Path("/runs/a")), machine, 2, plain)


def test_a_worker_is_told_its_attempt_its_card_and_whether_kernels_work() -> None:
    told = environment({"A": "1"}, (GPU,), plain=True)
    assert (told["A"], told["LUTHIER_ATTEMPT"], told["LUTHIER_JOB"]) == ("1", "2", "/runs/a")
    assert (told["CUDA_VISIBLE_DEVICES"], told["LUTHIER_KERNELS"]) == ("GPU-1234", "plain")
    assert "TORCHDYNAMO_DISABLE" not in told, "attention is compiled on a card"
    chosen = environment({"CUDA_VISIBLE_DEVICES": "1,0"}, (GPU,))
    assert (chosen["CUDA_VISIBLE_DEVICES"], "LUTHIER_KERNELS" in chosen) == ("GPU-1234", False)
    bare = environment({}, ())
    assert ("CUDA_VISIBLE_DEVICES" in bare, bare["TORCHDYNAMO_DISABLE"]) == (False, "1")


@pytest.mark.parametrize(
    ("base", "gpus", "wsl", "said"),
    [
        ({}, (GPU,), False, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        ({}, (GPU,), True, {}),
        ({}, (), False, {}),
        *(({name: "x:1"}, (GPU,), False, {name: "x:1"}) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")),
    ],
)
def test_segments_grow_on_a_card_but_not_on_wsl_nor_against_a_choice(
    base: dict[str, str], gpus: tuple[Gpu, ...], wsl: bool, said: dict[str, str]
) -> None:
    told = environment(base, gpus, wsl)
    assert {name: value for name, value in told.items() if name.endswith("ALLOC_CONF")} == said


# ── folders and their files ──────────────────────────────────────────────────────────────────────────────────────────


@given(st.text(max_size=80))
def test_a_run_id_is_safe_whatever_the_run_is_called(name: str) -> None:
    assert RUN_ID.fullmatch(new_run_id(RunConfig(name=name)))
    assert len(slug(name)) <= 40


def test_a_run_without_a_name_is_called_after_its_model() -> None:
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
    assert read_wish(path) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("- a\n- b\n", "found list"),
        ("name: [", "is not YAML"),
        ("a: !!python/object/apply:os.system ['touch canary']", "is not YAML"),
        ("train:\n  learning_rte: 1\n  max_length: 1\nmethod: magic\ndata: {path: x}\n", "has 3 faults"),
        ("train: {learning_rte: 1}\ndata: {path: x}\n", "Did you mean 'learning_rate'"),
        ("lora: {target_modules: []}\n", "has 2 faults"),
    ],
)
def test_a_wrong_run_file_is_told_whole(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "run.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_wish(path)
    assert said in str(caught.value)
    assert not Path("canary").exists()
