"""What learns: each row of the table trains, and plain libraries measure of its checkpoints what it reports."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from tiny_run import make_model, weights
from transformers import AutoModelForCausalLM

from core.contract.config import RunConfig
from core.contract.forms import FORMS
from core.contract.methods import METHODS
from core.contract.tasks import DEFAULT_LEARNS, LEARNS
from core.train.keep import checkpoint
from core.train.step.rows import IGNORED

RATE = {"adapter": 1e-2, "adapter_embeddings": 5e-3, "everything": 1e-3}
EVERY = [pytest.param(name, id=name) for name in LEARNS]
BESIDE_ADAPTERS = [pytest.param(name, marks=pytest.mark.slow if name == DEFAULT_LEARNS else ()) for name in LEARNS]
"""What other files ask of adapters alone, here of the rest."""


def plain_loss(model: Any, rows: Any) -> float:
    """Mean loss of trained tokens, by the model's own logits, row by row."""
    total, count = 0.0, 0
    for row in range(len(rows)):
        ids, labels = rows.ids[row], rows.labels[row]
        with torch.no_grad():
            logits = model.eval()(input_ids=ids[None]).logits[0, :-1].float()
        total += float(torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=IGNORED, reduction="sum"))
        count += int((labels[1:] != IGNORED).sum())
    return total / count


def reloaded(config: RunConfig, folder: Path) -> Any:
    """A checkpoint, by transformers and peft alone."""
    if not LEARNS[config.train.learns].adapter:
        return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    base = AutoModelForCausalLM.from_pretrained(config.model.name, dtype=config.model.dtype)
    return PeftModel.from_pretrained(base, folder)


@pytest.mark.parametrize("learns", EVERY)
def test_plain_libraries_reach_the_runs_held_out_loss(learns: str, runs: Any, read: Any) -> None:
    folder, log = runs.undisturbed(train__learns=learns, train__learning_rate=RATE[learns])
    config, rows = folder.config(), read(folder.config()).held_out
    losses = {event.step: event.loss for event in log.of("evaluation")}
    assert abs(losses[6] - losses[0]) > 0.001, "something was learned, so this says something"
    model = reloaded(config, folder.checkpoints / "step-000006" / config.learns.folder)
    assert plain_loss(model, rows) == pytest.approx(losses[6], rel=1e-5)
    base = AutoModelForCausalLM.from_pretrained(config.model.name, dtype="auto")
    assert plain_loss(base, rows) == pytest.approx(losses[0], rel=1e-5)
    plan = log.of("plan")[0]
    embedding = base.get_input_embeddings().weight.numel()
    own = sum(p.numel() for p in base.parameters())
    expected = {"adapter": 0, "adapter_embeddings": 2 * embedding, "everything": own}[learns]
    adapter = runs.undisturbed()[1].of("plan")[0].trainable_parameters
    assert plan.trainable_parameters == expected + (adapter if config.learns.adapter else 0)


@pytest.mark.parametrize("learns", [name for name in LEARNS if name != DEFAULT_LEARNS])
def test_in_16_bits_a_checkpoint_holds_the_float32_numbers(learns: str, runs: Any) -> None:
    values = {"train__learns": learns, "train__learning_rate": 1e-4, "model__dtype": "bfloat16"}
    folder, log = runs.undisturbed(**values)
    kept, config = weights(folder), folder.config()
    assert {tensor.dtype for tensor in kept.values()} == {torch.float32}
    finer = [tensor for tensor in kept.values() if not tensor.equal(tensor.bfloat16().float())]
    assert len(finer) > 0.5 * len(kept), "steps smaller than a bfloat16 digit are not lost"
    model = reloaded(config, folder.checkpoints / "step-000006" / config.learns.folder)
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16
    assert all(loss is not None for loss in log.losses().values())


@pytest.mark.parametrize("learns", BESIDE_ADAPTERS)
def test_a_run_goes_on_from_another_and_asks_the_base_beside_it(learns: str, runs: Any, letters: Any) -> None:
    from core.contract.commands import Command

    values = {"train__learns": learns, "train__learning_rate": RATE[learns]}
    earlier, log = runs.copy("earlier", **values)
    config = earlier.config()
    before = log.of("evaluation")[-1].loss
    letters.waiting.append(Command(verb="sample", attempt=1, prompt="the cat", max_new_tokens=8))
    further = runs.make("further", **values, resume_from="earlier", train__max_steps=2, train__sample_rows=1)
    said = runs.work(further)
    best = min(event.loss for event in log.of("evaluation") if event.step)
    assert said.of("evaluation")[0].loss == pytest.approx(best, rel=1e-6)
    assert before is not None
    asked = {(event.side, event.text) for event in said.of("sample") if not event.command_id.startswith("way-")}
    assert {side for side, _ in asked} == {"base", "tuned"}
    assert len({text for _, text in asked}) == 2 or LEARNS[config.train.learns].adapter
    saved = weights(further)
    assert not all(tensor.equal(weights(earlier)[name]) for name, tensor in saved.items()), "it trained on"
    assert checkpoint.latest_good(further) is not None


@pytest.mark.parametrize("learns", BESIDE_ADAPTERS)
def test_memory_that_runs_out_and_bad_numbers_are_borne(
    learns: str, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.train.methods.sft import TextTrainer

    honest, calls = TextTrainer.pass_loss, []

    def full(self: Any, *words: Any) -> Any:
        calls.append(1)
        if len(calls) == 9:
            raise torch.OutOfMemoryError("as if")
        loss = honest(self, *words)
        return loss * float("nan") if len(calls) == 12 else loss

    monkeypatch.setattr(TextTrainer, "pass_loss", full)
    _folder, log = runs(train__learns=learns, train__learning_rate=RATE[learns], train__eval_steps=100)
    assert [event.key for event in log.of("correction")] == ["train.tokens_per_pass"]
    assert [note.code for note in log.of("note")].count("step.skipped") == 1
    assert log.said[-1].kind == "finished"


@pytest.mark.parametrize("learns", EVERY)
def test_what_cannot_learn_is_said_before_anything_is_loaded(learns: str) -> None:
    raw = RunConfig().model_dump()
    raw["data"]["path"] = "/rows.jsonl"
    raw["train"]["learns"] = learns
    row = LEARNS[RunConfig.model_validate(raw).train.learns]
    for form in ("nf4", "none"):
        raw["model"]["quantization"] = form
        faults = RunConfig.model_validate(raw).problems()
        assert [fault.partition(":")[0] for fault in faults] == (
            [] if form in row.weight_forms else ["model.quantization"]
        )
        assert all("expected" in fault or "found" in fault for fault in faults)
    for method in (name for name, one in METHODS.items() if one.reference):
        assert not RunConfig.model_validate(raw | {"method": method}).problems(), (
            "compared with the weights as they were"
        )


def test_exported_wholes_are_the_checkpoint_rounded(runs: Any, tmp_path: Path) -> None:
    from core.export.forms.makers import MAKERS
    from core.export.parts import Parts

    folder, _log = runs.undisturbed(train__learns="everything", train__learning_rate=1e-3)
    config = folder.config()
    place = folder.checkpoints / "step-000006" / config.learns.folder
    made = MAKERS[config.learns.forms[0]].make(
        Parts(Path(config.model.name), "tiny", place, config.learns), tmp_path, lambda *_: None, lambda: None
    )
    exported, kept = load_file(tmp_path / "model.safetensors"), weights(folder, "step-000006")
    assert made == "bfloat16"
    assert exported.keys() == kept.keys() == load_file(Path(config.model.name) / "model.safetensors").keys()
    assert all(exported[name].equal(tensor.bfloat16()) for name, tensor in kept.items())
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").dtype == torch.bfloat16


def test_embedding_and_head_have_a_rate_of_their_own(runs: Any) -> None:
    """A step's change is as large as its rate, AdamW's first ones being signs."""
    base = load_file(Path(runs.make("base").config().model.name) / "model.safetensors")["model.embed_tokens.weight"]

    def moved(name: str, **values: Any) -> float:
        folder, _log = runs(
            name, train__learns="adapter_embeddings", train__max_steps=1, train__warmup_steps=0, **values
        )
        return float((weights(folder)["base_model.model.model.embed_tokens.weight"] - base).abs().max())

    usual = moved("tenth", train__learning_rate=1e-2, train__weight_decay=0.0)
    chosen = moved("own", train__learning_rate=1e-2, train__weight_decay=0.0, train__embedding_learning_rate=5e-3)
    assert usual == pytest.approx(1e-3, rel=0.05)
    assert chosen == pytest.approx(5e-3, rel=0.05)


def test_texts_are_pretrained_on_token_by_token_and_flow_over_rows(runs: Any, tmp_path: Path) -> None:
    import json

    from tiny_run import sentence

    path = tmp_path / "texts.jsonl"
    texts = [" ".join(sentence(number + part) for part in range(24)) for number in range(20)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    values = {"data__path": str(path), "data__layout": "text", "method": "pretrain", "train__max_steps": 2}
    folder, log = runs("texts", **values)
    plan = log.of("plan")[0]
    assert plan.train_rows + plan.eval_rows > len(texts)
    assert plan.trained_tokens == plan.train_tokens - plan.train_rows or plan.trained_tokens == plan.train_tokens
    as_sft = runs("sft", **{**values, "method": "sft"})[1]
    assert as_sft.losses() == log.losses(), "the same loss"
    assert folder.config().learning.title == METHODS["pretrain"].title


@pytest.mark.parametrize("packing", [True, False])
def test_true_ends_are_learned_where_they_are_the_padding_token(packing: bool, runs: Any, read: Any) -> None:
    from core.train.step.batches import pack, pad

    config = runs.make("ends", train__packing=packing).config()
    rows, end, device = read(config).train, 0, torch.device("cpu")
    sequences = [one for row in range(6) for one in rows.sequences(row)]
    made: Any = pack(sequences, device) if packing else pad(sequences, end, device)
    ids, labels = made["input_ids"], made["labels"]
    assert int((labels == end).sum()) == 6, "each row's own end, and no padding"
    assert packing or int((ids == end).sum()) > 6


@pytest.mark.parametrize("learns", BESIDE_ADAPTERS)
def test_a_checkpoint_answers_beside_the_base_and_is_verified_as_exported(
    learns: str, runs: Any, tmp_path: Path
) -> None:
    from core.chat.generator import load_chat_model
    from core.chat.messages import Ask, Setup
    from core.data.render.chat_tokens import load_tokenizer
    from core.export.forms.makers import MAKERS
    from core.export.parts import Parts
    from core.export.verify import CHECKS

    folder, _log = runs.undisturbed(train__learns=learns, train__learning_rate=RATE[learns])
    config = folder.config()
    base, place = Path(config.model.name), folder.checkpoints / "step-000006" / config.learns.folder
    setup = {"folder": str(base), "model": config.model, "data": config.data, "home": str(tmp_path)}
    chat = load_chat_model(Setup(**setup, learns=config.train.learns, trained=str(place)))
    alone = load_chat_model(Setup(**setup))
    ask = Ask.model_validate({"id": "a", "messages": [{"role": "user", "content": "the cat"}], "max_new_tokens": 12})
    said = ["".join(chat.stream(ask, side, lambda: False)) for side in ("base", "tuned", "base", "tuned")]
    assert said[0] == said[2] == "".join(alone.stream(ask, "base", lambda: False))
    assert said[1] == said[3]
    assert (chat.sides, alone.sides) == (("base", "tuned"), ("base",))
    for form in (form for form in config.learns.forms if form in CHECKS and FORMS[form].weights):
        out = tmp_path / form
        out.mkdir()
        MAKERS[form].make(Parts(base, "tiny", place, config.learns), out, lambda *_: None, lambda: None)
        load_tokenizer(base).save_pretrained(str(out))
        request = {"class": "AutoModelForCausalLM", "folder": str(out), "base": str(base), "trained": str(place)}
        assert CHECKS[form]({**request, "prompt": "the cat sees"})


@pytest.mark.parametrize("learns", [name for name in LEARNS if name != DEFAULT_LEARNS])
def test_a_tied_head_stays_the_embedding(learns: str, runs: Any, read: Any, tmp_path: Path) -> None:
    from core.export.forms.makers import MAKERS
    from core.export.parts import Parts
    from core.export.verify import CHECKS

    base = make_model(tmp_path / "tied", tie_word_embeddings=True)
    short = {"train__max_steps": 2, "train__eval_steps": 2}
    folder, log = runs(model__name=str(base), train__learns=learns, train__learning_rate=RATE[learns], **short)
    config, rows = folder.config(), read(folder.config()).held_out
    place = folder.checkpoints / "step-000002" / config.learns.folder
    losses = {event.step: event.loss for event in log.of("evaluation")}
    assert plain_loss(reloaded(config, place), rows) == pytest.approx(losses[2], rel=1e-5)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    adapter = runs.undisturbed()[1].of("plan")[0].trainable_parameters if config.learns.adapter else 0
    own = sum(p.numel() for p in model.parameters()) if config.learns.base else model.lm_head.weight.numel()
    assert log.of("plan")[0].trainable_parameters == adapter + own
    form = next(form for form in reversed(config.learns.forms) if FORMS[form].whole and form in CHECKS)
    out = tmp_path / "out"
    out.mkdir()
    MAKERS[form].make(Parts(base, "tiny", place, config.learns), out, lambda *_: None, lambda: None)
    exported = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    assert plain_loss(exported, rows) == pytest.approx(losses[2], rel=5e-3), "rounded to 16 bits"
