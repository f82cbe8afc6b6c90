"""What a run will need, part by part, before anything is loaded; and what was measured to correct it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from core.contract.methods import DEFAULT_METHOD, Method
from core.contract.tasks import DEFAULT_LEARNS, LearnsName
from core.contract.weight_forms import DEFAULT_ARITHMETIC, DEFAULT_WEIGHT_FORM

MemoryKey = Literal["weights", "lora", "gradients", "optimiser", "activations", "loss", "workspace", "slack", "context"]
Verdict = Literal["fits", "tight", "too_large", "unknown"]
"""``fits`` with 10 % to spare; ``unknown`` where no memory reading exists."""


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MemoryPart(_Fact):
    """One part of the memory; ``how`` is its formula in words.

    ``bytes`` is the part's own maximum, ``at_peak`` its size when the run takes most: these add up to
    ``Estimate.peak_bytes``. "slack" is what torch's allocator holds and cannot hand out.
    """

    key: MemoryKey
    bytes: int
    how: str
    at_peak: int = 0


class Estimate(_Fact):
    """Peak memory of a run against what is free, and what it costs in time and disk.

    ``peak_bytes`` is all that the run takes of the card: ``reserved_bytes`` of torch's allocator, of which tensors have
    ``allocated_bytes``, and the CUDA context. ``host_bytes`` is the machine's own memory, ``pinned_bytes`` the part of
    it that holds layer inputs, ``host_weights_bytes`` that of streamed layers and embeddings.
    Ranges are (low, high), for the whole run, or None where nothing is known of the device.
    """

    terms: tuple[MemoryPart, ...]
    peak_bytes: int
    free_bytes: int | None
    total_bytes: int | None
    device: str
    verdict: Verdict
    sentence: str
    """"Fits: 5.1 of 7.4 GB free." """
    total_steps: int
    tokens_per_epoch: int
    trained_tokens_per_epoch: int
    rows_cut: int
    seconds: tuple[float, float] | None
    time_basis: str
    disk_bytes: int
    host_bytes: int
    limit_bytes: int | None = None
    """What a person allowed the run of the card; None: nobody did."""
    pinned_bytes: int = 0
    host_weights_bytes: int = 0
    streamed_layers: int = 0
    tile_tokens: int = 0
    """Of the tiles in which the longest micro-batch's layers are computed; 0: in one piece."""
    copy_seconds: float = 0.0
    """What streaming adds to a usual micro-batch, beyond what hides behind computing."""
    notes: tuple[str, ...] = ()
    rows_per_step: int = 0
    steps_per_epoch: int = 0
    tokens_lost: int = 0
    """In one epoch, beyond the length limit."""
    tokens_packed: int = 0
    """Tokens that packed rows compute in one epoch, chosen or not; a pair's prompt is read once."""
    padding_saved: int = 0
    """Tokens of one epoch that padding each batch to its longest row adds to those."""
    disk_free_bytes: int | None = None
    download_bytes: int = 0
    energy_kwh: tuple[float, float] | None = None
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    held_bytes: int | None = None
    """What other programs hold of the card now; None where the driver does not say."""
    checkpoints_bytes: int = 0
    """The part of ``disk_bytes`` that checkpoints take; ``download_bytes`` is the rest."""
    tokens_per_second: tuple[float, float] | None = None
    energy_basis: str = ""
    learned_from: int = 0
    """How many earlier runs corrected the memory; 0: arithmetic alone."""
    cards: int = 1
    """How many cards (on the CPU processes) share each step; all memory is of the one with least room."""


class LearnedRun(_Fact):
    """What was predicted of a run, and what it then took; a line of ``learned.jsonl`` under the root folder.

    ``shape`` names the model by its numbers: a folder and a hub id of one model are the same. Bytes are those of
    torch's allocator on the card, 0 where unknown. ``longest``: tokens of the largest micro-batch planned for;
    ``mean_row``: mean tokens of a row.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    run_id: str = ""
    at: float = 0.0
    card: str = ""
    model: str = ""
    shape: str = ""
    method: Method = DEFAULT_METHOD
    quantization: str = DEFAULT_WEIGHT_FORM
    checkpointing: str = "none"
    kernels: str = "auto"
    arithmetic: str = DEFAULT_ARITHMETIC
    rank: int = 16
    learns: LearnsName = DEFAULT_LEARNS
    longest: int = 0
    mean_row: float = 0.0
    predicted_bytes: int = 0
    measured_bytes: int = 0
    predicted_reserved_bytes: int = 0
    measured_reserved_bytes: int = 0
    predicted_tokens_per_second: float = 0.0
    measured_tokens_per_second: float = 0.0
    operations: float = 0.0
    """Counted for one token: gives another model's speed where nothing is published of the device."""
    watts: float = 0.0
    steps: int = 0
    streamed: int = 0
    """Layers that streamed from the machine's memory."""
    copy_bytes_a_second: float = 0.0
    """Measured from there to each card, all at once, where layers streamed; 0: unknown."""
    cards: int = 1
    """How many shared each step; ``card`` is the one with least memory, ``watts`` are of all."""
    start_seconds: float = 0.0
    """From the worker's start to its first step, and what the first steps took longer; 0 where unknown."""


class LayerTrial(_Fact):
    """What a trial on a card found: the frozen products of one of the model's layers, forward and backward, in each
    arithmetic that the card serves. A line of ``learned.jsonl``; all up to ``tokens`` says for what it holds.

    ``milliseconds`` are those of a layer by the arithmetic's name, ``seconds`` what the trial took in all.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    kind: Literal["trial"] = "trial"
    card: str = ""
    driver: str = ""
    versions: str = ""
    shape: str = ""
    quantization: str = DEFAULT_WEIGHT_FORM
    dtype: str = ""
    rank: int = 0
    tokens: int = 0
    milliseconds: dict[str, float] = {}
    seconds: float = 0.0
    at: float = 0.0


class ProvenHere(_Fact):
    """What a proof on a card found of an arithmetic; a line of ``learned.jsonl``, which holds while the proof is kept.

    Shares of the held-out loss as in ``core.contract.weight_forms.Evidence``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    kind: Literal["proof"] = "proof"
    proof: str
    card: str
    arithmetic: str
    share: float
    worst: float
    spread: float
    steps: int = 0
    at: float = 0.0


class Resolved(_Fact):
    """An automatic value made definite: dotted key, value as text, and the reason in a line."""

    key: str
    value: str
    reason: str


class Proposed(_Fact):
    """A setting that is proposed for these rows on this machine: dotted key, value, and why in a line."""

    key: str
    value: str | int | float | bool
    because: str


class Suggestion(_Fact):
    """One change that makes a run fit, or that uses room which is left, and what it costs.

    ``changes`` maps dotted keys of RunConfig to values as text. ``peak_bytes`` is the estimate with the change,
    ``slower`` the factor on the run's time, ``rows_cut`` how many more rows are cut.
    """

    changes: dict[str, str]
    text: str
    peak_bytes: int
    verdict: Verdict
    slower: float = 1.0
    rows_cut: int = 0


class Advice(_Fact):
    """Advice on a setting from the data at hand, with the change that it proposes where there is one."""

    code: str
    level: Literal["warning", "note"]
    text: str
    changes: dict[str, str] = {}


class Probe(_Fact):
    """What the longest micro-batch took, run forward and backward on this machine for ten seconds.

    ``peak_bytes`` are of tensors, ``reserved_bytes`` of torch's allocator; on the CPU both are the resident size.
    """

    peak_bytes: int
    reserved_bytes: int
    seconds_per_step: float
    tokens_per_second: float
    spilled: bool
    """Whether the driver moved card memory into the machine's, which makes steps slow."""
    steps: int
    context_bytes: int = 0
    """On the card beside the allocator: CUDA, kernels, and what other programs held meanwhile."""
    random_weights: bool = False
    """Whether the model is not downloaded yet and random weights of its shape were taken."""
