"""RunConfig: everything that decides a run, in one frozen value.

``core.estimate.resolve`` fills in automatic values (``auto``, or 0 where the hint says so), so ``run.yaml`` is
complete. Field names follow transformers, peft and TRL where they have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from core.contract.config.positions import ROPE_SCALINGS, AskedRopeScaling
from core.contract.config.train_choice import TrainChoice as TrainChoice
from core.contract.forms import FORMS, Form
from core.contract.knobs import Part, knob
from core.contract.methods import DEFAULT_METHOD, METHODS, AskedMethod, LearningMethod, Method, method_for
from core.contract.optimisers import optimiser_of
from core.contract.tasks import LEARNS, STARTS, Learns, StartName
from core.contract.weight_forms import DEFAULT_WEIGHT_FORM, WEIGHT_FORMS, WeightForm, WeightFormName

Layout = Literal[
    "auto", "alpaca", "prompt_completion", "sharegpt", "messages", "preference", "kto", "classification", "text"
]
_NOT_OF_PAIRS = ("everything", "tool_calls")
_CARD_UUIDS = ("GPU-", "MIG-")
MOST_RANK = 1024
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class ModelChoice(Part):
    """The base model, and how it is held in memory."""

    source: Literal["starter", "folder", "hub"] = "starter"
    name: str = "starter"
    """``starter``, an absolute folder, or a hub id such as ``Qwen/Qwen3-0.6B``."""
    revision: str = ""
    """Hub commit, or a hash of the folder's config and weight headers; empty until resolved."""
    quantization: WeightFormName = knob(DEFAULT_WEIGHT_FORM, "Quantization", group="memory", term="quantisation")
    streamed_layers: int = knob(
        -1,
        "Streamed layers",
        "-1 chooses: as few as the card needs; 0: none; one more than the model has: the head too.",
        unit="layers",
        group="memory",
        term="layer-streaming",
        ge=-1,
        le=1000,
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = knob(
        "auto",
        "Precision (dtype)",
        "bfloat16 where the card has it, else float16; float32 on the CPU.",
        group="memory",
        see="precision",
    )
    rope_scaling: AskedRopeScaling = knob(
        "auto",
        "RoPE scaling",
        "Auto: YaRN where rows are longer. none: they are cut.",
        group="learning",
        term="rope-scaling",
    )
    rope_factor: float = knob(
        0.0,
        "RoPE factor",
        "How many times as far positions reach; 0: the smallest power of two that holds the longest row.",
        group="learning",
        see="rope-scaling",
        ge=0,
        le=1024,
    )
    rope_theta: float = knob(
        0.0,
        "RoPE base (theta)",
        "0: the model's own.",
        group="learning",
        see="rope-scaling",
        ge=0,
        le=1e12,
    )

    @property
    def form(self) -> WeightForm:
        """The row of its quantisation."""
        return WEIGHT_FORMS[self.quantization]


class DataChoice(Part):
    """The examples: which file, how its columns are read, and what of it is trained."""

    path: str = ""
    """The file as kept by us (``data/HASH/NAME``), or the user's own path before it is kept."""
    sha256: str = ""
    layout: Layout = knob(
        "auto", "Data format (layout)", "How rows are read. Auto recognizes the format and says why.", group="data"
    )
    columns: dict[str, str] = Field(default_factory=dict)
    """Roles to columns, such as ``{"prompt": "question"}``; a role that is missing has the layout's usual column, one
    with ``""`` has none. ``data.question`` is a key within objects, ``title + body`` the texts of two columns."""
    train_on: Literal["answers", "last_answer", "everything", "tool_calls"] = knob(
        "answers",
        "Train on",
        "Which part of each row is learned: all answers, only the last answer, every token, or only tool calls.",
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
        "", "System prompt", "Instruction placed at the start of every row that has none of its own.", group="data"
    )
    eval_fraction: float = knob(0.05, "Evaluation split (share of rows)", group="data", term="held-out", ge=0.0, le=0.5)
    eval_rows_max: int = knob(
        200,
        "Max evaluation rows",
        "Upper limit for the share above: more rows take time and tell you little more.",
        unit="rows",
        group="data",
        see="held-out",
        ge=1,
        le=100_000,
    )


class LoraChoice(Part):
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
    init_lora_weights: StartName = knob(
        "default",
        "Adapter start (init)",
        "default: at no change. pissa_niter_16: at the matrices' principal parts. loftq: at what 4 bits lose. Both are "
        "saved as the change since then, at twice the rank.",
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
        """Whether the adapter begins elsewhere than peft's, beside a frozen copy of its start."""
        return self.init_lora_weights in STARTS


class RunConfig(Part):
    """One run. ``problems()`` lists the faults between fields."""

    name: str = ""
    method: AskedMethod = knob(
        "auto",
        "Training method",
        "How the model learns. Auto follows the data: preferences from pairs and marked answers, continued pretraining "
        "from raw text, SFT from all other rows. With pairs, SFT learns the chosen answers only.",
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
    def export_forms(self) -> tuple[Form, ...]:
        """What it can be exported as; the first where nobody chose."""
        return tuple(form for form in self.learns.forms if FORMS[form].scores or not self.learning.task.scores)

    @property
    def adds_nothing_at_first(self) -> bool:
        """Whether what learns is an adapter alone, with which the model is the base at the first step."""
        return self.learns.adapter and not (self.learns.ends or self.lora.has_start or self.resume_from)

    @property
    def beta(self) -> float:
        """The preference strength: as chosen, else the method's usual."""
        return self.train.beta or self.learning.usual_beta

    @property
    def loss_type(self) -> str:
        """The kind of the method's loss: as chosen, else the usual one; empty where there is one only."""
        usual = next(iter(self.learning.losses), "")
        return usual if self.train.loss_type == "auto" else self.train.loss_type

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
    if learning.losses and config.loss_type not in learning.losses:
        yield (
            f"train.loss_type: expected one of {', '.join(learning.losses)} under {config.method}, "
            f"found {config.loss_type!r}. Choose auto."
        )
    elif config.train.label_smoothing and learning.smoothed and config.loss_type not in learning.smoothed:
        yield (
            f"train.label_smoothing: loss_type {config.loss_type} has none; "
            f"choose {' or '.join(learning.smoothed)}, or 0."
        )
    if config.method != "auto" and config.rows_per_step < learning.rows_at_least:
        yield (
            f"train.per_device_train_batch_size: method {config.method} compares the rows of a step; expected at least "
            f"{learning.rows_at_least} (batch size × accumulation), found {config.rows_per_step}."
        )
    unpaired = config.method != "auto" and suited.answers > learning.answers
    if unpaired and config.data.train_on in _NOT_OF_PAIRS:
        yield (
            f"data.train_on: {suited.reason} under {config.method} trains the chosen answer; "
            f"{config.data.train_on!r} has no meaning there."
        )
    yield from _carded(config)
    yield from _placed(config)
    yield from _learned(config)
    if config.learns.adapter:
        yield from _adapted(config)


def _carded(config: RunConfig) -> Iterator[str]:
    names = [name.strip() for name in config.train.cards.split(",")]
    if names in ([""], ["all"]):
        return
    if not all(name.isdecimal() or name.startswith(_CARD_UUIDS) for name in names):
        yield f"train.cards: expected numbers of cards such as 0,1, or all, found {config.train.cards!r}."
    elif len(set(names)) < len(names):
        yield f"train.cards: a card is named twice in {config.train.cards!r}. Name each once."


def _placed(config: RunConfig) -> Iterator[str]:
    """Positions of rows that are longer than the model was made for."""
    name, factor = config.model.rope_scaling, config.model.rope_factor
    if 0 < factor < 1:
        yield f"model.rope_factor: expected 1 or more, found {factor:g}; 0 chooses."
    if name != "auto" and ROPE_SCALINGS[name].by_length and config.learning.answers > 1:
        yield (
            f"model.rope_scaling: {name} places a prompt by its answer's length, and under {config.method} two answers "
            "share one. Choose yarn."
        )


def _adapted(config: RunConfig) -> Iterator[str]:
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


def _learned(config: RunConfig) -> Iterator[str]:
    learns = config.learns
    if optimiser_of(config.train.optim, gpu=True).whole and not learns.base:
        yield f"train.optim: {config.train.optim} is for full finetuning, found {learns.words}. Choose another one."
    if config.model.streamed_layers > 0 and learns.base:
        yield (
            f"model.streamed_layers: {learns.words} learns, so no layer is frozen and none can stream; "
            f"found {config.model.streamed_layers}. Choose 0, or an adapter."
        )
    if config.model.quantization not in learns.weight_forms:
        held = " or ".join(WEIGHT_FORMS[name].title for name in learns.weight_forms)
        yield (
            f"model.quantization: {learns.words} can learn with weights in {held}, found {config.model.form.title}. "
            f"Choose {held}, or an adapter."
        )
    if config.learning.task.scores and learns.adapter and (learns.ends or "lm_head" in config.lora.target_modules):
        key, what = ("train.learns", learns.words) if learns.ends else ("lora.target_modules", "lm_head")
        yield (
            f"{key}: method {config.method} has a head of its own in place of the language model's; found {what}. "
            "Choose an adapter on other modules, or everything; or the method SFT, which trains the language model's."
        )


def _at_its_start(config: RunConfig) -> Iterator[str]:
    lora, name = config.lora, f"lora.init_lora_weights: {config.lora.init_lora_weights}"
    if lora.use_dora or lora.use_rslora or "embed_tokens" in lora.target_modules:
        yield f"{name} goes with plain LoRA of linear layers; leave out DoRA, rsLoRA and embed_tokens."
    if lora.r > MOST_RANK // 2:
        yield f"{name} is saved at twice the rank; expected r up to {MOST_RANK // 2}, found {lora.r}."
    if STARTS[lora.init_lora_weights].of_quantised and not config.model.form.quantised:
        yield f"{name} corrects weights in 4 bits, found {config.model.form.title}. Choose 4 bits, or default."
    if config.resume_from:
        yield f"{name} is for a fresh adapter; a run that goes on from another begins at its adapter. Choose default."
