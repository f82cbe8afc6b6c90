"""Several cards beside one: tokens a second of dense and of Alpaca-like steps, a 70B on small cards, the same losses.

    python tests/gpu/time_cards.py --kind two --out FILE        on a machine with two cards: about six minutes
    python tests/gpu/time_cards.py --kind four --out FILE       with four: about eight
    python tests/gpu/time_cards.py --kind two --dry --out /tmp/dry.json        on the CPU over gloo, tiny
    python tests/gpu/time_cards.py --cards 1,2,4 --parts dense,curve --out FILE        what is named

*start* has the cards join over NCCL and add up a tensor as large as a 7B adapter's gradients; *dense* is 8 rows of
2,048 tokens for each card and step; *plain* is the same by transformers' Trainer and peft's layers, 2 rows at a time,
which accelerate spreads by DDP; *alpaca* is 64 rows a step in all, whose lengths are drawn, or are those of
``--lengths`` (a list of ``[prompt, answer]``); *curve* is 50 steps of a tiny model in float32; *larger* is a 70B
(``--larger``) in NF4, two rows of 8,192 tokens for each card and step: one card without a limit, and several held to
``--cap`` GiB each by torch's allocator, context counted, each planned as a person's run would be. What several cannot
hold streams from memory that they share. Weights and tokens are random. Each rank is a process that sees its own card,
as in a run; a count of 1 joins no group.

Each case is one line of JSON as soon as it is measured, and the file is written anew. No case is begun that would not
end within ``--seconds``; what is left is said in the last line. A rank that dies ends its case.

The file::

    device, driver, versions, flags, seconds
    rows: [{part, cards, took_seconds, and tokens_per_second, seconds (median of a step), peak_reserved_bytes, losses,
            lines (attention, kernels); of larger: streamed (layers), forecast (tokens a second, of all),
            host_weights_bytes and what of it lies in shared_bytes, copy_bytes_a_second (to each card, all at once),
            load_seconds; of start: join_seconds, sum_seconds, link_bytes_a_second (a direction), xformers}]
    beside: {"dense 2": times of one card's tokens a second, "larger 4": share of four times those of one without limit}
    apart: {"2": largest difference of a loss of the curve}
    left: cases for which there was no time

Expected (issue 19): dense 2 at least 1.9, dense 4 at least 3.7, alpaca 2 at least 1.8, larger 4 at least 0.7, apart at
most 1e-3.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from measure_memory import cap
from transformers import TrainerCallback

from core.bench.plain import plain_lines, plain_trainer
from core.bench.report import machine_facts
from core.bench.setting import Setting
from core.bench.step import config_of
from core.contract.config import LoraChoice, RunConfig
from core.contract.data import DataFacts
from core.estimate import estimate, resolve
from core.machine.children.shared_memory import SharedMemory
from core.machine.hardware import Machine, read_machine
from core.machine.host import Host
from core.model.adapters import Trained, add_adapter
from core.model.attention.packed import attention_line
from core.model.loading.random_weights import find_shape, random_model
from core.model.loading.together import Together
from core.proof.probe.measure import InTurn
from core.train.attempt import Attempt, Subject
from core.train.channel.reporter import EventReporter
from core.train.methods.sft import arguments
from core.train.ranks.group import Ranks, join
from core.train.setup import copy_rate_of, make_trainer
from core.train.step.rows import TextRows

HERE, GIB = Path(__file__).resolve(), 2**30
WARM_UP = 3
LARGER_STEPS = 6
"""Of the 70B, at most: a step takes ten seconds."""
CURVE_STEPS = 50
SUMMED_BYTES = 168 * 2**20
"""Gradients of an adapter of rank 16 on a 7B."""
TOLD_GIB = 110
"""What the machine is said to have free where it grows only as it is used."""
EXPECTED_SECONDS = {"start": 30.0, "dense": 60.0, "plain": 90.0, "alpaca": 60.0, "curve": 30.0, "larger": 170.0}
"""Of a part's first case; later ones may take half as long again as the slowest did."""
KINDS = {
    "two": "start 2, dense 1, dense 2, alpaca 1, alpaca 2, curve 1, curve 2, plain 1, plain 2",
    "four": "start 4, larger 4, larger 1, curve 1, curve 2, curve 4, dense 1, dense 4, alpaca 1, alpaca 4",
}
"""What tells most comes first."""


class Clock(TrainerCallback):
    """The time at which each step ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_arguments: Any, **_objects: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


class Heard:
    """Keeps the steps of a run."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def write(self, event: Any) -> Any:
        if event.kind == "step":
            self.steps.append(event)
        return event


def rows_of(part: str, each: int, flags: argparse.Namespace, vocabulary: int) -> tuple[TextRows, int]:
    """The rows of every step, and how many a step has."""
    whole = 8192 if part == "larger" else 2048
    draw, rows, length = random.Random(3407), TextRows(), 64 if flags.dry else whole
    known = [tuple(row) for row in json.loads(flags.lengths.read_text("utf-8"))] if flags.lengths else []
    for number in range(each * flags.steps):
        if part in ("dense", "plain", "larger"):
            prompt, answer = 1, length - 1
        elif known:
            prompt, answer = known[number % len(known)]
        else:
            prompt, answer = draw.randint(30, 120), draw.randint(10, 250)
        ids = draw.choices(range(4, vocabulary), k=prompt + answer)
        rows.append(ids, [*[-100] * prompt, *ids[prompt:]])
    return rows, each


def told_machine() -> Machine:
    """This machine, where it says that little of its memory is free with ``TOLD_GIB``; the loader hears the same."""
    here, told = read_machine(), TOLD_GIB * GIB
    if here.gpu is None or here.ram_free_bytes >= told:
        return here
    Host.memory = lambda _self: (told, told)  # type: ignore[method-assign]
    return replace(here, ram_free_bytes=told)


def planned(count: int, flags: argparse.Namespace, steps: int) -> dict[str, Any]:
    """The part *larger* on so many cards, before anything is loaded: its whole config, and what is forecast of it."""
    length, each, cards = 64 if flags.dry else 8192, 2 * count, ",".join(map(str, range(count)))
    gib = 0.0 if count == 1 or flags.dry else round(0.9 * flags.cap, 2)
    train = {
        "per_device_train_batch_size": each, "gradient_accumulation_steps": 1, "max_length": length, "cards": cards,
        "memory_gib": gib, "learning_rate": 1e-4, "sample_rows": 0, "max_steps": steps,
    }  # fmt: skip
    here, spec = told_machine(), find_shape(flags.larger)
    here = here.choosing(cards)
    spec = spec.model_copy(update={"folder": "", "cached": False})
    lengths = (length,) * (each * steps)
    facts = DataFacts(rows=len(lengths), lengths=lengths, trained=tuple(one - 1 for one in lengths),
                      max_length=length, longest=length, mean=float(length))  # fmt: skip
    asked = RunConfig.model_validate({"train": train, "data": {"path": "/none", "eval_fraction": 0.0}})
    config, found = resolve(asked, spec, facts, here)[0], estimate(asked, spec, facts, here)
    raw = config.model_dump(mode="json")
    raw["train"] |= {"eval_steps": 0, "save_steps": 0, "save_minutes": 0.0}
    if flags.dry and count > 1:
        raw["model"]["streamed_layers"] = 2
    return {
        "config": raw, "streamed": raw["model"]["streamed_layers"], "forecast": found.tokens_per_second,
        "forecast_peak_bytes": found.peak_bytes, "host_weights_bytes": found.host_weights_bytes,
        "said": [found.sentence, *found.notes],
    }  # fmt: skip


def show(flags: argparse.Namespace, row: dict[str, Any]) -> None:
    if not flags.rank:
        print(json.dumps({"part": flags.part, "cards": flags.count, **row}), flush=True)


def joining(flags: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Joins the other ranks, where there are some, and says how long that took."""
    if flags.count == 1:
        return {}
    begun = time.perf_counter()
    store = dist.TCPStore("127.0.0.1", flags.port, is_master=not flags.rank, timeout=timedelta(seconds=120),
                          wait_for_workers=False)  # fmt: skip
    join(store, flags.rank, flags.count, device)
    return {"join_seconds": round(time.perf_counter() - begun, 2)}


def summing(flags: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Adds up gradients of usual size, and says how fast."""
    tensor, seconds = torch.ones(SUMMED_BYTES // (64 if flags.dry else 4), device=device), []
    for _ in range(6):
        begun = time.perf_counter()
        Ranks.present().sum(tensor)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
        tensor.fill_(1.0)
    took = statistics.median(seconds[1:])
    moved = 2 * (flags.count - 1) / flags.count * tensor.nbytes
    return {"sum_bytes": tensor.nbytes, "sum_seconds": round(took, 5), "link_bytes_a_second": round(moved / took)}


def plainly(flags: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Tokens a second of all ranks by transformers' Trainer, whose accelerate joins them; each has rows of its own."""
    if flags.count > 1:
        ranks = {"RANK": flags.rank, "WORLD_SIZE": flags.count, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        os.environ |= {name: str(value) for name, value in ranks.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(flags.port)}
    form = "nf4" if device.type == "cuda" else "none"
    loaded = random_model(flags.model, device, quantization=form, attn_implementation="sdpa")
    peft_model, each = add_adapter(loaded.model, LoraChoice(), 3407), 8
    rows, _ = rows_of("plain", each, flags, loaded.model.config.vocab_size)
    setting = Setting(
        batch=2, accumulation=each // 2, plain=True, optim="adamw_8bit" if form == "nf4" else "adamw_torch"
    )
    clock, steps = Clock(), [range(step * each, (step + 1) * each) for step in range(flags.steps)]
    with tempfile.TemporaryDirectory() as place:
        recipe = arguments(config_of(setting), Path(place), flags.steps, device, loaded.dtype_name)
        trainer = plain_trainer(setting, peft_model, rows, steps, recipe, loaded.dtype)
        trainer.add_callback(clock)
        trainer.train()
    seconds = [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)][WARM_UP - 1 :]
    tokens = flags.count * sum(sum(map(rows.tokens, step)) for step in steps[WARM_UP:])
    peak = torch.cuda.max_memory_reserved() if device.type == "cuda" else None
    return {
        "tokens_per_second": round(tokens / sum(seconds), 1), "seconds": round(statistics.median(seconds), 4),
        "peak_reserved_bytes": peak, "lines": [loaded.line, *plain_lines(setting, peft_model)],
        "spread_by": type(trainer.model_wrapped).__name__,
    }  # fmt: skip


def rank(flags: argparse.Namespace) -> None:
    """One rank of one part; rank 0 prints its row."""
    part, on_card = flags.part, torch.cuda.is_available()
    device = torch.device("cuda", 0) if on_card else torch.device("cpu")
    torch.manual_seed(3407)
    curve = part == "curve"
    told_machine()
    if part == "plain":
        show(flags, plainly(flags, device))
        return
    joined = joining(flags, device)
    if part == "start":
        show(flags, joined | summing(flags, device) | {"xformers": Host().xformers()})
        return
    form, dtype = ("nf4", "auto") if on_card and not curve else ("none", "float32" if curve else "auto")
    told, larger = json.loads(flags.settings or "{}"), part == "larger"
    if larger and flags.count > 1:
        cap(device, flags.cap)
    begun, name = time.perf_counter(), "tiny" if curve else flags.larger if larger else flags.model
    together = Together(flags.count, not flags.rank, SharedMemory.inherited(flags.shared, writes=not flags.rank))
    streamed = told.get("model", {}).get("streamed_layers", 0)
    loaded = random_model(name, device, quantization=form, dtype=dtype, streamed=streamed, together=together)
    load_seconds = time.perf_counter() - begun
    sizes = {"dense": (2 if flags.dry else 8) * flags.count, "larger": 2 * flags.count}
    rows, each = rows_of(part, sizes.get(part, 8 if flags.dry else 64), flags, loaded.model.config.vocab_size)
    batches = [range(step * each, (step + 1) * each) for step in range(flags.steps)]
    train = {
        "per_device_train_batch_size": each, "gradient_accumulation_steps": 1, "max_steps": flags.steps,
        "num_train_epochs": 1000.0, "max_length": 4096, "tokens_per_pass": 512 if flags.dry else 8192, "eval_steps": 0,
        "save_steps": 0, "save_minutes": 0.0, "sample_rows": 0, "learning_rate": 1e-4, "checkpointing": "none",
        "optim": "adamw_8bit" if on_card and not curve else "adamw_torch",
    }  # fmt: skip
    config = RunConfig.model_validate(
        told or {"train": train, "data": {"path": "/none"}, "model": {"dtype": "float32"} if curve else {}}
    )
    rate = copy_rate_of(loaded.model, Ranks.present(), flags.count)
    trained, clock, heard = Trained(add_adapter(loaded.model, config.lora, 3407)), Clock(), Heard()
    with tempfile.TemporaryDirectory() as place:
        tokenizer = SimpleNamespace(pad_token_id=0)
        made = make_trainer(config, Path(place), trained, (loaded, tokenizer), rows, InTurn(tuple(batches)))
        made.trainer.add_callback(clock)
        Attempt.unsteered(Subject(config, made.trainer, tokenizer, rows.take([])), EventReporter(heard)).train()
    seconds = [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)][WARM_UP - 1 :]
    tokens = sum(sum(map(rows.tokens, batch)) for batch in batches[WARM_UP:])
    peak = torch.cuda.max_memory_reserved() if on_card else None
    attention = attention_line(device, loaded.dtype, loaded.model.config, made.trainer.packed)
    show(flags, {
        "tokens_per_second": round(tokens / sum(seconds), 1),
        "seconds": round(statistics.median(seconds), 4), "peak_reserved_bytes": peak,
        "losses": [step.loss for step in heard.steps] if curve or larger else [],
        "lines": [loaded.line, attention, *made.lines], "load_seconds": round(load_seconds, 1),
        "copy_bytes_a_second": round(rate), **joined,
    })  # fmt: skip


def measured(part: str, count: int, flags: argparse.Namespace, steps: int, seconds: float) -> dict[str, Any]:
    """One part on so many cards, within so many seconds; what fails is a row too."""
    port, begun = 20_000 + os.getpid() % 20_000 + count, time.monotonic()
    plan = planned(count, flags, steps) if part == "larger" else {}
    shared = SharedMemory.made() if part == "larger" and count > 1 else None
    inherited = tuple(map(int, shared.words.split(","))) if shared else ()
    common = {
        "part": part, "count": count, "port": port, "steps": steps, "model": flags.model, "larger": flags.larger,
        "cap": flags.cap, "shared": shared.words if shared else "", "out": flags.out,
        "settings": json.dumps(plan["config"]) if plan else "", "lengths": flags.lengths,
    }  # fmt: skip
    command = [sys.executable, str(HERE), *(f"--{name}={value}" for name, value in common.items() if value is not None)]
    command += ["--dry"] * flags.dry
    with tempfile.TemporaryDirectory() as place:
        codes = ended(command, count, inherited, Path(place), begun + seconds)
        words = [(Path(place) / name).read_text("utf-8").strip() for name in ("0.out", *_names(count))]
    try:
        row: dict[str, Any] = json.loads(words[0].splitlines()[-1])
    except (ValueError, IndexError):
        why = next(
            (said.splitlines()[-1][:300] for code, said in zip(codes, words[1:], strict=True) if code and said), ""
        )
        row = {"part": part, "cards": count, "error": why or f"no answer in {seconds:.0f} s", "codes": codes}
    if shared:
        row["shared_bytes"] = os.fstat(inherited[0]).st_blocks * 512
        shared.close()
    row["took_seconds"] = round(time.monotonic() - begun, 1)
    return row | {key: value for key, value in plan.items() if key != "config"}


def ended(command: Sequence[str], count: int, inherited: Sequence[int], place: Path, until: float) -> list[int | None]:
    """Starts a process a card, its output in ``place``, and returns how each ended; None: it was ended here. One that
    dies ends the others, which would wait for it."""
    children = []
    for number, errors in enumerate(_names(count)):
        told = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(number)}
        with (place / f"{number}.out").open("w") as said, (place / errors).open("w") as wrong:
            children.append(
                subprocess.Popen(
                    [*command, f"--rank={number}"], stdout=said, stderr=wrong, env=told, pass_fds=inherited
                )
            )
    while children[0].poll() is None and time.monotonic() < until and not any(child.poll() for child in children):
        time.sleep(0.1)
    codes = [child.poll() for child in children]
    for child in children:
        child.kill()
        child.wait()
    return codes


def _names(count: int) -> list[str]:
    return [f"{number}.err" for number in range(count)]


def compared(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each case of several cards beside that of one."""
    alone = {row["part"]: row for row in rows if row["cards"] == 1 and "error" not in row}
    beside, apart = {}, {}
    for row in rows:
        first, count = alone.get(row["part"]), row["cards"]
        if first is None or row is first or "error" in row:
            continue
        if row["part"] == "curve":
            apart[str(count)] = max(abs(one - other) for one, other in zip(row["losses"], first["losses"], strict=True))
        else:
            times = row["tokens_per_second"] / first["tokens_per_second"]
            beside[f"{row['part']} {count}"] = round(times / count if row["part"] == "larger" else times, 3)
    return {"beside": beside, "apart": apart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, help="the cases for a machine of so many cards")
    parser.add_argument("--cards", default="1,2,4", help="counts, where no kind is named")
    parser.add_argument("--parts", default="dense,alpaca,curve", help="and start, larger")
    parser.add_argument("--seconds", type=float, default=480.0, help="for all cases")
    parser.add_argument("--model", default="mistral-7b")
    parser.add_argument("--larger", default="llama-3.3-70b", help="the model of the part larger")
    parser.add_argument("--cap", type=float, default=16.0, help="GiB of each of several cards in it")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lengths", type=Path)
    parser.add_argument("--dry", action="store_true", help="tiny, on the CPU over gloo")
    parser.add_argument("--out", type=Path, required=True)
    internal = (("--part", ""), ("--rank", 0), ("--count", 0), ("--port", 0), ("--settings", ""), ("--shared", ""))
    for name, usual in internal:
        parser.add_argument(name, type=type(usual), default=usual, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.dry:
        flags.model = flags.larger = "tiny"
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if flags.part:
        rank(flags)
        return
    named = [f"{part} {count}" for part in flags.parts.split(",") for count in flags.cards.split(",")]
    cases = KINDS[flags.kind].split(", ") if flags.kind else named
    device, begun = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu"), time.monotonic()
    said = {name: str(value) for name, value in vars(flags).items()}
    result: dict[str, Any] = {**machine_facts(device), "flags": said, "seconds": 0.0, "rows": [], "left": []}
    for case in cases:
        part, count = case.split(" ")[0], int(case.split(" ")[1])
        here = [row["took_seconds"] for row in result["rows"] if row["part"] == part]
        left = flags.seconds - (time.monotonic() - begun)
        if left < (1.5 * max(here) if here else 0 if flags.dry else EXPECTED_SECONDS[part]):
            result["left"].append(case)
            continue
        steps = {"curve": CURVE_STEPS, "larger": min(flags.steps, LARGER_STEPS)}.get(part, flags.steps)
        row = measured(part, count, flags, steps, left)
        result["rows"].append(row)
        result |= compared(result["rows"]) | {"seconds": round(time.monotonic() - begun, 1)}
        flags.out.write_text(json.dumps(result, indent=1), "utf-8")
        hidden = ("losses", "said", *(() if part == "dense" else ("lines",)))
        print(json.dumps({key: value for key, value in row.items() if key not in hidden}), flush=True)
    flags.out.write_text(json.dumps(result, indent=1), "utf-8")  # again: what came last may have had no time
    print(json.dumps({key: result[key] for key in ("beside", "apart", "left", "seconds") if key in result}))


if __name__ == "__main__":
    main()
