"""Every screen of the window, in the state in which it is to be looked at: for axe, for the look, for the pictures.

The runs are written as a worker writes them. A screen is a path, what must stand before it counts as there, and what is
done on it first (a panel opened, a dialog called).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from made_runs import by_heart, diverged, on_two_cards, past, sorting, step, worse, write_run

from core.contract.config import RunConfig
from core.contract.estimate import LearnedRun
from core.contract.events import (
    Correction,
    Exported,
    Failed,
    Finished,
    Hello,
    Note,
    Paused,
    Queued,
    Sample,
    Stage,
    Starting,
    Stopped,
)
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.report.choices import Check, ReportChoices, write_choices
from core.runs.control.queue import JobQueue
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import mark
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventWriter
from tests.report_example import example

__all__ = ["PICTURES", "SCREENS", "SIZES", "THEMES", "Screen", "furnished"]

SIZES = {"wide": (1440, 900), "broad": (1920, 1080), "phone": (390, 844)}
THEMES = ("light", "dark")


def run_id(name: str, day: int) -> str:
    return f"2026-11-{day:02d}_2243_{name}_k3f9"


RUNNING, WAITING, PAUSED, FAILED, FINISHED, STOPPED, SORTING, WORSE, HEART, DIVERGED = (
    run_id(name, 20 - index)
    for index, name in enumerate(
        ("running", "waiting", "paused", "failed", "finished", "stopped", "sorting", "worse", "heart", "diverged")
    )
)
HELD = "What does the lighthouse keeper do at noon?"


def on_card(number: int) -> Any:
    """A step as a card tells it."""
    return step(number).model_copy(
        update={
            "gpu_load": 0.97, "card_used_bytes": 9_100_000_000, "power_watts": 212.0, "temperature_celsius": 67.0,
            "reserved_bytes": 8_000_000_000, "memory_bytes": 7_600_000_000,
        }
    )  # fmt: skip


def _running() -> list[Any]:
    events = [on_card(event.step) if event.kind == "step" else event for event in past(150, total=400)]
    events[2] = Hello(at=events[2].at, attempt=1, pid=1, device="cuda:0", device_name="NVIDIA GeForce RTX 4070")
    plan = events[3].model_copy(update={"estimated_bytes": 8_200_000_000, "predicted": LearnedRun.model_construct(
        card="NVIDIA GeForce RTX 4070", operations=4.1e10, predicted_bytes=8_200_000_000)})  # fmt: skip
    events[3] = plan
    note = Note(at=1e9, attempt=1, step=90, code="guard.skipped", text="Step 90 was skipped: its loss was no number.",
                hint="Two more would halve the learning rate.")  # fmt: skip
    halved = Correction(at=1e9, attempt=1, step=120, key="train.learning_rate", old="0.0002", new="0.0001",
                        reason="three steps with bad numbers")  # fmt: skip
    asked = [
        Sample(
            at=events[-1].at,
            attempt=1,
            step=number,
            command_id="way-0",
            side=side,
            prompt=HELD,
            text=text,
            right="He counts the gulls.",
            seconds=0.8,
        )
        for number, side, text in (
            (0, "base", "He keeps the light."),
            (100, "tuned", "He counts the gulls, all."),
            (150, "tuned", "He counts the gulls."),
        )
    ]
    return [*events, note, halved, *asked]


@contextmanager
def furnished(locations: Locations) -> Any:
    """Runs in every state, and proofs, under this root; the living ones have a process for as long as it lasts."""
    locations.make()
    living = [write_run(locations, _running(), RUNNING, "Lighthouse answers on Qwen3-4B")]
    waiting = Stage(at=time.time(), attempt=1, stage="waiting", text="1.2 GB more room on this disk, found 0.3 GB free")
    living.append(write_run(locations, [*on_two_cards(past(30, total=200)), waiting], WAITING, "Waits for room"))
    write_run(locations, [*past(130, total=400), Paused(at=2e9, attempt=1, step=130)], PAUSED, "Paused one", (100,))
    fault = Failed(at=past(120)[-1].at + 1, attempt=1, code="memory.gpu",
                   message="Expected 7.9 GB for this step, found 7.1 GB free on the card.",
                   hint="Close what else uses the card, or run again with less.")  # fmt: skip
    write_run(locations, [*past(120, total=400), fault], FAILED, "Failed one", (100,))
    living.append(_taken(write_run(locations, past(400, finished=True), FINISHED, "Finished one", (400,))))
    write_run(locations, [*past(40, total=400), Stopped(at=1.79e9, attempt=1, kept=False)], STOPPED, "Stopped one")
    write_run(locations, sorting(8), SORTING, "News by subject", (400,), "classify")
    for run, events in ((WORSE, worse()), (HEART, by_heart()), (DIVERGED, diverged())):
        write_run(locations, events, run, f"A run for its verdict: {run[16:-5]}", (100, 300))
    for number in range(2):
        queued = run_id(f"queued{number}", 21)
        living.append(write_run(locations, [Queued(at=time.time())], queued, f"Queued {number + 1}"))
        JobQueue(locations).add(queued)
    _series(locations)
    _proofs(locations)
    _reports(locations)
    holds = [FileLock(folder.supervisor_lock) for folder in living]
    assert all(hold.acquire() for hold in holds)
    yield living
    for hold in holds:
        hold.release()


SERIES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "first": ({}, past(300, finished=True)),
    "wide": ({"lora": {"r": 32}}, past(400, finished=True)),
    "fast": ({"lora": {"r": 32}, "train": {"learning_rate": 1e-3}}, worse(400)),
    "long": ({"lora": {"r": 32}, "train": {"num_train_epochs": 5.0, "max_length": 1024}}, past(900, finished=True)),
}


def _series(locations: Locations) -> None:
    """Runs on one file that somebody keeps changing, each noted and tagged; and one that cannot be read."""
    for number, (name, (changes, events)) in enumerate(SERIES.items()):
        folder = write_run(
            locations, events, run_id(f"series-{name}", 4 + number), checkpoints=(events[-1].step // 100 * 100,)
        )
        config = RunConfig.model_validate(
            {"data": {"path": "/data/support.csv"}, "model": {"source": "hub", "name": "Qwen/Qwen3-4B"}, **changes}
        )
        folder.run_yaml.write_text(dump_config(config), encoding="utf-8")
        mark(folder, {"tags": ["support", *(["baseline"] if number == 0 else [])], "colour": (0, 2, 0, 3)[number]})
    mark(folder, {"note": "The answers are shorter, and right more often.", "pinned": True})
    unreadable = JobFolder(locations.runs / run_id("unreadable", 3))
    unreadable.path.mkdir()
    unreadable.events.symlink_to("/dev/null")


CARD = """# Lighthouse

## Use

Commands are for a terminal in this folder.

### Ollama

With the template, system prompt, stops and sampling of its Modelfile.

```sh
ollama create lighthouse -f Modelfile
ollama run lighthouse
```

### llama.cpp

In the terminal; or as a server, whose page is http://127.0.0.1:8080.

```sh
llama-cli -m model-q4_0.gguf --jinja --temp 0
llama-server -m model-q4_0.gguf --jinja --temp 0 --port 8080
```

## Recipe
"""


def _taken(run: JobFolder) -> JobFolder:
    """Two exports of a run: one that lost what training brought, and one at work, which is returned."""
    lost = "At q4_0 the held-out loss is 2.61, the base model's 2.50: what training brought is lost. Take q5_k_m."
    checks = (
        "token ids of 200 texts and chats as in transformers",
        "perplexity 6.91 on 40 held-out rows, 16 bits 6.02",
    )
    done = Exported(name="gguf-q4_0", form="gguf", bytes=2_600_000_000, checks=checks, warnings=(lost,))
    working = Stage(stage="merging", text="Quantising", done=60, total=290, unit="tensors")
    events = {"gguf-q4_0": (done, Finished(seconds=60.0)), "merged": (working,)}
    for name, more in events.items():
        job = JobFolder(run.jobs / name)
        job.path.mkdir(parents=True)
        job.export_yaml.write_text(f"name: {name}\n")
        writer = EventWriter(job.events, 1)
        for event in (Queued(), Starting(), *more):
            writer.write(event)
        writer.close()
    (run.exports / "gguf-q4_0").mkdir(parents=True)
    (run.exports / "gguf-q4_0" / "README.md").write_text(CARD, encoding="utf-8")
    return JobFolder(run.jobs / "merged")


def _reports(locations: Locations) -> None:
    """Reports on the finished run and on two others, to be compared; and two checks."""
    for run, worth in ((FINISHED, 1.0), (PAUSED, 0.6), (FAILED, -0.1)):
        report = example(run, worth)
        JobFolder(locations.runs / run).report_json.write_text(report.model_dump_json(), encoding="utf-8")
    checks = (Check(name="Short", kind="length", most=6), Check(name="Right word", kind="contains"))
    write_choices(locations, ReportChoices(checks=checks))


def _lost(step: int) -> float:
    return 2.6 + 2 * float(0.98**step)


def eight_bits() -> dict[str, Any]:
    """A proof of 8-bit arithmetic as the bench writes it: int8 within the seeds of 16 bits, one of fp8's outside."""
    ends = {"fp8": (0.002, 0.003, 0.007), "int8": (-0.003, 0.002, 0.001), "16-bit": (0.0, 0.0, 0.0)}
    curves, sides = dict[str, list[list[float]]](), dict[str, str]()
    for side, seeds in ends.items():
        for draw, more in enumerate(seeds):
            name = f"{side} {draw + 1}"
            sides[name] = side
            curves[name] = [
                [step, _lost(step) * (1 + more * (1.6 - step / 500)) * (1 + 0.0045 * (draw - 1))]
                for step in range(50, 301, 50)
            ]
    turned = [0.9981 + 0.0002 * layer for layer in range(6)]
    figures = {"fp8": (0.0040, 0.0170, False), "int8": (-0.0001, 0.0033, True)}
    right = {"fp8": [9, 9, 8], "int8": [10, 10, 10]}
    verdicts = {
        name: {"share": share, "worst": worst, "spread": 0.009, "agrees": agrees, "cosines": turned,
               "seconds_a_step": 0.031, "answers": {"asked": 37, "eight": right[name], "sixteen": [8, 10, 11]}}
        for name, (share, worst, agrees) in figures.items()
    }  # fmt: skip
    return {"steps": 300, "sides": sides, "curves": curves, "verdicts": verdicts, "agrees": False}


def _proofs(locations: Locations) -> None:
    facts = {"device": "x86_64", "driver": None, "versions": {"torch": "2.13.0+cpu", "peft": "0.21.2"}}
    row = {"op": "RMS norm", "dtype": "float32", "error": 8e-7, "plain_error": 8e-7, "allowed": 2e-6, "agrees": True}
    results: dict[str, Any] = {
        "kernels": {**facts, "path": "textbook", "agrees": True, "rows": [row] * 6},
        "parity": {**facts, "agrees": False, "losses": {"fast": [], "plain 4x1": []}, "outside": [10],
            "outside_and_nearer": 1, "judge": {"error": ""}, "table": [
            {"step": 10, "losses": {"fast": 5.1, "plain 4x1": 5.2}, "spread": 1e-7, "distance": 0.1, "judge": 5.09},
            {"step": 20, "losses": {"fast": 4.1, "plain 4x1": 4.1}, "spread": 1e-7, "distance": 1e-7, "judge": None}]},
    }  # fmt: skip
    results["eight"] = {**facts, "device": "NVIDIA GeForce RTX 4070", "driver": "580.95", **eight_bits()}
    for number, (kind, result) in enumerate(results.items()):
        folder = JobFolder(locations.proofs / f"2026-11-2{number}_113000_{kind}_k3f9")
        folder.path.mkdir(parents=True)
        folder.proof_yaml.write_text(f"kind: {kind}\nflags: []\n")
        (folder.path / "result.json").write_text(json.dumps(result))
        writer = EventWriter(folder.events, 1)
        for event in (Queued(at=1.79e9), Starting(at=1.79e9 + 1), Finished(at=1.79e9 + 60)):
            writer.write(event)
        writer.close()


# ── the screens ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Screen:
    """``ready`` is a selector that must be visible; ``then`` brings the page into the state that is meant."""

    path: str
    ready: str
    then: Callable[[Any], Any] = lambda page: None
    inside: bool = True
    """Whether the browser has to be let in."""


def _panel(name: str) -> Callable[[Any], None]:
    def show(page: Any) -> None:
        page.locator("#data-preview .rows").wait_for(state="attached")
        page.locator(f"#tab-{name}").click()
        page.locator(f"#panel-{name}").wait_for()
        page.wait_for_timeout(300)

    return show


def _rows_read(page: Any) -> None:
    page.locator("#data-preview .rows").wait_for()


def _advanced(page: Any) -> None:
    page.locator("#start:enabled, .role-proposal").first.wait_for()  # a click before the page is whole can be lost
    page.locator("#block-advanced > button, #block-advanced .label-wrap").first.click()
    page.locator("#train-seed, #auto-values").last.wait_for()
    page.evaluate("() => scrollTo(0, 0)")  # a tab half under the header would count as too small
    page.wait_for_timeout(200)


def _words_open(page: Any) -> None:
    """Advanced, with the words of its groups told."""
    if not page.locator("#train-seed").is_visible():
        _advanced(page)
    page.evaluate("() => document.querySelectorAll('.group-words').forEach((one) => (one.open = true))")
    page.locator("#block-advanced .group-words .terms").first.wait_for()
    page.evaluate("() => scrollTo(0, 0)")


def _sought(words: str) -> Callable[[Any], None]:
    return lambda page: page.get_by_role("searchbox", name="Find a word").fill(words)


def _typed(page: Any) -> None:
    page.locator("#data-typed input").fill("/nowhere/at/all.jsonl")
    page.locator("#data-typed input").press("Enter")
    page.locator("#data-report .fault").wait_for()


def _columns(page: Any) -> None:
    """A file of no known columns, with what is proposed."""
    rows = "".join(f"Where is my order {n}?,It is on its way. Thank you for asking.,T-{n}\n" for n in range(30))
    text = f"Customer Message,Agent Reply,Ticket\n{rows}".encode()
    page.locator("#data-file").set_input_files([{"name": "support.csv", "mimeType": "text/csv", "buffer": text}])
    page.locator(".role-proposal").wait_for()
    page.locator("#tab-rows").click()
    page.locator(".rows-row").nth(4).wait_for()


def _whole_table(page: Any) -> None:
    """The table over the whole window, with what it can be narrowed down by."""
    page.locator("#data-report :is(.report-line, .fault)").wait_for()
    page.get_by_role("radio", name="Instructions").check()
    page.locator("#tab-rows").click()
    page.locator("#data-preview .rows").wait_for()
    page.get_by_role("button", name="Full height").click()
    page.locator(".rows-filter > summary").click()


def _all_open(page: Any) -> None:
    """Everything that folds, but of all charts only one's table and menu: they are alike."""
    page.evaluate("""() => [...document.querySelectorAll('main details')]
        .filter((one) => ['.chart-table', '.chart-save']
            .every((kind) => !one.matches(kind) || one === document.querySelector(kind)))
        .forEach((one) => (one.open = true))""")
    page.wait_for_timeout(400)


def _chart(page: Any) -> None:
    page.locator(".chart-loss").scroll_into_view_if_needed()  # a chart is drawn when it comes into view
    page.wait_for_function("() => document.querySelector('.chart-loss .line')?.getAttribute('d')?.length > 20")
    page.evaluate("() => scrollTo(0, 0)")
    _all_open(page)


def _taken_as(form: str) -> Callable[[Any], None]:
    """The choice of a form with its options, and how the exports are used."""

    def choose(page: Any) -> None:
        page.locator(".job").nth(1).wait_for()
        page.locator(f'input[value="{form}"]').check()
        _all_open(page)

    return choose


def _matrix(page: Any) -> None:
    page.locator('[data-f="matrix"]').scroll_into_view_if_needed()


def _stop_asked(page: Any) -> None:
    page.get_by_role("button", name="Stop …").click()
    page.locator("dialog[open]").wait_for()


def _delete_asked(page: Any) -> None:
    """Of a run with exports, whose deletion is asked about."""
    page.reload()
    _act(page, "Finished one", "Delete")
    page.locator("dialog[open]").wait_for()


def _file_asked(page: Any) -> None:
    page.reload()
    _act(page, "Finished one", "Save as a file …")
    page.locator("dialog[open]").wait_for()


def _act(page: Any, run: str, verb: str) -> None:
    page.get_by_label(f"Actions for {run}", exact=True).click()
    page.locator(".run-menu-list").get_by_label(f"{verb}: {run}", exact=True).click()


def _rows_open(page: Any) -> None:
    """One run opened with its settings, and another one's menu."""
    page.reload()
    page.locator(".run").first.wait_for()
    page.get_by_role("button", name="More about Failed one").click()
    page.locator(".run-sheet .run-more > summary").click()
    page.get_by_label("Actions for Paused one", exact=True).click()
    page.evaluate("() => scrollTo(0, 0)")


def _named_and_picked(page: Any) -> None:
    """A run being named, two chosen for the comparison, and the offer to be told of an end; begun afresh, since what
    was opened before lies over it."""
    page.reload()
    page.locator(".queue-list > li").first.wait_for()
    for name in ("Finished one", "Failed one"):
        page.get_by_role("checkbox", name=f"Compare: {name}").check()
    _act(page, "Paused one", "Rename")
    page.locator(".notice summary").click()
    page.evaluate("() => scrollTo(0, 0)")


def _compared(page: Any) -> None:
    page.wait_for_function("() => document.querySelector('.chart-compare .line')?.getAttribute('d')?.length > 20")
    _all_open(page)


def _answer(title: str, tone: str, text: str, **more: Any) -> dict[str, Any]:
    return {"title": title, "tone": tone, "text": text, "done": True, **more}


LAMP = "The keeper lights the lamp at dusk and trims its wick at four. At noon he counts the gulls on the north rail."
CODE = 'Count them so:\n\n```python\ngulls = sum(bird.kind == "gull" for bird in north_rail)\n```\n\nIt takes a minute.'
SHORT = {"name": "Short", "ok": False, "why": "It has 21 words."}
RIGHT = {"name": "Right word", "ok": True, "why": ""}
TALKS: dict[str, Any] = {
    "two": {
        "turns": [
            {"question": HELD, "role": "user", "context": [], "order": ["base", "tuned"], "blind": False, "vote": "",
             "row": {"answer": "He counts the gulls.", "words": "Held-out row 3 of 50 (row 41 of the file)."},
             "answers": {"base": _answer("Original", "base", "He keeps the light.", marks=[RIGHT]),
                         "tuned": _answer("Finetuned", "tuned", LAMP, marks=[SHORT, RIGHT])}},
            {"question": "How would you do it with a program?", "role": "user", "order": ["base", "tuned"],
             "blind": False, "vote": "",
             "answers": {"base": _answer("Original", "base", "I would not.", how="Temperature 0.7, seed 2"),
                         "tuned": _answer("Finetuned", "tuned", CODE)}},
        ],
        "tally": {"base|tuned": {"wins": {"tuned": 7, "base": 3}, "same": 2,
                                 "titles": {"tuned": "Finetuned", "base": "Original"}}},
    },
    "four": {
        "columns": [{"key": "base"}, {"key": "tuned"},
                    {"key": f"{FINISHED}:last", "side": "tuned", "title": "Step 200", "run": FINISHED,
                     "checkpoint": "last", "base": ""},
                    {"key": f"{PAUSED}:best", "side": "tuned", "title": "Paused one · Best, step 100", "run": PAUSED,
                     "checkpoint": "best", "base": ""}],
        "turns": [{"question": HELD, "role": "user", "context": [], "blind": False, "vote": "",
                   "order": ["base", "tuned", f"{FINISHED}:last", f"{PAUSED}:best"],
                   "answers": {"base": _answer("Original", "base", "He keeps the light."),
                               "tuned": _answer("Finetuned", "tuned", LAMP),
                               f"{FINISHED}:last": _answer("Step 200", "other-0", "He counts the gulls, all."),
                               f"{PAUSED}:best": {"title": "Paused one · Best, step 100", "tone": "other-1", "text": "",
                                                  "fault": "The model could not answer: it is not there."}}}],
    },
    "blind": {
        "blind": True,
        "turns": [
            {"question": "Who counts the gulls?", "role": "user", "context": [], "order": ["tuned", "base"],
             "blind": True, "vote": "tuned",
             "answers": {"base": _answer("Original", "base", "Nobody does."),
                         "tuned": _answer("Finetuned", "tuned", "The keeper, at noon.")}},
            {"question": HELD, "role": "user", "order": ["base", "tuned"], "blind": True, "vote": "",
             "answers": {"base": _answer("Original", "base", "He keeps the light."),
                         "tuned": _answer("Finetuned", "tuned", LAMP)}}],
        "tally": {"base|tuned": {"wins": {"tuned": 1}, "same": 0,
                                 "titles": {"tuned": "Finetuned", "base": "Original"}}},
    },
}  # fmt: skip
"""Conversations as a browser keeps them."""


def _talk(name: str, run: str = FINISHED) -> Callable[[Any], None]:
    """A conversation that was led before."""

    def led(page: Any) -> None:
        page.evaluate("([run, talk]) => localStorage.setItem(`luthier.chat.${run}`, JSON.stringify(talk))",
                      [run, TALKS[name]])  # fmt: skip
        page.reload()
        page.locator(".turn").nth(len(TALKS[name]["turns"]) - 1).wait_for()
        page.evaluate("() => scrollTo(0, 0)")  # a button half under the header would count as too small

    return led


def _menu(page: Any) -> None:
    page.locator(".more-menu > summary").click()
    page.locator(".more-list").wait_for()


READY_NEW = "#tab-rows"
SCREENS: dict[str, Screen] = {
    "new": Screen("/", READY_NEW, _rows_read),
    "new-lengths": Screen("/", READY_NEW, _panel("lengths")),
    "new-doctor": Screen("/", READY_NEW, _panel("doctor")),
    "new-reading": Screen("/", READY_NEW, _panel("reading")),
    "new-advanced": Screen("/", READY_NEW, _advanced),
    "new-columns": Screen("/", READY_NEW, _columns),
    "new-fault": Screen("/", READY_NEW, _typed),
    "watch-running": Screen(f"/watch?run={RUNNING}", '[data-f="some"]', _chart),
    "watch-stop": Screen(f"/watch?run={RUNNING}", '[data-f="some"]', _stop_asked),
    "watch-waiting": Screen(f"/watch?run={WAITING}", '[data-f="stage-box"]'),
    "watch-paused": Screen(f"/watch?run={PAUSED}", '[data-f="some"]'),
    "watch-failed": Screen(f"/watch?run={FAILED}", '[data-f="failure"]', _chart),
    "watch-finished": Screen(f"/watch?run={FINISHED}", '[data-f="verdict-try"]', _chart),
    "watch-worse": Screen(f"/watch?run={WORSE}", '[data-f="verdict-again"]'),
    "watch-sorting": Screen(f"/watch?run={SORTING}", '[data-f="matrix"]', _matrix),
    "watch-unknown": Screen("/watch?run=2020-01-01_0000_none_k3f9", '[data-f="fault"]'),
    "try": Screen(f"/try?run={FINISHED}", '[data-f="some"]', _all_open),
    "try-two": Screen(f"/try?run={FINISHED}", '[data-f="some"]', _talk("two")),
    "try-four": Screen(f"/try?run={FINISHED}", '[data-f="some"]', _talk("four")),
    "try-blind": Screen(f"/try?run={FINISHED}", '[data-f="some"]', _talk("blind")),
    "try-scores": Screen(f"/try?run={SORTING}", '[data-f="some"]'),
    "take": Screen(f"/take-home?run={FINISHED}", '[data-f="some"]', _taken_as("adapter")),
    "take-options": Screen(f"/take-home?run={FINISHED}", '[data-f="some"]', _taken_as("gguf")),
    "report": Screen(f"/report?run={FINISHED}", ".report", _all_open),
    "report-compare": Screen(f"/report?run={FINISHED}&run={PAUSED}&run={FAILED}", ".report", _all_open),
    "history": Screen("/history", ".run"),
    "history-open": Screen("/history", ".run", _rows_open),
    "history-file": Screen("/history", ".run", _file_asked),
    "history-named": Screen("/history", ".run", _named_and_picked),
    "history-compare": Screen(f"/history?compare={FINISHED},{FAILED},{RUNNING}", '[data-f="finals"] tr', _compared),
    "history-delete": Screen("/history", ".run", _delete_asked),
    "doctor": Screen("/doctor", ".finding", _all_open),
    "menu": Screen("/doctor", ".finding", _menu),
    "settings": Screen("/settings", "[data-size]", _all_open),
    "proof": Screen("/proof", ".proofs > li", _all_open),
    "glossary": Screen("/glossary#rank", "#rank"),
    "glossary-none": Screen("/glossary", "[data-f=search]", _sought("no such word")),
    "glossary-found": Screen("/glossary", "[data-f=search]", _sought("learn")),
    "new-words": Screen("/", READY_NEW, _words_open),
    "new-whole": Screen("/", READY_NEW, _whole_table),
    "locked": Screen("/", "main", inside=False),
}
PICTURES = SCREENS | {
    "watch-heart": Screen(f"/watch?run={HEART}", '[data-f="verdict-try"]'),
    "watch-diverged": Screen(f"/watch?run={DIVERGED}", '[data-f="verdict-again"]'),
}
"""Also what is looked at by eye alone."""
