"""TRAINERS: the maker of each method's trainer."""

from collections.abc import Callable
from typing import Any

from core.contract.config import RunConfig
from core.contract.methods import Method
from core.model.adapters import Trained
from core.model.layers.loss import LossModel
from core.model.scores import ScoreModel, products_dtype
from core.train.methods.answers import AnswerTrainer, MarkedTrainer
from core.train.methods.cpo import CpoLoss
from core.train.methods.dpo import DpoLoss
from core.train.methods.kto import KtoLoss, weights_of
from core.train.methods.orpo import OrpoLoss
from core.train.methods.scores import ClassifyTrainer, RewardTrainer
from core.train.methods.sft import TextTrainer
from core.train.methods.simpo import SimpoLoss
from core.train.step.rows import LabelRows, MarkedRows
from core.train.step.trainer import Batches

Maker = Callable[[RunConfig, Trained, dict[str, Any], Batches, Any], tuple[Any, str]]


def _sft(
    _config: RunConfig, trained: Trained, settings: dict[str, Any], batches: Batches, tokenizer: Any
) -> tuple[Any, str]:
    loss_model = LossModel(trained.model, trained.parameters)
    return TextTrainer(loss_model, trained, settings, batches, tokenizer.pad_token_id), loss_model.line


def _on_pairs(loss: Callable[[RunConfig], Any]) -> Maker:
    def make(
        config: RunConfig, trained: Trained, settings: dict[str, Any], batches: Batches, tokenizer: Any
    ) -> tuple[Any, str]:
        model, learning = LossModel(trained.model, trained.parameters), config.learning
        rest = (model, trained, settings, batches, tokenizer.pad_token_id)
        return AnswerTrainer(loss(config), learning.measures, learning.reference, *rest), _line(config, model)

    return make


def _kto(
    config: RunConfig, trained: Trained, settings: dict[str, Any], batches: Batches, tokenizer: Any
) -> tuple[Any, str]:
    model, learning, train = LossModel(trained.model, trained.parameters), config.learning, config.train
    assert isinstance(batches.rows, MarkedRows)
    weights = weights_of(batches.rows, (train.desirable_weight, train.undesirable_weight))
    compares_kl = config.loss_type == learning.losses[0]
    loss = KtoLoss(config.beta, weights, compares_kl)
    rest = (loss, learning.measures, learning.reference, model, trained, settings, batches, tokenizer.pad_token_id)
    said = f"; a good answer weighs {weights[0]:.3g}, a bad one {weights[1]:.3g}"
    return MarkedTrainer(compares_kl, train.max_length, *rest), _line(config, model) + said


def _score_model(config: RunConfig, trained: Trained) -> ScoreModel:
    dtype = products_dtype(config.model.dtype, next(trained.model.parameters()).device)
    return ScoreModel(trained.model, trained.parameters, dtype)


def _reward(
    config: RunConfig, trained: Trained, settings: dict[str, Any], batches: Batches, tokenizer: Any
) -> tuple[Any, str]:
    rest = (_score_model(config, trained), trained, settings, batches, tokenizer.pad_token_id)
    centre = config.train.center_rewards_coefficient
    said = f", centred with {centre:g}" if centre else ""
    trainer = RewardTrainer(config.learning.measures, centre, *rest)
    return trainer, f"loss: reward model (Bradley-Terry){said}; the score of the last token"


def _classify(
    config: RunConfig, trained: Trained, settings: dict[str, Any], batches: Batches, tokenizer: Any
) -> tuple[Any, str]:
    rest = (_score_model(config, trained), trained, settings, batches, tokenizer.pad_token_id)
    assert isinstance(batches.rows, LabelRows)
    outputs = batches.rows.outputs
    balanced = config.train.class_weights == "balanced"
    trainer = ClassifyTrainer(config.learning.measures, balanced, *rest)
    words = outputs.problem.replace("_", " ")
    weights = ", every label as heavy as any other" if balanced else ""
    return trainer, f"loss: {words}, {len(outputs.names)} {'label' if outputs.names[1:] else 'score'}s{weights}"


def _line(config: RunConfig, model: LossModel) -> str:
    """The plan's line on the loss."""
    learning = config.learning
    kind = f", {config.loss_type}" if len(learning.losses) > 1 else ""
    before = "the adapter as it came" if config.resume_from else "the base"
    reference = f"; reference: {before}" if learning.reference else ""
    return f"{model.line}; {learning.title}{kind}, beta {config.beta:g}{reference}"


TRAINERS: dict[Method, Maker] = {
    "sft": _sft,
    "pretrain": _sft,
    "dpo": _on_pairs(
        lambda config: DpoLoss(config.beta, config.loss_type, config.train.label_smoothing, config.train.rpo_alpha)
    ),
    "orpo": _on_pairs(lambda config: OrpoLoss(config.beta)),
    "simpo": _on_pairs(lambda config: SimpoLoss(config.beta, config.train.simpo_gamma, config.train.label_smoothing)),
    "cpo": _on_pairs(
        lambda config: CpoLoss(config.beta, config.loss_type, config.train.label_smoothing, config.train.cpo_alpha)
    ),
    "kto": _kto,
    "reward": _reward,
    "classify": _classify,
}
"""From config, trained model, ``TrainingArguments`` as a dict, batches and tokenizer to the trainer and the plan's line
on its loss."""
