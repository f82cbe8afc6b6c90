"""The cases of ``measure_memory.py``: shapes from 0.5B to 14B, vocabularies from 32k to 262k, 512 to 16k tokens a row.

Those on small cards come first, while few kernels lie beside the allocator; the next ones cover every axis, so that a
run that is cut off still tells much. ``drawn`` are held back: nobody chose them, and no term was fitted to them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.estimate.fit import SPARE
from core.model.loading.random_weights import find_shape
from core.models.catalog import catalogue

__all__ = ["CASES", "DESKTOP_GIB", "DRY", "Case", "drawn"]

WINDOWS = 4
"""Steps that the data is good for."""
DESKTOP_GIB = 0.7
"""What a desktop and a browser hold of the card that also shows them."""


@dataclass(frozen=True)
class Case:
    """One configuration. ``rows``: ``full`` rows of ``length`` tokens, or ``short`` ones of 32 to a quarter of that.

    ``tokens`` are tokens a pass (0: the planner's choice). ``limit_gib`` is the run's memory_gib. With ``card`` torch's
    allocator is held to a card of so many GiB, and the run to what the planner would use of one that shows a desktop.
    """

    model: str
    length: int
    batch: int = 1
    rank: int = 16
    policy: str = "none"
    accumulation: int = 1
    rows: str = "full"
    tokens: int = -1
    quantization: str = "nf4"
    limit_gib: float = 0.0
    card: int = 0
    more: tuple[tuple[str, Any], ...] = ()
    """Further dotted keys."""

    @property
    def cap_gib(self) -> float:
        """What torch's allocator is held to, the context counted; 0: to nothing."""
        return float(self.card)

    @property
    def memory_gib(self) -> float:
        """The run's own limit."""
        return round(SPARE * (self.card - DESKTOP_GIB), 2) if self.card else self.limit_gib

    @property
    def name(self) -> str:
        """Says the whole case, so no two have one."""
        held = "" if self.quantization == "nf4" else " 16-bit"
        limit = f" in {self.memory_gib:g} GiB" if self.memory_gib else ""
        cut = " auto" if self.tokens == 0 else f" {self.tokens} a pass" if self.tokens > 0 else ""
        more = "".join(f" {key.rpartition('.')[2]}={value}" for key, value in self.more)
        size = f"{self.batch}x{self.length}" + (f"x{self.accumulation}" if self.accumulation > 1 else "")
        kind = " short" if self.rows == "short" else ""
        return f"{self.model}{held} {size}{kind}{cut} r{self.rank} {self.policy}{limit}{more}"

    def spec(self) -> ModelSpec:
        """The shape, as nobody has it: random weights are drawn."""
        encoder = next((spec for spec in catalogue() if spec.encoder and spec.key == self.model), None)
        return (encoder or find_shape(self.model)).model_copy(update={"folder": "", "cached": False})

    def lengths(self) -> tuple[int, ...]:
        """Uncut token counts of the data's rows."""
        rows = self.batch * self.accumulation * WINDOWS
        if self.rows == "full":
            return (self.length,) * rows
        draw = random.Random(f"rows:{self.name}")
        return tuple(draw.randint(32, max(33, self.length // 4)) for _ in range(rows))

    def config(self) -> RunConfig:
        """As a person would ask for it."""
        tokens = self.batch * self.length if self.tokens < 0 else self.tokens
        raw: dict[str, Any] = {
            "model": {"source": "hub", "name": self.spec().name, "quantization": self.quantization},
            "data": {"eval_fraction": 0.0},
            "lora": {"r": self.rank, "lora_alpha": self.rank},
            "train": {
                "max_length": self.length, "num_train_epochs": 1, "per_device_train_batch_size": self.batch,
                "gradient_accumulation_steps": self.accumulation, "tokens_per_pass": tokens,
                "checkpointing": self.policy, "memory_gib": self.memory_gib,
            },
        }  # fmt: skip
        for key, value in self.more:
            part, _, field = key.partition(".")
            if field:
                raw[part][field] = value
            else:
                raw[key] = value
        return RunConfig.model_validate(raw)


EVERYTHING = (("train.learns", "everything"),)
DRY = (
    Case("tiny", 64, batch=2, rank=4, policy="none"),
    Case("tiny", 128, batch=4, accumulation=2, rows="short", rank=8, policy="auto", tokens=0),
    Case("tiny", 64, batch=2, rank=4, policy="recompute", quantization="none"),
    Case("tiny", 64, batch=4, rank=4, policy="none", tokens=256, more=(("method", "reward"),)),
    Case("tiny", 64, batch=4, rank=4, policy="none", more=(("method", "classify"),)),
)
"""For the CPU."""

CASES = (
    Case("qwen2.5-7b", 2048, batch=2, accumulation=4, policy="auto", tokens=0, card=12),
    Case("qwen3-1.7b", 4096, batch=4, policy="auto", tokens=0, card=6),
    Case("llama-3.1-8b", 1024, batch=4, policy="auto", tokens=0, card=10),
    Case("qwen3-8b", 2048, batch=2, policy="budget", card=10),
    Case("qwen3-14b", 4096, policy="budget", card=16, tokens=8192, accumulation=4),
    Case("qwen3-4b", 2048, batch=4, policy="auto", tokens=0, card=8, rank=64),
    Case("qwen3-8b", 4096, batch=1, accumulation=4, policy="auto", tokens=0, card=24),
    Case("mistral-7b", 2048, batch=4, policy="none"),
    Case("qwen2.5-0.5b", 2048, batch=4, policy="none"),
    Case("gemma-3-1b", 2048, batch=4, rank=8, policy="none"),
    Case("llama-3.1-8b", 4096, batch=2, rank=32, policy="recompute"),
    Case("qwen3-14b", 2048, batch=2, policy="recompute"),
    Case("qwen3-8b", 8192, rank=64, policy="offload"),
    Case("tinyllama-1.1b", 512, batch=8, rank=128, policy="none"),
    Case("qwen3-4b", 16384, policy="recompute"),
    Case("mistral-7b", 2048, batch=4, policy="budget", limit_gib=16),
    Case("llama-3.2-1b", 2048, batch=4, policy="none", quantization="none"),
    Case("qwen3-4b", 2048, batch=8, accumulation=2, rows="short", policy="none", tokens=4096),
    Case("mistral-nemo-12b", 4096, policy="offload", rank=16),
    Case("gemma-2-2b", 1024, batch=4, policy="recompute"),
    Case("phi-4-mini", 4096, batch=2, policy="recompute", rank=32),
    Case("mistral-7b", 1024, batch=2, policy="none", quantization="none"),
    Case("qwen2.5-1.5b", 8192, batch=2, policy="none"),
    Case("llama-2-7b", 4096, batch=2, rank=8, policy="recompute"),
    Case("qwen3-0.6b", 512, batch=1, rank=8, policy="none"),
    Case("smollm2-1.7b", 2048, batch=8, rank=64, policy="recompute", quantization="none"),
    Case("llama-3.2-3b", 16384, policy="none", rank=16),
    Case("phi-3.5-mini", 2048, batch=4, policy="none", rank=64),
    Case("qwen2.5-7b", 512, batch=16, rank=128, policy="recompute"),
    Case("gemma-2-9b", 2048, batch=1, policy="recompute"),
    Case("mistral-7b", 16384, policy="offload", rank=32),
    Case("llama-3.1-8b", 2048, batch=8, accumulation=2, rows="short", policy="none", tokens=2048, rank=32),
    Case("qwen2.5-0.5b", 16384, policy="none", rank=128),
    Case("gemma-3-1b", 16384, policy="recompute", rank=32),
    Case("llama-3.2-1b", 512, batch=32, rank=64, policy="none"),
    Case("mistral-nemo-12b", 512, batch=2, policy="none", rank=64),
    Case("qwen3-14b", 1024, policy="none", rank=128),
    Case("qwen3-1.7b", 2048, batch=4, policy="none", more=(("train.optim", "adamw_torch"),), rank=128),
    Case("mistral-7b", 1024, batch=2, policy="recompute", more=(("train.kernels", "plain"),)),
    Case("llama-3.2-1b", 1024, batch=2, policy="none", more=(("train.kernels", "plain"),)),
    Case("qwen3-0.6b", 2048, batch=8, accumulation=2, rows="short", policy="none", tokens=0),
    Case("phi-4-mini", 1024, batch=2, policy="none", rank=16),
    Case("qwen2.5-7b", 4096, policy="recompute", quantization="none", rank=16),
    Case("llama-3.2-1b", 1024, batch=2, accumulation=2, policy="recompute", more=(("method", "dpo"),)),
    Case("mistral-7b", 1024, batch=2, policy="none", more=(("method", "dpo"),)),
    Case("mistral-7b", 2048, batch=2, policy="budget", limit_gib=16, more=(("method", "dpo"),)),
    Case("qwen3-4b", 1024, batch=4, rows="short", policy="none", tokens=2048, more=(("method", "dpo"),)),
    Case("qwen2.5-7b", 1024, batch=2, accumulation=4, policy="auto", tokens=0, card=12, more=(("method", "dpo"),)),
    Case("qwen2.5-0.5b", 2048, batch=4, policy="none", more=(("method", "dpo"),)),
    Case("llama-3.1-8b", 1024, batch=2, rank=32, policy="recompute", more=(("method", "dpo"),)),
    Case("gemma-2-2b", 512, batch=2, policy="recompute", more=(("method", "dpo"),)),
    Case("qwen3-1.7b", 1024, batch=4, policy="none", more=(("method", "orpo"),)),
    Case("mistral-7b", 2048, policy="recompute", more=(("method", "orpo"),)),
    Case("llama-3.2-1b", 1024, batch=4, policy="none", quantization="none", more=(("method", "orpo"),)),
    Case("qwen3-4b", 1024, batch=4, accumulation=2, policy="auto", tokens=0, card=8, more=(("method", "orpo"),)),
    Case("qwen3-8b", 1024, batch=2, policy="none", more=(("method", "simpo"),)),
    Case("tinyllama-1.1b", 512, batch=8, rank=64, policy="none", more=(("method", "simpo"),)),
    Case("llama-3.2-3b", 2048, batch=2, policy="budget", limit_gib=8, more=(("method", "simpo"),)),
    Case("qwen2.5-1.5b", 1024, batch=2, policy="none", more=(("method", "cpo"),)),
    Case("mistral-7b", 1024, batch=4, policy="offload", more=(("method", "cpo"),)),
    Case("phi-3.5-mini", 512, batch=4, policy="none", more=(("method", "cpo"),)),
    Case("mistral-7b", 1024, batch=4, policy="none", more=(("method", "kto"),)),
    Case("qwen3-0.6b", 2048, batch=4, policy="none", more=(("method", "kto"),)),
    Case("llama-3.1-8b", 1024, batch=4, accumulation=2, policy="auto", tokens=0, card=10, more=(("method", "kto"),)),
    Case("qwen3-1.7b", 2048, batch=8, rows="short", policy="none", tokens=4096, more=(("method", "kto"),)),
    Case("gemma-3-1b", 1024, batch=4, policy="recompute", more=(("method", "kto"),)),
    Case("qwen2.5-1.5b", 2048, batch=2, policy="none", more=(("method", "pretrain"),)),
    Case("qwen2.5-1.5b", 1024, batch=4, policy="none", more=(("lora.use_dora", True),)),
    Case("qwen3-1.7b", 2048, batch=2, policy="none", more=(("train.packing", False),)),
    Case("qwen3-1.7b", 4096, batch=8, rows="short", policy="none", tokens=4096, more=(("train.packing", False),)),
    # Heads of scores, and encoders trained whole.
    Case("bert-base", 256, batch=256, rows="short", policy="none", more=(("method", "classify"),)),
    Case("distilbert-base", 512, batch=32, policy="auto", tokens=0, card=4, more=(("method", "classify"),)),
    Case("modernbert-base", 1024, batch=16, policy="none", more=(("method", "classify"),)),
    Case("xlm-roberta-base", 512, batch=32, policy="recompute", more=(("method", "classify"),)),
    Case("qwen3-4b", 2048, batch=4, policy="none", more=(("method", "classify"),)),
    Case("qwen3-1.7b", 1024, batch=4, policy="none", tokens=8192, more=(("method", "reward"),)),
    Case("bert-base", 512, batch=32, policy="auto", tokens=0, card=4, more=(("method", "classify"),)),
    # Every weight learns.
    Case("llama-3.2-1b", 2048, batch=4, policy="auto", tokens=0, card=24, quantization="none", more=EVERYTHING),
    Case(
        "qwen3-0.6b",
        1024,
        batch=4,
        policy="none",
        quantization="none",
        more=(*EVERYTHING, ("train.optim", "adamw_torch")),
    ),
    Case(
        "qwen2.5-0.5b",
        2048,
        batch=4,
        policy="none",
        quantization="none",
        more=(*EVERYTHING, ("train.optim", "paged_adamw_8bit")),
    ),
    Case(
        "qwen2.5-1.5b",
        1024,
        batch=2,
        policy="recompute",
        quantization="none",
        more=(*EVERYTHING, ("train.optim", "adafactor")),
    ),
    Case(
        "tinyllama-1.1b",
        1024,
        batch=2,
        policy="none",
        quantization="none",
        more=(*EVERYTHING, ("train.optim", "lion_8bit")),
    ),
    Case(
        "qwen3-0.6b",
        2048,
        batch=2,
        policy="recompute",
        quantization="none",
        more=(*EVERYTHING, ("train.optim", "muon")),
    ),
    Case("qwen3-0.6b", 1024, batch=2, policy="none", quantization="none", more=(*EVERYTHING, ("method", "dpo"))),
    Case(
        "smollm2-1.7b",
        1024,
        batch=4,
        policy="recompute",
        quantization="none",
        more=(*EVERYTHING, ("method", "pretrain")),
    ),
)
"""For a card of 80 GB or more."""

MODELS = (
    "qwen2.5-0.5b", "qwen3-0.6b", "tinyllama-1.1b", "llama-3.2-1b", "qwen2.5-1.5b", "smollm2-1.7b", "qwen3-1.7b",
    "gemma-2-2b", "llama-3.2-3b", "phi-3.5-mini", "qwen3-4b", "mistral-7b", "qwen2.5-7b", "llama-3.1-8b", "qwen3-8b",
)  # fmt: skip
RANKS = (4, 8, 16, 32, 64, 128, 256)
CARDS = {1: (4, 6, 8), 4: (6, 8, 10, 12), 9: (8, 10, 12, 16)}
"""Sizes of cards that a model of up to so many thousand million weights is held to."""


def drawn(count: int, seed: int = 18) -> tuple[Case, ...]:
    """Settings drawn from what people ask for, each rank as often as the others; every third on a card of a size."""
    draw, cases = random.Random(seed), dict[str, Case]()
    while len(cases) < count:
        number = len(cases)
        model, length = draw.choice(MODELS), draw.choice((512, 1024, 2048, 4096))
        batch = draw.choice([batch for batch in (1, 2, 4, 8) if batch * length <= 8192])
        quantization = "none" if draw.random() < 0.2 else "nf4"
        rows, accumulation = draw.choice(("full", "short")), draw.choice((1, 1, 2, 4))
        arithmetic = draw.choice(("16-bit", "16-bit", "fp8", "int8"))
        case = Case(
            model, length, batch, RANKS[number % len(RANKS)], draw.choice(("none", "recompute", "offload")),
            accumulation, rows, quantization=quantization,
            more=(("train.arithmetic", arithmetic),) if arithmetic != "16-bit" else (),
        )  # fmt: skip
        if number % 3 == 2:
            billions = find_shape(model).shape.parameters / 1e9
            size = draw.choice(next(sizes for most, sizes in CARDS.items() if billions <= most))
            case = replace(case, policy="auto", tokens=0, card=size, quantization="nf4")
        cases.setdefault(case.name, case)
    return tuple(cases.values())
