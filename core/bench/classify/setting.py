"""What is measured; each field is one flag of ``python -m core.bench step --task classify``."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from core.bench.setting import flag, without, wrong_values

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("bert", {}),
    "roberta-base": ("roberta", {}),
    "distilbert-base": ("distilbert", {}),
    "modernbert-base": ("modernbert", {}),
    "tiny": (
        "bert",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64},
    ),
}
"""Shapes for ``random:NAME``: model type, and what differs from its config's defaults."""


@dataclass(frozen=True)
class ClassifySetting:
    """One rung: transformers' own classifier in a plain training loop, with these choices."""

    command: ClassVar[tuple[str, ...]] = ("step", "--task", "classify")

    model: str = flag("random:bert-base", f"random:NAME ({', '.join(SHAPES)}), or an encoder's folder", shown="MODEL")
    data: str = flag("", "rows of a text and a label: .tsv, .csv, .json or .jsonl; none: made-up reviews", shown="FILE")
    tokenizer: str = flag("", "a tokenizer's folder; none: the model's own, or the starter model's", shown="PATH")
    length: int = flag(256, "longer rows are cut here")
    batch: int = flag(32, "rows a step")
    epochs: int = flag(3, "times that the rows are seen")
    steps: int = flag(0, "so many steps, whatever that is in epochs; 0: the epochs")
    warm_up: int = flag(5, "steps at the start that are not timed")
    held_out: int = flag(800, "rows kept aside for the accuracy")
    learning_rate: float = flag(5e-5, "of 32 rows a step; it grows with the root of their number", shown="RATE")
    precision: str = flag("float32", "of products", ("float32", "tf32", "bf16"))
    optim: str = flag("single", "how AdamW walks the weights", ("single", "foreach", "fused"))
    attention: str = flag("eager", "of padded rows", ("eager", "sdpa"))
    layout: str = flag("padded", "padded to the longest of a step, or packed end to end", ("padded", "packed"))
    norm: str = flag("torch", "of packed rows: layer norm and residual apart, or in one", ("torch", "fused"))
    compiled: bool = flag(False, "torch.compile of every layer")
    seed: int = flag(3407, "of weights, rows, their order and dropout")

    @property
    def shape(self) -> str:
        """NAME of ``random:NAME``; empty for a folder."""
        return self.model.removeprefix("random:") if self.model.startswith("random:") else ""


def check(setting: ClassifySetting) -> ClassifySetting:
    """Returns ``setting``, if nothing in it is invalid or contradictory."""
    return without(_faults(setting), setting)


def _faults(setting: ClassifySetting) -> Iterator[str]:
    least = {"batch": 1, "epochs": 1, "length": 3, "held_out": 1, "steps": 0, "warm_up": 0}
    yield from wrong_values(setting, least)
    if setting.learning_rate <= 0:
        yield f"--learning-rate: expected more than 0, found {setting.learning_rate}"
    if setting.shape and setting.shape not in SHAPES:
        yield f"--model: expected random: and one of {', '.join(SHAPES)}, found {setting.model!r}"
    if not setting.shape and not Path(setting.model).expanduser().is_dir():
        yield f"--model: expected random:NAME or a model folder, found {setting.model!r}"
    if setting.data and not Path(setting.data).expanduser().is_file():
        yield f"--data: expected a file, found none at {setting.data}"
    if setting.tokenizer and not Path(setting.tokenizer).expanduser().is_dir():
        yield f"--tokenizer: expected a folder, found none at {setting.tokenizer}"
    if setting.norm != "torch" and setting.layout != "packed":
        yield "--norm: ours is for packed rows"
