"""``python -m core.bench step | ladder | parity | kernels``: measures this card; ``--help`` lists the flags.

``--task classify`` makes ``step`` and ``ladder`` train an encoder of the BERT kind to sort texts.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from core.bench.children import own_process, say
from core.bench.classify import commands as classify
from core.bench.setting import add_flags, from_flags
from core.contract.errors import ConfigError, Fault
from core.contract.weight_forms import DEFAULT_ARITHMETIC
from core.machine.hardware import read_machine
from core.runs.supervise.worker_process import allocator_environment

DECIDED = ("plain", "rows_as", "attention", "upcast", "until")
"""Fields of a setting that a ladder and a parity choose themselves."""


def main(given: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 after an error, 2 where fast and plain (or a kernel and float64) disagree."""
    words = list(sys.argv[1:] if given is None else given)
    # As workers are told, and before torch is there: else a step of rows that differ in length reserves three times
    # what it allocates.
    os.environ.update(allocator_environment(os.environ, read_machine()))
    try:
        flags = _parser(words).parse_args(words)
        return int(flags.run(flags))
    except Fault as error:
        print("; ".join(line.removeprefix("  - ") for line in str(error).splitlines()), file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


@dataclass(frozen=True)
class _Task:
    """What ``--task`` chooses: the flags of ``step`` and ``ladder``, and what these do."""

    step_flags: Callable[[argparse.ArgumentParser], None]
    step: Callable[[argparse.Namespace], int]
    ladder_flags: Callable[[argparse.ArgumentParser], None]
    ladder: Callable[[argparse.Namespace], int]


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--task", default="sft")
    name = early.parse_known_args(words)[0].task  # known before its flags are read
    if name not in TASKS:
        raise ConfigError("bench.setting", problems=[f"--task: expected one of {', '.join(TASKS)}, found {name!r}"])
    task = TASKS[name]
    parser = argparse.ArgumentParser(prog="python -m core.bench", description="Measures training on this card.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], about: str) -> Any:
        sub = commands.add_parser(name, help=about, description=about)
        sub.add_argument("--json", default="", metavar="FILE", help="writes the result there")
        sub.set_defaults(run=run)
        return sub

    step = command("step", task.step, "One setting: seconds a step, tokens a second, memory, losses.")
    ladder = command("ladder", task.ladder, "One optimisation after another, from plain Hugging Face to the fast core.")
    for sub, flags in ((step, task.step_flags), (ladder, task.ladder_flags)):
        sub.add_argument("--task", default="sft", metavar="{" + ",".join(TASKS) + "}", help="what is trained")
        flags(sub)
    step.add_argument("--every", type=int, default=0, metavar="N", help="a line every N steps (%(default)s)")
    about = "Fast and plain on the same rows, or with --arithmetic fp8,int8 those and 16 bits: loss by loss."
    parity = command("parity", _parity, about)
    add_flags(parity, without=DECIDED)
    parity.set_defaults(steps=300, warm_up=0, held_out=64)
    parity.add_argument("--jobs", type=int, default=5, metavar="N", help="sides trained at once (%(default)s)")
    parity.add_argument("--width-of", default="", metavar="NAME", help="short for --model random:NAME")
    command("kernels", _kernels, "Every op against float64, beside plain torch.")
    return parser


def _ladder_flags(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, without=(*DECIDED, "checkpointing", "loss", "kernels", "optim"))
    parser.add_argument("--again", action="store_true", help="keeps the rungs that --json's FILE holds already")


def _step(flags: argparse.Namespace) -> int:
    from core.bench.report import summary
    from core.bench.step import measure

    result = measure(from_flags(flags), say, flags.every)
    _finish(flags, result, summary(result))
    return 0


def _ladder(flags: argparse.Namespace) -> int:
    from core.bench.ladder import climb, table
    from core.bench.report import write_json

    earlier = _earlier(flags.json) if flags.again else None
    base = from_flags(flags)
    result = climb(base, own_process, say, keep=partial(write_json, path=flags.json), earlier=earlier)
    print(table(result))
    return 0 if any(rung["status"] == "measured" for rung in result["rungs"]) else 1


def _earlier(path: str) -> dict[str, Any] | None:
    """The ladder in this file; None unless it was measured on this machine with these versions."""
    from core.bench.report import measured_here

    if not path:
        raise ConfigError("bench.again/no_file")
    place = Path(path).expanduser()
    if not place.is_file():
        return None
    try:
        result: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        here, rungs = measured_here(result), result["rungs"]
    except (ValueError, KeyError, TypeError):
        rungs = None
    if not isinstance(rungs, list):  # only a ladder has them
        raise ConfigError("bench.again/other_file", name=place.name)
    if not here:
        say(f"{place.name} was measured on another machine or with other versions: all rungs are measured anew")
    return result if here else None


def _parity(flags: argparse.Namespace) -> int:
    from core.bench import parity, parity_eight
    from core.bench.report import write_json

    base = from_flags(flags)
    if flags.width_of:
        base = replace(base, model=f"random:{flags.width_of}")
    if base.arithmetic == DEFAULT_ARITHMETIC:
        result = parity.side_by_side(base, own_process, flags.jobs, say, keep=partial(write_json, path=flags.json))
        text = parity.table(result)
    else:
        result = parity_eight.side_by_side(base, own_process, flags.jobs, say)
        text = parity_eight.table(result)
    _finish(flags, result, text)
    return 0 if result["agrees"] else 2


def _kernels(flags: argparse.Namespace) -> int:
    from core.bench.kernels import prove, table

    result = prove(say)
    _finish(flags, result, table(result))
    return 0 if result["agrees"] else 2


def _finish(flags: argparse.Namespace, result: dict[str, Any], text: str) -> None:
    from core.bench.report import write_json

    write_json(result, flags.json)
    print(text)


TASKS = {
    "sft": _Task(add_flags, _step, _ladder_flags, _ladder),
    "classify": _Task(classify.step_flags, classify.step, classify.ladder_flags, classify.ladder),
}

if __name__ == "__main__":
    sys.exit(main())
