"""A run through the window on a card, from Start to what is taken home: driven over HTTP, as the page's scripts do it.

    PYTHONPATH=. python tests/gpu/window_on_card.py --case merged --rows FILE.json --out FILE.json
    PYTHONPATH=. python tests/gpu/window_on_card.py --case 70b --rows FILE.json --out FILE.json

``merged``: ``arithmetic: auto`` on eight layers of Mistral-7B's widths, exported merged in 16 bits, which plain
transformers then loads and asks. ``70b``: Llama-3-70B's shape, whose run is held to 12 GiB of the card by the page's
own memory limit (nine tenths of them, as is proposed on such a card), exported as an adapter. ``--dry``: tiny shapes,
three steps, without a card; no figures of use.

Weights are random, in 16-bit safetensors made here. The 70B would take 141 GB: of each matrix of its layers the first
``--share`` of the rows are drawn, and the others are holes of a sparse file, which read as zeros. So every byte of it
is read, quantised and streamed as of any other 70B, and what it learns means nothing. That its quantised weights are
kept for a next time, which writes 36 GB, is prevented.

The log beside ``--out`` (``.log``) has a line each for what was asked and what was answered. The JSON is written anew
after each phase, each of which has a deadline of its own::

    case, device, versions, command, phases: {name: {seconds, status}}, outcome
    model       layers, bytes, drawn_share, drawn_bytes, disk_bytes
    page        sentence, summary, values (each automatic one with its reason), start
    settings    of run.yaml, as resolved; arithmetic: {asked, chosen, why}
    run         state, verdict, plan, corrections, notes, facts as Watch shows them; seconds and tokens of each step;
                memory_bytes, reserved_bytes, card_used_bytes at the peak, forecast_bytes, limit_bytes
    export      form, files: {name: bytes}, checks, warnings, seconds
    reload      by plain transformers: answer, finite; by plain peft: tensors, and how many found their place
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from driving import RunningStudio, running_studio
from window_over_http import NewRun, Visitor
from window_parts import GIB, grow, make_model, reloaded

from core.machine.hardware import read_machine
from core.machine.locations import ASSETS, Locations
from core.runs.control.store import RunStore
from core.runs.folder.run_yaml import flat

HERE = Path(__file__).resolve()


@dataclass(frozen=True)
class Case:
    """A model's shape and what a person sets on the page; all else is as proposed."""

    shape: str
    layers: int
    form: str
    settings: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)
    """Deadlines of its phases."""
    share: float = 1.0
    grows: int = 0
    """GiB of the machine's memory used once before: some machines' grows only as it is used."""


QUICK = {"train.report": False, "train.sample_rows": 0}
CASES = {
    "merged": Case(
        "mistral-7b", 8, "merged", {"train.arithmetic": "auto", "train.max_steps": 8, **QUICK},
        {"make": 30, "open": 30, "data": 20, "plan": 20, "start": 20, "train": 90, "export": 80, "reload": 40},
    ),
    "70b": Case(
        "llama-3.3-70b", 0, "adapter",
        {"train.memory_gib": 10.8, "train.max_steps": 3, "train.eval_steps": 3, "train.save_steps": 3,
         "data.eval_rows_max": 8, **QUICK},
        {"make": 100, "open": 30, "data": 20, "plan": 25, "start": 25, "train": 210, "export": 110, "reload": 40},
        share=1 / 16, grows=56,
    ),
}  # fmt: skip
DRY = {
    "merged": {"train.max_steps": 3},
    "70b": {"train.max_steps": 3, "model.streamed_layers": 2, "train.memory_gib": 0.0},
}


class Walk:
    """One walk: its log, its JSON, its phases."""

    def __init__(self, out: Path, case: str, hidden: dict[str, str]) -> None:
        self.out, self.hidden, self.begun = out, hidden, time.monotonic()
        self.log = out.with_suffix(".log").open("w", encoding="utf-8")
        gpu = read_machine().gpu
        self.told: dict[str, Any] = {
            "case": case, "device": gpu.name if gpu else "cpu", "driver": gpu.driver if gpu else None,
            "versions": versions(), "command": " ".join(["python", *sys.argv]), "outcome": "not finished", "phases": {},
        }  # fmt: skip

    def say(self, asked: str, answered: str = "") -> None:
        """What was asked for, and below it what was answered."""
        lines = [f"[{time.monotonic() - self.begun:6.1f} s] {asked}"]
        lines += [f"{'':11}{line}" for line in answered.splitlines()]
        text = self._plain("\n".join(lines))
        print(text, flush=True)
        print(text, file=self.log, flush=True)

    @contextlib.contextmanager
    def phase(self, name: str, seconds: float) -> Iterator[None]:
        """A part of the walk with a deadline; the JSON is written after it, however it ended."""
        begun, status = time.monotonic(), "failed"
        signal.signal(signal.SIGALRM, _late)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
            status = "done"
        except Late:
            status = "no time"
            self.told["outcome"] = f"{name}: no time, after {seconds:.0f} s"
            self.say(self.told["outcome"])
            raise SystemExit(3) from None
        except (SystemExit, Exception) as error:
            self.told["outcome"] = f"{name}: {error}"
            self.say(self.told["outcome"])
            raise SystemExit(1) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.told["phases"][name] = {"seconds": round(time.monotonic() - begun, 1), "status": status}
            self.write()

    def write(self) -> None:
        """The JSON as far as it is."""
        text = self._plain(json.dumps(self.told, indent=1, ensure_ascii=False))
        self.out.write_text(text + "\n", encoding="utf-8")

    def _plain(self, text: str) -> str:
        """Without places of this machine."""
        for place, name in self.hidden.items():
            text = text.replace(place, name)
        return text


class Late(BaseException):
    """A phase's deadline has passed."""


def _late(*_: Any) -> None:
    raise Late


def versions() -> dict[str, str]:
    """Of the libraries that decide."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for name in ("torch", "triton", "transformers", "peft", "bitsandbytes", "gradio"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


# ── the walk ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def walk_through(walk: Walk, case: Case, options: argparse.Namespace, root: Path) -> None:
    """Makes the model while the window opens and the file is dropped, then goes all the way."""
    told, model, home = walk.told, root / "model", root / "home"
    if case.grows:
        (home / "cache").mkdir(parents=True)
        (home / "cache" / "nf4").touch()  # a file: no folder of this name can be made
    words = ["--work", str(root), "--case", options.case, "--tokenizer", str(options.tokenizer)]
    words += ["--dry"] if options.dry else []
    made = apart("make", [*words, "--share", str(case.share)])
    grown = apart("grow", words) if case.grows and not options.dry else None
    with running_studio(home, HF_HUB_OFFLINE="1") as studio:
        with walk.phase("open", case.seconds["open"]):
            visitor = Visitor(studio.fresh_address())
            page = NewRun(visitor)
            walk.say("GET /enter, GET /: New run", page.shows("summary"))
        with walk.phase("data", case.seconds["data"]):
            page.put("data-upload", visitor.drop(options.rows), "change")
            walk.say(f"drops {options.rows.name}", page.shows("data-report"))
        with walk.phase("make", case.seconds["make"]):
            told["model"] = answer_of(made)
            if grown:
                answer_of(grown)
            machine = read_machine(root)
            told["machine"] = {"memory_free_bytes": machine.ram_free_bytes, "disk_free_bytes": machine.disk_free_bytes}
            walk.say("(beside it: a model's folder is written)", json.dumps(told["model"]))
        with walk.phase("plan", case.seconds["plan"]):
            plan(walk, page, model, case)
        with walk.phase("start", case.seconds["start"]):
            page.press("start")
            drawn = str(page.values[page.named["outcome"]])
            walk.say("presses Start", page.shows("outcome"))
            run_id = re.findall(r"/watch\?run=([\w.-]+)", drawn)
            if not run_id:
                raise SystemExit("no run was started")
        try:
            take_home(walk, visitor, case, (studio, run_id[0], model))
        finally:
            with contextlib.suppress(BaseException):
                visitor.ask(f"/studio/run/{run_id[0]}/stop_now", {})
    told["outcome"] = "done"
    walk.write()


def plan(walk: Walk, page: NewRun, model: Path, case: Case) -> None:
    """Model and settings, as a person sets them; what the page says then."""
    page.model(str(model))
    walk.say("types the model's folder", page.shows("model-about"))
    for key, value in case.settings.items():
        page.put(key, value)
        walk.say(f"sets {key}: {value}", page.shows("summary").splitlines()[-1])
    shown = {"sentence": page.shows("start-line"), "summary": page.shows("summary"), "more": page.shows("summary-more"),
             "values": page.shows("auto-values"), "start": page.shows("start")}  # fmt: skip
    walk.told["page"] = {name: text.splitlines() for name, text in shown.items()}
    for name in ("summary", "values", "more", "start"):
        walk.say(f"the page shows ({name})", shown[name])


def take_home(walk: Walk, visitor: Visitor, case: Case, about: tuple[RunningStudio, str, Path]) -> None:
    """Watch, Take home, and the files as others load them."""
    studio, run_id, model = about
    with walk.phase("train", case.seconds["train"]):
        visitor.page(f"/watch?run={run_id}")
        try:
            state = followed(walk, lambda: visitor.ask(f"/studio/points?run={run_id}&log=1"), watch_line)
        finally:
            walk.told |= measured(studio.home, run_id, case)
        for part in ("plan", "verdict", "facts", "notes", "corrections", "failure"):
            walk.told["run"][part] = state["status"][part]
        walk.say("Watch: plan", "\n".join(state["status"]["plan"]))
        walk.say("Watch: facts", json.dumps(state["status"]["facts"], ensure_ascii=False))
        walk.say("Watch: log", "\n".join(" ".join(map(str, line)) for line in log_of(state)))
        if state["status"]["state"] != "finished":
            raise SystemExit(f"the run ended as {state['status']['state']}: {state['status']['failure']}")
    begun = time.monotonic()
    with walk.phase("export", case.seconds["export"]):
        visitor.page(f"/take-home?run={run_id}")
        wish = {"name": case.form, "form": case.form, "checkpoint": "last"}
        named = visitor.ask(f"/studio/run/{run_id}/export", wish)
        walk.say(f"Take home: exports the last checkpoint as {case.form}", json.dumps(named))
        state = followed(walk, lambda: visitor.ask(f"/studio/run/{run_id}/keep"), export_line)
        job, folder = state["jobs"][0], studio.home / "runs" / run_id / "exports" / case.form
        files = {file.name: file.stat().st_size for file in sorted(folder.glob("*")) if file.is_file()}
        walk.told["export"] = {"form": case.form, "files": files, "checks": job["checks"], "warnings": job["warnings"],
                               "said": job["sentence"], "seconds": round(time.monotonic() - begun, 1)}  # fmt: skip
        listed = [f"{name}  {size:,} bytes" for name, size in files.items()]
        walk.say("the export", "\n".join([*listed, *job["checks"], job["sentence"]]))
        if not files:
            raise SystemExit(f"nothing was exported: {job['sentence']}")
    with walk.phase("reload", case.seconds["reload"]):
        walk.told["reload"] = answer_of(apart("reload", ["--work", str(folder), "--base", str(model)]))
        walk.say(f"reloads the {case.form} result in a fresh process", json.dumps(walk.told["reload"]))


def followed(walk: Walk, ask: Callable[[], dict[str, Any]], line: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """Polls as the page does until nothing lives; each new line is said."""
    before = ""
    while True:
        state = ask()
        if (now := line(state)) and now != before:
            walk.say(before := now)
        if not (state["jobs"][0]["living"] if "jobs" in state else state["status"]["living"]):
            return state
        time.sleep(0.5)


def watch_line(state: dict[str, Any]) -> str:
    """What Watch shows of the moment, without what changes with every second."""
    status = state["status"]
    stage = status["stage"] or {"text": "", "detail": ""}
    detail = re.sub(r" · since.*| [\d.,]+ of [\d.,]+ (?:[GM]B|rows|tensors)", "", f"{stage['text']} {stage['detail']}")
    facts = f"loss {status['facts']['loss']}, {status['facts']['speed']}" if "Step" in stage["text"] else ""
    return f"Watch: {status['word']}. {detail} {facts}".strip()


def export_line(state: dict[str, Any]) -> str:
    """What Take home shows of the export."""
    job = state["jobs"][0]
    return f"Take home: {job['word']}. {re.sub(r'[0-9,]+ of [0-9,]+ tensors', '', job['sentence'])}"


def log_of(state: dict[str, Any]) -> list[Any]:
    """Watch's log, each line as its parts."""
    return [line if isinstance(line, list | tuple) else [line] for line in state.get("log", [])]


def measured(home: Path, run_id: str, case: Case) -> dict[str, Any]:
    """The run's own record: settings, steps, memory beside its forecast."""
    store = RunStore(Locations(home))
    record = store.record(run_id)

    def most(name: str) -> int | None:
        return max((value for step in record.steps if (value := getattr(step, name)) is not None), default=None)

    plan, settings = record.plan, flat(store.open(run_id).config())
    key = "train.arithmetic"
    why = [line for line in (plan.lines if plan else ()) if key in line]
    run = {
        "state": record.state,
        "steps": [{"seconds": step.seconds, "tokens": step.tokens, "loss": step.loss} for step in record.steps],
        "evaluations": [{"step": one.step, "loss": one.loss} for one in record.evaluations],
        **{name: most(name) for name in ("memory_bytes", "reserved_bytes", "card_used_bytes")},
        "forecast_bytes": plan.estimated_bytes if plan else None,
        "forecast_tensors_bytes": plan.predicted.predicted_bytes if plan and plan.predicted else None,
        "limit_bytes": round(settings["train.memory_gib"] * GIB),
    }
    arithmetic = {"asked": case.settings.get(key), "chosen": settings[key], "why": why}
    return {"run": run, "settings": settings, "arithmetic": arithmetic}


# ── processes of their own ───────────────────────────────────────────────────────────────────────────────────────────


def apart(part: str, words: list[str]) -> subprocess.Popen[str]:
    """A part in a fresh process; its answer is its last line."""
    command = [sys.executable, str(HERE), "--part", part, "--out", os.devnull, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def answer_of(process: subprocess.Popen[str]) -> Any:
    """Its answer. Raises SystemExit with its last words where there is none."""
    try:
        said = process.communicate()[0].strip().splitlines()
    except Late:
        process.kill()
        raise
    if process.returncode or not said:
        raise SystemExit("\n".join(said[-12:]) or "a process ended without a word")
    return json.loads(said[-1])


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--case", choices=[*CASES], default="merged")
    flags.add_argument("--rows", type=Path, default=ASSETS / "samples" / "instruction.jsonl")
    flags.add_argument("--tokenizer", type=Path, default=ASSETS / "starter", help="folder with tokenizer.json")
    flags.add_argument("--share", type=float, help="of each matrix's rows that are drawn")
    flags.add_argument("--out", type=Path, required=True)
    flags.add_argument("--work", type=Path, help="folder for model and home (default: a temporary one)")
    flags.add_argument("--dry", action="store_true")
    flags.add_argument("--part", default="", help=argparse.SUPPRESS)
    flags.add_argument("--base", type=Path, help=argparse.SUPPRESS)
    options = flags.parse_args()
    case = CASES[options.case]
    changed: dict[str, Any] = {"share": case.share if options.share is None else options.share}
    if options.dry:
        changed |= {"shape": "tiny", "layers": 4, "settings": {**case.settings, **DRY[options.case]}}
    case = Case(**{**case.__dict__, **changed})
    parts: dict[str, Callable[[], Any]] = {
        "make": lambda: make_model(options.work / "model", case.shape, case.layers, case.share, options.tokenizer),
        "grow": lambda: grow(case.grows),
        "reload": lambda: reloaded(options.work, options.base),
    }
    if options.part:
        print(json.dumps(parts[options.part]()), flush=True)
        return
    with contextlib.ExitStack() as held:
        root = options.work or Path(held.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        hidden = {str(root / "home"): "HOME", str(root): "WORK", str(Path.cwd()): ".", str(Path.home()): "~"}
        walk_through(Walk(options.out, options.case, hidden), case, options, root)


if __name__ == "__main__":
    main()
