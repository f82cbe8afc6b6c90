"""Whole reports on runs of the tiny model, their figures beside those of plain transformers and peft."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import encoder_cases
import numpy
import pytest
import torch
from dying_log import Said

from core.contract.config import RunConfig
from core.contract.events import Resumed
from core.machine.locations import Locations
from core.report.choices import Check, ReportChoices, write_choices
from core.report.measure import memorising
from core.report.measure import run as run_room
from core.report.measure import subject as subject_room
from core.report.measure.answers import prompts
from core.report.measure.budget import LEAST_SECONDS, Budget
from core.report.measure.forgetting import MOST_TOKENS, general_texts
from core.report.measure.moved import directions, effective_rank, told_of
from core.report.measure.subject import Subject
from core.report.schema import Matrix, PartName, Report, read_report
from core.runs.control.gpu_lease import GiveWay
from core.runs.folder.held_out_rows import draw_path
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter
from core.runs.record.job_record import folded
from core.runs.record.outcome import by_merit
from core.train.channel.command_queue import Leave
from core.train.step.rows import MarkedRows

Told = Callable[..., tuple[Report, Said]]
Make = Callable[..., JobFolder]


def plain(run: JobFolder) -> Any:
    """The run's best checkpoint as peft opens it."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(run.config().model.name, dtype=torch.float32)
    return PeftModel.from_pretrained(base, str(by_merit(run)[0] / "adapter")).eval()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of the general texts."""
    monkeypatch.setattr("core.report.measure.run.general_texts", lambda: general_texts()[::16])


def test_a_report_on_sft_says_what_transformers_and_peft_compute(
    measured: JobFolder, told: Told, brief: None, locations: Locations, tmp_path: Path
) -> None:
    own = tmp_path / "own.txt"
    own.write_text("".join(f"the red house number {n} is small\n" for n in range(9)), encoding="utf-8")
    checks = (Check(name="short", kind="length", most=1), Check(name="other file", kind="json", data="x.jsonl"))
    write_choices(locations, ReportChoices(checks=checks, general=str(own)))
    run = measured
    report, said = told(run, minutes=0)
    losses = {event.step: event.loss for event in folded(run).evaluations}
    assert report.held_out
    assert report.held_out.before
    assert report.held_out.difference
    assert report.held_out.before.value == pytest.approx(losses[0], rel=1e-5), "as the run measured the base"
    assert report.held_out.after.value == pytest.approx(losses[report.step], rel=1e-5)
    assert (report.held_out.rows, report.held_out.after.of, report.held_out.change) == (12, 12, "better")
    assert {(group.by, group.name) for group in report.held_out.groups} >= {("source", "news"), ("source", "tales")}
    model = plain(run)
    _loss_of_a_row(run, report, model)
    _divergence(run, report, model)
    _update(report, model)
    assert [one.name for one in report.forgetting] == ["general", "own.txt"]
    assert [(part.name, part.why, part.done) for part in report.parts] == [
        ("moved", "", 4), ("held_out", "", 12), ("forgetting", "", 12), ("answers", "", 3), ("memorising", "", 8),
    ]  # fmt: skip
    assert report.answers
    assert [tally.check.name for tally in report.answers.tallies] == ["short"]
    assert {event.stage for event in said.of("stage")} == {"preparing", "loading", "measuring"}
    assert said.events[-1].kind == "finished"
    assert "the least" in report.budget_text


def _loss_of_a_row(run: JobFolder, report: Report, model: Any) -> None:
    """The row's loss by transformers' own labels."""
    from transformers import AutoTokenizer

    assert report.held_out
    line = report.held_out.hardest[0]
    row = json.loads(Path(run.config().data.path).read_text("utf-8").splitlines()[line.row - 1])
    tokenizer = AutoTokenizer.from_pretrained(run.config().model.name)
    asked = f"<|user|>{row['prompt']}<|end|><|assistant|>"
    prompt, answer = tokenizer(asked).input_ids, tokenizer(f"{row['completion']}<|end|>").input_ids
    ids = torch.tensor([prompt + answer])
    labels = torch.tensor([[-100] * len(prompt) + answer])
    with torch.no_grad():
        assert float(model(ids, labels=labels).loss) == pytest.approx(line.after, rel=1e-4)
        with model.disable_adapter():
            assert float(model(ids, labels=labels).loss) == pytest.approx(line.before, rel=1e-4)


def _divergence(run: JobFolder, report: Report, model: Any) -> None:
    """KL over all general texts, by torch's kl_div."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(run.config().model.name)
    total = tokens = 0.0
    for text in general_texts()[::16]:
        ids = torch.tensor([tokenizer(text.text).input_ids[:MOST_TOKENS]])
        with torch.no_grad():
            after = model(ids).logits[0, :-1].double().log_softmax(-1)
            with model.disable_adapter():
                before = model(ids).logits[0, :-1].double().log_softmax(-1)
        total += float(torch.nn.functional.kl_div(after, before, reduction="sum", log_target=True))
        tokens += len(after)
    general = report.forgetting[0]
    assert (general.tokens, general.kl.value) == (tokens, pytest.approx(total / tokens, rel=1e-3))


def _update(report: Report, model: Any) -> None:
    """Norm and singular values of merged weights less the base's."""
    assert report.moved
    one = next(matrix for matrix in report.moved.matrices if matrix.module.endswith("layers.1.mlp.down_proj"))
    module = model.get_submodule(f"base_model.model.{one.module}")
    delta = module.get_delta_weight("default").detach()
    singular = torch.linalg.svdvals(delta.double())
    assert one.norm == pytest.approx(float(delta.norm()), rel=1e-5)
    assert one.relative == pytest.approx(float(delta.norm() / module.base_layer.weight.norm()), rel=1e-4)
    assert list(one.singular) == pytest.approx(singular[: one.rank].tolist(), abs=1e-6)
    assert (one.rank, one.layer, one.projection) == (4, 1, "down_proj")
    assert 1 <= one.effective_rank <= 4


@pytest.mark.parametrize(
    ("method", "values", "unit", "no_meaning", "others"),
    [
        ("dpo", {}, "nats a token", set(), 0),
        ("classify", {}, "nats a row", {"forgetting"}, 1),
        ("sft", {"learns": "everything", "learning_rate": 1e-3}, "nats a token", set(), 5),
        pytest.param("pretrain", {"learns": "adapter_embeddings"}, "nats a token", set(), 0, marks=pytest.mark.slow),
        pytest.param("kto", {"use_dora": True}, "nats a token", set(), 4, marks=pytest.mark.slow),
        pytest.param("reward", {}, "nats a row", {"forgetting", "answers"}, 1, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_run_gets_what_applies(
    trained: Make,
    told: Told,
    brief: None,
    method: str,
    values: dict[str, Any],
    unit: str,
    no_meaning: set[str],
    others: int,
) -> None:
    run = trained(method, **values)
    report, _ = told(run)
    assert not [part for part in report.parts if part.why == "failed"], [part.text for part in report.parts]
    assert {part.name for part in report.parts if part.why == "task"} == no_meaning
    held_out = report.held_out
    assert held_out
    assert report.moved
    assert report.moved.norm > 0
    assert held_out.unit == unit
    scores = run.config().learning.task.scores
    assert (held_out.before is None) == scores
    assert report.moved.others == others
    assert not any(one.projection in ("score", "lora_magnitude_vector") for one in report.moved.matrices)
    assert report.memorising
    assert report.memorising.trained
    evaluation = next(event for event in folded(run).evaluations if event.step == report.step)
    if method in ("sft", "pretrain", "classify", "reward"):
        assert held_out.after.value == pytest.approx(evaluation.loss, rel=1e-4)
    if held_out.before and method in ("sft", "pretrain"):
        assert held_out.before.value == pytest.approx(folded(run).evaluations[0].loss, rel=1e-4), "the base's"
    if evaluation.accuracy is not None and scores:
        assert held_out.accuracy_after
        assert held_out.accuracy_after.value == pytest.approx(evaluation.accuracy)
    if report.answers and scores:
        assert {row.after for row in report.answers.rows} <= {"cat", "dog"}


def test_a_report_that_is_stopped_or_gives_way_keeps_what_it_has_and_goes_on_there(
    measured: JobFolder, told: Told, brief: None, locations: Locations
) -> None:
    run = measured

    def leaving(after: PartName, word: BaseException) -> Callable[[], None]:
        def safe_point() -> None:
            if (stands := read_report(run.report_json)) and stands.part(after):
                raise word

        return safe_point

    def at_once() -> None:
        raise GiveWay

    with pytest.raises(GiveWay):
        told(run, at_once)  # while its rows are read
    assert not run.report_json.exists()
    stopped, said = told(run, leaving("moved", Leave("stop")))
    assert [(part.name, part.why) for part in stopped.parts] == [
        ("moved", ""), ("held_out", "stopped"), ("forgetting", "stopped"), ("answers", "stopped"),
        ("memorising", "stopped"),
    ]  # fmt: skip
    assert [event.kind for event in said.events[-1:]] == ["stopped"]
    with pytest.raises(GiveWay):
        told(run, leaving("answers", GiveWay()))
    before = read_report(run.report_json)
    assert before
    assert [part.name for part in before.parts if part.whole] == ["moved"]
    report, said = told(run)
    assert report.part("moved") == before.part("moved"), "not measured again"
    assert report.whole
    assert not [event for event in said.of("stage") if event.unit == "matrices"]
    again, said = told(run, again=True)
    assert [event for event in said.of("stage") if event.unit == "matrices"]
    assert again.held_out == report.held_out


def test_memory_that_runs_out_takes_single_rows_and_leaves_out_what_is_too_long(
    measured: JobFolder, told: Told, brief: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, losses = measured, Subject.losses

    def short(subject: Subject, sequences: Any) -> Any:
        if len(sequences) > 1 or len(sequences[0]) > 30:
            raise torch.OutOfMemoryError
        return losses(subject, sequences)

    monkeypatch.setattr(run_room, "_PARTS", {"held_out": run_room._PARTS["held_out"]})
    whole, _ = told(run)
    monkeypatch.setattr(Subject, "losses", short)
    report, _ = told(run, again=True)
    part = report.part("held_out")
    assert part
    assert part.why == "memory"
    assert 0 < part.done < part.total
    assert whole.held_out
    assert report.held_out
    known = {line.row: line.after for line in whole.held_out.hardest}
    both = [line for line in report.held_out.hardest if line.row in known]
    assert both
    assert [line.after for line in both] == pytest.approx([known[line.row] for line in both], rel=1e-5)


def test_without_the_rows_or_with_others_it_says_so_and_measures_the_rest(
    trained: Make, told: Told, brief: None, monkeypatch: pytest.MonkeyPatch, locations: Locations, tmp_path: Path
) -> None:
    own = tmp_path / "own.txt"
    own.write_text("once it was here", encoding="utf-8")
    write_choices(locations, ReportChoices(general=str(own)))
    own.unlink()
    run, losses = trained(), Subject.losses
    monkeypatch.setattr(Subject, "losses", lambda self, them: [(math.nan, 1) for _ in losses(self, them)])
    part = told(run)[0].part("held_out")
    assert part
    assert (part.why, part.done) == ("failed", 0)
    assert "no finite number" in part.text, "memory did not run out"
    monkeypatch.setattr(Subject, "losses", losses)
    # A run that went on anyway; its data changed once more since, so that the rows drawn now were learned from.
    log = EventWriter(run.events, 2)
    log.write(Resumed(step=6, anyway=True))
    log.close()
    drawn, data = draw_path(run.path).read_bytes(), Path(run.config().data.path)
    data.write_text("".join(reversed(data.read_text("utf-8").splitlines(keepends=True))), encoding="utf-8")
    whys = {"moved": "", "held_out": "none", "forgetting": "failed", "answers": "none", "memorising": "none"}
    for name in ("of others", "gone"):
        report, _ = told(run, again=True)
        assert {part.name: part.why for part in report.parts} == whys
        held_out, general = report.part("held_out"), report.part("forgetting")
        assert held_out
        assert general
        assert "cannot be read" in held_out.text
        assert "own.txt could not be read" in general.text
        assert [one.name for one in report.forgetting] == ["general"], "what could be measured stands"
        assert draw_path(run.path).read_bytes() == drawn, name
        data.unlink(missing_ok=True)


def test_a_budget_is_a_tenth_and_its_parts_keep_to_it() -> None:
    now = [100.0]
    clock = lambda: now[0]  # noqa: E731
    budget = Budget.of(3_600.0, 0.0, 20.0, 0.0, clock)
    assert (budget.seconds, budget.gone) == (360.0, 20.0)
    assert budget.text == "A tenth of the run's 60 min; 20 s of it loaded data and model."
    assert Budget.of(60.0, 0.0, 20.0, 5.0, clock).seconds == 25.0 + LEAST_SECONDS
    assert Budget.of(60.0, 3.0, 20.0, 0.0, clock).seconds == 180.0
    slot, pieces = budget.slot("held_out"), 0
    while slot.fits():
        now[0] += 10.0
        pieces += 1
    assert pieces == 10, "three tenths of 340 s, ten seconds each"
    now[0] = 1e6
    assert budget.slot("answers").fits(), "the first piece is always measured"


def test_ranks_and_directions_of_known_spectra() -> None:
    assert effective_rank([1.0, 1.0, 1.0, 1.0], 4.0, 4) == pytest.approx(4.0)
    assert effective_rank([2.0, 0.0], 4.0, 2) == pytest.approx(1.0)
    assert effective_rank([1.0], 4.0, 4) == pytest.approx(4.0), "the rest is spread evenly"
    assert effective_rank([], 0.0, 8) == 0.0
    assert directions([3.0, 1.0], 10.0) == 1
    assert directions([1.0, 1.0], 2.0) == 2
    assert directions([1.0], 10.0) is None


def test_the_longest_copies_are_those_that_a_search_finds() -> None:
    dice = numpy.random.default_rng(3)
    block, rows = dice.integers(0, 2, 600), numpy.repeat(numpy.arange(6), 100)
    block[99::100] = -1
    texts = [
        dice.integers(0, 2, 40),
        block[210:250],
        numpy.array([5] * 40),
        numpy.array([1, 0]),
        numpy.r_[block[3:9], 7],
    ]

    def searched(text: Any) -> int:
        starts = product(range(len(text)), range(len(block)))
        return max((_alike(text[a:], block[b:]) for a, b in starts), default=0)

    found = memorising.longest_runs(texts, iter([(block[:300], rows[:300]), (block[300:], rows[300:])]))
    for run, text in zip(found, texts, strict=True):
        most = searched(text)
        assert run.tokens == (most if most >= memorising.WINDOW else 0)
    assert (found[1].tokens, found[1].row) == (40, 2)


def test_an_answer_and_rows_that_repeat_one_token_are_compared_at_once() -> None:
    """Pair by pair this takes minutes: a base that says "-----" beside rows with tables."""
    text, block = numpy.full(256, 7), numpy.full(200_000, 7)
    block[::1000] = -1
    found = memorising.longest_runs([text, text[:100], numpy.r_[text[:50], 8]], iter([(block, numpy.arange(200_000))]))
    assert [run.tokens for run in found] == [256, 100, 50]


def _alike(one: Any, other: Any) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


@pytest.mark.slow
def test_an_encoder_is_measured_as_its_run_measured_it(trained: Make, told: Told, tmp_path: Path) -> None:
    base = encoder_cases.save_tiny(tmp_path / "bert", "bert")
    run = trained("classify", name=str(base), learns="everything", learning_rate=1e-3)
    report, _ = told(run)
    assert not [part.text for part in report.parts if part.why == "failed"]
    evaluation = next(event for event in folded(run).evaluations if event.step == report.step)
    assert report.held_out
    assert report.held_out.after.value == pytest.approx(evaluation.loss, rel=1e-4)
    assert report.moved
    assert report.moved.norm > 0
    assert {one.layer for one in report.moved.matrices} >= {0, 1}


def test_what_moved_is_said_where_a_picture_would_not() -> None:
    def matrix(layer: int, projection: str, norm: float, relative: float = 0.01) -> Matrix:
        name = f"model.layers.{layer}.{projection}"
        return Matrix(
            module=name, layer=layer, projection=projection, norm=norm, relative=relative, rank=4, effective_rank=2.0
        )

    even = [matrix(layer, projection, 1.0) for layer in range(4) for projection in ("q_proj", "v_proj", "o_proj")]
    assert list(told_of(even)) == []
    assert list(told_of([matrix(0, "q_proj", 0.0, 0.0)])) == [
        "Nothing moved: every update is smaller than the last digit of the weights."
    ]
    one_layer = [*even[3:], *(matrix(0, projection, 9.0) for projection in ("q_proj", "v_proj", "o_proj"))]
    assert list(told_of(one_layer)) == ["Nearly all of the change (96%) is in layer 0."]
    still = [*even[1:], matrix(0, "q_proj", 0.0)]
    assert list(told_of(still)) == ["1 of 12 matrices did not move at all, model.layers.0.q_proj among them."]


def test_rows_longer_than_the_run_s_tiles_are_measured_in_tiles_on_both_sides(
    measured: JobFolder, told: Told, brief: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers of ours stand for the model's while rows are measured, and not for texts and answers."""
    from core.model.layers import decoder_layer, surgery

    run = measured
    whole, _ = told(run, minutes=0)
    raw = run.config().model_dump(mode="json")
    raw["train"]["tile_tokens"] = 7
    run.run_yaml.write_text(json.dumps(raw), encoding="utf-8")
    plan, in_tiles, passes = surgery.plan, decoder_layer.forward_in_tiles, list[int]()
    monkeypatch.setattr(surgery, "plan", lambda *given: plan(*given, force=True))
    monkeypatch.setattr(
        decoder_layer, "forward_in_tiles", lambda x, halves: (passes.append(len(x)), in_tiles(x, halves))[1]
    )
    tiled, _ = told(run, minutes=0, again=True)
    assert whole.held_out
    assert tiled.held_out
    assert whole.memorising
    assert tiled.memorising
    for before, after in (
        (whole.held_out.before, tiled.held_out.before), (whole.held_out.after, tiled.held_out.after),
        (whole.memorising.trained, tiled.memorising.trained),
    ):  # fmt: skip
        assert before
        assert after
        assert after.value == pytest.approx(before.value, rel=1e-5)
    assert tiled.held_out.rows == whole.held_out.rows
    assert min(passes) > 7
    assert len(passes) % 4 == 0, "two layers, both sides"
    assert tiled.forgetting == whole.forgetting, "texts by the model's own layers"


def test_of_a_run_in_tiles_prompts_that_fit_whole_are_asked_first(tiled: Any) -> None:
    """However long their answers are; bad answers still come last."""
    rows = MarkedRows()
    for prompt, answer, good in ((9, 2, True), (2, 9, False), (9, 9, True), (3, 90, True), (3, 3, True)):
        rows.append([5] * prompt, [6] * answer, good)
    assert [one.place for one in prompts(tiled, rows, 5)] == [3, 4, 0, 2, 1]
    assert [one.place for one in prompts(tiled, rows, 3)] == [3, 4, 0]
    assert [one.place for one in prompts(tiled, rows, 2)] == [3, 4]


def test_layers_are_put_back_where_tiles_cannot_be_set(tiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_given: Any, **_named: Any) -> None:
        raise RuntimeError("no memory")

    back: list[Any] = []
    monkeypatch.setattr(subject_room, "set_checkpointing", fails)
    monkeypatch.setattr(
        subject_room,
        "surgery",
        SimpleNamespace(plan=lambda *_: SimpleNamespace(fast=1), apply=lambda *_: "ours", undo=back.append),
    )
    rows = MarkedRows()
    rows.append([5] * 9, [6], True)
    with pytest.raises(RuntimeError, match="no memory"), Subject.in_tiles(tiled, rows, [0]):
        pass
    assert (back, tiled._swapped) == (["ours"], [])


@pytest.fixture
def tiled() -> Any:
    """What is asked of a report's subject, of a run in tiles of 7."""
    config = RunConfig.model_validate({"train": {"tile_tokens": 7}})
    return SimpleNamespace(config=config, scores=False, model=None, _swapped=[], drawn=lambda count: list(range(count)))
