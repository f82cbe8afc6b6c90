"""The estimate: memory against what is free, steps, tokens, time and disk, for a config and a machine.

It resolves the config first: what is shown is what would be run. Pure, and done in less than five milliseconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import core.estimate.terms as terms
from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Estimate, LearnedRun, Probe, Verdict
from core.estimate.duration import (
    GRADIENT_BYTES,
    SAMPLES_SHARE,
    operations_per_token,
    rates_of,
    saving_seconds,
    seconds_per_token,
    shared_rates,
    start_seconds,
    streaming_seconds,
)
from core.estimate.eight_bits import gain_of, layer_of
from core.estimate.fit import (
    HOST_BYTES,
    SPARE,
    free_bytes,
    limit_bytes,
    measured,
    pass_tokens,
    pass_work,
    plan,
    usual_tokens,
)
from core.estimate.inputs.cards import deciding, link_bytes, published, published_of, shared_by
from core.estimate.inputs.rows import Rows, learned_rows, rows_of, steps_per_epoch, total_steps
from core.estimate.inputs.work import GIB, Work, gigabytes
from core.estimate.learned import Learned, Memory, likeness
from core.estimate.peak import fewer_streamed, height, memory_terms
from core.estimate.reach import place
from core.machine.hardware import Machine
from core.models.positions import scaling_words
from core.models.suited import suited

CHECKPOINTS = 4
"""The newest two, the best, and one on its way (``core.train.keep.checkpoint``; a test holds the number to it)."""
LEAST_SAID = 0.005
LEAST_SECONDS = 0.05
JOULES_A_KWH = 3.6e6
Range = tuple[float, float]


@dataclass(frozen=True)
class Judged:
    """A plan, and whether it fits. ``work`` is the largest micro-batch, ``usual`` one of usual size; ``counted`` bytes
    are arithmetic alone; ``peak``, ``allocated`` and ``reserved`` are corrected by earlier runs."""

    config: RunConfig
    rows: Rows
    work: Work
    usual: Work
    like: LearnedRun
    memory: Memory
    counted: int
    allocated: int
    reserved: int
    peak: int
    limit: int | None
    free: int | None
    verdict: Verdict
    host_missing: int = 0
    """Bytes of the machine's own memory that layer inputs and streamed weights lack."""
    alone: LearnedRun | None = None
    """The same run on one of its cards, where all are alike."""
    gain: float | None = None
    """How many times as fast as in 16 bits a layer's frozen products were in a trial on this card."""
    limited: bool = False
    """Whether a person set the limit."""


def estimate(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, learned: Learned | None = None
) -> Estimate:
    """What this run would need on this machine.

    Args:
        facts: lengths of the data's rows; None before it is read: every row counts as full.
        learned: finished runs of this machine (``core.runs.record.learned.speeds``).
    """
    learned, machine, (config, _) = learned or Learned(), deciding(machine), place(suited(config, spec)[0], spec, facts)
    judged = judge(config, spec, rows_of(config, facts), machine, learned)
    config, rows, work, card = judged.config, judged.rows, judged.work, machine.gpu
    steps = total_steps(config, rows.train) if rows.known else 0
    seconds, tokens_per_second, time_basis = _time(judged, _tokens(config, rows, facts, steps), machine, learned)
    energy_kwh, energy_basis = _energy(seconds, machine, learned)
    pinned, weights, host = terms.pinned_bytes(work), work.model.host_weights_bytes, _host_bytes(judged, machine)
    ranks = machine.cards.ranks
    download, checkpoints = 0 if spec.cached else spec.download_bytes, CHECKPOINTS * terms.saved_bytes(work)
    needed = download + checkpoints
    short = _short_of(needed, machine.disk_free_bytes, host if card else 0, machine.ram_free_bytes, judged)
    return Estimate(
        terms=memory_terms(work, judged.peak - judged.counted),
        peak_bytes=judged.peak,
        allocated_bytes=judged.allocated,
        reserved_bytes=judged.reserved,
        free_bytes=judged.free,
        limit_bytes=judged.limit if judged.limited else None,
        total_bytes=card.total_bytes if card else machine.ram_total_bytes // ranks,
        held_bytes=card.held_bytes if card else (machine.ram_total_bytes - machine.ram_free_bytes) // ranks,
        device=card.name if card else "cpu",
        verdict=judged.verdict,
        sentence=sentence_of(judged),
        host_bytes=host,
        pinned_bytes=pinned,
        host_weights_bytes=weights,
        streamed_layers=work.model.streamed_layers,
        tile_tokens=work.tile if work.tiled else 0,
        copy_seconds=streaming_seconds(judged.usual, rows.seen, published_of(machine)),
        total_steps=steps,
        rows_per_step=config.rows_per_step,
        steps_per_epoch=steps_per_epoch(config, rows.train) if rows.known else 0,
        tokens_per_epoch=rows.tokens_per_epoch,
        trained_tokens_per_epoch=rows.trained_per_epoch,
        rows_cut=rows.cut,
        tokens_lost=rows.lost,
        tokens_packed=rows.packed,
        padding_saved=rows.padding,
        seconds=seconds,
        tokens_per_second=tokens_per_second,
        time_basis=time_basis,
        energy_kwh=energy_kwh,
        energy_basis=energy_basis,
        disk_bytes=needed,
        disk_free_bytes=machine.disk_free_bytes,
        download_bytes=download,
        checkpoints_bytes=checkpoints,
        notes=(*_notes(config, spec, facts, judged), *_in_parts(judged, machine), *_shared(judged, machine), *short),
        learned_from=judged.memory.runs,
        cards=ranks,
    )


def _host_bytes(judged: Judged, machine: Machine) -> int:
    """What the run takes of the machine's own memory: each card's process, and streamed weights, once for all."""
    model, cards = judged.work.model, machine.cards.ranks
    paged = model.state_bytes - model.optimiser_bytes
    held = 4 * model.own_numbers  # while a checkpoint is written, and in the first step
    # Where the reference is in what learns: its numbers, and the trained ones while they change places.
    swapped = 2 * model.dtype_bytes * model.own_numbers if judged.config.learning.reference else 0
    if not machine.gpu:
        return cards * (swapped + judged.peak)
    return cards * (swapped + HOST_BYTES + paged + held) + terms.kept_there(judged.work, cards)


def judge(config: RunConfig, spec: ModelSpec, rows: Rows, machine: Machine, learned: Learned | None) -> Judged:
    """The plan for this config on this machine, and whether it fits."""
    limited = bool(machine.gpu and config.train.memory_gib)
    config, _ = plan(config, spec, rows, machine, learned)
    machine, rows = measured(deciding(machine), learned), shared_by(rows, machine)
    work = pass_work(config, spec, rows, machine, pass_tokens(config, rows))
    usual = work.at(usual_tokens(config, rows, work.tokens))
    published, more = published_of(machine), _forwards(config, rows)
    rate = 1 / (more * seconds_per_token(usual, rows.seen, published)) if published else 0.0
    like = likeness(config, spec, rows, machine, work).model_copy(
        update={
            "predicted_tokens_per_second": max(shared_rates((rate, rate), usual, config.rows_per_step, rows, machine)),
            "operations": more * operations_per_token(usual, rows.seen),
        }
    )
    alone = None if rows.unlike else like.model_copy(update={"cards": 1, "predicted_tokens_per_second": rate})
    memory = learned.memory(like) if learned is not None else Memory()
    highest = height(work)
    allocated = round(highest.allocated * memory.allocated)
    reserved = max(allocated, round(highest.reserved * memory.reserved))
    peak = reserved + highest.parts["context"]
    limit, free = limit_bytes(config, machine), free_bytes(machine)
    # The run keeps to its limit by counting; what is free must also hold what earlier runs took beyond that.
    verdict: Verdict
    if limit is None or free is None:
        verdict = "unknown"
    elif highest.total <= limit and peak <= SPARE * free:
        verdict = "fits"
    else:
        verdict = "tight" if peak <= free else "too_large"
    there = terms.kept_there(work, rows.shared)
    missing = there - machine.ram_free_bytes if there else 0
    verdict = verdict if missing <= 0 or verdict == "unknown" else "too_large"
    trial = learned.trial(layer_of(config, spec, machine, usual.tokens)) if learned is not None else None
    gain = gain_of(trial, work.model.arithmetic.name)
    return Judged(
        config, rows, work, usual, like, memory, highest.total, allocated, reserved, peak, limit, free, verdict,
        max(0, missing), alone, gain, limited,
    )  # fmt: skip


def sentence_of(judged: Judged) -> str:
    """The verdict in a sentence, with the numbers."""
    work, peak, limit, free = judged.work, judged.peak, judged.limit, judged.free
    if limit is None or free is None:
        return f"Needs about {gigabytes(peak)}; this machine does not say how much is free."
    each = "" if judged.rows.shared == 1 else " on each card" if work.model.gpu else " for each process"
    need = f"{peak / GIB:.1f} of {gigabytes(free)} free{each}"
    if judged.verdict == "fits":
        return f"Fits: {need}."
    if judged.verdict == "tight" and peak <= SPARE * free:
        return f"Tight: {need}, but only {gigabytes(limit)} are to be used. Allow more, or shorten the longest example."
    if judged.verdict == "tight":
        return f"Tight: {need}. Close other programs, or make the longest example shorter."
    if peak <= free:
        what = "streamed layers and layer inputs" if work.model.streamed else "layer inputs"
        kept, lacks = terms.kept_there(work, judged.rows.shared), judged.host_missing
        fewer = fewer_streamed(work, judged.rows.shared, lacks, limit)
        less = "or shorten the longest example" if lacks <= kept - work.model.host_weights_bytes else work.model.smaller
        return (
            f"Too large: {what} take {gigabytes(kept)} of the machine's own memory, which lacks {gigabytes(lacks)}. "
            f"Close other programs, {fewer}{less}."
        )
    return (
        f"Too large: needs {need}, {gigabytes(peak - free)} too much. "
        f"Shorten the longest example, {work.model.less}or choose a smaller model."
    )


def predict(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine, alone: bool = False
) -> LearnedRun:
    """What arithmetic alone predicts, to compare with what the run takes; ``alone``: one of its alike cards."""
    machine, (config, _) = as_empty(config, machine), suited(config, spec)
    judged = judge(config, spec, rows_of(config, facts), machine, None)
    told = {"predicted_bytes": judged.allocated, "predicted_reserved_bytes": judged.reserved}
    like = judged.alone if alone and judged.alone else judged.like
    return like.model_copy(update={"model": spec.name, **told})


def as_empty(config: RunConfig, machine: Machine) -> Machine:
    """The machine, its card's free memory unknown where the config limits it: a run may ask while its own weights are
    on the card."""
    if not config.train.memory_gib or machine.gpu is None:
        return machine
    return replace(machine, gpus=(replace(machine.gpu, free_bytes=None), *machine.gpus[1:]))


def probed(probe: Probe, config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine) -> LearnedRun:
    """A probe as a finished run: ``learned.plus(probed(...))`` corrects the next estimate by it."""
    more = _forwards(config, rows_of(config, facts))
    return predict(config, spec, facts, machine, alone=True).model_copy(
        update={
            "run_id": "probe",
            "measured_bytes": probe.peak_bytes,
            "measured_reserved_bytes": probe.reserved_bytes,
            # Its steps repeat, so that the reference has been there already.
            "measured_tokens_per_second": probe.tokens_per_second * (1 + config.learning.forwards / 3) / more,
            "steps": max(probe.steps, 5),
        }
    )


def _time(judged: Judged, tokens: float, machine: Machine, learned: Learned) -> tuple[Range | None, Range | None, str]:
    """Seconds of the whole run with its start, checkpoints and sample answers; tokens a second; on what they rest."""
    usual = judged.usual
    rates, basis = learned.rates(judged.like) or _shared_by_cards(judged, machine, learned)
    if rates is None or not tokens:
        return None, rates, basis if rates is None else "the data is not read yet"
    on_card, train = machine.gpu is not None, judged.config.train
    begun = start_seconds(2 * usual.model.shape.parameters, learned.start_seconds(judged.like), on_card)
    saves = total_steps(judged.config, judged.rows.train) / max(1, train.save_steps)
    saving = saving_seconds(saves, terms.saved_bytes(judged.work))
    sampled = 1 + SAMPLES_SHARE if train.sample_rows else 1.0
    low, high = (tokens / rate for rate in reversed(rates))
    return (low + begun[0] + saving[0], sampled * high + begun[1] + saving[1]), rates, basis


def _shared_by_cards(judged: Judged, machine: Machine, learned: Learned) -> tuple[Range | None, str]:
    """Tokens a second of all cards, from those of one."""
    one, basis = (learned.rates(judged.alone) if judged.alone else None) or _counted(judged, machine)
    if one is None or judged.rows.shared == 1:
        return one, basis
    size = GRADIENT_BYTES * terms.adapter_parameters(judged.work) / 2**20
    how = f"{size:,.0f} MB of gradients a step over {link_bytes(machine) / 1e9:.0f} GB/s between the cards"
    how = how if machine.gpu else f"{judged.rows.shared} processes share the processor"
    return shared_rates(one, judged.usual, judged.config.rows_per_step, judged.rows, machine), f"{basis}; {how}"


def _counted(judged: Judged, machine: Machine) -> tuple[Range | None, str]:
    """Tokens a second that work, published rates and a trial of the arithmetic give."""
    rates, basis = rates_of(judged.usual, judged.rows, machine, judged.gain)
    more = _forwards(judged.config, judged.rows)
    return (rates[0] / more, rates[1] / more) if rates else None, basis


def _forwards(config: RunConfig, rows: Rows) -> float:
    """How many times longer a trained token takes for the method's forward passes beside, each a third of it; those of
    the reference are made once a row."""
    steps = total_steps(config, rows.train) if rows.known else 0
    once = min(1.0, steps_per_epoch(config, rows.train) / steps) if steps else 1.0
    return 1 + (config.learning.forwards + once * config.learning.reference) / 3


def _energy(seconds: Range | None, machine: Machine, learned: Learned) -> tuple[Range | None, str]:
    """The energy of the cards in kWh, and on what it rests."""
    cards = machine.working
    if not cards:
        return None, "what a CPU draws is not known here"
    which = "the card" if len(cards) == 1 else f"the {len(cards)} cards"
    if all(drawn := [learned.watts(card.name) or 0.0 for card in cards]):
        basis = f"{which} drew {sum(drawn):.0f} W in earlier runs; the rest of the machine is not in it"
    elif all(drawn := [card.power_limit_watts or 0.0 for card in cards]):
        basis = f"at {which}'{'s' if len(cards) == 1 else ''} limit of {sum(drawn):.0f} W, without the machine's rest"
    elif all(drawn := [known.watts if (known := published(card.name)) else 0.0 for card in cards]):
        this = "this card" if len(cards) == 1 else "these cards"
        basis = f"at the {sum(drawn):.0f} W that are published for {this}, without the machine's rest"
    else:
        return None, f"what {'this card draws' if len(cards) == 1 else 'these cards draw'} is not known"
    kwh = sum(drawn) / JOULES_A_KWH
    return (seconds[0] * kwh, seconds[1] * kwh) if seconds else None, basis


def _tokens(config: RunConfig, rows: Rows, facts: DataFacts | None, steps: int) -> float:
    """Tokens of the whole run as training tokens; a forward pass over one in an evaluation costs a third of one."""
    if not rows.known or facts is None or not rows.train:
        return 0.0
    trained = rows.tokens_per_epoch * steps / steps_per_epoch(config, rows.train)
    kept_aside = learned_rows(config, facts) - rows.train
    aside = kept_aside * rows.tokens_per_epoch / rows.train
    evaluations, learning = 1 + steps / config.train.eval_steps, config.learning
    passes = evaluations * (1 + learning.forwards) + learning.reference
    return trained + passes * aside / (3 * _forwards(config, rows))


def _shared(judged: Judged, machine: Machine) -> Iterator[str]:
    """What sharing the steps means for this run."""
    cards, rows = machine.working, judged.config.rows_per_step
    if judged.rows.shared == 1:
        return
    if judged.rows.unlike:
        yield (
            "Unlike cards: after the first steps each has a share of the rows by its measured speed; "
            f"the {cards[0].short} says what fits."
        )
    elif rows % judged.rows.shared:
        full = judged.rows.of_step(rows)
        yield (
            f"A step has {rows} rows, of which {judged.rows.shared} cards have up to {full} each: "
            f"a multiple of {judged.rows.shared} is shared evenly."
        )


def _in_parts(judged: Judged, machine: Machine) -> Iterator[str]:
    """That layers stream, and what it costs; that long rows are computed in tiles."""
    work, model = judged.work, judged.work.model
    if work.tiled:
        yield (
            f"A pass of {work.tokens:,} tokens goes through each layer in tiles of {work.tile:,}; "
            "attention alone sees it whole."
        )
    if not model.streamed:
        return
    head = ", and the head," if model.streamed_head else ""
    where = f"{model.streamed_layers} of {model.shape.num_hidden_layers} layers{head} stream from the machine's memory"
    once = f", once for all {judged.rows.shared} cards" if judged.rows.shared > 1 else ""
    extra = streaming_seconds(judged.usual, judged.rows.seen, published_of(machine))
    cost = f"adds about {extra:.1f} s to a pass" if extra >= LEAST_SECONDS else "hides behind computing"
    at_once = f" at {work.copy_rate / 1e9:.0f} GB/s to each card at once" if once else ""
    yield f"{where} ({gigabytes(model.host_weights_bytes)} of it{once}); copying them{at_once} {cost}."


def _short_of(disk: int, disk_free: int | None, host: int, host_free: int, judged: Judged) -> Iterator[str]:
    """What of disk and host memory is missing."""
    if disk_free is not None and disk > disk_free:
        missing = f"The disk has {gigabytes(disk_free)} free, and {gigabytes(disk)} are needed"
        yield f"{missing}: make room, or choose another."
    if host > host_free:
        cards, once = judged.rows.shared, "; streamed layers lie there once" if judged.work.model.streamed else ""
        each = f" (each of {cards} cards has a process with its own copy{once})" if cards > 1 else ""
        yield (
            f"About {gigabytes(host)} of the machine's own memory are needed{each}, and {gigabytes(host_free)} "
            f"are free: close other programs{' or choose fewer cards' if cards > 1 else ''}."
        )


def _notes(config: RunConfig, spec: ModelSpec, facts: DataFacts | None, judged: Judged) -> Iterator[str]:
    limit, rows, memory = config.train.max_length, judged.rows, judged.memory
    if memory.runs and abs(memory.reserved - 1) >= LEAST_SAID:
        more = f"{abs(memory.reserved - 1):.0%} {'more' if memory.reserved > 1 else 'less'}"
        count = "An earlier run" if memory.runs == 1 else f"{memory.runs} earlier runs"
        yield f"{count} like this one took {more} memory than counted; that is in the figure."
    if not rows.known or facts is None:
        yield f"No data yet: every row is taken as full ({limit:,} tokens), and steps and time are left open."
        return
    if rows.cut:
        yield f"{rows.cut:,} of {facts.rows:,} rows are longer than {limit:,} tokens and are cut there."
    if facts.sampled:
        yield f"Lengths come from a sample of {len(facts.lengths):,} rows."
    made, scaling = spec.shape.max_position_embeddings, scaling_words(config.model)
    if rows.longest > made:
        more = f"rows reach {rows.longest:,}: {scaling}" if scaling else "longer rows may not be learned"
        yield f"The model was made for {made:,} tokens; {more}."
