"""What is measured; each field is one flag of ``python -m core.bench step``.

A child process gets its setting as flags (``flags_of``, ``from_flags``), so a result's command is the whole setting.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from core.contract.errors import ConfigError
from core.contract.optimisers import OPTIMISERS
from core.contract.weight_forms import ARITHMETICS, DEFAULT_ARITHMETIC, DEFAULT_WEIGHT_FORM, WEIGHT_FORMS

T = TypeVar("T")
CHECKPOINTING = ("none", "recompute", "offload", "auto")


def flag(default: Any, about: str, choices: tuple[str, ...] = (), shown: str = "N") -> Any:
    """A field that is a flag: its default, what ``--help`` says, its words, and what stands there for its value."""
    return field(default=default, metadata={"about": about, "choices": choices, "shown": shown})


@dataclass(frozen=True)
class Setting:
    """One measurement. Rows a step = batch × accumulation; the fast side may compute them as one micro-batch."""

    command: ClassVar[tuple[str, ...]] = ("step",)
    """The words of ``python -m core.bench`` that measure it."""
    model: str = flag("random:tiny", "random:NAME (tiny on the CPU), or a model folder", shown="MODEL")
    rows: str = flag("dense:2048", "dense:N (random tokens, all trained) or file:ROWS.json[l]", shown="ROWS")
    batch: int = flag(4, "rows a batch")
    accumulation: int = flag(4, "batches a step")
    checkpointing: str = flag(
        "none", "what is made again in the backward pass; auto: what --vram-gb asks", CHECKPOINTING
    )
    vram_gb: float = flag(0.0, "cap of the card's memory in GiB, context included; 0: none")
    plain: bool = flag(False, "Hugging Face's Trainer and PEFT as they come")
    steps: int = flag(8, "timed steps")
    warm_up: int = flag(3, "steps before them")
    until: int = flag(0, "plain: ends after so many steps, on the schedule of all; 0: after all")
    layers: int = flag(0, "layers of a random model; 0: as many as it has")
    streamed: int = flag(0, "fast: layers in host memory, copied as needed")
    tokenizer: str = flag("", "tokenizer folder or sentencepiece file for file: rows", shown="PATH")
    max_length: int = flag(2048, "longer rows are cut here")
    held_out: int = flag(0, "rows kept aside, measured after the last step")
    tokens_per_pass: int = flag(
        0,
        "fast: tokens of one pass at most; 0: batch × longest row, or with auto under a cap as planned",
    )
    rows_as: str = flag("auto", "auto: fast packed, plain padded", ("auto", "packed", "padded"))
    attention: str = flag("auto", "auto: fast packed, plain sdpa", ("auto", "packed", "sdpa", "eager"))
    loss: str = flag("auto", "fast: auto, or plain (from logits)", ("auto", "plain"))
    kernels: str = flag(
        "auto", "fast: auto; twins (fast layers on plain torch); plain (no fast layer)", ("auto", "twins", "plain")
    )
    optim: str = flag("auto", "optimiser", ("auto", *(name for name, row in OPTIMISERS.items() if not row.whole)))
    learning_rate: float = flag(2e-4, "at its highest")
    upcast: bool = flag(False, "plain: peft's prepare_model_for_kbit_training (float32 norms, embedding, head)")
    quantization: str = flag(DEFAULT_WEIGHT_FORM, "base weights", tuple(WEIGHT_FORMS))
    dtype: str = flag("auto", "of weights and activations", ("auto", "bfloat16", "float16", "float32"))
    arithmetic: str = flag(DEFAULT_ARITHMETIC, "fast: of products with frozen weights", tuple(ARITHMETICS))
    evaluate_every: int = flag(0, "fast: measures the held-out rows every N steps too; 0: at the end")
    effects: bool = flag(False, "fast: tells turned gradients, right held-out answers")
    draw_b: bool = flag(False, "draw the adapter's B instead of zeros")
    seed: int = flag(3407, "of weights, adapter, rows and their order")
    draw: int = flag(0, "another adapter and order of rows, from the same weights and held-out rows")

    @property
    def drawn(self) -> int:
        """The seed of the adapter and of the rows' order."""
        return self.seed + self.draw

    @property
    def rows_a_step(self) -> int:
        """Rows of one optimiser step."""
        return self.batch * self.accumulation

    @property
    def total_steps(self) -> int:
        """Warm-up and timed steps: what the schedule is made for."""
        return self.warm_up + self.steps

    @property
    def steps_taken(self) -> int:
        """How many of them are trained."""
        return self.until or self.total_steps

    @property
    def packed(self) -> bool:
        """Whether rows are laid end to end instead of padded."""
        return self.rows_as == "packed" or (self.rows_as == "auto" and not self.plain)

    @property
    def dense_tokens(self) -> int:
        """N of ``dense:N``; 0 for a file."""
        kind, _, size = self.rows.partition(":")
        return int(size) if kind == "dense" and size.isdigit() else 0

    @property
    def rows_file(self) -> Path:
        """The file of ``file:ROWS``."""
        return Path(self.rows.removeprefix("file:")).expanduser()


def add_flags(parser: argparse.ArgumentParser, without: tuple[str, ...] = (), of: Any = Setting) -> None:
    """One flag a field."""
    for one in fields(of):
        if one.name in without:
            continue
        default, meta = one.default, one.metadata
        name = "--" + one.name.replace("_", "-")
        if default is False:
            parser.add_argument(name, action="store_true", help=meta["about"])
            continue
        about = meta["about"] + (" (%(default)s)" if default != "" else "")  # a command may have its own default
        # No argparse choices: check() reports wrong words like every other fault.
        shown = "{" + ",".join(meta["choices"]) + "}" if meta["choices"] else meta["shown"]
        parser.add_argument(name, default=default, type=type(default), metavar=shown, help=about)


def from_flags(chosen: argparse.Namespace, of: Any = Setting) -> Any:
    """The parsed setting; fields without a flag keep their default."""
    return of(**{one.name: getattr(chosen, one.name) for one in fields(of) if hasattr(chosen, one.name)})


def flags_of(setting: Any) -> list[str]:
    """The flags of this setting, without defaults."""
    flags: list[str] = []
    for one in fields(setting):
        value = getattr(setting, one.name)
        if one.default is MISSING or value == one.default:
            continue
        flags += ["--" + one.name.replace("_", "-"), *([] if value is True else [str(value)])]
    return flags


def check(setting: Setting) -> Setting:
    """Returns ``setting``, if nothing in it is invalid or contradictory."""
    return without(_faults(setting), setting)


def without(faults: Iterable[str], setting: T) -> T:
    """Returns ``setting`` where there are no faults.

    Raises:
        ConfigError: all faults, a line each.
    """
    if problems := list(faults):
        raise ConfigError("bench.setting", problems=problems)
    return setting


def wrong_values(setting: Any, least: Mapping[str, int]) -> Iterator[str]:
    """A line for each field that is less than it may be, or none of its choices."""
    for name, lowest in least.items():
        if getattr(setting, name) < lowest:
            yield f"--{name.replace('_', '-')}: expected at least {lowest}, found {getattr(setting, name)}"
    for one in fields(setting):
        allowed, value = one.metadata["choices"], getattr(setting, one.name)
        if allowed and value not in allowed:
            yield f"--{one.name.replace('_', '-')}: expected one of {', '.join(allowed)}, found {value!r}"


def _faults(setting: Setting) -> Iterator[str]:
    least = dict.fromkeys(("batch", "accumulation", "steps", "max_length"), 1)
    least |= dict.fromkeys(("warm_up", "until", "layers", "held_out", "tokens_per_pass", "vram_gb"), 0)
    least |= dict.fromkeys(("draw", "streamed"), 0)
    least["evaluate_every"] = 0
    yield from wrong_values(setting, least)
    if not setting.rows.startswith("file:") and setting.dense_tokens < 2:
        yield f"--rows: expected dense:N (N at least 2) or file:ROWS.jsonl, found {setting.rows!r}"
    if setting.rows.startswith("file:") and not setting.rows_file.is_file():
        yield f"--rows: expected a file, found none at {setting.rows_file}"
    if not setting.model.startswith("random:") and not Path(setting.model).expanduser().is_dir():
        yield f"--model: expected random:NAME or a model folder, found {setting.model!r}"
    if setting.layers and not setting.model.startswith("random:"):
        yield "--layers: only a random model can be made shorter"
    if setting.plain and setting.checkpointing not in ("none", "recompute"):
        yield f"--checkpointing: with --plain none or recompute, found {setting.checkpointing!r}"
    if setting.plain and (setting.loss != "auto" or setting.kernels != "auto"):
        yield "--loss, --kernels: they choose among ours, not with --plain"
    if setting.plain and setting.arithmetic != DEFAULT_ARITHMETIC:
        yield "--arithmetic: it chooses among ours, not with --plain"
    if setting.plain and setting.streamed:
        yield "--streamed: only on the fast side, not with --plain"
    if setting.upcast and not setting.plain:
        yield "--upcast: only with --plain"
    if setting.until and not setting.plain:
        yield "--until: only with --plain"
    if setting.until and not setting.warm_up < setting.until <= setting.total_steps:
        yield f"--until: expected more than the warm-up's and at most {setting.total_steps}, found {setting.until}"
