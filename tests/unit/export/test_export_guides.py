"""How an export is used: Ollama's Modelfile, and the lines of each runtime."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from go_templates import in_ollama
from test_export_run import Ask, done

from core.contract.config import RunConfig
from core.contract.data import Message
from core.data.render.chat_tokens import question_text, stop_token_ids
from core.data.render.renderer import renderer
from core.data.render.template import TemplateChoice
from core.export.guides.answers import answers
from core.export.guides.conversations import conversations
from core.export.guides.modelfile import WEIGHTS, own_template, write_modelfile
from core.export.guides.runtimes import RUNTIMES, facts_of, used
from core.export.guides.talk import Talk, talk_of
from core.machine.locations import ASSETS
from core.runs.folder.job_folder import JobFolder


def config_of(**data: Any) -> RunConfig:
    made = RunConfig(name="Lighthouse, 2nd")
    return made.model_copy(update={"data": made.data.model_copy(update=data)})


@pytest.fixture(scope="module")
def talk() -> Talk:
    return talk_of(ASSETS / "starter", config_of())


def written(draft: Path, talk: Talk, config: RunConfig, form: str = "gguf") -> str:
    (draft / "model-q4_k_m.gguf").touch()
    write_modelfile(draft, form, talk, config)
    return (draft / "Modelfile").read_text("utf-8")


def value_of(modelfile: str, name: str) -> str:
    """As Ollama reads it: what stands between three quotes."""
    return modelfile.partition(f'{name} """')[2].partition('"""\n')[0]


def test_a_chat_in_ollama_is_the_chat_in_try(tmp_path: Path) -> None:
    """Template and system prompt of the file together: every conversation as Try sends it."""
    config = config_of(system_prompt='Be "brief".\nAlways.')
    talk = talk_of(ASSETS / "starter", config)
    told = written(tmp_path, talk, config)
    using = renderer(talk.tokenizer, config.data)
    assert value_of(told, "SYSTEM") == config.data.system_prompt
    for turns in conversations():
        tried = question_text(using, [Message(**turn) for turn in turns])
        ollama = in_ollama(value_of(told, "TEMPLATE"), turns, value_of(told, "SYSTEM"))
        assert ollama == tried.removeprefix(talk.tokenizer.bos_token)


def test_the_modelfile_ends_and_samples_as_the_run_did(tmp_path: Path, talk: Talk) -> None:
    told = written(tmp_path, talk, config_of())
    assert told.startswith("FROM ./model-q4_k_m.gguf\n")
    assert "PARAMETER temperature 0\n" in told
    assert "PARAMETER repeat_penalty 1.0\n" in told
    assert [line for line in told.splitlines() if "stop" in line] == [f'PARAMETER stop "{talk.tokenizer.eos_token}"']
    assert "SYSTEM" not in told
    assert "num_ctx" not in told
    sampled = {"do_sample": True, "temperature": 0.7, "repetition_penalty": 1.05}
    told = written(tmp_path, Talk(talk.tokenizer, talk.template, talk.ids, sampled), config_of(system_prompt='"""'))
    for line in ("temperature 0.7", "top_k 50", "top_p 1.0", "min_p 0.0", "repeat_penalty 1.05"):
        assert f"PARAMETER {line}\n" in told
    assert "see README" in told


def test_a_template_that_go_cannot_write_is_left_to_ollama_from_the_version_that_can(
    tmp_path: Path, talk: Talk
) -> None:
    numbered = "{% for m in messages %}{{ loop.index }} {{ m.content }}{{ eos_token }}{% endfor %}"
    for source in (numbered, "{{ strftime_now('%d') }}" + talk.template.source):
        told = written(tmp_path, replace(talk, template=replace(talk.template, source=source)), config_of())
        assert "REQUIRES 0.30.0\n" in told
        assert "TEMPLATE" not in told


def test_the_template_s_own_end_is_the_first_of_all(tmp_path: Path) -> None:
    """llama.cpp takes one token beside the end of a text: the one that ends an answer."""
    base = tmp_path / "base"
    shutil.copytree(ASSETS / "starter", base)
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}), encoding="utf-8")
    talk = talk_of(base, config_of())
    assert talk.ids == (*stop_token_ids(talk.tokenizer, talk.template), 5, 6)


@pytest.mark.parametrize(("source", "begins"), [("", False), ("{{ bos_token }}", True), ("<|system|>", False)])
def test_a_chat_begins_as_its_template_says(source: str, begins: bool, talk: Talk) -> None:
    """The tokenizer puts no start token before a text; without a template that is what counts."""
    own = talk.template.source.replace("{{- '<|bos|>' -}}", "")
    template = replace(talk.template, kind="model" if source else "none", source=source and source + own)
    assert replace(talk, template=template).begins is begins


def test_a_gguf_file_holds_a_template_that_asks_as_try_does(talk: Talk) -> None:
    """Kept apart from Ollama's own where no Go template can be written; lines where there was none."""
    asked = list(conversations())[:6]
    numbered = "\n{% for m in messages %}{{ loop.index }} {{ m.content }}{{ eos_token }}{% endfor %}"
    none = replace(talk.template, kind="none", source="", system_prompt="")
    for template, behind in ((replace(talk.template, source=numbered), ""), (none, "\n"), (none, "")):
        told = replace(talk, template=template, behind=behind)
        using = renderer(talk.tokenizer, TemplateChoice("model", source=own_template(told), ending="."))
        assert [using.ask(turns, generation=True) for turns in asked] == [told.write(turns) for turns in asked]
    assert own_template(talk) == talk.template.source
    assert len(own_template(replace(talk, template=replace(talk.template, source=numbered)))) > len(numbered) + 300


def test_the_card_of_a_gguf_file_speaks_of_the_file(talk: Talk) -> None:
    config = config_of(system_prompt="Be brief.\n\nAlways.")
    for form in ("gguf", "gguf_adapter"):
        told = answers(talk, config, form)
        assert "generation_config" not in told
        assert "> Be brief.\n>\n> Always." in told
    assert "`template.jinja`" in told
    assert "generation_config.json" in answers(talk, config, "merged")


@pytest.mark.parametrize("form", sorted({form for runtime in RUNTIMES.values() for form in runtime.lines}))
def test_each_form_has_lines_for_its_runtimes(form: str, talk: Talk, tmp_path: Path) -> None:
    (tmp_path / "model-q4_k_m.gguf").touch()
    facts = facts_of(tmp_path, config_of(system_prompt="It's brief."), "luthier-starter", talk)
    text = used(facts, form)
    assert facts.name == "lighthouse-2nd"
    titles = [runtime.title for runtime in RUNTIMES.values() if form in runtime.lines]
    assert re.findall(r"^### (.*)$", text, re.M) == titles
    for code in re.findall(r"```python\n(.*?)\n```", text, re.S):
        compile(code, form, "exec")
    assert ("ollama create lighthouse-2nd -f Modelfile" in text) is (form in WEIGHTS)
    if form in WEIGHTS:
        assert "-sys 'It'\"'\"'s brief.'" in text
    if form in WEIGHTS:
        written(tmp_path, talk, config_of(), form)
    assert (tmp_path / "template.jinja").exists() is (len(WEIGHTS.get(form, ())) > 1)


def test_vllm_is_not_named_for_an_adapter_that_it_cannot_load(talk: Talk, tmp_path: Path) -> None:
    config = config_of()
    for update, shown in (({"r": 20}, "--max-lora-rank 32"), ({"use_dora": True}, ""), ({"r": 1024}, "")):
        lora = config.lora.model_copy(update=update)
        text = used(facts_of(tmp_path, config.model_copy(update={"lora": lora}), "b", talk), "adapter")
        assert ("vllm" in text) is bool(shown)
        assert shown in text


CHAT = [("user", "Hello."), ("assistant", "Hi there"), ("user", "Bye {{ x }}")]
SERVED = """
import sys, torch, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.n_ctx, parameters.use_jinja = sys.argv[1], 256, True
parameters.cpuparams.n_threads = 1
turns = [dict(role=role, content=text) for role, text in eval(sys.argv[2])]
answer = xllamacpp.Server(parameters).handle_chat_completions({"messages": turns, "max_tokens": 1})
print("read", answer["usage"]["prompt_tokens"])
"""


@pytest.mark.slow
def test_llama_cpp_serves_a_chat_with_one_start_token(run: JobFolder, ask_for: Ask, tmp_path: Path) -> None:
    """Its own server and template engine, on the file's template: as many tokens as Try reads."""
    out, _ = done(ask_for("mine", "gguf", quantisation="f16"))
    talk = talk_of(ASSETS / "starter", run.config())
    numbered = "\n{{- bos_token }}{% for m in messages %}{{ loop.index }} {{ m.content }}{{ eos_token }}{% endfor %}"
    none = replace(talk.template, kind="none", source="", system_prompt="")
    for template in (talk.template, replace(talk.template, source=numbered), none):
        told, file = replace(talk, template=template), tmp_path / "other.gguf"
        rewrite = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", str(out / "model-F16.gguf"), str(file)]
        subprocess.run([*rewrite, "--chat-template", own_template(told), "--force"], check=True, capture_output=True)
        served = [sys.executable, "-c", SERVED, str(file), repr(CHAT)]
        said = subprocess.run(served, check=True, capture_output=True, text=True).stdout
        text = told.write([{"role": role, "content": content} for role, content in CHAT])
        assert f"read {1 + len(talk.tokenizer(text, add_special_tokens=False).input_ids)}\n" in said
