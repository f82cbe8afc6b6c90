"""GGUF exports: what is written is what llama.cpp reads, answers and loses, beside transformers on the same weights;
what it cannot be is refused, and what it lost is said."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf_cases import FAMILIES, SHAPE, YARN, description, make_adapter, make_base, material, tokenizer_of
from test_export_run import Ask, carries_no_path, done
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from core.contract.config import ModelChoice, RunConfig
from core.contract.data import Example, Message
from core.contract.errors import ModelError
from core.contract.tasks import LEARNS
from core.data.render.chat_tokens import question_ids
from core.export.gguf.adapter import write_adapter
from core.export.gguf.metadata import facts_of, notes_of, read_config, rope_tensors
from core.export.gguf.mixtures import MIXTURES, Chooser
from core.export.gguf.model import Description, Quantiser, planned, write_model
from core.export.gguf.proof import check
from core.export.gguf.proof import material as proof_material
from core.export.gguf.proof.check import Tried, Verified, verify
from core.export.gguf.proof.material import ODD_TEXTS, within
from core.export.gguf.proof.streamed import Streamed, weighings_of
from core.export.gguf.vocabulary import vocabulary_of
from core.export.guides.runtimes import RUNTIMES
from core.export.guides.runtimes import facts_of as card_facts
from core.export.guides.talk import talk_of
from core.export.llama.client import llama
from core.export.weights import finished
from core.models.positions import position_fields
from core.runs.folder.held_out_rows import Draw, draw_path, write_draw
from core.runs.folder.job_folder import JobFolder


def quiet(*_: object) -> None:
    pass


def weights(base: Path, adapter: Path | None = None) -> Any:
    return finished(base, adapter or base, LEARNS["adapter" if adapter else "everything"])


def tried(base: Path, adapter: Path, file: Path, kind: str = "f16", lora: Path | None = None) -> Verified:
    told = description(base)
    one = Tried(file, told.config, weights(base, adapter), weights(base), kind, lora)  # type: ignore[arg-type]
    plain = not told.vocabulary.notes  # of chats alone
    return verify(one, material(AutoTokenizer.from_pretrained(base), plain=plain), quiet)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A Llama with factors of its frequencies, and an adapter that learned."""
    folder = tmp_path_factory.mktemp("small")
    base = make_base(folder / "base", "llama")
    return base, make_adapter(base, folder / "adapter", steps=8)


def test_a_run_becomes_a_file_that_llama_cpp_answers_with_as_transformers_does(
    run: JobFolder, ask_for: Ask, tmp_path: Path
) -> None:
    write_draw(draw_path(run.path), Draw(
        rows=40, tokens_sha256="", held_out=[1, 4, 9], order_sha256="", numbers=[2, 5, 10], held_out_sha256=""
    ))  # fmt: skip
    out, said = done(ask_for("mine", "gguf", quantisation="f16"))
    assert {path.name for path in out.iterdir()} == {"model-F16.gguf", "README.md", "Modelfile"}
    assert carries_no_path(out)
    [exported] = said.of("exported")
    texts, logits, answers, rows = exported.checks
    assert texts.startswith("llama.cpp gives 200 of 200 texts and chats")
    assert "behind 20 prompts" in logits
    assert "20 of 20" in answers
    assert "perplexity on 3 held-out rows" in rows
    assert says_what_try_says(run, out / "model-F16.gguf", tmp_path)
    read = gguf.GGUFReader(out / "model-F16.gguf")
    assert (
        read.fields["tokenizer.chat_template"].contents()
        == AutoTokenizer.from_pretrained(Path("assets/starter")).chat_template
    )
    assert read.fields["tokenizer.ggml.pre"].contents() == "gpt-2"


def says_what_try_says(run: JobFolder, file: Path, home: Path) -> bool:
    """Try's greedy answer of the finetuned model in 16 bits, and llama.cpp's of the file, as text."""
    from core.chat.generator import load_chat_model
    from core.chat.messages import Ask as Question
    from core.chat.messages import Setup

    config, question = run.config(), [{"role": "user", "content": "What is a bow?"}]
    base, adapter = Path("assets/starter"), run.checkpoints / "step-000012" / "adapter"
    model = config.model.model_copy(update={"quantization": "none", "dtype": "float32"})
    setup = {"folder": str(base), "model": model, "data": config.data, "home": str(home), "trained": str(adapter)}
    chat = load_chat_model(Setup.model_validate({**setup, "learns": config.train.learns}))
    asked = Question.model_validate({"id": "a", "messages": question, "max_new_tokens": 16, "temperature": 0.0})
    tried_out = "".join(chat.stream(asked, "tuned", lambda: False))
    talk = talk_of(base, config)
    ids = question_ids(talk.tokenizer, tuple(Message.model_validate(one) for one in question), config.data, 512)
    with llama(file) as loaded:
        [answer] = loaded.answers([ids], 16)[0]
    ends = [place for place, token in enumerate(answer) if token in talk.ids]
    said = talk.tokenizer.decode(answer[: ends[0] if ends else None], skip_special_tokens=True)
    assert tried_out.strip() == said.strip() != ""
    return True


def test_an_adapter_lies_over_the_base_in_llama_cpp(small: tuple[Path, Path], tmp_path: Path) -> None:
    base, adapter = small
    write_model(tmp_path / "base.gguf", description(base), weights(base), Quantiser("f16"), quiet, quiet)
    write_adapter(tmp_path / "adapter.gguf", read_config(base), base, adapter, quiet, quiet)
    checked = tried(base, adapter, tmp_path / "base.gguf", lora=tmp_path / "adapter.gguf")
    assert "cosine 0.9999" in checked.checks[1] or "cosine 1.0" in checked.checks[1]
    with pytest.raises(ModelError) as caught:  # without it, it is the base
        tried(base, adapter, tmp_path / "base.gguf")
    assert caught.value.code == "gguf.apart"


def test_four_bits_are_measured_and_what_they_lose_is_said(
    small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, adapter = small
    rows = within(material(AutoTokenizer.from_pretrained(base)).seen, 200)
    told = description(base)
    weighings = dict(weighings_of(Streamed(told.config, weights(base, adapter), quiet), [row.ids for row in rows]))
    file = tmp_path / "model.gguf"
    write_model(file, told, weights(base, adapter), Quantiser("q4_k_m", weighings), quiet, quiet)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(file).tensors}
    assert kinds["blk.0.attn_q.weight"] == "Q4_K"
    assert kinds["blk.2.ffn_down.weight"] == kinds["output.weight"] == "Q6_K"
    assert kinds["blk.0.attn_norm.weight"] == kinds["rope_freqs.weight"] == kinds["blk.0.attn_q.bias"] == "F32"
    assert not tried(base, adapter, file, "q4_k_m").warnings
    spoilt = weights(base, adapter)
    monkeypatch.setattr(spoilt, "rows", weights(base).rows)
    write_model(file, told, spoilt, Quantiser("q4_k_m"), quiet, quiet)
    [warning] = tried(base, adapter, file, "q4_k_m").warnings
    assert "what training brought" in warning


def test_the_importance_matrix_is_the_mean_square_of_what_flows_in(small: tuple[Path, Path]) -> None:
    base, _ = small
    rows = [[1, 40, 50, 60, 70], [1, 80, 90]]
    made = weighings_of(Streamed(read_config(base), weights(base), quiet), rows)
    model, seen = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), []
    model.model.layers[1].mlp.down_proj.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0]))
    with torch.no_grad():
        for row in rows:
            model(torch.tensor([row]))
    expected = torch.cat(seen).square().mean(0)
    assert torch.allclose(torch.from_numpy(made["model.layers.1.mlp.down_proj.weight"]), expected, rtol=1e-4)
    assert len(made) == 3 * 7


def test_types_follow_llama_cpps_rule() -> None:
    def kind(quantisation: Any, name: str, **how: Any) -> str:
        facts = {"layers": 32, "grouped": True, "tied": False, **how}
        return Chooser(MIXTURES[quantisation], **facts).type_of(name, (4096, how.pop("width", 4096)))

    values = [kind("q4_k_m", f"blk.{layer}.attn_v.weight") for layer in range(32)]
    finer = [n for n, one in enumerate(values) if one == "Q6_K"]
    assert finer == [*range(4), *range(6, 28, 3), *range(28, 32)]
    assert kind("q5_k_m", "blk.4.attn_qkv.weight") == "Q5_K"
    assert kind("q4_k_m", "token_embd.weight", tied=True) == "Q6_K"
    assert kind("q4_k_m", "token_embd.weight") == "Q4_K"
    assert kind("q8_0", "output.weight") == "Q8_0"
    assert kind("f16", "output.weight") == "F16"
    assert kind("q4_k_m", "blk.10.attn_v.weight", layers=80) == "Q5_K"
    assert kind("q4_0", "blk.0.ffn_down.weight", weighed=True) == "Q4_1"
    chooser = Chooser(MIXTURES["q4_k_m"], 32, True, False)
    assert chooser.type_of("blk.9.attn_q.weight", (64, 96)) == "Q5_0"
    assert chooser.type_of("blk.9.attn_q.weight", (64, 40)) == "F16"
    assert chooser.type_of("output.weight", (64, 96)) == "Q8_0"


@pytest.mark.parametrize("name", ["linear", "dynamic", "yarn", "llama3"])
def test_scaled_positions_stand_in_the_file(name: Any, tmp_path: Path) -> None:
    LlamaConfig(**SHAPE).save_pretrained(tmp_path)
    base, choice = tmp_path, ModelChoice(rope_scaling=name, rope_factor=4.0)
    config = read_config(base, choice)
    facts, made = facts_of(config), SHAPE["max_position_embeddings"]
    told = {key: facts.get(f"rope.scaling.{key}") for key in ("type", "factor", "original_context_length")}
    assert list(told.values()) == {
        "linear": ["linear", 4.0, None], "yarn": ["yarn", 4.0, made]
    }.get(name, [None, None, None])  # fmt: skip
    assert facts["context_length"] == (made if name == "dynamic" else 4 * made)
    assert bool(rope_tensors(config)) == (name == "llama3")
    assert ("no dynamic NTK" in " ".join(notes_of(config))) == (name == "dynamic")
    assert not [note for note in notes_of(read_config(base)) if "NTK" in note]


def test_an_adapters_card_tells_llama_cpp_what_its_file_cannot() -> None:
    for choice, words in (
        (ModelChoice(rope_scaling="yarn", rope_factor=4), " --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 512"),
        (ModelChoice(rope_scaling="linear", rope_factor=2), " --rope-scaling linear --rope-scale 2"),
        (ModelChoice(rope_theta=5e5), " --rope-freq-base 500000"),
        (ModelChoice(rope_scaling="llama3", rope_factor=4), ""),
    ):
        config = RunConfig(model=choice)
        positions = position_fields(LlamaConfig(**SHAPE), choice)
        talk = talk_of(Path("assets/starter"), config)
        facts = replace(card_facts(Path(), config, "luthier-starter", talk), positions=positions)
        lines = RUNTIMES["llama_server"].lines["gguf_adapter"](facts)
        assert words in lines if words else not lines
        assert RUNTIMES["ollama"].lines["gguf_adapter"](facts) == ""
        assert "rope_parameters" in RUNTIMES["peft"].lines["adapter"](facts)
        assert "--hf-config-path ." in RUNTIMES["vllm"].lines["adapter"](facts)


def test_what_llama_cpp_lacks_is_named(tmp_path: Path, small: tuple[Path, Path]) -> None:
    def refused(**changes: Any) -> str:
        config = LlamaConfig(**{**SHAPE, **changes})
        config.model_type = changes.get("model_type", "llama")
        with pytest.raises(ModelError) as caught:
            facts_of(config)
        return caught.value.message

    assert "found stablelm" in refused(model_type="stablelm")
    rope = {"rope_type": "proportional", "rope_theta": 1e4}
    config = LlamaConfig(**SHAPE)
    config.rope_parameters = rope
    with pytest.raises(ModelError, match="positions scaled by proportional"):
        facts_of(config)
    untied = LlamaConfig(**SHAPE)
    untied.model_type = "cohere"
    with pytest.raises(ModelError, match="a head beside the embedding"):
        planned(untied, weights(small[0]), Quantiser("q4_k_m"))
    config.rope_parameters = {**YARN, "beta_slow": 2.0}
    with pytest.raises(ModelError, match="beta_slow = 2"):
        facts_of(config)
    config = LlamaConfig(**SHAPE)
    config.sliding_window = 128
    assert "attends to the last 128" in notes_of(config)[0]
    assert not rope_tensors(config)
    adapter = make_adapter(small[0], tmp_path / "dora", use_dora=True)
    with pytest.raises(ModelError) as caught:
        write_adapter(tmp_path / "a.gguf", read_config(small[0]), small[0], adapter, quiet, quiet)
    assert caught.value.code == "gguf.adapter"


@pytest.mark.parametrize(("change", "words"), [
    (lambda held: held["model"].update(type="WordLevel", unk_token="<unk>"), "the kind WordLevel"),
    (lambda held: held["pre_tokenizer"].update(pretokenizers=[
        {"type": "Split", "pattern": {"Regex": r"\w+"}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]), r"cut by \w+"),
])  # fmt: skip
def test_a_tokenizer_that_gguf_cannot_express_is_named(change: Any, words: str) -> None:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    held = json.loads(tokenizer_of("qwen2").backend_tokenizer.to_str())
    change(held)
    if held["model"]["type"] == "WordLevel":
        held["model"] = {key: held["model"][key] for key in ("type", "vocab", "unk_token")}
    changed = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(held)), bos_token="<s>")
    with pytest.raises(ModelError) as caught:
        vocabulary_of(changed, 2000, (), True)
    assert words in caught.value.message


class Deaf:
    """llama.cpp as it would be with a broken file: it reads texts as they are, and answers the same to each prompt."""

    def __init__(self, said: float, vocabulary: int) -> None:
        self.said, self.vocabulary, self.read = said, vocabulary, dict[str, tuple[int, ...]]()

    def tokens(self, texts: list[str], special: bool = False) -> list[list[int]]:
        return [list(self.read[text]) for text in texts]

    def answers(self, prompts: Any, most: int, last: int = 1) -> tuple[list[list[int]], Any]:
        logits = np.full((len(prompts) * last, self.vocabulary), self.said, np.float32)
        return [[5] * most for _ in prompts], logits

    def loss(self, ids: Any, trained: Any) -> tuple[float, int]:
        return 3.0, 1


def test_a_broken_quantised_file_is_refused_or_told_of_without_held_out_rows(
    small: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, adapter = small
    own = read_config(base)
    deaf = Deaf(1.0, own.vocab_size)
    monkeypatch.setattr(check, "llama", lambda *_: nullcontext(deaf))
    asked = material(AutoTokenizer.from_pretrained(base), plain=False)
    deaf.read = {text.text: text.ids for text in asked.texts}
    file = Tried(Path(), own, weights(base, adapter), weights(base), "q8_0")
    [warning] = verify(file, replace(asked, held_out=()), quiet).warnings
    assert "Logits are far from" in warning
    worse = replace(file, finished=weights(base), base=weights(base, adapter))
    assert "Training brought nothing" in verify(worse, asked, quiet).warnings[0]
    deaf.said = math.nan
    with pytest.raises(ModelError) as caught:
        verify(file, asked, quiet)
    assert caught.value.code == "gguf.apart"
    deaf.said = 1.0
    with pytest.raises(ModelError, match="0 of 20 greedy answers alike"):
        verify(replace(file, quantisation="f16"), asked, quiet)


@pytest.mark.parametrize("own", [{"attention_factor": 1.0}, {"mscale": 0.7, "mscale_all_dim": 1.0}])
def test_a_yarn_factor_of_ones_own_is_the_model_s(own: dict[str, float], tmp_path: Path) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    base = make_base(tmp_path / "base", "qwen2", rope_parameters={**YARN, **own})
    said = facts_of(config := read_config(base))
    wanted = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")[1]
    assert said["rope.scaling.attn_factor"] * (1 + 0.1 * math.log(YARN["factor"])) == pytest.approx(wanted)
    write_model(tmp_path / "a.gguf", description(base), weights(base), Quantiser("f16"), quiet, quiet)
    row = list(range(1, 100))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    expected = model(torch.tensor([row])).logits[0, -1].detach()
    with llama(tmp_path / "a.gguf") as asked:
        found = torch.from_numpy(asked.answers([row], 1)[1][0])
    assert torch.cosine_similarity(expected, found, 0) > 0.9999


def test_held_out_rows_far_into_a_large_file_are_measured(
    run: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (Example(row=row, messages=[Message(role="user", content="a"), Message(role="assistant", content="b c")])
            for row in range(1, 9_001))  # fmt: skip
    monkeypatch.setattr(proof_material, "examples_of", lambda _: rows)
    write_draw(draw_path(run.path), Draw(
        rows=9_000, tokens_sha256="", held_out=[8_499], order_sha256="", numbers=[8_500], held_out_sha256=""
    ))  # fmt: skip
    made = proof_material.material_of(run.path, run.config(), talk_of(Path("assets/starter"), run.config()))
    assert (len(made.held_out), len(made.seen)) == (1, proof_material.SEEN)
    assert next(rows).row == 8_501  # and no further


def test_a_file_that_llama_cpp_refuses_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(ModelError) as caught, llama(tmp_path / "broken.gguf"):
        pass
    assert caught.value.code == "export.llama"
    assert "found:" in caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_in_each_kind_of_tokenizer(name: str, tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", name)
    adapter = make_adapter(base, tmp_path / "adapter")
    for kind in ("f16", "bf16", "q8_0", "q4_k_m"):
        file = tmp_path / f"{kind}.gguf"
        write_model(file, description(base), weights(base, adapter), Quantiser(kind), quiet, quiet)  # type: ignore[arg-type]
        checked = tried(base, adapter, file, kind)
        assert "texts and chats" in checked.checks[0]
    write_model(tmp_path / "b.gguf", description(base), weights(base), Quantiser("f16"), quiet, quiet)
    write_adapter(tmp_path / "adapter.gguf", read_config(base), base, adapter, quiet, quiet)
    tried(base, adapter, tmp_path / "b.gguf", lora=tmp_path / "adapter.gguf")


@pytest.mark.slow
@pytest.mark.parametrize(("vocabulary", "name"), [("gpt-2", "llama"), ("qwen2", "qwen2"), ("phi-3", "phi3")])
def test_published_vocabularies_give_the_same_ids(
    vocabulary: str, name: str, shared_data: Path, tmp_path: Path
) -> None:
    """Conversations of three data sets, tables and odd texts, with and without the ends."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(shared_data / "tokenizers" / vocabulary)
    small = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16, "num_hidden_layers": 1}
    small["vocab_size"] = len(tokenizer) + 8
    config = AutoConfig.for_model(FAMILIES[name][0], **{**SHAPE, **small})
    AutoModelForCausalLM.from_config(config).save_pretrained(str(tmp_path / "base"))
    base, file = tmp_path / "base", tmp_path / "m.gguf"
    told = Description(read_config(base), vocabulary_of(tokenizer, config.vocab_size, (), True), "", vocabulary)
    write_model(file, told, weights(base), Quantiser("f16"), quiet, quiet)
    files = ("alpaca_en_999.json", "sharegpt_500.json", "sharegpt_tools_300.json")
    rows = [json.loads((shared_data / one).read_text("utf-8"))[:60] for one in files]
    texts = [str(row)[:1500] for some in rows for row in some] + [*ODD_TEXTS]
    with llama(file) as asked:
        for special in (False, True):
            assert asked.tokens(texts, special) == tokenizer(texts, add_special_tokens=special).input_ids
