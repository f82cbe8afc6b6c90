"""The table of commands. ``python3 launcher.py COMMAND`` becomes ``python -m core.cli COMMAND`` inside ``.venv``.

Errors are one line on stderr and exit code 1.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from core.contract.forms import FORMS, QUANTISATIONS, FinishedFrom
from core.machine.locations import Locations
from core.machine.terminal import as_text, exit_code
from core.runs.metrics.sinks import SINKS
from core.runs.recipes import PROGRAMS

Argument = tuple[tuple[str, ...], dict[str, Any]]
"""An argument's names and its options for argparse."""


@dataclass(frozen=True)
class Command:
    """A row of the table. ``home``: the root folder is made where it is missing, must exist, or is not needed."""

    about: str
    run: Callable[[argparse.Namespace, Locations], int]
    arguments: tuple[Argument, ...] = ()
    home: Literal["made", "there", "unneeded"] = "there"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 after an error, 130 after Ctrl+C."""
    words = sys.argv[1:] if arguments is None else arguments

    def run() -> int:
        chosen = _parser().parse_args(as_text(words))
        command, locations = COMMANDS[chosen.command], Locations.find(chosen.home)
        if command.home == "there":
            locations = locations.expected(named=bool(chosen.home))
        return command.run(chosen, locations)

    return exit_code(run)


def _made(locations: Locations) -> Locations:
    if not locations.home.exists():
        print(f"The folder {locations.home} is new: it is made for runs and data.", file=sys.stderr)
    return locations.make()


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
    from core.cli.demo import demo

    return demo(_made(locations))


def _train(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.follow import follow_run
    from core.cli.forecast import as_values
    from core.cli.machines import beside, meet
    from core.runs.control.store import RunStore
    from core.runs.folder.notes import note_asked

    if chosen.nodes and chosen.node_rank:
        return beside(chosen, _made(locations))
    meet(chosen)
    prepared = _prepared(chosen, locations)
    if not chosen.json:
        for line in (*prepared.data_lines(), *prepared.resolved_lines(), prepared.estimate.sentence):
            print(f"          {line}")
    store = RunStore(locations)
    run_id = store.start(prepared.config)
    note_asked(store.open(run_id), prepared.asked, prepared.estimate.seconds)
    told = {"run_id": run_id, "folder": str(store.open(run_id).path)} | as_values(prepared, [])
    print(json.dumps(told) if chosen.json else f"run       {run_id}", flush=True)
    return 0 if chosen.detach else follow_run(store, run_id, as_json=chosen.json)


def _resume(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.follow import follow_run
    from core.cli.machines import meet
    from core.runs.control.store import RunStore

    store = RunStore(locations)
    meet(chosen)
    store.resume(chosen.run, chosen.anyway, chosen.cards)
    return 0 if chosen.detach else follow_run(store, chosen.run, from_now=True)


def _runs(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.runs.control.store import RunStore
    from core.runs.record.words import damage_words, state_word

    summaries = RunStore(locations).list()
    if chosen.json:
        print(json.dumps([asdict(summary) for summary in summaries], default=str, indent=1))
        return 0
    for run in summaries:
        loss = "–" if run.eval_loss is None else f"{run.eval_loss:.4f}"
        steps, verdict = f"{run.last_step}/{run.total_steps or '–'}", run.verdict.replace("_", " ")
        how = f"{state_word(run.state, run.outcome):14} step {steps:12} held-out {loss:8} {verdict:10}"
        print(f"{run.run_id:44} {how} {run.model_name}")
        if told := run.failure.message if run.failure and run.state == "unreadable" else damage_words(run.damaged):
            print(f"{'':44} {told}")
    if not summaries:
        print(f"No runs yet in {locations.runs}.")
    return 0


def _stop(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.runs.control.store import RunStore

    store = RunStore(locations)
    (store.stop_now if chosen.now else store.stop)(chosen.run)
    print(f"{chosen.run} is asked to stop{' now' if chosen.now else ', its state is saved first'}.")
    return 0


def _export(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.export import export

    return export(chosen, locations)


def _publish(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.sending import send_export

    return send_export(locations, chosen.run, chosen.export, chosen.to, chosen.public)


def _pack(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.sending import pack

    return pack(locations, chosen.run, chosen.out, chosen.adapter)


def _open(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.sending import open_file

    return open_file(_made(locations), Path(chosen.file))


def _metrics(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.elsewhere import metrics

    return metrics(chosen.run, chosen.to, locations)


def _import(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.elsewhere import import_recipe

    return import_recipe(Path(chosen.recipe), chosen.kind, chosen.out, locations)


def _report(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.report import report

    return report(chosen, locations)


def _estimate(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.forecast import as_values, forecast_lines, ways_to_fit

    prepared = _prepared(chosen, locations)
    ways = ways_to_fit(prepared, locations)
    if chosen.json:
        print(json.dumps(as_values(prepared, ways), indent=1))
    else:
        print(*forecast_lines(prepared, ways), sep="\n")
    return 0


def _probe(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.cli.forecast import probe_lines

    for line in probe_lines(_prepared(chosen, locations), locations):
        print(line, flush=True)
    return 0


def _doctor(chosen: argparse.Namespace, locations: Locations) -> int:
    from core.machine.doctor.examine import examine
    from core.machine.sessions import revoke

    if chosen.revoke:
        ended = revoke(locations.expected(named=bool(chosen.home)).make())
        print(f"All sessions are ended ({ended}), and every start address. Let a browser in:   {locations.command()}")
        return 0
    findings = examine(locations.home)
    if chosen.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    marks = {"fine": "ok     ", "advice": "advice ", "fault": "FAULT  "}
    for finding in () if chosen.json else findings:
        print(f"{marks[finding.level]}{finding.text}" + (f"\n       → {finding.action}" if finding.action else ""))
    return 1 if any(finding.level == "fault" for finding in findings) else 0


def _explain(chosen: argparse.Namespace, _: Locations) -> int:
    from core.cli.explain import explain, listed, markdown

    asked = " ".join(chosen.word)
    print(*(markdown() if chosen.markdown else explain(asked) if asked else listed()), sep="\n")
    return 0


def _prepared(chosen: argparse.Namespace, locations: Locations) -> Any:
    from core.cli.forecast import prepared

    cards = [] if getattr(chosen, "cards", None) is None else [f"train.cards={chosen.cards}"]
    return prepared(Path(chosen.file), [*chosen.set, *cards], lambda: _made(locations))


def _argument(*names: str, **options: Any) -> Argument:
    return names, options


def _flag(name: str, help_: str) -> Argument:
    return (name,), {"action": "store_true", "help": help_}


_RUN = _argument("run", metavar="RUN", help="the run's id, as 'runs' lists it")
_FILE = _argument(
    "file", metavar="FILE", help="the run's configuration, run.yaml; or a data file, for which settings are proposed"
)
_SET = _argument(
    "--set", action="append", default=[], metavar="KEY=VALUE",
    help="another value for one setting, such as train.learning_rate=0.0001; may be repeated",
)  # fmt: skip
_CARDS = _argument("--cards", metavar="N,N", help="cards that train it: 0,1 or all (train.cards)")
_MACHINES = (
    _argument("--nodes", type=int, default=0, metavar="N", help="how many machines train it"),
    _argument("--node-rank", type=int, default=0, metavar="K", help="this one's number; 0 owns the run"),
    _argument("--rendezvous", default="", metavar="H:P", help="HOST:PORT where machine 0 listens"),
)
_KINDS = f"of a GGUF: {', '.join(QUANTISATIONS)}"
_JSON = _flag("--json", "as JSON")
_DETACH = _flag("--detach", "start it and return; the run needs no terminal either way")

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "the whole way without a browser: train, compare, export, on the built-in model", _demo, home="made"
    ),
    "train": Command(
        "start a run of a run.yaml or a data file and follow it; Ctrl+C leaves it running",
        _train,
        (_FILE, _SET, _CARDS, *_MACHINES, _DETACH, _flag("--json", "the run, then its events: JSON lines")),
        home="made",
    ),
    "runs": Command("list the runs, newest first", _runs, (_JSON,)),
    "stop": Command(
        "stop a run; its state is saved first",
        _stop,
        (_RUN, _flag("--now", "end it at once; the last checkpoint stays")),
    ),
    "resume": Command(
        "go on with a paused, stopped, failed or interrupted run",
        _resume,
        (
            _RUN,
            _flag("--anyway", "though the data, the base model or a library has changed since it began"),
            _CARDS,
            *_MACHINES,
            _DETACH,
        ),
    ),
    "export": Command(
        "take a run home: reloaded by plain peft and transformers before it says done",
        _export,
        (
            _RUN,
            _argument(
                "--form", choices=[*FORMS], default="", help="default: the adapter, or the whole model if it learned"
            ),
            _argument("--checkpoint", default="best", help="best (default), last or a step such as step-000200"),
            _argument("--name", default="", help="the export's folder name (default: its form)"),
            _argument("--quantisation", metavar="KIND", choices=[*QUANTISATIONS], help=_KINDS),
            _argument("--importance", action="store_true", default=None, help="of a GGUF: weigh by the run's own rows"),
            _argument(
                "--weights", metavar="BASE", choices=get_args(FinishedFrom), help="original (default), trained_on"
            ),
        ),
    ),
    "metrics": Command(
        "a run's curves in another program, live or afterwards; the run does not notice",
        _metrics,
        (
            _RUN,
            _argument("--to", required=True, choices=tuple(SINKS), help="one that is installed beside this program"),
        ),
    ),
    "import": Command(
        "another program's recipe as a run.yaml: what maps, and what does not",
        _import,
        (
            _argument("recipe", metavar="FILE", help="of LLaMA-Factory, Axolotl or Unsloth Studio, or kohya-like"),
            _argument("--as", dest="kind", choices=PROGRAMS, default="", help="default: by its keys"),
            _argument("--out", default="", metavar="RUN.yaml", help="default: FILE, named .run.yaml"),
        ),
        home="unneeded",
    ),
    "publish": Command(
        "send a finished export to the Hugging Face hub, into a private repository",
        _publish,
        (
            _RUN,
            _argument("export", metavar="EXPORT", help="the export's folder name"),
            _argument("--to", required=True, metavar="OWNER/NAME", help="the repository; made where there is none"),
            _flag("--public", "for everybody to see"),
        ),
    ),
    "pack": Command(
        "a run as one file to give away: settings, curves, report; no data, no weights",
        _pack,
        (_RUN, _argument("--out", metavar="FILE"), _flag("--adapter", "with the best checkpoint's adapter")),
    ),
    "open": Command(
        "a run's file from somebody else, as a run of its own",
        _open,
        (_argument("file", metavar="FILE.luthier.zip"),),
        home="made",
    ),
    "report": Command(
        "what runs learned, forgot and know by heart; made by itself after a run, or now",
        _report,
        (
            _argument("runs", nargs="+", metavar="RUN", help="one run, or up to five beside each other"),
            _argument("--json", metavar="FILE", default="", help="write it as JSON; - for standard output"),
            _argument("--html", metavar="FILE", default="", help="write it as one HTML file to give away"),
            _argument("--minutes", type=float, default=0.0, help="measure for so long (default: a tenth of the run)"),
            _flag("--again", "measure all of it anew"),
        ),
    ),
    "estimate": Command(
        "settings, memory and time of a run.yaml or a data file, before anything is loaded",
        _estimate,
        (_FILE, _SET, _CARDS, _JSON),
        home="made",
    ),
    "probe": Command(
        "ten seconds of a run's longest step on this machine, thrown away", _probe, (_FILE, _SET), home="made"
    ),
    "doctor": Command(
        "look at this machine and say what would help",
        _doctor,
        (_flag("--revoke", "end every browser's session instead, also of a living studio"), _JSON),
        home="unneeded",
    ),
    "explain": Command(
        "what a word or a setting means, in plain words; without one, all of them",
        _explain,
        (
            _argument("word", nargs="*", metavar="WORD", help="such as rank, held-out loss or train.warmup_steps"),
            _flag("--markdown", "README's section of words instead"),
        ),
        home="unneeded",
    ),
}
