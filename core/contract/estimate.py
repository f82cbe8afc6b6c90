"""What a run will need, part by part, before anything is loaded."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from core.contract.methods import DEFAULT_METHOD, Method
from core.contract.weight_forms import DEFAULT_WEIGHT_FORM


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MemoryPart(_Fact):
    """One part of the memory: key for colours and words, bytes, and the formula in words.

    ``bytes`` is the part at its own height; ``at_peak`` what of it stands when the run takes most, so that these add up
    to ``Estimate.peak_bytes`` (a stacked bar is made of them). "slack" is what torch's allocator holds and cannot give.
    """

    key: Literal["weights", "lora", "gradients", "optimiser", "activations", "loss", "workspace", "slack", "context"]
    bytes: int
    how: str
    at_peak: int = 0


class Estimate(_Fact):
    """Peak memory of a run against what is free, and what it costs in time and disk.

    ``verdict`` is ``fits`` (10 % to spare), ``tight``, ``too_large``, or ``unknown`` where no memory reading exists.
    ``seconds`` is a range (low, high) for the whole run or None where nothing is known of this device. ``host_bytes``
    is the machine's own memory; ``pinned_bytes`` the part of it that is held for layer inputs, never swapped out.
    ``peak_bytes`` is all that the run takes of the card: ``allocated_bytes`` by tensors at their height, with the
    allocator's gaps ``reserved_bytes``, and the CUDA context beside it.
    """

    terms: tuple[MemoryPart, ...]
    peak_bytes: int
    free_bytes: int | None
    total_bytes: int | None
    device: str
    verdict: Literal["fits", "tight", "too_large", "unknown"]
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
    pinned_bytes: int = 0
    notes: tuple[str, ...] = ()
    rows_per_step: int = 0
    steps_per_epoch: int = 0
    tokens_lost: int = 0
    """Tokens of one epoch that lie beyond the length limit."""
    padding_saved: int = 0
    """Tokens of one epoch that padding each batch to its longest row would have added."""
    disk_free_bytes: int | None = None
    download_bytes: int = 0
    energy_kwh: tuple[float, float] | None = None
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    held_bytes: int | None = None
    """What other programs, the desktop first, hold of the card now; None where the driver does not say."""
    checkpoints_bytes: int = 0
    """The part of ``disk_bytes`` that checkpoints take; ``download_bytes`` is the rest."""
    merged_bytes: int = 0
    """What taking the merged model home would need of the disk besides; asked for by nobody yet."""
    tokens_per_second: tuple[float, float] | None = None
    energy_basis: str = ""
    learned_from: int = 0
    """Finished runs of this machine that the estimate was corrected by; 0: arithmetic alone."""


class LearnedRun(_Fact):
    """What was predicted of a run, and what it then took; a line of ``learned.jsonl`` under the root folder.

    ``shape`` names the model by its numbers, so that a folder and a hub id of one model are the same. Bytes are those
    of torch's allocator on the card, 0 where they are not known. ``longest`` is the largest pass that was planned for,
    ``mean_row`` the mean tokens of a row.
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
    rank: int = 16
    longest: int = 0
    mean_row: float = 0.0
    predicted_bytes: int = 0
    measured_bytes: int = 0
    predicted_reserved_bytes: int = 0
    measured_reserved_bytes: int = 0
    predicted_tokens_per_second: float = 0.0
    measured_tokens_per_second: float = 0.0
    operations: float = 0.0
    """Counted for one token, so that another model's speed follows where nothing is published of the device."""
    watts: float = 0.0
    steps: int = 0
    start_seconds: float = 0.0
    """From the worker's start to its first step: libraries and loading; 0 where it is not known."""


class Resolved(_Fact):
    """An automatic value made definite: dotted key, value as text, and the reason in a line."""

    key: str
    value: str
    reason: str


class Suggestion(_Fact):
    """One change that makes a run fit, or that uses room which is left, and what it costs.

    ``changes`` maps dotted keys of RunConfig to values as text. ``peak_bytes`` is the estimate with the change made;
    ``slower`` the factor on the run's time (1.2: a fifth longer; 0.8: a fifth shorter), ``rows_cut`` how many more rows
    are cut. ``text`` says all of it in one line.
    """

    changes: dict[str, str]
    text: str
    peak_bytes: int
    verdict: Literal["fits", "tight", "too_large", "unknown"]
    slower: float = 1.0
    rows_cut: int = 0


class Advice(_Fact):
    """A word on a setting from the data at hand: what, why, and where it makes sense the change that it proposes."""

    code: str
    level: Literal["warning", "note"]
    text: str
    changes: dict[str, str] = {}


class Probe(_Fact):
    """What ten seconds of the real thing told: the longest pass, run forward and backward on this machine.

    ``peak_bytes`` are tensors at their height and ``reserved_bytes`` what torch's allocator held for them, as
    ``Estimate.allocated_bytes`` and ``reserved_bytes``; on the CPU both are the process's resident size.
    """

    peak_bytes: int
    reserved_bytes: int
    seconds_per_step: float
    tokens_per_second: float
    spilled: bool
    """True where steps became slow with no memory free: the card's memory reached into the machine's."""
    steps: int
    context_bytes: int = 0
    """On the card beside the allocator: CUDA, kernels, and what other programs held meanwhile."""
    random_weights: bool = False
    """True where the model is not here yet: weights of its shape were drawn; memory and time are the same."""
