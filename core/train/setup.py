"""From a config to a trainer that may start; cheap checks come before expensive steps.

tokenizer ─► data ─► weights ─► adapter ─► trainer ─► swaps ─► plan
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.contract.estimate import LearnedRun
from core.contract.events import Plan
from core.contract.optimisers import optimiser_of
from core.data.render.chat_tokens import apply_template_to, load_tokenizer
from core.estimate import estimate, predict, resolve, total_steps
from core.estimate.eight_bits import served
from core.estimate.estimate import as_empty
from core.estimate.fit import pass_tokens, pass_work
from core.estimate.inputs.cards import shared_by
from core.estimate.inputs.rows import rows_of
from core.estimate.inputs.work import GIB
from core.estimate.terms import pinned_bytes
from core.machine.hardware import Machine, alike, read_machine
from core.machine.locations import Locations
from core.model.adapters import Trained
from core.model.attention.packed import attention_line, keeps_apart
from core.model.layers.checkpointing import set_checkpointing
from core.model.learners import LEARNERS, Onto
from core.model.loading.load import LoadedModel, ensure_padding
from core.model.loading.original import original_weights
from core.model.loading.together import ALONE, Together
from core.model.scores import ScoreHead, load_model, swap_layers
from core.model.streaming.layers import ring_of
from core.models.catalog import find_model
from core.models.checks.folder import check_folder
from core.models.encoders import encoder_of
from core.models.hub.client import fetch_tokenizer
from core.models.outputs import read_outputs
from core.models.suited import put, suited, unsuited
from core.runs.folder.job_folder import JobFolder
from core.runs.ranks.start import cards_here
from core.train.arithmetic import settled
from core.train.attempt import Subject
from core.train.channel.channel import Channel
from core.train.fetching import fetch_base
from core.train.keep.start_adapter import start_folder
from core.train.methods.sft import arguments, passes_line
from core.train.methods.trainers import TRAINERS
from core.train.ranks.group import Ranks
from core.train.reading import KeepsRows, RunData, read_data
from core.train.safety.memory import cap_allocator, may_allocate, state_bytes
from core.train.step.batches import BatchSampler, Sampler
from core.train.step.neftune import add_noise
from core.train.step.rows import Rows
from core.train.step.trainer import Batches

_AUTOMATIC: tuple[tuple[str, str, object], ...] = (
    ("model", "dtype", "auto"),
    ("model", "streamed_layers", -1),
    ("train", "optim", "auto"),
    ("train", "checkpointing", "auto"),
    ("train", "tokens_per_pass", 0),
    ("train", "tile_tokens", -1),
    ("train", "eval_steps", 0),
    ("train", "save_steps", 0),
)


@dataclass(frozen=True)
class Earlier:
    """What an attempt takes over: a checkpoint's ``tokens_per_pass`` (0: the config's), and the split of the first one.
    ``opened`` is told the settings once the rows are read: other ranks begin with them. ``together``: this process
    among its machine's ranks."""

    tokens_per_pass: int = 0
    kept: KeepsRows | None = None
    opened: Callable[[RunConfig], object] = lambda _config: None
    together: Together = ALONE


@dataclass(frozen=True)
class Made:
    """A trainer with its layers swapped; the plan's lines on it; whether any layer is fast."""

    trainer: Any
    lines: tuple[str, ...]
    fast: bool


def prepare(
    config: RunConfig,
    folder: JobFolder,
    device: torch.device,
    channel: Channel,
    earlier: Earlier,
) -> tuple[Subject, Plan]:
    """Everything up to the first step: what is trained, and the plan to announce.

    Raises:
        Fault: model, data or adapter cannot be used.
        Leave: somebody asked to pause or stop meanwhile.
    """
    spec = find_model(config.model.source, config.model.name, config.model.revision)
    if fault := unsuited(config, spec):
        raise fault
    config, resolved = suited(config, spec)  # where a run.yaml was written by hand
    tokenizer = channel.commands.meanwhile(lambda: _tokenizer(spec))
    apply_template_to(tokenizer, config.data)  # tried out here, where a signal can interrupt it
    data = read_data(config, tokenizer, channel, earlier.kept)
    machine = _machine()
    if any(getattr(getattr(config, part), name) == auto for part, name, auto in _AUTOMATIC):
        # Only in a run.yaml that was written by hand.
        config, more = resolve(config, spec, data.facts, machine)
        resolved += more
    if earlier.tokens_per_pass:
        config = put(config, "train.tokens_per_pass", earlier.tokens_per_pass)
    _refuse_inputs(config, spec, data, machine)
    earlier.opened(config)
    cap_allocator(config.train.memory_gib, device, machine.wsl)
    start = start_folder(folder, config) if config.resume_from else None
    data = data.scaled(read_outputs(start) if start and data.outputs else None)
    head = ScoreHead(data.outputs, config.train.seed) if data.outputs else None
    loaded = _load(config, spec, (device, head), channel, earlier.together)
    again = config.model.model_copy(update={"dtype": loaded.dtype_name})

    def untrained() -> Any:
        return load_model(_place(spec, channel), again, torch.device("cpu"), head).model

    originals = lambda: original_weights(_place(spec, channel), device, _loading(spec, channel))  # noqa: E731
    onto = Onto(loaded.model, untrained, start, originals, data.outputs)
    trained = LEARNERS[config.train.learns](onto, config)
    ranks = Ranks.present()
    oldest = _as_the_oldest(machine, ranks)
    config, more = served(config, spec, oldest)  # where a run goes on with other cards
    resolved += more
    if ranks.first:
        config, more = settled(
            config, spec, (oldest, data.facts), (trained.model, loaded.dtype), folder, channel.reporter
        )
        resolved += more
    if ranks.count > 1:
        config = RunConfig.model_validate(ranks.told(config.model_dump(mode="json")))
    if config.learning.reference and not config.adds_nothing_at_first:
        trained = trained.keeping_start()
    made = make_trainer(config, folder.checkpoints, trained, (loaded, tokenizer), data.train)
    made = replace(made, lines=(*made.lines, *(f"{r.key} = {r.value}: {r.reason}" for r in resolved)))
    plan = _plan(config, spec, as_empty(config, machine), data, made, loaded)
    return Subject(config, made.trainer, tokenizer, data.held_out, data.numbers), plan


def _refuse_inputs(config: RunConfig, spec: ModelSpec, data: RunData, machine: Machine) -> None:
    """Raises MachineError where layer inputs would not fit the machine's own memory."""
    rows = shared_by(rows_of(config, data.facts), machine)
    tokens, free = pass_tokens(config, rows), machine.ram_free_bytes // machine.cards.ranks
    needed = pinned_bytes(pass_work(config, spec, rows, machine, tokens))
    if needed > free:
        raise MachineError("memory.inputs", tokens=tokens, needed=needed / GIB, free=free / GIB)


def _tokenizer(spec: ModelSpec) -> Any:
    place = Path(spec.folder) if spec.folder else fetch_tokenizer(spec.name, spec.revision)
    return ensure_padding(load_tokenizer(place))


def _place(spec: ModelSpec, channel: Channel) -> Path:
    """The base model's folder, fetched where it is not on this machine, and checked."""
    place = Path(spec.folder) if spec.folder else fetch_base(spec, channel)
    check_folder(place)
    return place


def _loading(spec: ModelSpec, channel: Channel) -> Callable[[int, int], None]:
    def loading(done: int, total: int) -> None:
        channel.reporter.stage("loading", spec.title, done, total, "bytes")
        channel.commands.check()

    return loading


def _load(
    config: RunConfig,
    spec: ModelSpec,
    onto: tuple[torch.device, ScoreHead | None],
    channel: Channel,
    together: Together,
) -> LoadedModel:
    place, loading = _place(spec, channel), _loading(spec, channel)
    loading(0, 0)
    cache = Locations.find().cache
    return load_model(place, config.model, *onto, on_progress=loading, cache=cache, together=together)


def make_trainer(
    config: RunConfig,
    output: Path,
    trained: Trained,
    parts: tuple[LoadedModel, Any],
    rows: Rows,
    sampler: Sampler | None = None,
) -> Made:
    """The trainer, its layers swapped; ``parts`` are the loaded model and its tokenizer, ``sampler`` another order of
    rows than a run's."""
    (loaded, tokenizer), model = parts, trained.model
    device, steps = next(model.parameters()).device, total_steps(config, len(rows))
    settings = arguments(config, output, steps, device, loaded.dtype_name)
    sampler = sampler or BatchSampler(len(rows), config.rows_per_step, config.train.seed, steps)
    packs = encoder_of(model.config) is not None or keeps_apart(model.config)
    batches = Batches(rows, sampler, config.train.tokens_per_pass, config.train.packing and packs)
    trainer, loss = TRAINERS[config.trained_method](config, trained, settings, batches, tokenizer)
    swaps = swap_layers(model, config.train.kernels, trainer.packed, loaded.dtype, config.train.arithmetic)
    kept = _checkpointing(config, model, device)
    noise = add_noise(trainer, config.train.neftune_noise_alpha, config.train.seed)
    return Made(trainer, (*swaps.lines(), loss, *noise, *kept, passes_line(trainer)), swaps.fast)


def _checkpointing(config: RunConfig, peft_model: Any, device: torch.device) -> tuple[str, ...]:
    """Sets what layers keep for the backward; lines for the plan."""
    chosen, tile = config.train.checkpointing, max(0, config.train.tile_tokens)
    if chosen != "budget":
        return set_checkpointing(peft_model, "none" if chosen == "auto" else chosen, tile_tokens=tile)
    allowed = may_allocate(config.train.memory_gib, device)
    state = state_bytes(config.train.optim, Trained(peft_model))
    return set_checkpointing(peft_model, "auto", allowed, state, tile_tokens=tile)


def _machine() -> Machine:
    """This machine for this training: where it has several cards, each of its processes sees its own alone."""
    cards = cards_here(os.environ)
    return replace(read_machine(), chosen=cards) if cards.ranks > 1 else read_machine()


def _as_the_oldest(machine: Machine, ranks: Ranks) -> Machine:
    """The machine, its card with the oldest compute capability of all ranks': all compute the same way."""
    card, unknown = machine.gpu, (99, 0)
    major, minor = map(int, min(ranks.heard((card.compute_capability if card else None) or unknown)))
    if card is None or (major, minor) == unknown:
        return machine
    return replace(machine, gpus=(replace(card, compute_capability=(major, minor)), *machine.gpus[1:]))


def _ranks_line(ranks: Ranks, streams: bool) -> tuple[str, ...]:
    if ranks.count == 1:
        return ()
    shared = "each step's rows are shared out so that their tokens are even, and gradients are summed once a step"
    held = "all layers but the streamed ones on its card" if streams else "the whole model in memory"
    return (f"ranks: {ranks.count} processes, each with {held}; {shared}",)


def copy_rate_of(model: Any, ranks: Ranks, here: int) -> float:
    """Bytes a second from this machine's memory to each of its cards while all copy, over the slowest link, for which
    the others wait; 0 where no layer streams, or other machines copy beside it. ``here``: ranks of this machine."""
    if (ring := ring_of(model)) is None:
        return 0.0
    ranks.sum(torch.zeros(1))  # all begin at once
    rates = [rate for (rate,) in ranks.heard([ring.rate()])]
    return min(rates) if ranks.count == here else 0.0


def _predicted(
    config: RunConfig, spec: ModelSpec, data: RunData, machine: Machine, ranks: Ranks, rate: float
) -> LearnedRun:
    """What arithmetic alone predicts, at the ``rate`` at which layers are copied here: with it the next plan counts
    too. No speed where the ranks' cards are unlike: each knows its own, and a plan goes by the one that decides."""
    line = predict(config, spec, data.facts, replace(machine, copy_bytes_a_second=rate))
    card = machine.gpu
    first, *others = ranks.heard([crc32(card.name.encode()), card.total_bytes or 0] if card else [0, 0])
    if all(alike((first[0], first[1]), (name, size)) for name, size in others):
        return line.model_copy(update={"cards": ranks.count, "copy_bytes_a_second": rate})
    return line.model_copy(update={"cards": ranks.count, "predicted_tokens_per_second": 0.0, "operations": 0.0})


def _plan(config: RunConfig, spec: ModelSpec, machine: Machine, data: RunData, made: Made, loaded: LoadedModel) -> Plan:
    trainer, model, weights = made.trainer, loaded.model, config.model.form.words
    attention = attention_line(trainer.args.device, loaded.dtype, model.config, trainer.packed)
    where = f"{weights}, {loaded.dtype_name} on {next(model.parameters()).device}; {attention}"
    row, optimiser = config.learns, optimiser_of(config.train.optim, gpu=trainer.trained.parameters[0].is_cuda)
    parameters = trainer.trained.parameters
    size = sum(4 * p.numel() + optimiser.state_bytes(p.shape, max(4, p.itemsize)) for p in parameters)
    rounded = any(p.dtype != torch.float32 for p in parameters)
    exact = "; 16-bit ones are rounded from the optimiser's 32-bit numbers after each step" if rounded else ""
    kept = f"a checkpoint holds {row.holds}, and the optimiser's state, {size / 1e9:.2f} GB"
    rate = copy_rate_of(model, trainer.ranks, machine.cards.ranks)
    learns = f"learns: {row.words}, {trainer.trained.count:,} numbers{exact}; {kept}"
    return Plan(
        total_steps=int(trainer.args.max_steps),
        train_rows=len(data.train),
        eval_rows=len(data.held_out),
        train_tokens=sum(data.train.tokens(row, trainer.packed) for row in range(len(data.train))),
        trained_tokens=data.trained_tokens,
        trainable_parameters=trainer.trained.count,
        dtype=loaded.dtype_name,
        attention=str(model.config._attn_implementation),
        fast=made.fast,
        tokens_per_pass=config.train.tokens_per_pass,
        estimated_bytes=estimate(config, spec, data.facts, machine).peak_bytes,
        predicted=_predicted(config, spec, data, machine, trainer.ranks, rate),
        labels=data.outputs.names if data.outputs else (),
        problem=data.outputs.problem if data.outputs else None,
        lines=(where, loaded.line, learns, *_ranks_line(trainer.ranks, ring_of(model) is not None), *made.lines),
    )
