"""Advice on settings from the data at hand, each with its reason in a line; silent near its own proposals.

Rules of thumb (ranks of 64 to 128 for knowledge, up to 256 for a 7B; fewer than 1,000 rows overfit, 1,000 to 10,000
curated ones work, 10,000 to 100,000 are good), and:

- LoRA (Hu et al. 2021, arXiv:2106.09685): for a narrow task small ranks do as well as large ones.
- QLoRA (Dettmers et al. 2023, arXiv:2305.14314): adapters on every linear layer matter more than their rank.
- LoRA Learns Less and Forgets Less (Biderman et al. 2024, arXiv:2405.09673): new knowledge wants ranks up to 256.
- LIMA (Zhou et al. 2023, arXiv:2305.11206): 1,000 well-chosen conversations teach a style.
- Scaling data-constrained models (Muennighoff et al. 2023, arXiv:2305.16264): up to 4 epochs over the same text are
  nearly as good as new text.
- Square-root scaling for Adam (Malladi et al. 2022, arXiv:2205.10782): learning rate ~ √ rows a step.
- BERT (Devlin et al. 2019, arXiv:1810.04805): finetuned whole at 2e-5 to 5e-5, two to four epochs, a tenth of warm-up.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from core.contract.catalogue import ModelSpec
from core.contract.config import TARGETS, RunConfig
from core.contract.data import Checkup, DataFacts, DataReport
from core.contract.estimate import Advice
from core.contract.optimisers import optimiser_of
from core.contract.weight_forms import WEIGHT_FORMS
from core.estimate.inputs.rows import Rows, rows_of, table_of, total_steps
from core.estimate.propose import ENCODER_WARM_UP, ROWS, rank_for, usual_rate
from core.models.positions import chosen_row, reach, unstretchable
from core.models.suited import suited

FEW, CURATED, GOOD, MANY = 1_000, 10_000, 100_000, 1_000_000
SEVERAL_EPOCHS = 4.0
FEW_OF_A_LABEL = 50
LEAST_STEPS = 50
CHAT = ("messages", "sharegpt", "alpaca", "prompt_completion")
SERIOUS = {"leakage": 0.0, "conflicting_answers": 0.01, "exact_duplicates": 0.05, "answer_cut": 0.01, "markup": 0.05}
"""Findings of the data doctor that are passed on, from this share of the rows on."""


@dataclass(frozen=True)
class _Case:
    config: RunConfig
    spec: ModelSpec
    facts: DataFacts | None
    report: DataReport | None
    rows: Rows
    count: int
    """Rows to train on, 0 where they are not known yet."""

    @property
    def raw_text(self) -> bool:
        """Whether the model is to learn texts, not answers."""
        layout = self.report.layout if self.report else self.config.data.layout
        texts = "text" in (layout, *self.config.learning.layouts)
        return texts or self.config.data.train_on == "everything"

    @property
    def chat(self) -> bool:
        """Whether the rows are conversations or questions with answers."""
        return self.report is not None and self.report.layout in CHAT

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return total_steps(self.config, self.count) if self.count else 0


def advise(
    config: RunConfig, spec: ModelSpec, facts: DataFacts | None, report: DataReport | None, checkup: Checkup | None
) -> tuple[Advice, ...]:
    """What the data says about the settings, warnings first."""
    config, _ = suited(config, spec)
    rows = rows_of(config, facts)
    count = rows.train or (report.usable if report else 0)
    case = _Case(config, spec, facts, report, rows, count)
    parts = (_form, _size, _epochs, _rank, _targets, _rate, _steps, _evaluation, _lengths, _model, _unread)
    advices = [advice for part in parts for advice in part(case)]
    if checkup is not None:
        advices += _checked(checkup)
    return tuple(sorted(advices, key=lambda advice: advice.level != "warning"))


def _form(case: _Case) -> Iterator[Advice]:
    learns, held = case.config.learns, case.config.model.form
    if held.name not in learns.weight_forms:
        other = WEIGHT_FORMS[learns.weight_forms[0]]
        text = f"Where {learns.words} learns, the weights are held in {other.title}; chosen are {held.title}."
        yield Advice(code="weights", level="warning", text=text, changes={"model.quantization": other.name})


def _size(case: _Case) -> Iterator[Advice]:
    rows = case.count
    if not rows:
        return
    if case.config.learning.labelled:
        labels = case.facts.labels if case.facts else 0
        if labels > 1 and rows < FEW_OF_A_LABEL * labels:
            text = (
                f"{rows:,} rows for {labels:,} labels, about {rows // labels:,} of each: "
                "some hundred of each sort better, and what is right of so few held-out rows says little."
            )
            yield Advice(code="few_rows", level="warning", text=text)
    elif rows < FEW:
        text = (
            f"{rows:,} rows are few: they are soon learned by heart, and then the held-out loss rises again. "
            f"More rows help most; {FEW:,} well-chosen ones can teach a style."
        )
        yield Advice(code="few_rows", level="warning", text=text)
    elif rows > MANY:
        text = f"{rows:,} rows: above a million an adapter holds less than they teach; consider full finetuning."
        yield Advice(code="many_rows", level="note", text=text)
    else:
        how = "enough where they are chosen with care" if rows <= CURATED else "a good size"
        yield Advice(code="rows", level="note", text=f"{rows:,} rows are {how}.")


def _epochs(case: _Case) -> Iterator[Advice]:
    rows, epochs, train = case.count, case.config.train.num_train_epochs, case.config.train
    if not rows:
        return
    if train.max_steps and (seen := train.max_steps * case.config.rows_per_step / rows) < min(1.0, epochs):
        text = f"{train.max_steps:,} steps see {seen:.0%} of the rows once; leave the number of steps to the passes."
        yield Advice(code="max_steps", level="warning", text=text, changes={"train.max_steps": "0"})
    several = case.raw_text or case.spec.encoder or case.config.learning.labelled
    most = SEVERAL_EPOCHS if several else 5.0 if rows < 200 else 3.0 if rows < GOOD else 1.0
    if epochs > most and not train.max_steps:
        why = (
            "repeated text teaches little more (Muennighoff et al. 2023)"
            if case.raw_text
            else "more is learned by heart"
        )
        text = f"{epochs:g} passes over {rows:,} rows: beyond {most:g}, {why}."
        yield Advice(code="epochs", level="warning", text=text, changes={"train.num_train_epochs": f"{most:g}"})


def _rank(case: _Case) -> Iterator[Advice]:
    if not case.count or not case.config.learns.adapter:
        return
    rank, wanted = case.config.lora.r, rank_for(case.spec, case.count, case.raw_text)
    share = wanted / rank
    changes = {"lora.r": str(wanted), "lora.lora_alpha": str(max(1, round(case.config.lora.lora_alpha * share)))}
    if share >= 4 and case.count >= FEW:  # a few rows fit into any rank
        what = "new knowledge" if case.raw_text else f"{case.count:,} rows"
        source = " (Biderman et al. 2024)" if case.raw_text else " (64 to 128 is usual there)" if wanted >= 64 else ""
        text = f"Rank {rank} holds little of {what}: {wanted} holds more, for more memory{source}."
        yield Advice(code="rank_low", level="note", text=text, changes=changes)
    elif share <= 1 / 8:
        text = (
            f"Rank {rank} for {case.count:,} rows: more memory, and more is learned by heart; "
            f"{wanted} does as well on a narrow task (Hu et al. 2021)."
        )
        yield Advice(code="rank_high", level="warning", text=text, changes=changes)


def _targets(case: _Case) -> Iterator[Advice]:
    missing = [name for name in TARGETS if name not in case.config.lora.target_modules]
    if missing and case.config.learns.adapter:
        text = f"No adapter on {', '.join(missing)}: with all linear layers it learns as full finetuning does (QLoRA)."
        yield Advice(code="targets", level="note", text=text)


def _rate(case: _Case) -> Iterator[Advice]:
    """Only far from the rule, which does not hold for a tiny model."""
    if case.spec.source == "starter":
        return
    rate, rows = case.config.train.learning_rate, case.config.rows_per_step
    method = case.config.learning
    usual, optimiser = usual_rate(case.config, case.spec), optimiser_of(case.config.train.optim, gpu=True)
    if usual / method.rate_below < rate < usual * 2.5:
        return
    way = "high" if rate > usual else "low"
    harm = "forgets what the model knew" if way == "high" else "learns little in this time"
    if case.spec.encoder:
        why = "an encoder is trained whole in small steps (Devlin et al. 2019)"
    elif method.usual_rate:
        why = f"{method.title} wants small steps"
    elif optimiser.rate_share != 1.0:
        why = f"{optimiser.title} wants smaller steps than AdamW (Chen et al. 2023)"
    elif case.config.learns.base:
        why = "full finetuning wants a tenth of an adapter's (Schulman et al. 2025)"
    elif rows == ROWS:
        why = "that is usual for adapters"
    else:
        why = f"it goes with the square root of the {rows:,} rows a step (Malladi et al. 2022)"
    text = f"A learning rate of {rate:g} is {way} and {harm}; {usual:g} fits: {why}."
    yield Advice(code="learning_rate", level="warning", text=text, changes={"train.learning_rate": f"{usual:g}"})


def _steps(case: _Case) -> Iterator[Advice]:
    train, steps = case.config.train, case.steps
    if not steps:
        return
    if steps < LEAST_STEPS and case.config.rows_per_step > 4 and not train.max_steps:
        seen = case.count * train.num_train_epochs
        rows = max(4, 2 ** int(math.log2(max(4.0, seen / LEAST_STEPS))))
        if rows < case.config.rows_per_step:
            batch = min(train.per_device_train_batch_size, rows)
            changes = {
                "train.per_device_train_batch_size": str(batch),
                "train.gradient_accumulation_steps": str(rows // batch),
            }
            few, now = f"Only {steps} step{'s' if steps > 1 else ''}", case.config.rows_per_step
            text = f"{few}: with {rows} rows a step in place of {now} there are more."
            yield Advice(code="few_steps", level="note", text=text, changes=changes)
    if train.warmup_steps * 2 > steps > 1:
        warm = max(1, steps // 10)
        text = (
            f"{train.warmup_steps} warm-up steps of {steps} in all: the rate is hardly ever reached; a tenth is enough."
        )
        yield Advice(code="warmup", level="warning", text=text, changes={"train.warmup_steps": str(warm)})
    elif case.spec.encoder and steps >= LEAST_STEPS and train.warmup_steps < steps * ENCODER_WARM_UP / 2:
        warm = round(steps * ENCODER_WARM_UP)
        text = (
            f"An encoder trained whole wants the rate to rise slowly: a tenth of the steps, {warm}, is usual for BERT."
        )
        yield Advice(code="warmup", level="note", text=text, changes={"train.warmup_steps": str(warm)})


def _evaluation(case: _Case) -> Iterator[Advice]:
    if case.config.data.eval_fraction == 0 and (case.count or FEW) >= 20:
        text = "Nothing is held out: whether the model learns or only remembers cannot be seen. Keep 5 % aside."
        yield Advice(code="no_evaluation", level="warning", text=text, changes={"data.eval_fraction": "0.05"})


def _lengths(case: _Case) -> Iterator[Advice]:
    if case.facts is None or not case.facts.lengths:
        return
    limit, model, made = case.config.train.max_length, case.config.model, case.spec.shape.max_position_embeddings
    most = reach(model, case.spec, case.facts.longest)
    declined = not unstretchable(case.spec) and not chosen_row(model).rope_type and model.rope_scaling != "auto"
    if case.facts.longest > made and declined:
        text = (
            f"Rows of more than {made:,} tokens are cut there: the model was made for no more, and RoPE scaling is off."
        )
        yield Advice(code="beyond_model", level="warning", text=text, changes={"model.rope_scaling": "auto"})
    elif limit > most and case.facts.longest > most:
        text = f"Rows of more than {most:,} tokens are longer than this model was made for."
        yield Advice(code="beyond_model", level="warning", text=text, changes={"train.max_length": str(most)})
    share = case.rows.cut / case.facts.rows
    ordered = table_of(case.facts).whole.sorted
    needed = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)))]
    enough = min(most, -(-needed // 256) * 256)
    if share > 0.02 and enough > limit:
        where = "whose end is not read" if case.config.learning.labelled else "often within their answer"
        text = (
            f"{case.rows.cut:,} rows ({share:.0%}) are cut at {limit:,} tokens, {where}; "
            f"{enough:,} keeps 99% of them whole, for more memory."
        )
        yield Advice(code="rows_cut", level="warning", text=text, changes={"train.max_length": str(enough)})
    elif not case.config.train.packing and case.rows.padding > 0.2 * max(1, case.rows.packed):
        more = case.rows.padding / case.rows.packed
        text = f"Without packing {more:.0%} more tokens are computed, which teach nothing."
        yield Advice(code="packing", level="note", text=text, changes={"train.packing": "True"})


def _model(case: _Case) -> Iterator[Advice]:
    if case.chat and not case.spec.instruct and case.spec.source != "starter" and case.config.data.template != "none":
        text = (
            f"{case.spec.title} is a base model: it has to learn conversation from these rows as well. "
            "Its instruct form needs fewer, if there is one."
        )
        yield Advice(code="base_model", level="warning" if 0 < case.count < FEW else "note", text=text)
    if case.report is not None and case.report.layout == "text" and case.spec.instruct:
        text = "Raw text on an instruct model: it may forget how to converse; a base model is the usual choice."
        yield Advice(code="instruct_model", level="note", text=text)
    if case.chat and case.config.data.train_on == "everything":
        text = "Questions are learned as well as answers; for a chat style answers alone are the usual choice."
        yield Advice(code="train_on", level="note", text=text, changes={"data.train_on": "answers"})


def _unread(case: _Case) -> Iterator[Advice]:
    report = case.report
    if report is not None and report.rows > report.usable > 0:
        left = report.rows - report.usable
        text = f"{left:,} of {report.rows:,} rows cannot be used and are left out; the Data block lists them."
        yield Advice(code="unusable_rows", level="warning" if left * 20 > report.rows else "note", text=text)


def _checked(checkup: Checkup) -> Iterator[Advice]:
    for finding in checkup.findings:
        share = finding.count / max(1, checkup.rows)
        if finding.code in SERIOUS and finding.count and share >= SERIOUS[finding.code]:
            yield Advice(code=finding.code, level="warning", text=finding.text)
