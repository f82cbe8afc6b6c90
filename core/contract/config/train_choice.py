"""TrainChoice: the recipe of a run, a part of ``core.contract.config``."""

from typing import Any, Literal

from pydantic import field_validator

from core.contract.knobs import Part, knob
from core.contract.optimisers import AskedOptimiser
from core.contract.tasks import DEFAULT_LEARNS, LearnsName, Problem
from core.contract.weight_forms import DEFAULT_ARITHMETIC, AskedArithmetic


class TrainChoice(Part):
    """The recipe, in transformers' and TRL's own terms."""

    learns: LearnsName = knob(
        DEFAULT_LEARNS,
        "What learns",
        "A small adapter, an adapter plus embeddings and output head, or every weight of the model.",
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
        "Ends the run after this many steps; 0: after the chosen epochs.",
        unit="steps",
        group="learning",
        see="step",
        ge=0,
        le=10_000_000,
    )
    embedding_learning_rate: float = knob(
        0.0,
        "Learning rate of embeddings",
        "For embeddings and output head; 0: a tenth of the learning rate.",
        group="learning",
        see="learning-rate",
        ge=0,
        le=1,
    )
    learning_rate: float = knob(2e-4, "Learning rate", group="learning", simple=True, term="learning-rate", gt=0, le=1)
    per_device_train_batch_size: int = knob(
        4,
        "Batch size",
        "Rows per batch. Batch size times gradient accumulation is the rows per step.",
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
        "Optimizer",
        "How each step is computed. Auto: adamw_8bit on a GPU, adamw_torch on the CPU.",
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
    tile_tokens: int = knob(
        -1,
        "Sequence tiles",
        "-1 chooses: none where rows fit whole; 0: never.",
        unit="tokens",
        group="memory",
        term="sequence-tiling",
        ge=-1,
        le=10_000_000,
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
    cards: str = knob(
        "",
        "Cards (GPUs)",
        "Numbers as nvidia-smi has them (0,1), or all; empty: the first. Without a card as many processes.",
        group="memory",
        see="cards",
        max_length=1000,
    )
    one_card_if_needed: bool = knob(
        False,
        "Go on with one card",
        "Where the cards cannot start to work together, the run goes on with the first; else it says why and ends.",
        group="memory",
        see="cards",
    )
    kernels: Literal["auto", "plain"] = knob(
        "auto",
        "Kernels",
        "Our fast programs for the card: auto uses them where card and model allow; plain never.",
        group="memory",
        see="kernels",
    )
    arithmetic: AskedArithmetic = knob(
        DEFAULT_ARITHMETIC,
        "8-bit arithmetic",
        "Evaluation, samples and exports keep 16.",
        group="memory",
        term="eight-bit",
    )
    beta: float = knob(
        0.0,
        "Beta",
        "How closely a preference method holds to the original model: in DPO and KTO a larger beta stays closer. "
        "0: the method's default.",
        group="method",
        see="dpo",
        ge=0,
        le=10,
    )
    loss_type: Literal[
        "auto", "sigmoid", "hinge", "ipo", "robust", "apo_zero", "apo_down", "sigmoid_norm", "kto", "apo_zero_unpaired"
    ] = knob("auto", "Loss type", "auto: the method's usual one.", group="method", term="loss-type")
    label_smoothing: float = knob(
        0.0,
        "Label smoothing",
        "Share of pairs that may be labeled the wrong way round: below 0.5.",
        group="method",
        see="loss-type",
        ge=0,
        le=0.49,
    )
    rpo_alpha: float = knob(
        0.0,
        "SFT term (RPO alpha)",
        "Weight of an extra SFT loss on the chosen answers, which keeps them likely.",
        group="method",
        see="sft",
        ge=0,
        le=100,
    )
    cpo_alpha: float = knob(
        1.0,
        "SFT term (CPO alpha)",
        "Weight of CPO's SFT loss on the chosen answers.",
        group="method",
        see="sft",
        ge=0,
        le=100,
    )
    simpo_gamma: float = knob(
        0.5,
        "Target margin (gamma)",
        "Margin by which chosen answers should lead.",
        group="method",
        see="simpo",
        ge=0,
        le=10,
    )
    desirable_weight: float = knob(
        0.0,
        "Weight of good answers",
        "0: from the counts, so that good and bad answers weigh the same in total.",
        group="method",
        see="kto",
        ge=0,
        le=100,
    )
    undesirable_weight: float = knob(
        0.0,
        "Weight of bad answers",
        "0: from the counts, so that good and bad answers weigh the same in total.",
        group="method",
        see="kto",
        ge=0,
        le=100,
    )
    center_rewards_coefficient: float = knob(
        0.0,
        "Center rewards",
        "Keeps the mean reward near 0, so that rewards of different prompts compare: 0.01 is usual; 0: off.",
        group="method",
        see="reward-model",
        ge=0,
        le=100,
    )
    problem_type: Literal["auto", Problem] = knob(
        "auto",
        "Labels are",
        "One label per text, several labels, or a number (regression). Auto: decided from the column.",
        group="method",
        see="classification",
    )
    class_weights: Literal["none", "balanced"] = knob(
        "none",
        "Class weights",
        "balanced: rare labels weigh more, so that all labels count the same in total.",
        group="method",
        see="classification",
    )
    eval_steps: int = knob(
        0,
        "Evaluate every",
        "Measures held-out loss every so many steps; 0: automatic.",
        unit="steps",
        group="saving",
        see="held-out-loss",
        ge=0,
    )
    save_steps: int = knob(
        0,
        "Save every",
        "Saves a checkpoint every so many steps; 0: automatic.",
        unit="steps",
        group="saving",
        see="checkpoint",
        ge=0,
    )
    save_minutes: float = knob(
        5.0,
        "Save at least every",
        "Minutes of work that can be lost at most; 0: never by time.",
        unit="minutes",
        group="saving",
        see="checkpoint",
        ge=0,
    )
    sample_rows: int = knob(
        1,
        "Sample answers",
        "How many held-out rows the model answers at each evaluation, in at most a twentieth of the run's time.",
        unit="rows",
        group="saving",
        ge=0,
        le=16,
    )
    report: bool = knob(
        True,
        "Report",
        "Measures what was learned and forgotten after the run, in at most a tenth of its time.",
        group="saving",
        see="forgetting",
    )
    report_to: Literal["none", "tensorboard", "wandb", "mlflow", "trackio"] = knob(
        "none",
        "Live metrics",
        "A process beside the run passes its metrics on, where you have the library.",
        group="saving",
        term="live-metrics",
    )
    seed: int = knob(3407, "Seed", group="learning", term="seed", ge=0, le=2**31 - 1)

    @field_validator("cards", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """YAML reads a single number as one."""
        return str(value) if isinstance(value, int) else value
