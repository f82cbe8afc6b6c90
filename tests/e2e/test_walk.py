"""The whole way in a real browser, on real processes: data, model, estimate, train, watch, try, take home as an adapter
and as a GGUF file, history."""

from __future__ import annotations

from typing import Any

import pytest
from driving import RunningStudio
from visiting import POLL_MS, WINDOW, enter, listening, shows

from core.machine.locations import ASSETS, REPOSITORY, Locations
from core.runs.control.store import RunStore

pytestmark = pytest.mark.browser
PATIENCE = 120_000
ALPACA = REPOSITORY.parent / "shared" / "data" / "alpaca_en_999.json"
"""Real rows, where they lie beside the project; a user's clone walks the same way on a sample."""
ANSWERS, SPOKE = "[data-f=answers] .answer-text", "answer => answer.innerText.length > 3"


def entered(browser: Any, studio: RunningStudio) -> Any:
    """A page in a browser that was just let in; ``faults`` collects what its scripts complain of."""
    page = listening(browser.new_context(viewport=WINDOW).new_page(), console=False)
    page.set_default_timeout(PATIENCE)
    enter(page, studio)
    shows(page, "#data-preview", "Rows 1 to")
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


def test_the_whole_way(browser: Any, studio: RunningStudio) -> None:
    real = ALPACA.exists()
    data = ALPACA if real else ASSETS / "samples" / "instruction.jsonl"
    rows = 999 if real else 300
    page = entered(browser, studio)

    # data: what was dropped is read, and shown as the model will see it
    page.locator("#data-file").set_input_files(data)
    shows(page, "#data-report", f"of {rows} rows can be used")
    shows(page, "#data-preview", f"of {rows}")
    assert page.locator("#data-preview .token.trained").count() > 0
    assert "Alpaca" in page.locator("#data-report").inner_text()

    # estimate: it follows a knob
    shows(page, "#summary", "Fits")
    if real:  # no row of the sample is longer
        set_knob(page, "max_length", "96")
    set_knob(page, "max_steps", "3")
    shows(page, "#summary", "3, of ")

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

    # try: the same question to both, streamed
    page.goto(f"{studio.root}/try?run={run_id}")
    page.locator('[data-f="prompt"]').fill("How does a horn sound?")
    page.locator('[data-f="length"]').evaluate("field => { field.value = '24' }")
    page.locator('[data-f="send"]').click()
    page.wait_for_function(
        f"() => [...document.querySelectorAll('{ANSWERS}')].filter({SPOKE}).length >= 2", polling=POLL_MS
    )

    # take home: reloaded by plain peft before it is said to be done
    page.goto(f"{studio.root}/take-home?run={run_id}")
    page.locator('[data-f="send"]').click()
    shows(page, '[data-f="jobs"]', "reloaded by plain peft")
    exported = studio.home / "runs" / run_id / "exports" / "adapter"
    assert {"adapter_model.safetensors", "adapter_config.json", "README.md", "tokenizer.json"} <= {
        file.name for file in exported.iterdir()
    }

    # and as one file for Ollama: written, tried in llama.cpp, its commands copied in one click
    page.get_by_role("radio", name="GGUF, for Ollama").check()
    page.get_by_label("Quantization").select_option("q8_0")
    assert "--form gguf --quantisation q8_0" in page.locator('[data-f="command"]').text_content()
    page.locator('[data-f="send"]').click()
    shows(page, '[data-f="jobs"]', "greedy answers")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy: Ollama").click()
    shows(page, '[data-f="jobs"]', "Copied")
    exported = studio.home / "runs" / run_id / "exports" / "gguf-q8_0"
    copied = page.evaluate("() => navigator.clipboard.readText()").splitlines()
    assert copied[0] == f"cd {exported}"
    assert copied[1].startswith("ollama create ")
    assert {"model-Q8_0.gguf", "Modelfile", "README.md"} <= {file.name for file in exported.iterdir()}

    # history
    page.goto(f"{studio.root}/history")
    shows(page, "[data-live=history]", "Finished")
    assert page.faults == []
    page.context.close()
