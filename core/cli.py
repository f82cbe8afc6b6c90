"""The command line: one table of commands, each a few lines over the same rooms that the window uses.

``python3 launcher.py COMMAND`` becomes ``python -m core.cli COMMAND`` inside ``.venv``; without a command it becomes
``python -m studio``, since nothing here knows the window. Errors are one line on stderr and exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.contract.errors import RunError
from core.locations import Locations
from core.terminal import exit_code

WAYS_SHOWN = 4

__all__ = ["COMMANDS", "main"]


@dataclass(frozen=True)
class Command:
    """A row of the table: the words of --help, the arguments, and the function that does it."""

    about: str
    run: Callable[[argparse.Namespace, Locations], int]
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = field(default=())


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses, runs one command and returns its exit code: 0, 1 after an error that was said, 130 after Ctrl+C."""
    chosen = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    return exit_code(lambda: COMMANDS[chosen.command].run(chosen, Locations.find(chosen.home).make()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="launcher.py", description="Finetune language models on your own GPU.")
    home = argparse.ArgumentParser(add_help=False)
    home.add_argument(
        "--home", metavar="DIR", help="root folder of runs and data (default ~/luthier-studio, or LUTHIER_HOME)"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.about, description=command.about, parents=[home])
        for names, options in command.arguments:
            sub.add_argument(*names, **options)
    return parser


# ── the commands ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _demo(_: argparse.Namespace, locations: Locations) -> int:
    from core.demo import demo

    return demo(locations)


def _train(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.runs.asked import note_asked
    from core.runs.store import RunStore

    prepared = _prepared(chosen, locations)
    for line in (*prepared.resolved_lines(), prepared.estimate.sentence):
        print(f"          {line}")
    store = RunStore(locations)
    run_id = store.start(prepared.config)
    note_asked(store.open(run_id), prepared.asked, prepared.estimate.seconds)
    print(f"run       {run_id}")
    return 0 if chosen.detach else _follow(store, run_id)


def _resume(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.runs.store import RunStore

    store = RunStore(locations)
    store.resume(chosen.run, chosen.anyway)
    return 0 if chosen.detach else _follow(store, chosen.run, from_now=True)


def _follow(store: Any, run_id: str, from_now: bool = False) -> int:
    from core.follow import follow, of_state

    folder = store.open(run_id)
    offset = folder.events.stat().st_size if from_now else 0
    try:
        last = follow(folder, print, lambda: store.record(run_id).state == "lost", offset=offset)
    except KeyboardInterrupt:
        print(f"\nThe run goes on. See it in the studio, or stop it:   python3 launcher.py stop {run_id}")
        return 130
    if last is None:
        again = f"Go on:   python3 launcher.py resume {run_id}"
        print(of_state("lost", f"The run's processes are gone. {again}   (log: {folder.log})"))
        return 1
    print(f"folder    {folder.path}")
    return 0 if last.kind != "failed" else 1


def _runs(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.runs.store import RunStore
    from core.runs.words import STATE_WORDS

    summaries = RunStore(locations).list()
    if chosen.json:
        print(json.dumps([vars(summary) for summary in summaries], default=str, indent=1))
        return 0
    for run in summaries:
        loss = "–" if run.eval_loss is None else f"{run.eval_loss:.4f}"
        steps = f"{run.last_step}/{run.total_steps or '–'}"
        print(f"{run.run_id:44} {STATE_WORDS[run.state]:11} step {steps:12} held-out {loss:8} {run.model_name}")
    if not summaries:
        print(f"No runs yet in {locations.runs}.")
    return 0


def _stop(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.runs.store import RunStore

    store = RunStore(locations)
    (store.stop_now if chosen.now else store.stop)(chosen.run)
    print(f"{chosen.run} is asked to stop{' now' if chosen.now else ', its state is saved first'}.")
    return 0


def _export(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.follow import follow, of_state
    from core.runs.store import RunStore

    store = RunStore(locations)
    job = store.export(chosen.run, _export_request(chosen))
    folder, job_folder = store.open(chosen.run), store.export_folder(chosen.run, job)
    last = follow(job_folder, print, lambda: store.export_record(chosen.run, job).state == "lost")
    if last is None:
        print(of_state("lost", f"The export's processes are gone. Start it again.   (log: {job_folder.log})"))
    if last is None or last.kind != "finished":
        return 1
    print(f"folder    {folder.exports / job}")
    return 0


def _export_request(chosen: argparse.Namespace) -> Any:
    from pydantic import ValidationError

    from core.runs.folder import ExportRequest

    try:
        return ExportRequest(name=chosen.name or chosen.form, form=chosen.form, checkpoint=chosen.checkpoint)
    except ValidationError as error:
        option = str(error.errors()[0]["loc"][0])
        expected = {"name": "letters, digits, '.', '_' and '-', at most 64", "checkpoint": "best, last or step-000200"}
        message = f"Expected {expected.get(option, 'another value')} for --{option}, found {vars(chosen)[option]!r}."
        raise RunError("export.request", message) from error


def _estimate(chosen: argparse.Namespace, locations: Locations) -> int:
    prepared = _prepared(chosen, locations)
    found = prepared.estimate
    for term in found.terms:
        alone = f"; {_mib(term.bytes).strip()} at another moment" if term.bytes > term.at_peak else ""
        print(f"{term.key:12} {_mib(term.at_peak)}   {term.how}{alone}")
    print(f"{'peak':12} {_mib(found.peak_bytes)}   {found.sentence}")
    print(f"{'steps':12} {found.total_steps:10,}       {found.tokens_per_epoch:,} tokens an epoch")
    time = _span(*found.seconds) if found.seconds else "unknown"
    print(f"{'time':12} {time} ({found.time_basis})")
    if kwh := found.energy_kwh:
        price = f", {_money(*found.money)} {found.currency}" if found.money else ""
        print(f"{'energy':12} {kwh[0]:.2g} to {kwh[1]:.2g} kWh{price} ({found.energy_basis})")
    fetched = f", and {_mib(found.download_bytes).strip()} to fetch" if found.download_bytes else ""
    print(f"{'disk':12} {_mib(found.checkpoints_bytes)}   checkpoints{fetched}")
    for line in (*prepared.resolved_lines(), *found.notes):
        print(f"{'':12} {line}")
    for line in _ways_out(prepared, locations):
        print(f"{'would fit':12} {line}")
    return 0


def _ways_out(prepared: Any, locations: Locations) -> list[str]:
    """What would make a run fit that does not, the mildest first, each with the changes as a run.yaml has them."""
    if prepared.estimate.verdict not in ("tight", "too_large"):
        return []
    from core.estimate import make_it_fit
    from core.runs.learned import speeds

    found = make_it_fit(prepared.asked, prepared.spec, prepared.facts, prepared.machine, speeds(locations))
    changes = [", ".join(f"{key}: {value}" for key, value in one.changes.items()) for one in found[:WAYS_SHOWN]]
    return [f"{one.text} ({change})" for one, change in zip(found, changes, strict=False)]


def _span(low: float, high: float) -> str:
    """A range of seconds in the unit in which a person would say it."""
    units = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next(((size, unit) for size, unit in units if high >= 2 * size), units[-1])
    digits = 0 if low >= 10 * size else 1
    return f"{low / size:.{digits}f} to {high / size:.{digits}f} {unit}"


def _money(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}" if high >= 0.01 else "less than 0.01"


def _probe(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.probe.client import probe

    prepared = _prepared(chosen, locations)
    doing = {
        "starting": "a process of its own",
        "loading": prepared.spec.title,
        "stepping": "the longest step, again and again",
    }
    tell = lambda stage: print(f"{stage:12} {doing[stage]}", flush=True)  # noqa: E731
    found = probe(prepared.config, prepared.spec, prepared.facts, locations, tell)
    if found.random_weights:
        print(f"{'':12} with random weights: {prepared.spec.title} is not on this machine yet")
    print(f"{'memory':12} {_mib(found.peak_bytes)}   by tensors; planned {_mib(prepared.estimate.allocated_bytes)}")
    print(f"{'':12} {_mib(found.reserved_bytes)}   held for them; planned {_mib(prepared.estimate.reserved_bytes)}")
    print(f"{'step':12} {found.seconds_per_step:10.3f} s     {found.tokens_per_second:,.0f} tokens a second")
    if found.spilled:
        print(f"{'spilled':12} The card was full, and its memory reached into the machine's: choose a smaller run.")
    return 0


def _mib(size: int) -> str:
    return f"{size / 2**20:10,.1f} MiB"


def _doctor(chosen: argparse.Namespace, locations: Locations) -> int:
    if chosen.revoke:
        return _revoke(locations)
    from core.doctor import examine

    found = examine(locations.home)
    marks = {"fine": "ok     ", "advice": "advice ", "fault": "FAULT  "}
    for finding in found:
        print(f"{marks[finding.level]}{finding.text}" + (f"\n       → {finding.action}" if finding.action else ""))
    return 1 if any(finding.level == "fault" for finding in found) else 0


def _explain(chosen: argparse.Namespace, _: Locations) -> int:
    from core.explain import explain, listed, markdown

    asked = " ".join(chosen.word)
    for line in markdown() if chosen.markdown else explain(asked) if asked else listed():
        print(line)
    return 0


def _revoke(locations: Locations) -> int:
    from core.sessions import revoke

    ended = revoke(locations.sessions)
    print(f"All sessions are ended ({ended}), and every start address. Let a browser in:   python3 launcher.py")
    return 0


def _prepared(chosen: argparse.Namespace, locations: Locations) -> Any:
    from core.data.service import DataService
    from core.prepare import prepare
    from core.runs.repeat import with_settings
    from core.runs.run_yaml import read_config

    service = DataService(locations)
    try:
        return prepare(with_settings(read_config(Path(chosen.file)), chosen.set), locations, service)
    finally:
        service.close()


_RUN: tuple[tuple[str, ...], dict[str, Any]] = (
    ("run",),
    {"metavar": "RUN", "help": "the run's id, as 'runs' lists it"},
)
_FILE: tuple[tuple[str, ...], dict[str, Any]] = (("file",), {"metavar": "RUN.yaml", "help": "the run's configuration"})
_SET: tuple[tuple[str, ...], dict[str, Any]] = (
    ("--set",),
    {
        "action": "append",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "another value for one setting, such as train.learning_rate=0.0001; may be repeated",
    },
)
_ANYWAY: tuple[tuple[str, ...], dict[str, Any]] = (
    ("--anyway",),
    {"action": "store_true", "help": "though the data, the base model or a library is another than it began with"},
)
_DETACH: tuple[tuple[str, ...], dict[str, Any]] = (
    ("--detach",),
    {"action": "store_true", "help": "start it and return; the run needs no terminal either way"},
)

COMMANDS: dict[str, Command] = {
    "demo": Command("the whole way without a browser: train, compare, export, on the built-in model", _demo),
    "train": Command(
        "start a run from a run.yaml and follow it; Ctrl+C leaves it running", _train, (_FILE, _SET, _DETACH)
    ),
    "runs": Command(
        "list the runs, newest first", _runs, ((("--json",), {"action": "store_true", "help": "as JSON"}),)
    ),
    "stop": Command(
        "stop a run; its state is saved first",
        _stop,
        (_RUN, (("--now",), {"action": "store_true", "help": "end it at once; the last checkpoint stays"})),
    ),
    "resume": Command("go on with a paused, stopped, failed or interrupted run", _resume, (_RUN, _ANYWAY, _DETACH)),
    "export": Command(
        "take a run home: reloaded by plain peft and transformers before it says done",
        _export,
        (
            _RUN,
            (("--form",), {"choices": ["adapter", "merged"], "default": "adapter", "help": "default: adapter"}),
            (("--checkpoint",), {"default": "best", "help": "best (default), last or a step such as step-000200"}),
            (("--name",), {"default": "", "help": "the export's folder name (default: its form)"}),
        ),
    ),
    "estimate": Command("memory and time of a run.yaml, before anything is loaded", _estimate, (_FILE, _SET)),
    "probe": Command("ten seconds of a run.yaml's longest step on this machine, thrown away", _probe, (_FILE, _SET)),
    "doctor": Command(
        "look at this machine and say what would help",
        _doctor,
        (
            (
                ("--revoke",),
                {"action": "store_true", "help": "end every browser's session instead, also of a living studio"},
            ),
        ),
    ),
    "explain": Command(
        "what a word or a setting means, in plain words; without one, all of them",
        _explain,
        (
            (("word",), {"nargs": "*", "metavar": "WORD", "help": "such as rank, held-out loss or train.warmup_steps"}),
            (("--markdown",), {"action": "store_true", "help": "README's section of words instead"}),
        ),
    ),
}


if __name__ == "__main__":
    sys.exit(main())
