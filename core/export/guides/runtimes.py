"""RUNTIMES: what runs an export, a row each, with the lines that do it there, by form.

The lines are for the export's own folder: commands are typed in it, and Python names it ``"this folder"``.
"""

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.export.guides.modelfile import TEMPLATE_FILE, gguf_file
from core.export.guides.talk import Talk
from core.models.positions import chosen_row
from core.runs.folder.job_folder import slug

WEBUI = "~/text-generation-webui"
ANEW = "In a fresh environment of Python; --steps 1 tries it out, --base names the base model's folder."
TRAINING = "python3 -m venv .venv\n.venv/bin/pip install -r requirements.txt\n.venv/bin/python train.py"
_VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM can be told to make room for."""


@dataclass(frozen=True)
class Facts:
    """What the lines are made of. ``name``: what the model is called there; ``base``: the base model's name and, where
    it is the hub's, ``revision``; ``file``: the GGUF file, empty where there is none."""

    name: str
    base: str
    revision: str
    kind: str
    talk: Talk
    config: RunConfig
    file: str = ""
    positions: dict[str, Any] = field(default_factory=dict)
    """Fields of the base's config that scale its positions."""


@dataclass(frozen=True)
class Runtime:
    """One program or library. ``lines``: by form, what is typed; empty where it cannot take this run's export."""

    title: str
    about: str
    lines: dict[str, Callable[[Facts], str]]
    language: str = "sh"


def facts_of(draft: Path, config: RunConfig, base: str, talk: Talk) -> Facts:
    """The facts of an export that lies in ``draft``; ``base`` is the base model's name in a card."""
    name = slug(config.name or f"{base.rpartition('/')[2]}-finetuned")
    return Facts(name, *base_words(config), config.learning.task.model_class, talk, config, gguf_file(draft))


def base_words(config: RunConfig) -> tuple[str, str]:
    """What a base model is loaded by, and its revision where it is the hub's."""
    if config.model.source != "hub":
        return "the folder of the base model", ""
    return config.model.name, config.model.revision


def used(facts: Facts, form: str) -> str:
    """A model card's section "Use": each runtime that takes this form, with its lines."""
    shown = []
    for runtime in RUNTIMES.values():
        lines = runtime.lines[form](facts) if form in runtime.lines else ""
        if lines:
            shown.append(section(runtime.title, runtime.about, runtime.language, lines))
    where = "Commands are for a terminal in this folder."
    return "\n".join(["## Use\n", *([where + "\n"] if len(shown) > 1 else []), *shown])


def section(title: str, about: str, language: str, lines: str) -> str:
    """One part of a model card's "Use"; what is typed may hold a block of code itself, in a system prompt."""
    fence = "```"
    while fence in lines:
        fence += "`"
    return f"### {title}\n\n{about}\n\n{fence}{language}\n{lines}\n{fence}\n"


# ── the lines ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _ollama(facts: Facts) -> str:
    return f"ollama create {facts.name} -f Modelfile\nollama run {facts.name}"


def _llama_cli(facts: Facts, weights: str = "") -> str:
    system = f" -sys {shlex.quote(facts.config.data.system_prompt)}" if facts.config.data.system_prompt else ""
    return f"llama-cli {_llama(facts, weights)}{system}"


def _llama_server(facts: Facts, weights: str = "") -> str:
    return f"llama-server {_llama(facts, weights)} --port 8080"


def _llama(facts: Facts, weights: str) -> str:
    """What terminal and server of llama.cpp are told alike."""
    asked = "" if facts.talk.generation.get("do_sample") else " --temp 0"
    return f"{weights or f'-m {facts.file}'} --jinja{asked}"


def _adapted(lines: Callable[[Facts, str], str]) -> Callable[[Facts], str]:
    """The same with an adapter over the base model, and with the template that was trained on."""

    def adapted(facts: Facts) -> str:
        told = _rope_flags(facts)
        weights = f"-m base.gguf --lora {facts.file} --chat-template-file {TEMPLATE_FILE}"
        return "" if told is None else lines(facts, weights + told)

    return adapted


def _rope_flags(facts: Facts) -> str | None:
    """What llama.cpp is told of a base model's positions; None where it cannot be told."""
    row, rope = chosen_row(facts.config.model), facts.positions.get("rope_parameters", {})
    theta = f" --rope-freq-base {rope['rope_theta']:g}" if facts.config.model.rope_theta else ""
    if row.rope_type and not row.flags:
        return None
    original = rope.get("original_max_position_embeddings", 0)
    flags = row.flags.format(factor=rope.get("factor", 1.0), original=original)
    return f"{' ' if flags else ''}{flags}{theta}"


def placed_lines(positions: dict[str, Any]) -> list[str]:
    """Arguments that load a base model with these positions, a line each."""
    return [f"    {name}={json.dumps(value)}," for name, value in positions.items()]


def _vllm(facts: Facts) -> str:
    return f"vllm serve . --served-model-name {facts.name}"


def _vllm_adapter(facts: Facts) -> str:
    """vLLM takes neither DoRA nor trained embeddings and heads."""
    config, rank = facts.config, facts.config.lora.r
    fitting = next((size for size in _VLLM_RANKS if size >= rank), 0)
    if config.learns.ends or config.lora.use_dora or not fitting:
        return ""
    revision = f" --revision {shlex.quote(facts.revision)}" if facts.revision else ""
    revision += " --hf-config-path ." if facts.positions else ""
    return (
        f"vllm serve {shlex.quote(facts.base)}{revision} --tokenizer . --generation-config . --enable-lora \\\n"
        f"  --max-lora-rank {fitting} --lora-modules {facts.name}=."
    )


def _webui(_: Facts) -> str:
    return f'{WEBUI}/start_linux.sh --model-dir "$PWD/.." --model "$(basename "$PWD")" --loader Transformers'


def _webui_adapter(facts: Facts) -> str:
    """It keeps a model of the hub under its name with _ for /, and takes no other positions."""
    return (
        ""
        if facts.positions
        else (
            f"{WEBUI}/start_linux.sh --model {shlex.quote(facts.base.replace('/', '_'))} --loader Transformers \\\n"
            '  --lora-dir "$PWD/.." --lora "$(basename "$PWD")"'
        )
    )


def _transformers(facts: Facts) -> str:
    loading = [f'model = {facts.kind}.from_pretrained("this folder", dtype="auto")']
    return "\n".join([f"from transformers import {facts.kind}, AutoTokenizer", "", *_asked(facts, loading)])


def _peft(facts: Facts) -> str:
    revision = f', revision="{facts.revision}"' if facts.revision else ""
    base, placed = f'"{facts.base}"{revision}, dtype="auto"', placed_lines(facts.positions)
    made = [f"base = {facts.kind}.from_pretrained(", f"    {base},", *placed, ")"]
    loading = [
        *(made if placed else [f"base = {facts.kind}.from_pretrained({base})"]),
        'base.generation_config = GenerationConfig.from_pretrained("this folder")  # where an answer ends',
        'model = PeftModel.from_pretrained(base, "this folder")',
    ]
    imports = ["from peft import PeftModel", f"from transformers import {facts.kind}, AutoTokenizer, GenerationConfig"]
    return "\n".join([*imports, "", *_asked(facts, loading)])


def _asked(facts: Facts, loading: list[str]) -> list[str]:
    """Loads, asks a question and prints the answer, as the run learned to read and to end it."""
    system = facts.config.data.system_prompt
    told = [f'    {{"role": "system", "content": {json.dumps(system, ensure_ascii=False)}}},'] if system else []
    turns = ["turns = [", *told, '    {"role": "user", "content": "Hello."},', "]"]
    options = 'turns, add_generation_prompt=True, return_dict=True, return_tensors="pt"'
    ask = ["inputs = tokenizer.apply_chat_template(", f"    {options}", ")"]
    if facts.talk.template.kind == "none":
        asked = json.dumps(f"{system}\n" * bool(system) + f"Hello.{facts.talk.behind}", ensure_ascii=False)
        turns, ask = [], [f'inputs = tokenizer({asked}, return_tensors="pt")']
    return [
        'tokenizer = AutoTokenizer.from_pretrained("this folder")', *loading, *turns, *ask,
        "answer = model.generate(**inputs, max_new_tokens=200)[0, inputs.input_ids.shape[1] :]",
        "print(tokenizer.decode(answer, skip_special_tokens=True))",
    ]  # fmt: skip


RUNTIMES: dict[str, Runtime] = {
    "ollama": Runtime(
        "Ollama", "With the template, system prompt, stops and sampling of its Modelfile.",
        {"gguf": _ollama,
         # It takes positions of the base's file alone.
         "gguf_adapter": lambda facts: "" if facts.positions else
             f"# first put the base model here, as base.gguf\n{_ollama(facts)}"},
    ),
    "lm_studio": Runtime(
        "LM Studio", "Copies the file to where LM Studio keeps its models.",
        {"gguf": lambda facts: f"lms import {facts.file} --copy --user-repo luthier/{facts.name}\n"
                               f"lms chat {facts.name}"},
    ),
    "llama_cpp": Runtime(
        "llama.cpp", "A chat in the terminal.", {"gguf": _llama_cli, "gguf_adapter": _adapted(_llama_cli)}
    ),
    "llama_server": Runtime(
        "llama.cpp's server", "A page at http://127.0.0.1:8080, and OpenAI's protocol.",
        {"gguf": _llama_server, "gguf_adapter": _adapted(_llama_server)},
    ),
    "vllm": Runtime(
        "vLLM", "A server that speaks OpenAI's protocol, on port 8000.",
        {"merged": _vllm, "whole": _vllm, "adapter": _vllm_adapter},
    ),
    "webui": Runtime(
        "text-generation-webui", f"Where it is installed in {WEBUI}; on Windows start_windows.bat.",
        {"merged": _webui, "whole": _webui, "adapter": _webui_adapter,
         "gguf": lambda facts: f'{WEBUI}/start_linux.sh --model-dir "$PWD" --model {facts.file} --loader llama.cpp'},
    ),
    "transformers": Runtime("transformers", "In Python.", {"merged": _transformers, "whole": _transformers}, "python"),
    "peft": Runtime("peft", "In Python, beside the base model.", {"adapter": _peft}, "python"),
    "train": Runtime("Training it again", ANEW, {"script": lambda _: TRAINING}),
}  # fmt: skip
