"""``step`` and ``ladder`` of ``python -m core.bench`` under ``--task classify``."""

import argparse
from functools import partial

from core.bench.children import own_process, say
from core.bench.classify.setting import ClassifySetting
from core.bench.setting import add_flags, from_flags
from core.contract.errors import ConfigError

DECIDED = ("precision", "optim", "attention", "layout", "norm", "compiled")
"""What the ladder chooses itself."""


def step_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of one rung."""
    add_flags(parser, of=ClassifySetting)


def ladder_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of the ladder."""
    add_flags(parser, DECIDED, ClassifySetting)
    parser.add_argument("--larger-batch", type=int, default=256, metavar="N", help="rows a step from then on")
    parser.add_argument("--rungs", default="", metavar="N-M", help="only these, counted from 1 (all)")


def step(flags: argparse.Namespace) -> int:
    """Measures one rung."""
    from core.bench.classify.rung import measure
    from core.bench.report import shown, write_json

    result = measure(from_flags(flags, ClassifySetting), say, flags.every)
    write_json(result, flags.json)
    lines = [f"plan      {line}" for line in result["plan"]]
    lines += [
        f"step      {shown(result['seconds_a_step'], 4)} s (median), first {shown(result['first_step_seconds'], 2)} s",
        f"samples   {shown(result['samples_per_second'], 0)} a second, {result['padding_per_cent']} % padding",
        f"accuracy  {result['accuracy']} on {result['rows']['held_out']} rows; weights {result['weights']}",
    ]
    print("\n".join(lines))
    return 0


def ladder(flags: argparse.Namespace) -> int:
    """Climbs the rungs, each in a process of its own; 1 where none could be measured."""
    from core.bench.classify.ladder import climb, settings_of, table
    from core.bench.report import write_json

    settings = settings_of(from_flags(flags, ClassifySetting), flags.larger_batch)
    words, count = flags.rungs, len(settings)  # "N" or "N-M"; empty: all
    ends = [int(word) if word.isdigit() else 0 for word in words.split("-")] if words else [1, count]
    first, last = ends[0], ends[-1]
    if len(ends) > 2 or not 1 <= first <= last <= count:
        raise ConfigError("bench.setting", problems=[f"--rungs: expected N or N-M of 1 to {count}, found {words!r}"])
    chosen = dict(list(settings.items())[first - 1 : last])
    result = climb(chosen, own_process, say, partial(write_json, path=flags.json))
    print(table(result))
    return 0 if any(rung["status"] == "measured" for rung in result["rungs"]) else 1
