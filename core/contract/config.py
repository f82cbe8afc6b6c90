"""RunConfig: everything that decides a run, in one frozen value.

``core.estimate.resolve`` fills in automatic values (``auto``, or 0 where the hint says so), so ``run.yaml`` is
complete. Field names follow transformers, peft and TRL where they have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from core.contract.knobs import knob
from core.contract.methods import DEFAULT_METHOD, METHODS, AskedMethod, LearningMethod, Method, method_for
from core.contract.optimisers import AskedOptimiser, optimiser_of
from core.contract.tasks import DEFAULT_LEARNS, LEARNS, Learns, LearnsName
from core.contract.weight_forms import DEFAULT_WEIGHT_FORM, WEIGHT_FORMS, WeightForm, WeightFormName

Layout = Literal[
    "auto", "alpaca", "prompt_completion", "sharegpt", "messages", "preference", "kto", "classification", "text"
]
_NOT_OF_PAIRS = ("everything", "tool_calls")
MOST_RANK = 1024
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelChoice(_Part):
    """The base model, and how it is held in memory."""

    source: Literal["starter", "folder", "hub"] = "starter"
    name: str = "starter"
    """``starter``, an absolute folder, or a hub id such as ``Qwen/Qwen3-0.6B``."""
    revision: str = ""
    """Hub commit, or a hash of the folder's config and weight headers; empty until resolved."""
    quantization: WeightFormName = knob(DEFAULT_WEIGHT_FORM, "Quantisation", group="memory", term="quantisation")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = knob(
        "auto",
        "Precision (dtype)",
        "bfloat16 where the card has it, else float16; float32 on the CPU.",
        group="memory",
        see="precision",
    )

    @property
    def form(self) -> WeightForm:
        """The row of its quantisation."""
        return WEIGHT_FORMS[self.quantization]


class DataChoice(_Part):
    """The examples: which file, how its columns are read, and what of it is trained."""

    path: str = ""
    """The file as kept by us (``data/HASH/NAME``), or the user's own path before it is kept."""
    sha256: str = ""
    layout: Layout = knob(
        "auto", "Data format (layout)", "How rows are read; auto recognises it and says why.", group="data"
    )
    columns: dict[str, str] = {}
    """Roles to columns, such as ``{"prompt": "question"}``; a role that is missing has the layout's usual column, one
    with ``""`` has none."""
    train_on: Literal["answers", "last_answer", "everything", "tool_calls"] = knob(
        "answers",
        "Train on",
        "What is learned: answers only, the last answer only, every token, or only the turns that call a tool.",
        group="data",
        see="mask",
    )
    template: Literal["auto", "model", "chatml", "none"] = knob(
        "auto",
        "Chat template",
        "How a chat is written: the model's own where it has one, else ChatML; none for raw text.",
        group="data",
        see="template",
    )
    system_prompt: str = knob(
        "", "System prompt", "Standing instruction, put before rows that bring none of their own.", group="data"
    )
    eval_fraction: float = knob(0.05, "Evaluation split (share of rows)", group="data", term="held-out", ge=0.0, le=0.5)
    eval_rows_max: int = knob(
        200,
        "Max evaluation rows",
        "However large the share: more rows cost time and tell little more.",
        unit="rows",
        group="data",
        see="held-out",
        ge=1,
        le=100_000,
    )


class LoraChoice(_Part):
    """The adapter, in peft's own terms (LoRA: Hu et al. 2021, arXiv:2106.09685)."""

    r: int = knob(16, "Rank (r)", group="lora", term="rank", ge=1, le=MOST_RANK)
    lora_alpha: int = knob(16, "Alpha", group="lora", term="alpha", ge=1, le=4096)
    lora_dropout: float = knob(
        0.0, "Dropout", "Above 0 the fast path is not taken.", group="lora", term="dropout", ge=0, le=0.9
    )
    target_modules: tuple[str, ...] = TARGETS
    bias: Literal["none", "lora_only"] = knob(
        "none",
        "Bias",
        "Offsets that layers add: lora_only trains those of adapted layers too.",
        group="lora",
        see="bias",
    )
    use_rslora: bool = knob(False, "rsLoRA", group="lora", term="rslora")
    use_dora: bool = knob(False, "DoRA", group="lora", term="dora")
    init_lora_weights: Literal["default", "pissa_niter_16"] = knob(
        "default",
        "Adapter start (init)",
        "default: at no change. pissa_niter_16: at the matrices' principal parts; saved at twice the rank.",
        group="lora",
        see="pissa",
    )
    loraplus_lr_ratio: float = knob(
        0.0,
        "LoRA+",
        "Ratio of the two learning rates: 16 in the paper, at half the usual rate; 0: off.",
        group="lora",
        term="lora-plus",
        ge=0,
        le=1000,
    )

    @property
    def has_start(self) -> bool:
        """Whether the adapter begins elsewhere than at no change, beside a frozen copy of its start."""
        return self.init_lora_weights != "default"


class TrainChoice(_Part):
    """The recipe, in transformers' and TRL's own terms."""

    learns: LearnsName = knob(
        DEFAULT_LEARNS,
        "What learns",
        "An adapter beside the model, that with embeddings and head, or every weight of the model.",
        group="learning",
        see="full-finetuning",
    )
    max_length: int = knob(
        2048, "Max length", unit="tokens", group="learning", simple=True, term="max-length", ge=32, le=1_048_576
    )
    num_train_epochs: float = knob(
        3.0, "Epochs", unit="epochs", group="learning", simple=True, term="epoch", ge=0.0001, le=1000
    )
    max_steps: int = knob(
        0,
        "Max steps",
        "0 means: as many as the epochs need.",
        unit="steps",
        group="learning",
        see="step",
        ge=0,
        le=10_000_000,
    )
    embedding_learning_rate: float = knob(
        0.0,
        "Learning rate of embeddings",
        "Of embedding and head beside an adapter; 0: a tenth of the other.",
        group="learning",
        see="learning-rate",
        ge=0,
        le=1,
    )
    learning_rate: float = knob(2e-4, "Learning rate", group="learning", simple=True, term="learning-rate", gt=0, le=1)
    per_device_train_batch_size: int = knob(
        4,
        "Batch size",
        "Rows at once; times accumulation: rows a step.",
        unit="rows",
        group="learning",
        see="batch",
        ge=1,
        le=4096,
    )
    gradient_accumulation_steps: int = knob(
        4, "Gradient accumulation", group="learning", term="accumulation", ge=1, le=4096
    )
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup"] = knob(
        "linear", "Learning rate schedule", group="learning", term="schedule"
    )
    warmup_steps: int = knob(5, "Warm-up steps", unit="steps", group="learning", term="warm-up", ge=0)
    weight_decay: float = knob(0.01, "Weight decay", group="learning", term="weight-decay", ge=0, le=1)
    max_grad_norm: float = knob(1.0, "Gradient clipping", "0: never.", group="learning", term="clipping", ge=0, le=1000)
    neftune_noise_alpha: float = knob(
        0.0,
        "NEFTune",
        "Its alpha: the paper tries 5, 10 and 15; 0: none.",
        group="learning",
        term="neftune",
        ge=0,
        le=1000,
    )
    optim: AskedOptimiser = knob(
        "auto",
        "Optimiser",
        "How steps are made; auto: adamw_8bit on a GPU, adamw_torch on the CPU.",
        group="memory",
        see="optimiser",
    )
    packing: bool = knob(True, "Packing", group="memory", term="packing")
    tokens_per_pass: int = knob(
        0, "Micro-batch size", "0 chooses.", unit="tokens", group="memory", term="pass", ge=0, le=10_000_000
    )
    checkpointing: Literal["auto", "none", "recompute", "offload", "budget"] = knob(
        "auto", "Gradient checkpointing", group="memory", term="recompute"
    )
    memory_gib: float = knob(
        0.0,
        "Memory limit",
        "What the run may take of the card in all; 0: nine tenths of what is free.",
        unit="GiB",
        group="memory",
        see="vram",
        ge=0,
        le=100_000,
    )
    kernels: Literal["auto", "plain"] = knob(
        "auto",
        "Kernels",
        "Our fast programs for the card: auto uses them where card and model allow; plain never.",
        group="memory",
        see="kernels",
    )
    beta: float = knob(
        0.1,
        "Beta",
        "Preference strength, for DPO: a large one keeps the model near the original.",
        group="learning",
        see="dpo",
        gt=0,
        le=10,
    )
    eval_steps: int = knob(
        0,
        "Evaluate every",
        "Held-out loss every so many steps; 0 chooses.",
        unit="steps",
        group="saving",
        see="held-out-loss",
        ge=0,
    )
    save_steps: int = knob(
        0,
        "Save every",
        "A checkpoint every so many steps; 0 chooses.",
        unit="steps",
        group="saving",
        see="checkpoint",
        ge=0,
    )
    save_minutes: float = knob(
        5.0,
        "Save at least every",
        "Work lost at worst; 0 never by time.",
        unit="minutes",
        group="saving",
        see="checkpoint",
        ge=0,
    )
    sample_rows: int = knob(
        1,
        "Sample answers",
        "So many held-out rows are answered at an evaluation: first, last, and between for a twentieth of the time.",
        unit="rows",
        group="saving",
        ge=0,
        le=16,
    )
    seed: int = knob(3407, "Seed", group="learning", term="seed", ge=0, le=2**31 - 1)


class RunConfig(_Part):
    """One run. ``problems()`` lists the faults between fields."""

    name: str = ""
    method: AskedMethod = knob(
        "auto",
        "Training method",
        "How it learns. By the data: pairs as preferences, raw text token by token, all else as examples. SFT takes of "
        "pairs the chosen answer.",
        group="data",
        see="dpo",
    )
    preset: str = ""
    model: ModelChoice = ModelChoice()
    data: DataChoice = DataChoice()
    lora: LoraChoice = LoraChoice()
    train: TrainChoice = TrainChoice()
    resume_from: str = ""
    """A run whose adapter this one starts from."""

    @property
    def rows_per_step(self) -> int:
        """Rows of one optimiser step: batch × accumulation."""
        return self.train.per_device_train_batch_size * self.train.gradient_accumulation_steps

    def with_method(self, suited: Method) -> RunConfig:
        """The config with ``suited`` as its method where none was chosen."""
        return self.model_copy(update={"method": suited}) if self.method == "auto" else self

    @property
    def trained_method(self) -> Method:
        """The method that trains: the default while it is left to data that is not read yet."""
        return DEFAULT_METHOD if self.method == "auto" else self.method

    @property
    def learning(self) -> LearningMethod:
        """The row of the method that trains."""
        return METHODS[self.trained_method]

    @property
    def learns(self) -> Learns:
        """The row of what learns."""
        return LEARNS[self.train.learns]

    @property
    def packed(self) -> bool:
        """Whether rows of a step share a micro-batch without padding."""
        return self.train.packing and self.learning.packs

    def problems(self) -> list[str]:
        """All faults between fields, a line each; empty when the run may start."""
        return list(_cross_field(self))


def _cross_field(config: RunConfig) -> Iterator[str]:
    if not config.data.path:
        yield "data.path: expected a data file, found none. Choose a file or one of the samples."
    if not config.model.name:
        yield "model.name: expected a model, found none. Choose starter, a folder or a hub id."
    if config.model.source == "folder" and config.model.name and not Path(config.model.name).is_absolute():
        yield f"model.name: expected an absolute folder for source 'folder', found {config.model.name!r}."
    layout, learning, suited = config.data.layout, config.learning, METHODS[method_for(config.data.layout)]
    if config.method != "auto" and not learning.takes(layout):
        yield (
            f"data.layout: method {config.method} needs {learning.reason}, found {layout!r}. "
            f"Choose method {DEFAULT_METHOD}."
        )
    unpaired = config.method != "auto" and suited.answers > learning.answers
    if unpaired and config.data.train_on in _NOT_OF_PAIRS:
        yield (
            f"data.train_on: {suited.reason} under {config.method} trains the chosen answer; "
            f"{config.data.train_on!r} has no meaning there."
        )
    learns = config.learns
    if optimiser_of(config.train.optim, gpu=True).whole and not learns.base:
        yield f"train.optim: {config.train.optim} is for full finetuning, found {learns.words}. Choose another one."
    if config.model.quantization not in learns.weight_forms:
        held = " or ".join(WEIGHT_FORMS[name].title for name in learns.weight_forms)
        yield (
            f"model.quantization: {learns.words} can learn with weights in {held}, found {config.model.form.title}. "
            f"Choose {held}, or an adapter."
        )
    if learns.base and config.learning.reference:
        yield (
            f"train.learns: method {config.method} compares with the untrained model, which is gone where "
            f"{learns.words} learns. Choose an adapter, or another method."
        )
    if not config.lora.target_modules:
        yield "lora.target_modules: expected at least one module name, found none."
    if config.lora.use_dora and config.lora.bias != "none":
        yield "lora.bias: DoRA cannot train biases; set bias to none or use_dora to false."
    if config.lora.has_start:
        yield from _at_its_start(config)
    if config.lora.bias != "none" and config.learning.reference:
        yield (
            f"lora.bias: method {config.method} compares with the base, whose biases would be trained too; "
            "set bias to none."
        )
    if config.lora.bias != "none" and config.model.dtype == "float16":
        yield "lora.bias: biases cannot be trained in float16; set bias to none or choose bfloat16 or float32."


def _at_its_start(config: RunConfig) -> Iterator[str]:
    lora, name = config.lora, f"lora.init_lora_weights: {config.lora.init_lora_weights}"
    if lora.use_dora or lora.use_rslora or "embed_tokens" in lora.target_modules:
        yield f"{name} goes with plain LoRA of linear layers; leave out DoRA, rsLoRA and embed_tokens."
    if lora.r > MOST_RANK // 2:
        yield f"{name} is saved at twice the rank; expected r up to {MOST_RANK // 2}, found {lora.r}."
    if config.resume_from:
        yield f"{name} is for a fresh adapter; a run that goes on from another begins at its adapter. Choose default."
