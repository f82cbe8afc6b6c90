"""Whole export jobs on the built-in model: what they write, say and carry, and what is left where they fail."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dying_log import Letters, Said

from core.contract.commands import Command
from core.contract.errors import MachineError, ModelError, RunError
from core.export import run as export_room
from core.export import verify
from core.export.gguf.proof.check import Verified
from core.export.guides.talk import talk_of
from core.export.model_card import Made, write_card
from core.export.run import export
from core.machine.locations import ASSETS
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.record.job_record import fold
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter

Ask = Callable[..., JobFolder]
SECRET = "somebodys-private-folder"


def done(job: JobFolder) -> tuple[Path, Said]:
    said = Said()
    export(job, said, CommandQueue(Letters(), EventReporter(said)))  # type: ignore[arg-type]
    return job.exports / job.name, said


def asked_by_the_card(folder: Path, *named: tuple[str, str]) -> str:
    """The answer that the Python lines of an export's model card print."""
    code = (folder / "README.md").read_text("utf-8").partition("```python\n")[2].partition("\n```")[0]
    for name, value in (("this folder", str(folder)), ("max_new_tokens=200", "max_new_tokens=3"), *named):
        assert name in code
        code = code.replace(name, value)
    printed: list[str] = []
    exec(code, {"print": printed.append})
    return printed[0].strip()


def carries_no_path(folder: Path) -> bool:
    """Nothing of the machine travels: not its folders, not its user."""
    texts = [path.read_text("utf-8") for path in folder.iterdir() if path.suffix in (".json", ".md", ".jinja")]
    return not any(word in text for text in texts for word in (SECRET, str(ASSETS), str(Path.home()) + "/"))


def test_an_adapter_is_pefts_own_and_reloads(
    run: JobFolder, ask_for: Ask, trained_adapter: Path, checked_here: None
) -> None:
    """A merged model's check runs in a fresh process."""
    out, said = done(ask_for("mine", "adapter"))
    names = {path.name for path in out.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "chat_template.jinja"} <= names
    assert "generation_config.json" in names
    assert "README.md" in names
    original = trained_adapter / "adapter_model.safetensors"
    assert (out / "adapter_model.safetensors").read_bytes() == original.read_bytes()
    config = json.loads((out / "adapter_config.json").read_text("utf-8"))
    before = json.loads((trained_adapter / "adapter_config.json").read_text("utf-8"))
    assert config == {**before, "base_model_name_or_path": "luthier-starter"}
    assert carries_no_path(out)
    assert asked_by_the_card(out, ("the folder of the base model", str(ASSETS / "starter")))
    [exported] = said.of("exported")
    assert (exported.name, exported.form) == ("mine", "adapter")
    assert exported.bytes == sum(path.stat().st_size for path in out.iterdir())
    assert any("bit-equal" in check for check in exported.checks)
    assert [event.kind for event in said.events[-2:]] == ["exported", "finished"]
    assert [path.name for path in run.exports.iterdir()] == ["mine"]


def test_a_merged_model_stands_alone_and_says_what_the_adapter_says(ask_for: Ask, trained_adapter: Path) -> None:
    out, said = done(ask_for("whole", "merged"))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(out)
    starter = AutoTokenizer.from_pretrained(ASSETS / "starter")
    assert tokenizer.chat_template == starter.chat_template
    assert tokenizer.get_vocab() == starter.get_vocab()
    model = AutoModelForCausalLM.from_pretrained(out)
    assert str(model.dtype) == "torch.bfloat16"
    assert model.generation_config.eos_token_id == [tokenizer.eos_token_id]
    assert model.generation_config.do_sample is False
    assert asked_by_the_card(out)
    assert carries_no_path(out)
    stages = {event.stage for event in said.of("stage")}
    assert stages == {"merging", "verifying"}
    [exported] = said.of("exported")
    assert any("cosine 0.99" in check or "cosine 1.0" in check for check in exported.checks)
    last = [event for event in said.of("stage") if event.stage == "merging"][-1]
    assert last.done == last.total > 50


def test_scaled_positions_travel_with_every_form(run: JobFolder, ask_for: Ask, checked_here: None) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = run.config()
    scaled = config.model.model_copy(update={"rope_scaling": "yarn", "rope_factor": 4.0})
    run.run_yaml.write_text(dump_config(config.model_copy(update={"model": scaled})), encoding="utf-8")
    base, ids = AutoConfig.from_pretrained(ASSETS / "starter"), torch.arange(5, 40)[None]
    rope = base.rope_parameters | {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": base.max_position_embeddings
    }  # fmt: skip
    answers = {}
    for form in ("adapter", "merged"):
        out, said = done(ask_for(form, form))
        assert said.of("exported")[0].checks
        read = AutoConfig.from_pretrained(out)
        assert read.rope_parameters == rope
        assert read.max_position_embeddings == 4 * base.max_position_embeddings
        old = json.loads((out / "config.json").read_text("utf-8"))
        assert (old["rope_scaling"]["rope_type"], old["rope_theta"]) == ("yarn", rope["rope_theta"])
        assert "Positions: RoPE scaling YaRN 4." in (out / "README.md").read_text("utf-8")
        named = [("the folder of the base model", str(ASSETS / "starter"))] if form == "adapter" else []
        answers[form] = asked_by_the_card(out, *named)
    assert answers["adapter"] == answers["merged"]
    whole = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    unscaled = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, rope_parameters=base.rope_parameters)
    with torch.no_grad():
        apart = (whole(ids).logits - unscaled(ids).logits).abs().max()
    assert apart > 0.05, "another model without them"
    trained = run.checkpoints / "step-000012" / "adapter"
    request = {
        "form": "adapter", "class": "AutoModelForCausalLM", "folder": str(run.exports / "adapter"),
        "base": str(ASSETS / "starter"), "trained": str(trained), "prompt": "What is a bow?",
        "positions": {"rope_parameters": {**rope, "factor": 8.0}},
    }  # fmt: skip
    with pytest.raises(ValueError, match="scales positions otherwise"):
        verify.CHECKS["adapter"](request)


def test_the_card_says_what_it_is(ask_for: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_room, "_verify", lambda *_: Verified(("checked elsewhere",)))
    card = (done(ask_for("card", "merged"))[0] / "README.md").read_text("utf-8")
    for words in (
        "base_model: luthier-starter", "library_name: transformers", f"SHA-256 `{'a' * 64}`", "`instruction.jsonl`",
        "base model: 2.5000 (15 rows)", "after step 12: 0.5000", "4-bit NF4", "bfloat16", "torch 2.13.0",
        "peft 0.21.2", "285 rows", "system_prompt: Be short.", "not to the 4-bit ones",
    ):  # fmt: skip
        assert words in card
    assert "<b>" not in card.split("## Recipe")[0]
    # A correction during the run stands in the recipe: it is the effective config.
    assert "learning_rate: 0.0001" in card


@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_an_answer_ends_where_chatml_ends_it_on_a_base_without_a_template(
    run: JobFolder, tmp_path: Path, form: str
) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    base, draft = tmp_path / "base", tmp_path / "draft"
    draft.mkdir()
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "starter")
    tokenizer.chat_template = None
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.save_pretrained(base)
    (base / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": [7, 8]}))
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": 7, "top_p": 0.9}))
    talk = talk_of(base, run.config())
    export_room._write_tokenizer(draft, talk)
    carried = GenerationConfig.from_pretrained(draft)
    im_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert carried.eos_token_id == [im_end, tokenizer.eos_token_id, 7, 8]  # the template's own first
    assert carried.top_p == 0.9
    assert "<|im_start|>" in AutoTokenizer.from_pretrained(draft).chat_template
    write_card(draft, run.config(), fold([]), Made(form, "step-000012", "", talk))
    card = (draft / "README.md").read_text("utf-8")
    assert "ChatML, since the base model brings no chat template" in card
    assert "`<|im_end|>` ends an answer." in card
    assert ("base.generation_config = GenerationConfig.from_pretrained" in card) is (form == "adapter")


def test_a_stop_leaves_nothing(run: JobFolder, ask_for: Ask) -> None:
    said, job = Said(), ask_for("stopped", "merged")
    orders = CommandQueue(Letters(Command(verb="stop", attempt=1)), EventReporter(said)).start()
    while not orders.leaving:
        time.sleep(0.01)
    export(job, said, orders)  # type: ignore[arg-type]
    orders.close()
    assert said.events[-1].kind == "stopped"
    assert not said.of("exported")
    assert list(run.exports.iterdir()) == []


def test_a_full_disk_is_said_before_anything_is_written(
    run: JobFolder, ask_for: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(run.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    with pytest.raises(MachineError, match="free disk") as caught:
        done(ask_for("big", "merged"))
    assert caught.value.code == "disk.room"
    assert list(run.exports.iterdir()) == []


def test_a_name_is_used_once_and_a_damaged_checkpoint_is_refused(run: JobFolder, ask_for: Ask) -> None:
    (run.exports / "mine").mkdir(parents=True)
    with pytest.raises(RunError, match="mine") as caught:
        done(ask_for("mine", "adapter"))
    assert caught.value.code == "export.exists"
    weights = run.checkpoints / "step-000012" / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(RunError, match=r"adapter_model\.safetensors") as caught:
        done(ask_for("other", "adapter"))
    assert caught.value.code == "checkpoint.damaged"


def test_what_does_not_reload_is_not_kept(run: JobFolder, ask_for: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_room, "_ask", lambda command, check: {"fault": "it is broken"})
    with pytest.raises(ModelError, match="it is broken") as caught:
        done(ask_for("broken", "adapter"))
    assert caught.value.code == "export.unverified"
    assert list(run.exports.iterdir()) == []


def test_a_data_file_that_is_gone_does_not_hinder(ask_for: Ask, run: JobFolder, tmp_path: Path) -> None:
    config = run.config().model_copy(update={"data": run.config().data.model_copy(update={"path": "/gone.jsonl"})})
    assert export_room._prompt(config) == "Hello."
    assert "?" in export_room._prompt(run.config()) or export_room._prompt(run.config()).endswith(".")


def test_a_model_larger_than_the_memory_is_checked_by_its_first_layers(
    ask_for: Ask, trained_adapter: Path, checked_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of an adapter's tensors must have its place in the whole model all the same."""
    from safetensors.torch import load_file

    size = sum(file.stat().st_size for file in (ASSETS / "starter").glob("*.safetensors"))
    monkeypatch.setattr(export_room.Host, "memory", lambda _: (8 * size, size))
    part = "larger than this machine's free memory: compared by its first 1 of 6 layers"
    for form in ("adapter", "merged"):
        [exported] = done(ask_for(form, form))[1].of("exported")
        assert part in exported.checks
        assert any("moves" in check or "cosine" in check for check in exported.checks)
    monkeypatch.setattr(export_room.Host, "memory", lambda _: (8 * size, 2 * size))
    assert [export_room._layers_that_fit(ASSETS / "starter", copies) for copies in (1, 2)] == [0, 1]
    request = {"class": "AutoModelForCausalLM", "base": str(ASSETS / "starter"), "folder": str(trained_adapter)}
    tensors = load_file(trained_adapter / "adapter_model.safetensors")
    verify._find_places(request, tensors)
    with pytest.raises(ValueError, match="not those of the whole model"):
        verify._find_places(request, {name.replace("layers.5.", "layers.6."): one for name, one in tensors.items()})


@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_the_fresh_process_finds_a_wrong_export(form: str, trained_adapter: Path, tmp_path: Path) -> None:
    """In this process, to save seconds: an export whose weights are not what they should be is found."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(ASSETS / "starter", tmp_path / "out", ignore=shutil.ignore_patterns("*.py"))
    if form == "adapter":
        shutil.copytree(trained_adapter, tmp_path / "out", dirs_exist_ok=True)
        weights = load_file(tmp_path / "out" / "adapter_model.safetensors")
        name = next(name for name in weights if "lora_B" in name)
        save_file({**weights, name: weights[name] * 1.001}, tmp_path / "out" / "adapter_model.safetensors")
    request: dict[str, Any] = {
        "form": form, "class": "AutoModelForCausalLM", "folder": str(tmp_path / "out"),
        "base": str(ASSETS / "starter"),
        "trained": str(trained_adapter), "prompt": "Hello.",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"differ from|cosine"):
        verify._merged(request) if form == "merged" else verify._adapter(request)


def test_sums_that_16_bits_round_too_much_are_compared_again_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deep model of drawn weights in bfloat16 had a cosine of 0.99877 with itself."""
    asked: list[tuple[str, int]] = []
    cosines = {"auto": 0.9988, "float32": 0.9999}

    def beside(request: dict[str, Any], dtype: str) -> list[str]:
        asked.append((dtype, request.get("layers", 0)))
        if not cosines[dtype] >= verify.LEAST_COSINE:
            raise verify.UnlikeError(cosines[dtype], "base + adapter")
        return ["loaded", "said"]

    monkeypatch.setattr(verify, "_beside_adapter", beside)
    request = {"base": str(ASSETS / "starter")}
    said = verify._merged(request)
    assert asked == [("auto", 0), ("float32", 3)]
    assert said[0].startswith("compared by the first 3 layers in float32")
    assert said[1:] == ["loaded", "said"]
    for lower in ({"float32": 0.9988}, {"float32": float("nan")}, {"auto": 0.98}, {"auto": float("nan")}):
        cosines |= lower
        with pytest.raises(verify.UnlikeError, match="cosine"):
            verify._merged(request)
    assert asked[-1] == ("auto", 0), "far apart is far apart"


def test_a_head_of_scores_has_its_place_in_a_model_that_is_not_loaded(tmp_path: Path) -> None:
    """With as many outputs as were trained, not as the base's config says."""
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file
    from transformers import AutoModelForSequenceClassification

    labels = {"0": "bad", "1": "fair", "2": "good"}
    model = AutoModelForSequenceClassification.from_pretrained(ASSETS / "starter", num_labels=3)
    get_peft_model(model, LoraConfig("SEQ_CLS", r=2, target_modules=["q_proj"])).save_pretrained(tmp_path)
    request = {"class": "AutoModelForSequenceClassification", "base": str(ASSETS / "starter"), "folder": str(tmp_path)}
    scores = {"scores": {"settings": {"id2label": labels}}}
    verify._find_places(request | scores, load_file(tmp_path / "adapter_model.safetensors"))
