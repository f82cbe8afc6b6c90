"""The run summary's plan without a browser: the budget, what would make it fit, advice and the probe."""

import json
import time
from dataclasses import replace
from typing import Any, get_args

import gradio as gr
import pytest
from made_window import Window, asked_by, look, report_of, shown, told

from core.contract.config import Layout
from core.contract.data import DataFacts
from core.contract.errors import DataError, HubError
from core.contract.estimate import Advice, Estimate, MemoryPart, Probe, Suggestion
from core.machine.hardware import Gpu, Machine
from core.machine.settings import Settings
from studio.pages.new_run import plan, summary
from studio.pages.new_run.handlers import Handlers
from studio.pages.new_run.view import View
from studio.services.session import first

GIB = 1 << 30
FACTS = DataFacts(rows=1, lengths=(9,), trained=(9,), max_length=9, longest=9, mean=9.0)
CARD = Machine((Gpu(0, "GPU-1", "RTX", 8 * GIB, 7 * GIB, (8, 6)),), 8, 32 * GIB, 20 * GIB, 9 << 30, "Linux", False)


def figures_of(peak: float, free: float, **more: Any) -> Estimate:
    """An estimate of two parts that add up to ``peak`` GiB on a card of 8, of which ``free`` are free."""
    whole = int(peak * GIB)
    weights = whole // 4 * 3
    verdict = "fits" if peak <= 0.9 * free else "tight" if peak <= free else "too_large"
    values: dict[str, Any] = {
        "terms": (
            MemoryPart(key="weights", bytes=weights, at_peak=weights, how="w"),
            MemoryPart(key="context", bytes=whole, at_peak=whole - weights, how="c"),
        ),
        "peak_bytes": whole, "free_bytes": int(free * GIB), "total_bytes": 8 * GIB, "device": "RTX",
        "verdict": verdict, "sentence": "A sentence.", "total_steps": 10, "tokens_per_epoch": 100,
        "trained_tokens_per_epoch": 50, "rows_cut": 0, "seconds": (60.0, 120.0), "time_basis": "b", "disk_bytes": 9,
        "host_bytes": 3 * GIB,
    }  # fmt: skip
    return Estimate(**(values | more))


def widths(drawn: str) -> list[float]:
    return [float(part.split("%")[0]) for part in drawn.split("width:")[1:]]


def test_the_bar_lays_the_need_beside_what_others_hold_and_over_the_whole_card() -> None:
    drawn = str(plan.budget_view(figures_of(4, 6), CARD))
    assert widths(drawn) == [25.0, 37.5, 12.5]
    assert "<em" not in drawn
    for words in ("2.0 GB to spare.", "Other programs 2.0 GB", "4.0 GB of 6.0 GB free"):
        assert words in drawn
    beyond = str(plan.budget_view(figures_of(14, 6), CARD))
    assert sum(widths(beyond)) == pytest.approx(100, abs=0.1)
    assert 'style="left:50.00%"' in beyond, "where the memory ends"
    unknown = figures_of(4, 6, free_bytes=None, total_bytes=None, verdict="unknown")
    drawn = str(plan.budget_view(unknown, CARD))
    assert "A sentence." in drawn
    assert sum(widths(drawn)) == pytest.approx(100, abs=0.1)


def test_the_whole_run_is_one_sentence_above_start() -> None:
    draft = first().config
    data = draft.data.model_copy(update={"path": "/a.jsonl"})
    config = draft.model_copy(update={"data": data, "train": draft.train.model_copy(update={"max_steps": 0})})
    facts = FACTS.model_copy(update={"rows": 947, "longest": 5000})
    timed = figures_of(4, 6, seconds=(1500, 1500), steps_per_epoch=119, total_steps=357)
    view = View(config, CARD, report=report_of("/a.jsonl", 947), facts=facts, figures=timed)
    drawn = str(summary.summary_view(view))
    said = "947 question-answer pairs, 3 epochs, up to 256 tokens each, about 25 min. Fits, with 2.0 GB to spare."
    assert said in drawn
    assert "verdict" not in drawn, "once is enough"
    full = str(summary.summary_view(replace(view, figures=figures_of(7, 6))))
    assert 'class="verdict too_large"' in full
    assert "to spare" not in full
    held = figures_of(4, 6, limit_bytes=5 * GIB)
    assert plan.spare_words(held) == "Fits the limit of 5.0 GB, with 1.0 GB to spare."
    assert plan.spare_words(figures_of(4, 6, limit_bytes=7 * GIB)) == "Fits, with 2.0 GB to spare."
    assert "run-sentence" not in summary.summary_view(replace(view, data_fault=DataError("data.nothing/no_turn")))
    for layout in get_args(Layout):
        if layout != "auto":
            report = report_of("/a.jsonl", 947, layout=layout)
            assert "947 " in str(summary._sentence(replace(view, report=report)))


def test_energy_host_and_disk_stand_where_they_matter() -> None:
    plain = summary.summary_view(View(first().config, CARD, figures=figures_of(4, 6)))
    assert "kWh" not in plain
    assert "Machine memory (RAM)" not in plain
    assert "Sequence tiles" not in plain
    costly = figures_of(
        4, 6, energy_kwh=(0.002, 12.0), host_bytes=18 * GIB, disk_bytes=8_000_000_000,
        disk_free_bytes=9_000_000_000, tile_tokens=8192,
    )  # fmt: skip
    drawn = summary.summary_view(View(first().config, CARD, figures=costly))
    for words in (
        "&lt;0.01 to 12 kWh",
        "18.0 GB of 20.0 GB free",
        "8.0 GB of 9.0 GB free",
        "Time (estimated)",
        "8,192 tokens each",
    ):
        assert words in drawn
    priced = View(first().config, CARD, figures=costly, settings=Settings(kwh_price=0.5, currency="CHF"))
    assert "&lt;0.01 to 12 kWh, &lt;0.01 to 6.00 CHF" in summary.summary_view(priced)


def test_start_is_closed_where_nothing_would_be_learned() -> None:
    view = View(first().config, CARD, data_fault=DataError("data.nothing/no_turn"))
    assert summary.start_words(view) == ("Nothing would be learned", False)
    offline = replace(view, data_fault=HubError("hub.offline/data", name="a/b"))
    assert summary.start_words(offline) == ("Choose another model", False)


def test_ways_to_make_it_fit_name_their_price_and_one_click_applies_them(handlers: Handlers) -> None:
    changes = {"train.max_length": "512", "lora.r": "8"}
    given = [
        Suggestion(changes=changes, text=f"Way {number} <b>", peak_bytes=5 * GIB, verdict="fits") for number in range(5)
    ]
    drawn = str(plan.fit_view(given))
    assert drawn.index("Way 2") < drawn.index("2 more ways") < drawn.index("Way 3")
    for words in ("needs 5.0 GB", "&lt;b&gt;", 'aria-label="Apply: Max length (tokens): 512, Rank (r): 8"'):
        assert words in drawn
    fields = handlers.form.fields
    changed = handlers.changed(Window(), told(asked_by(drawn)[0]), *shown(handlers))
    assert changed == {fields["train.max_length"]: 512, fields["lora.r"]: 8}
    foreign = json.dumps({"value": {"data.path": "/etc/passwd"}})
    assert handlers.changed(Window(), foreign, *shown(handlers)) == {fields["draft_id"]: gr.skip()}


def test_advice_shows_the_first_warning_and_folds_the_rest() -> None:
    given = [
        Advice(code="a", level="note", text="a note"),
        Advice(code="b", level="warning", text="a warning", changes={"train.num_train_epochs": "3"}),
    ]
    drawn = str(plan.advice_view(given))
    assert drawn.index("a warning") < drawn.index("More advice (1)") < drawn.index("a note")
    all_folded = str(plan.advice_view(given, folded=True))
    assert all_folded.index("Advice (2)") < all_folded.index("a warning")


def test_the_probe_says_its_stage_and_what_it_measured_against_the_plan() -> None:
    probe = Probe(
        peak_bytes=7 * GIB, reserved_bytes=8 * GIB, seconds_per_step=1.25, tokens_per_second=3210.4, spilled=True,
        steps=8,
    )  # fmt: skip
    view = View(first().config, CARD, figures=figures_of(6, 7), facts=FACTS, probe=probe)
    drawn = str(plan.probe_view(view))
    for words in ("7.0 GB at the peak", "(planned 6.0 GB)", "1.25 s per step, 3,210 tokens per second", "spilled"):
        assert words in drawn
    assert "Loading the model" in str(plan.probe_view(replace(view, progress={"probe": ("loading",)})))


def test_a_glance_with_everything_known_stays_far_below_a_tenth_of_a_second(handlers: Handlers) -> None:
    look(handlers)
    handlers.studio.machine = lambda: CARD  # type: ignore[method-assign]
    for batch in (4, 4096):
        values = shown(handlers, **{"train.per_device_train_batch_size": batch})
        handlers.edited(Window(), *values)
        started = time.process_time()
        answer = handlers.edited(Window(), *values)
        assert time.process_time() - started < 0.1
        assert "Fits" in answer["summary"] or "fit" in answer["summary"]
