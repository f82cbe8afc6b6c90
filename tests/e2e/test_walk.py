"""The whole way in a real browser, on real processes: data, model, estimate, train, watch, try, take home as a GGUF
file (``-m slow``: as an adapter too), history."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio
from visiting import enter, forget_draft, listening, shows

from core.machine.locations import ASSETS, REPOSITORY, Locations
from core.runs.control.store import RunStore

pytestmark = pytest.mark.browser
PATIENCE = 120_000
ALPACA = REPOSITORY.parent / "shared" / "data" / "alpaca_en_999.json"
"""Real rows, where they lie beside the project; a user's clone walks the same way on a sample."""


def entered(context: Any, studio: RunningStudio) -> Any:
    """A page that was just let in; ``faults`` collects what its scripts complain of."""
    page = listening(context.new_page(), console=False)
    page.set_default_timeout(PATIENCE)
    enter(page, studio)
    shows(page, "#data-table [data-f=count]", " rows")
    return page


def set_knob(page: Any, key: str, value: str) -> None:
    """Types into a field of the Train block and waits, as a person does, until the summary has answered."""
    before = page.locator("#summary .figures").inner_text()
    field = page.locator(f"#train-{key} input")
    if not field.is_visible():
        page.locator("#block-advanced").get_by_text("Advanced").first.click()
    field.fill(value)
    field.press("Tab")
    page.wait_for_function("before => document.querySelector('#summary .figures').innerText !== before", arg=before)


def start(page: Any) -> str:
    page.wait_for_function("() => !document.querySelector('#start').disabled")
    page.locator("#start").click()
    page.wait_for_url("**/watch?run=*")
    return str(page.url.split("run=")[1].split("&")[0])


SHIFTED = """() => new Promise((done) => new PerformanceObserver((seen) => done(
    seen.getEntries().filter((one) => !one.hadRecentInput).reduce((sum, one) => sum + one.value, 0)))
    .observe({ type: "layout-shift", buffered: true }) ?? setTimeout(() => done(0), 300))"""
"""How far what is seen has moved by itself since the page began."""


def tried(page: Any) -> None:
    """A conversation with three columns, kept over a refresh; a blind test; an answer that is stopped."""
    asked: list[dict[str, Any]] = []
    page.on("request", lambda sent: sent.url.endswith("/studio/ask") and asked.append(sent.post_data_json))
    page.locator("[data-f=suggested] button").nth(2).wait_for()
    page.locator("[data-f=how] summary").click()
    page.get_by_label("Max new tokens").fill("10")
    page.get_by_label("Seed").focus()  # a setting counts when it is left

    assert page.evaluate(SHIFTED) <= 0.02

    # a held-out question at a click, with the reference beside
    page.locator("[data-f=suggested] button").first.click()
    answered(page, 1)
    assert page.locator(".turn .answer h3").all_inner_texts() == ["Original", "Finetuned", "Reference answer"]

    # every column goes on from its own answer; a further one begins here
    assert page.locator("[data-f=other-add]").is_disabled(), "until it is known which checkpoints there are"
    page.locator("[data-f=compare] summary").click()
    page.wait_for_function("() => !document.querySelector('[data-f=other-add]').disabled")
    page.get_by_role("button", name="Add column").click()
    asked.clear()
    page.locator("[data-f=prompt]").fill("And then?")
    page.keyboard.press("Enter")
    answered(page, 2)
    texts = page.locator(".turn").nth(1).locator(".answer-text").all_inner_texts()
    first = page.locator(".turn").first.locator(".answer-text").all_inner_texts()
    assert len(texts) == 3
    assert [(one["sides"], [turn["content"] for turn in one["messages"]][-2:-1]) for one in asked[:2]] == [
        (["base"], [first[0]]), (["tuned"], [first[1]])]  # fmt: skip
    assert [turn["role"] for turn in asked[2]["messages"]][-1:] == ["user"]

    # once more with another seed, then what is kept
    page.get_by_role("button", name="Retry: Finetuned").click()
    shows(page, ".turn:last-child .answer:nth-child(2)", "seed 1")
    answered(page, 2)
    page.reload()
    answered(page, 2)
    assert page.locator(".column-title").count() == 3
    page.get_by_role("button", name="Remove ", exact=False).last.click()

    # a blind test: hidden until one is preferred
    page.get_by_role("checkbox", name="Blind test").check()
    page.locator("[data-f=prompt]").fill("Who are you?")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="A is better").wait_for()
    turn = page.locator(".turn").nth(2)
    assert turn.locator("h3").all_inner_texts() == ["A", "B"]
    page.get_by_role("button", name="A is better").click()
    assert {name.split(" · ")[1] for name in turn.locator("h3").all_inner_texts()} == {"Original", "Finetuned"}
    assert re.search(
        "(Finetuned|Original) 1, (Finetuned|Original) 0, same 0|0, .* 1, same 0",
        page.locator("[data-f=tally]").inner_text(),
    )

    # a long answer is stopped by Escape, and the keyboard stands in the question
    page.get_by_role("checkbox", name="Blind test").uncheck()
    page.locator("[data-f=how] summary").click()
    page.get_by_label("Temperature").fill("2")
    page.get_by_label("Max new tokens").fill("4000")
    page.locator("[data-f=prompt]").fill("Tell me everything.")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.turn:nth-child(4) .answer-text')?.innerText.length > 3")
    page.keyboard.press("Escape")
    shows(page, ".turn:nth-child(4)", "Stopped")
    assert page.evaluate("() => document.activeElement.name") == "prompt"
    page.get_by_role("button", name="Start over").click()
    assert page.locator(".turn").count() == 0


def answered(page: Any, turns: int) -> None:
    """Waits until so many turns are answered in every column."""
    page.wait_for_function(
        """turns => document.querySelectorAll('.turn').length === turns
            && document.querySelector('[data-f=cancel]').hidden
            && !document.querySelector('.answer-text[data-wait]')""",
        arg=turns,
    )


def adapter_taken(page: Any, exports: Path) -> None:
    """As an adapter, reloaded by plain peft before it is said to be done."""
    page.locator('[data-f="send"]').click()
    shows(page, '[data-f="jobs"]', "reloaded by plain peft")
    assert {"adapter_model.safetensors", "adapter_config.json", "README.md", "tokenizer.json"} <= {
        file.name for file in (exports / "adapter").iterdir()
    }


def gguf_taken(page: Any, exports: Path) -> None:
    """As one file for Ollama: written, tried in llama.cpp, its commands copied in one click."""
    exported = exports / "gguf-q8_0"
    page.get_by_role("radio", name="GGUF, for Ollama").check()
    page.get_by_label("Quantization").select_option("q8_0")
    assert "--form gguf --quantisation q8_0" in page.locator('[data-f="command"]').text_content()
    page.locator('[data-f="send"]').click()
    shows(page, '[data-f="jobs"]', "greedy answers")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy: Ollama").click()
    shows(page, '[data-f="jobs"]', "Copied")
    copied = page.evaluate("() => navigator.clipboard.readText()").splitlines()
    assert copied[0] == f"cd {exported}"
    assert copied[1].startswith("ollama create ")
    assert {"model-Q8_0.gguf", "Modelfile", "README.md"} <= {file.name for file in exported.iterdir()}


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param([gguf_taken], id="gguf"),
        pytest.param([adapter_taken, gguf_taken], id="adapter and gguf", marks=pytest.mark.slow),
    ],
)
def test_the_whole_way(bare_context: Any, studio: RunningStudio, taken: Sequence[Callable[[Any, Path], None]]) -> None:
    real = ALPACA.exists()
    data = ALPACA if real else ASSETS / "samples" / "instruction.jsonl"
    rows = 999 if real else 300
    forget_draft(studio)
    page = entered(bare_context, studio)

    # data: what was dropped is read, and shown as the model will see it
    page.locator("#data-file").set_input_files(data)
    shows(page, "#data-report", f"of {rows} rows can be used")
    shows(page, "#data-table [data-f=count]", f"{rows} rows")
    page.locator("#data-preview .rows").wait_for()
    assert page.locator("#data-preview .token.trained").count() > 0
    assert "Alpaca" in page.locator("#data-report").inner_text()

    # estimate: it follows a knob
    shows(page, "#summary", "Fits")
    if real:  # no row of the sample is longer
        set_knob(page, "max_length", "96")
    set_knob(page, "max_steps", "3")
    shows(page, "#summary", "3, of ")

    # the arithmetic is left to us: 16 bits, since there is no card here
    page.locator("#train-arithmetic input").click()
    page.get_by_role("option", name="auto (fastest proven)").click()
    shows(page, "#auto-values", "the CPU computes in 32 bits")

    # train and watch
    run_id = start(page)
    shows(page, '[data-f="word"]', "Finished")
    assert page.locator('[data-f="step"]').inner_text() == "3 of 3"
    assert len(page.locator(".chart-loss .line").first.get_attribute("d")) > 20
    record = RunStore(Locations(studio.home)).record(run_id)
    assert [step.step for step in record.steps] == list(range(1, 4))
    assert record.evaluations[0].step == 0
    assert record.evaluations[-1].loss < record.evaluations[0].loss
    assert any(checkpoint.best for checkpoint in record.checkpoints)
    assert record.plan is not None
    assert "train.arithmetic = 16-bit: 8 bits are for graphics cards; the CPU computes in 32 bits" in record.plan.lines

    # try: a conversation, side by side
    page.goto(f"{studio.root}/try?run={run_id}")
    tried(page)

    # take home
    page.goto(f"{studio.root}/take-home?run={run_id}")
    for take in taken:
        take(page, studio.home / "runs" / run_id / "exports")

    # history
    page.goto(f"{studio.root}/history")
    shows(page, "[data-live=history]", "Finished")
    assert page.faults == []
    page.close()
