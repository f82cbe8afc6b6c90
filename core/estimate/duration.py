"""How long a run takes: counted work over published rates, as a range with its basis.

Per token, a frozen base with adapters costs two operations a weight forward, two for the gradient of its input, and
two more where the layer is recomputed (ours leave out the last product then); an adapter costs six a number. Causal
attention over rows of n tokens costs 2 n Q a layer forward, 2.5 times that backward, and its forward part once more
where it is recomputed::

    products   4 (+ 2) N  +  6 A
    attention  7 (+ 2) n Q L

Where every weight is trained two more take the adapter's place; an encoder's attention is not causal and costs twice.
Memory traffic comes on top: in a micro-batch each 4-bit weight is made whole two or three times (5 bytes each), and
every token moves the layers' activations several times. So a micro-batch of T tokens takes::

    T products / (rate · 65 %)  +  T attention / (rate · 58 %)  +  bytes / bandwidth

and never less than the host needs to launch it, whatever T. The two shares are those that one H200 reached
(``core/bench/NOTES.md``): seven measured settings, rows of 232 to 32,768 tokens, kept, under a budget and recomputed,
come out within 8%. The range allows for other cards; earlier runs (``core.estimate.learned``) replace the shares.
"""

from collections.abc import Sequence

from core.estimate.inputs.cards import (
    BALANCED,
    COPY_RATE,
    FASTER_LINK,
    SLOWER_LINK,
    Published,
    link_bytes,
    published,
    published_of,
)
from core.estimate.inputs.layer import TILED_SUMS
from core.estimate.inputs.model import SLOTS
from core.estimate.inputs.rows import Rows
from core.estimate.inputs.work import Work
from core.estimate.terms import adapter_parameters, kept_of
from core.machine.hardware import Machine

PRODUCTS_SHARE, ATTENTION_SHARE = 0.65, 0.58
WHOLE_BYTES = 5.0
"""Traffic of making one 4-bit weight whole: half a byte and its scale read, two bytes written and read again."""
BORDERED_BYTES = 6.0
"""Traffic of putting a 16-bit weight beside its adapter, as our layers do: read, written and read again."""
EIGHT_BIT_BYTES, EIGHT_BIT_FROM_16 = 2.5, 4.0
"""The same in 8 bits: written and read in one byte."""
ROWS_BYTES = 4.0
"""Traffic of quantising a value of activations or gradients: read, written in one byte and read again."""
TRAFFIC, PLAIN_TRAFFIC = 10.0, 32.0
"""How often a token's activations of a layer go through memory, forward and backward; plain layers cast and copy."""
LAUNCH_SECONDS, LAUNCHED_AGAIN = 3.3e-3, 0.4
"""What the host needs to launch one layer, forward and backward (3.0 to 4.5 ms in nine settings beside an H200), and
the share of it that recomputing adds."""
FASTER_HOST, SLOWER_HOST = 0.85, 2.5
"""Factors on that for another host: two machines with an H200 each differed by 1.6 to 2.0 in short micro-batches, and
by 2 % in long ones."""
MORE_DORA = 1.3
"""A factor on launching for DoRA: counted launches, not measured."""
MORE_NORMS = 1.4
"""A factor on launching for norms behind attention and MLP (Gemma)."""
MEASURED_CARD = "H200"
SLOWER_HERE, FASTER_HERE = 0.7, 1.15
SLOWER, FASTER = 0.55, 1.2
"""What a card may reach of those shares: the measured card (48 settings on two hosts, nine in ten within the range),
and any other."""

DORA_BYTES = 2.0
"""What DoRA adds where a weight is made whole in a forward pass: it is read for its rows' lengths, and made again."""
DORA_TRAFFIC = 2.0
"""How often DoRA's backward pass reads each projection's result or its gradient; those of gate and up twice more."""

START_SECONDS = (5.0, 22.0)
"""A process with all its libraries, until a model can be loaded; the second on a slow or busy machine (19 to 22 s in
three starts beside an H200, 13 s on two busy cores)."""
LOADED_BYTES_A_SECOND = (2e9, 0.3e9)
FIRST_STEP_SECONDS, FIRST_STEP_ON_CPU = (1.0, 5.0), (0.1, 0.5)
"""What the first step takes beyond a later one: on a card kernels are compiled or read (1.0 to 4.9 s in nine runs on
an H200)."""
START_SPREAD = 0.5
SAVING_SECONDS = (0.1, 0.3)
"""Of each checkpoint beside its bytes (0.13 to 0.29 s in ten on two busy cores)."""
SAMPLES_SHARE = 0.05
"""The most of a run's time that sample answers take (``core.train.evaluate``)."""
GRADIENT_BYTES = 4
"""Of a number that learns, where cards add up their gradients."""
APPLIED_BYTES = 20
"""Traffic of a number that learns when a step is applied: itself, its gradient and its states, read and written.
Counted, not measured."""
SLOWER_TOGETHER = 0.7
"""What two processes on one CPU may reach of one's speed: they wait for each other. Assumed, not measured."""
FORWARDS = 2.0
"""A pass in units of its forward part where weights are frozen and nothing is recomputed: a recomputation adds one."""
Range = tuple[float, float]


def start_seconds(weights_bytes: int, known: float | None, on_card: bool = True) -> Range:
    """From Start to where the first step would end if it were like any other (low, high): as earlier runs took, else
    libraries, a model of so many bytes, and what the first step takes longer."""
    if known is not None:
        return known * (1 - START_SPREAD), known * (1 + START_SPREAD)
    longer = FIRST_STEP_SECONDS if on_card else FIRST_STEP_ON_CPU
    low, high = (
        start + weights_bytes / rate + first
        for start, rate, first in zip(START_SECONDS, LOADED_BYTES_A_SECOND, longer, strict=True)
    )
    return low, high


def saving_seconds(checkpoints: float, saved_bytes: int) -> Range:
    """What so many checkpoints of so many bytes take (low, high)."""
    low, high = (
        checkpoints * (beside + saved_bytes / rate)
        for beside, rate in zip(SAVING_SECONDS, LOADED_BYTES_A_SECOND, strict=True)
    )
    return low, high


def rates_of(
    work: Work, rows: Rows, machine: Machine, gain: float | None = None
) -> tuple[tuple[float, float] | None, str]:
    """Tokens a second (low, high) by micro-batches such as ``work``, or None, and on what that rests.

    Args:
        gain: how many times as fast as in 16 bits a layer's frozen products were in a trial on this card; None: by the
            published rates.
    """
    name = machine.gpu.name if machine.gpu else ""
    card = published_of(machine)
    if card is None:
        return None, f"no speed known for {name or 'the CPU of this machine'} yet; the first steps will tell"
    if MEASURED_CARD in name:
        low, high = SLOWER_HERE, FASTER_HERE
    else:
        low, high = SLOWER, FASTER
    computed, launched = _computed(work, rows.seen, card, gain), _launched(work)
    if launched > computed:
        least, most = (1000 * LAUNCH_SECONDS * host for host in (FASTER_HOST, SLOWER_HOST))
        basis = f"passes so short wait for the processor, {least:.0f} to {most:.0f} ms a layer"
    else:
        shares = f"{PRODUCTS_SHARE * low:.0%} to {PRODUCTS_SHARE * high:.0%}"
        basis = f"counted work, at {shares} of the card's published speed (an H200 reached {PRODUCTS_SHARE:.0%})"
        if gain is not None and work.model.arithmetic.bits == 8:
            basis += f", {work.model.arithmetic.name} as tried on it"
    return (
        1 / max(computed / low, launched * SLOWER_HOST),
        1 / max(computed / high, launched * FASTER_HOST),
    ), f"estimated: {basis}"


def shared_rates(one: Range, work: Work, rows_per_step: int, rows: Rows, machine: Machine) -> Range:
    """Tokens a second (low, high) of all cards of a job together, from those of one of them. A step of T tokens takes::

        S / rate  +  2 (n - 1) / n · bytes of gradients / link  +  (1 - S / T) · applying them

    where S is what the slowest of n cards computes in the time of the step: rows are shared by speed
    (``core.train.ranks.pace``), and stay whole, so that of 5 rows two alike cards have 3 and 2. Each card applies the
    step itself. Processes on one CPU share it, so that nothing is gained.
    """
    if rows.shared == 1 or not one[0]:
        return one
    if machine.gpu is None:
        return SLOWER_TOGETHER * one[0], one[1]
    tokens = rows_per_step * rows.mean * rows.sides
    share, numbers = slowest_share(rows_per_step, paces(work, rows, machine)), adapter_parameters(work)
    card = published_of(machine) or BALANCED
    joined = 2 * (rows.shared - 1) / rows.shared * GRADIENT_BYTES * numbers / link_bytes(machine)
    applied = (1 - share) * APPLIED_BYTES * numbers / card.bytes
    low, high = (
        tokens / (share * tokens / rate + joined / link + applied)
        for rate, link in zip(one, (SLOWER_LINK, FASTER_LINK), strict=True)
    )
    return low, high


def paces(work: Work, rows: Rows, machine: Machine) -> list[float]:
    """How much quicker each card of a job is than its slowest, as counted; all 1 where they are alike, or one is
    unknown."""
    known = [one for card in machine.working if (one := published(card.name))]
    if len(set(known)) < 2 or len(known) < machine.cards.ranks:
        return [1.0] * machine.cards.ranks
    seconds = [seconds_per_token(work, rows.seen, card) for card in known]
    return [max(seconds) / one for one in seconds]


def slowest_share(rows: int, paces: Sequence[float]) -> float:
    """Of so many equal rows: how many the slowest card (pace 1) computes until all are done, as a part of them."""
    dealt = [int(rows * pace / sum(paces)) for pace in paces]
    for _ in range(rows - sum(dealt)):
        dealt[min(range(len(paces)), key=lambda card: (dealt[card] + 1) / paces[card])] += 1
    return max(count / pace for count, pace in zip(dealt, paces, strict=True)) / rows


def seconds_per_token(work: Work, row_tokens: float, card: Published | None) -> float:
    """Seconds of one token: counted work and traffic over published rates, or its share of launching, whichever is
    longer. ``card`` None: over a balanced card's rates, to compare two settings."""
    return max(_computed(work, row_tokens, card or BALANCED), _launched(work))


def _computed(work: Work, row_tokens: float, card: Published, gain: float | None = None) -> float:
    """Seconds that the card works for one token, or waits for streamed layers: whichever is longer, each way."""
    alone = _worked(work, row_tokens, card, gain)
    if not work.model.streamed:
        return alone
    copied = copied_seconds(work) / work.tokens
    forward = alone / (FORWARDS + _recomputed(work))
    return max(forward, copied) + max(alone - forward, copied) + _waited_for_head(work, card)


def _waited_for_head(work: Work, card: Published) -> float:
    """Seconds of one token in which a head in tiles is copied, for each block of tokens once, and nothing computes."""
    model = work.model
    if not model.streamed_head:
        return 0.0
    blocks = -(-work.tokens * model.shape.hidden_size // TILED_SUMS)
    copied = blocks * model.head_bytes / (work.copy_rate or COPY_RATE)
    computed = 4 * model.shape.vocab_size * model.shape.hidden_size / (card.operations * PRODUCTS_SHARE)
    return max(0.0, copied / work.tokens - computed)


def copied_seconds(work: Work) -> float:
    """What copying the streamed layers of a micro-batch takes, one way."""
    model = work.model
    missing = max(0, model.streamed_layers - SLOTS)  # what lies in the slots when a pass turns round is there
    return missing * model.streamed_layer_bytes / (work.copy_rate or COPY_RATE)


def streaming_seconds(work: Work, row_tokens: float, card: Published | None) -> float:
    """What streaming adds to a micro-batch: copies that do not hide behind computing."""
    alone = max(_worked(work, row_tokens, card or BALANCED), _launched(work))
    return max(0.0, seconds_per_token(work, row_tokens, card) - alone) * work.tokens


def _worked(work: Work, row_tokens: float, card: Published, gain: float | None = None) -> float:
    """Seconds that the card works for one token. ``gain`` is of the frozen products and what makes their weights
    whole, together."""
    products, attention = _operations(work, row_tokens)
    model, again = work.model, _recomputed(work)
    bytes_whole = WHOLE_BYTES if model.form.quantised else BORDERED_BYTES if model.fast else 0.0
    quantised = 0.0
    if model.arithmetic.bits == 8 and gain is not None:
        frozen = _frozen_operations(work)
        products -= frozen * (1 - 1 / gain)
        bytes_whole /= gain
    elif model.arithmetic.bits == 8:
        frozen = _frozen_operations(work)
        products -= frozen * (1 - 1 / card.faster(model.arithmetic.name))
        bytes_whole = EIGHT_BIT_BYTES if model.form.quantised else EIGHT_BIT_FROM_16
        quantised = ROWS_BYTES * model.quantised_rows * (1 + again / 2)
    made_whole = bytes_whole * model.shape.linear_parameters * (2 + again)
    moved = model.shape.num_hidden_layers * model.kept_per_token * (TRAFFIC if model.joined else PLAIN_TRAFFIC)
    if model.fast and model.scaled_rows:
        made_whole += (bytes_whole + DORA_BYTES) * model.shape.linear_parameters * (1 + again)
        copied = 4 * model.shape.intermediate_size * model.shape.num_hidden_layers * model.layer.scaled[2]
        moved += DORA_TRAFFIC * model.dtype_bytes * (model.scaled_rows + copied)
    traffic = made_whole / work.tokens + moved * (1 + again / 3) + quantised
    return (products / PRODUCTS_SHARE + attention / ATTENTION_SHARE) / card.operations + traffic / card.bytes


def _launched(work: Work) -> float:
    """Seconds that the host needs to launch the micro-batch, a token."""
    layers = work.model.shape.num_hidden_layers * (1 + LAUNCHED_AGAIN * _recomputed(work))
    more = (MORE_NORMS if work.model.family.four_norms else 1.0) * (MORE_DORA if work.model.scaled_rows else 1.0)
    tiles = -(-work.tokens // work.tile) if work.tiled else 1
    return LAUNCH_SECONDS * layers * more * tiles / work.tokens


def operations_per_token(work: Work, row_tokens: float) -> float:
    """Operations for one token of a row of this length, forward and backward."""
    return sum(_operations(work, row_tokens))


def _operations(work: Work, row_tokens: float) -> tuple[float, float]:
    shape = work.model.shape
    head = work.model.vocabulary * shape.hidden_size
    queries = shape.query_size
    leaves_out = work.model.fast and not work.model.layer.scaled[3]  # whose gradient needs the last product
    left_out = shape.hidden_size * shape.intermediate_size * shape.num_hidden_layers if leaves_out else 0
    recomputed = _recomputed(work)
    again = recomputed * 2 * (shape.linear_parameters - left_out)
    model = work.model
    weights = 2 * shape.linear_parameters if model.learns.base else 6 * model.adapter_numbers
    trained_head = 4 * head if model.learns.ends else 0  # its gradient, and its logits once more
    if work.tiled:  # the heads are made once more for their own backward pass
        heads = shape.query_size + 2 * shape.key_size
        again += recomputed * 2 * shape.hidden_size * heads * shape.num_hidden_layers
    products = 4 * (shape.linear_parameters + head) + again + weights + trained_head
    return products, (7 + 2 * recomputed) * model.seen(row_tokens) * queries * shape.num_hidden_layers


def _frozen_operations(work: Work) -> float:
    """Of the products with frozen weights, forward, for their input's gradient, and once more where recomputed."""
    shape = work.model.shape
    left_out = shape.hidden_size * shape.intermediate_size * shape.num_hidden_layers
    return 4 * shape.linear_parameters + _recomputed(work) * 2 * (shape.linear_parameters - left_out)


def _recomputed(work: Work) -> float:
    return 1 - kept_of(work) / work.model.shape.num_hidden_layers
