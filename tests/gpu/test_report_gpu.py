"""On a card: a report on a run over NF4 weights measures what the run itself measured, packed and in 16 bits. About
20 s of a card."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dying_log import Letters, Log, Said
from tiny_run import make_model, raw_config, write_instructions

from core.contract.config import RunConfig
from core.machine.locations import Locations
from core.report.schema import read_report
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")]


def test_a_report_on_a_card_agrees_with_the_run(tmp_path: Path, locations: Locations) -> None:
    from core.report.measure.run import report
    from core.train.run import train

    raw = raw_config(make_model(tmp_path / "tiny"), write_instructions(tmp_path / "rows.jsonl"))
    raw["model"].update(quantization="nf4", dtype="auto")
    raw["data"].update(eval_fraction=0.4)
    run = JobFolder(tmp_path / "runs" / "2026-11-20_2243_told_k3f9")
    run.report_job.path.mkdir(parents=True)
    run.run_yaml.write_text(dump_config(RunConfig.model_validate(raw)), encoding="utf-8")
    log = Log(run)
    train(run, log, Letters())
    log.close()
    losses = {event.step: event.loss for event in log.of("evaluation")}
    run.report_job.report_yaml.write_text("minutes: 5", encoding="utf-8")
    said = Said()
    report(run.report_job, said, CommandQueue(Letters(), EventReporter(said)), lambda: None)  # type: ignore[arg-type]
    made = read_report(run.report_json)
    assert made is not None
    assert made.whole, made.parts
    held_out, moved = made.held_out, made.moved
    assert held_out is not None
    assert held_out.before is not None
    assert held_out.before.value == pytest.approx(losses[0], rel=1e-2)
    assert held_out.after.value == pytest.approx(losses[made.step], rel=1e-2)
    assert made.forgetting[0].kl.value > 0
    assert moved is not None
    assert all(one.relative for one in moved.matrices)
    assert made.device == torch.cuda.get_device_name(0)
