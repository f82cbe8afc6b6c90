"""The probe end to end on the CPU: the real child and the built-in model; a busy card, a waiting run, a closed pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.errors import Fault
from core.contract.estimate import Probe
from core.estimate.learned import LEAST_STEPS
from core.machine.cards import CardLock, held_by
from core.machine.children.line_child import EndedError
from core.machine.hardware import Gpu, Machine, read_machine
from core.machine.locations import ASSETS, REPOSITORY, Locations
from core.machine.locks import FileLock
from core.models.catalog import starter
from core.proof.probe import client
from core.proof.probe.messages import Setup
from core.runs.control.queue import JobQueue
from core.runs.folder.job_folder import JobFolder
from core.runs.record.learned import learned_file, speeds

RUN = "2026-11-20_2243_probe_k3f9"
LENGTHS = tuple(range(16, 56))


@pytest.fixture
def facts() -> DataFacts:
    mean = sum(LENGTHS) / len(LENGTHS)
    return DataFacts(rows=40, lengths=LENGTHS, trained=LENGTHS, max_length=64, longest=55, mean=mean)


@pytest.fixture
def config() -> RunConfig:
    train = {"max_length": 64, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1}
    return RunConfig.model_validate({"model": {"quantization": "none"}, "train": train})


def probed(config: RunConfig, facts: DataFacts, locations: Locations, stages: list[str] | None = None) -> Probe:
    return client.probe(config, starter(), facts, locations, [].append if stages is None else stages.append)


def test_the_starter_is_probed_and_the_planner_learns_of_it(
    config: RunConfig, facts: DataFacts, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SECONDS", 0.1)
    stages: list[str] = []
    result = probed(config, facts, locations, stages)
    assert stages == ["starting", "loading", "stepping"]
    assert result.steps >= 4
    assert not result.spilled
    assert not result.random_weights
    assert 100 < result.tokens_per_second * result.seconds_per_step <= 110  # the longest step: two rows of up to 55
    weights = (ASSETS / "starter" / "model.safetensors").stat().st_size
    assert result.peak_bytes > weights
    assert held_by(locations, read_machine().cards) is None
    [line] = speeds(locations).runs
    assert line.run_id.startswith("probe-")
    assert line.measured_tokens_per_second == result.tokens_per_second
    assert line.steps == max(result.steps, LEAST_STEPS)  # a probe counts as a run that is long enough


def test_a_busy_card_is_said_at_once_and_nothing_is_learned(
    config: RunConfig, facts: DataFacts, locations: Locations
) -> None:
    card = CardLock(locations, read_machine().cards)
    assert card.acquire(RUN)
    try:
        with pytest.raises(Fault, match=RUN) as caught:
            probed(config, facts, locations)
    finally:
        card.release()
    assert caught.value.code == "card.busy"
    assert not learned_file(locations).exists()


@pytest.mark.parametrize(("code", "kept"), [("probe.died", False), ("probe.memory", False), ("card.busy", True)])
def test_kernels_are_tried_again_after_a_probe_that_failed(
    config: RunConfig, facts: DataFacts, locations: Locations, monkeypatch: pytest.MonkeyPatch, code: str, kept: bool
) -> None:
    def fails(*_asked: object) -> None:
        raise Fault.told_by({"code": code, "message": "It is so."})

    monkeypatch.setattr("core.proof.probe.client._result", fails)
    monkeypatch.setattr("core.proof.probe.client.LineChild", Mock())
    locations.make().kernels.write_text("with what they ran", encoding="utf-8")
    with pytest.raises(Fault, match="It is so"):
        probed(config, facts, locations)
    assert locations.kernels.exists() == kept


@contextlib.contextmanager
def begun(config: RunConfig, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A child that has taken the card and goes on to load."""
    setup = Setup(
        config=config, spec=starter(), lengths=(30, 40), seconds=600, home=str(home), cards=read_machine().cards
    )
    command = [sys.executable, "-m", "core.proof.probe.child"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(setup.model_dump_json() + "\n")
        child.stdin.flush()
        assert '"loading"' in child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


def test_the_child_ends_when_its_pipe_closes_even_while_it_loads(config: RunConfig, tmp_path: Path) -> None:
    with begun(config, tmp_path) as child:
        assert child.stdin is not None
        started = time.monotonic()
        child.stdin.close()
        child.wait(timeout=30)
        assert time.monotonic() - started < 3
        assert held_by(Locations(tmp_path), read_machine().cards) is None


def test_the_child_leaves_within_five_seconds_when_a_run_wants_the_card(config: RunConfig, tmp_path: Path) -> None:
    locations = Locations(tmp_path).make()
    run = JobFolder(locations.runs / RUN)
    run.path.mkdir(parents=True)
    supervisor = FileLock(run.supervisor_lock)
    with begun(config, tmp_path) as child:
        assert child.stdout is not None
        assert supervisor.acquire()
        JobQueue(locations).add(RUN)
        started = time.monotonic()
        said = child.stdout.read()
        child.wait(timeout=30)
        assert time.monotonic() - started < 5
        assert "card.busy" in said
        assert held_by(locations, read_machine().cards) is None
    supervisor.release()


@pytest.mark.slow
def test_a_model_that_is_gone_is_one_line(config: RunConfig, facts: DataFacts, locations: Locations) -> None:
    gone = starter().model_copy(update={"folder": str(locations.home / "nowhere")})
    with pytest.raises(Fault, match="nowhere") as caught:
        client.probe(config, gone, facts, locations)
    assert "\n" not in str(caught.value)
    assert not learned_file(locations).exists()


@pytest.mark.slow
def test_cancelled_while_it_steps(config: RunConfig, facts: DataFacts, locations: Locations) -> None:
    stages: list[str] = []
    at: list[float] = []

    def cancelled() -> bool:
        if "stepping" in stages and not at:
            at.append(time.monotonic())
        return bool(at)

    with pytest.raises(Fault) as caught:
        client.probe(config, starter(), facts, locations, stages.append, cancelled)
    assert time.monotonic() - at[0] < 6
    assert caught.value.code == "probe.cancelled"
    assert held_by(locations, read_machine().cards) is None


@pytest.mark.slow
def test_a_killed_child_is_one_line(config: RunConfig, facts: DataFacts, locations: Locations) -> None:
    def kill(stage: str) -> None:
        if stage == "stepping":
            [child] = [one for one in psutil.Process().children() if "core.proof.probe.child" in one.cmdline()]
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(Fault, match="killed") as caught:
        client.probe(config, starter(), facts, locations, kill)
    assert caught.value.code == "probe.died"
    assert threading.active_count() < 20


@pytest.mark.slow
def test_a_model_that_is_not_here_is_probed_with_random_weights(
    config: RunConfig, facts: DataFacts, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SECONDS", 0.5)
    away: ModelSpec = starter().model_copy(update={"folder": "", "source": "hub", "name": "nobody/nothing"})
    result = client.probe(config, away, facts, locations)
    assert result.random_weights
    assert 100 < result.tokens_per_second * result.seconds_per_step <= 110


@pytest.mark.slow
def test_the_command_says_what_was_planned_beside_what_was_seen(
    config: RunConfig, locations: Locations, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from core.cli.commands import main
    from core.runs.folder.run_yaml import dump_config

    monkeypatch.setattr(client, "SECONDS", 0.5)
    data = config.data.model_copy(update={"path": str(ASSETS / "samples" / "instruction.jsonl")})
    file = locations.home / "run.yaml"
    file.write_text(dump_config(config.model_copy(update={"data": data})), encoding="utf-8")
    assert main(["probe", str(file), "--home", str(locations.home)]) == 0
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:1].strip()]
    assert said == ["starting", "loading", "stepping", "memory", "step"]
    assert len(speeds(locations).runs) == 1


def test_the_card_that_decides_among_those_of_the_run_is_probed(
    config: RunConfig, facts: DataFacts, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three the second and third are chosen; the third has least memory free, and gets its share of a step."""
    free = (20, 11, 10)
    gpus = tuple(
        Gpu(at, f"GPU-{at}", "NVIDIA GeForce RTX 3060", 12 * 2**30, gib * 2**30, (8, 6)) for at, gib in enumerate(free)
    )
    machine = Machine(gpus, 8, 2**35, 2**35, None, "Linux", wsl=False)
    monkeypatch.setattr(client, "read_machine", lambda _home: machine)
    started: list[Mock] = []

    def child(_module: str, environment: dict[str, str]) -> Mock:
        started.append(Mock(environment=environment, hear=Mock(side_effect=EndedError("it ended", ""))))
        return started[-1]

    monkeypatch.setattr(client, "LineChild", child)
    train = {"cards": "1,2", "kernels": "plain", "per_device_train_batch_size": 6}
    config = config.model_copy(update={"train": config.train.model_copy(update=train)})
    with pytest.raises(Fault, match="probe"):
        probed(config, facts, locations)
    assert started[0].environment["CUDA_VISIBLE_DEVICES"] == "GPU-2"
    setup = Setup.model_validate(started[0].send.call_args.args[0])
    assert (setup.cards.ids, len(setup.lengths)) == (("GPU-2",), 3)
    with pytest.raises(Fault, match="7"):
        probed(config.model_copy(update={"train": config.train.model_copy(update={"cards": "7"})}), facts, locations)
