"""Model folders that mean harm, made here: each is whole but for one thing, and each names the code of its refusal.

``make_hostile(name, folder, outside)`` writes one. Beside it ``outside`` holds what must stay as it is: ``secret.*``
files that a link or a path leads to, and ``canary``, which any code that is run would remove.
"""

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub_stand_in import TINY_CONFIG, llama_tensors, tiny_model, write_safetensors

Spoil = Callable[[Path, Path], object]
WEIGHTS = "model.safetensors"
TEMPLATE = "{{ messages }}"


class _Payload:
    """A pickle that removes the canary when it is read."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.remove, (str(self.canary),)


def make_outside(folder: Path) -> Path:
    """What lies beside a hostile folder and is none of its business."""
    folder.mkdir(parents=True)
    (folder / "canary").write_text("alive")
    write_safetensors(folder / "secret.safetensors", llama_tensors(TINY_CONFIG))
    for name in ("secret.json", "secret.jinja", "secret.bin"):
        (folder / name).write_text("{}")
    (folder / "templates").mkdir()
    (folder / "templates" / "secret.jinja").write_text(TEMPLATE)
    return folder


def untouched(outside: Path) -> bool:
    """Whether the canary lives and nothing was written beside it."""
    names = {"canary", "secret.safetensors", "secret.json", "secret.jinja", "secret.bin", "templates"}
    same = {path.name for path in outside.iterdir()} == names and (outside / "canary").read_text() == "alive"
    return same and [path.name for path in (outside / "templates").iterdir()] == ["secret.jinja"]


def make_hostile(name: str, folder: Path, outside: Path) -> Path:
    """The folder of this name; python files in it remove the canary when they are run."""
    tiny_model(folder)
    evil = f"import os\nos.remove({str(outside / 'canary')!r})\n"
    for module in ("modeling_evil.py", "tokenization_evil.py", "configuration_evil.py", "__init__.py"):
        (folder / module).write_text(evil)
    MODELS[name][0](folder, outside)
    return folder


def _edit(folder: Path, name: str, **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def _config(**changes: object) -> Spoil:
    return lambda folder, _outside: _edit(folder, "config.json", **changes)


def _tokenizer(**changes: object) -> Spoil:
    return lambda folder, _outside: _edit(folder, "tokenizer_config.json", **changes)


def _only(name: str) -> Spoil:
    """A pickle of this name in place of the weights."""

    def spoil(folder: Path, outside: Path) -> None:
        (folder / WEIGHTS).unlink()
        _pickled(name)(folder, outside)

    return spoil


def _pickled(name: str) -> Spoil:
    return lambda folder, outside: (folder / name).write_bytes(pickle.dumps(_Payload(outside / "canary")))


def _text(name: str, text: str | bytes) -> Spoil:
    content = text.encode() if isinstance(text, str) else text
    return lambda folder, _outside: (folder / name).write_bytes(content)


def _huge(name: str, start: bytes, size: int = 2 << 30) -> Spoil:
    """A sparse file: two gigabytes that take no room."""

    def spoil(folder: Path, _outside: Path) -> None:
        (folder / name).write_bytes(start)
        os.truncate(folder / name, size)

    return spoil


def _link(name: str, target: str) -> Spoil:
    def spoil(folder: Path, outside: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target.format(outside=outside, folder=folder))

    return spoil


def _link_to_blobs(folder: Path, outside: Path) -> None:
    """As the hub's cache links, but from a folder that is none of a cache's."""
    blobs = folder.parents[1] / "blobs"
    blobs.mkdir(exist_ok=True)
    shutil.copy(folder / WEIGHTS, blobs / folder.name)
    _link(WEIGHTS, str(blobs / folder.name))(folder, outside)


def _pipe(name: str) -> Spoil:
    def spoil(folder: Path, _outside: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def _index(file: str) -> Spoil:
    """An index that leads to ``file`` for every tensor."""

    def spoil(folder: Path, outside: Path) -> None:
        names = dict.fromkeys(llama_tensors(TINY_CONFIG), file.format(outside=outside))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    return spoil


def _index_of_another(folder: Path, _outside: Path) -> None:
    names = {**dict.fromkeys(llama_tensors(TINY_CONFIG), WEIGHTS), "model.layers.9.weight": WEIGHTS}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def _two_files(folder: Path, _outside: Path) -> None:
    """A second file with one tensor of the first: which of them counts, every reader answers for itself."""
    write_safetensors(folder / "other.safetensors", {"model.norm.weight": [TINY_CONFIG["hidden_size"]]})


def _header(change: Callable[[dict[str, Any]], object]) -> Spoil:
    """The header rewritten, the data as before."""

    def spoil(folder: Path, _outside: Path) -> None:
        raw = (folder / WEIGHTS).read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8 : 8 + length])
        change(header)
        _write(folder, json.dumps(header).encode(), raw[8 + length :])

    return spoil


def _write(folder: Path, header: bytes, data: bytes = b"") -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header + data)


def _raw_header(header: bytes) -> Spoil:
    return lambda folder, _outside: _write(folder, header)


def _entry(**said: object) -> Spoil:
    return _header(lambda header: header["model.norm.weight"].update(said))


def _shift(first: int) -> Spoil:
    """One tensor begins earlier (an overlap) or later (a hole), and is as large as before."""

    def change(header: dict[str, Any]) -> None:
        entry = header["model.layers.1.self_attn.v_proj.weight"]
        entry["data_offsets"] = [place + first for place in entry["data_offsets"]]

    return _header(change)


def _cut(count: int) -> Spoil:
    def spoil(folder: Path, _outside: Path) -> None:
        raw = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(raw[:count] if count < 0 else raw + bytes(count))

    return spoil


def _weights(**config: object) -> Spoil:
    """Weights of another config than the one that lies there."""
    shape = {**TINY_CONFIG, **config}
    return lambda folder, _outside: write_safetensors(folder / WEIGHTS, llama_tensors(shape))


def _newline(folder: Path, _outside: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "model\nsecond line.safetensors").write_bytes(b"no weights")


def _templates_elsewhere(folder: Path, outside: Path) -> None:
    (folder / "additional_chat_templates").symlink_to(outside / "templates")


DEEP = "[" * 200_000
TWICE = '{"model_type": "llama", "model_type": "evil"}'
NAMED = [{"name": "../../../outside/written", "template": TEMPLATE}, {"name": "default", "template": TEMPLATE}]

MODELS: dict[str, tuple[Spoil, str]] = {
    # code that would be run
    "code: config": (_config(model_type="evil", auto_map={"AutoConfig": "configuration_evil.C"}), "model.remote_code"),
    "code: tokenizer": (_tokenizer(auto_map={"AutoTokenizer": ["tokenization_evil.T", None]}), "model.remote_code"),
    "code: old tokenizer": (_tokenizer(auto_map=["tokenization_evil.T", None]), "model.remote_code"),
    "code: special tokens": (
        _text("special_tokens_map.json", '{"auto_map": {"AutoTokenizer": "tokenization_evil.T"}}'), "model.remote_code"
    ),
    "code: asks for trust": (_config(trust_remote_code=True), "model.remote_code"),
    "code: tokenizer asks": (_tokenizer(trust_remote_code=True), "model.remote_code"),
    "code: type is a path": (_config(model_type="../../evil"), "model.unknown_type"),
    "code: kernel of the hub": (_config(attn_implementation="evil/kernels:attention"), "model.remote_code"),
    "code: deeper kernel": (_config(text_config={"_attn_implementation": "evil/kernels"}), "model.remote_code"),
    # pickles
    "pickle: bin": (_only("pytorch_model.bin"), "model.not_safetensors"),
    "pickle: pt": (_only("model.pt"), "model.not_safetensors"),
    "pickle: as safetensors": (_only(WEIGHTS), "model.bad_weights"),
    "pickle: as tokenizer.json": (_pickled("tokenizer.json"), "model.bad_file"),
    "pickle: as tokenizer.model": (_pickled("tokenizer.model"), "model.bad_file"),
    "pickle: as vocab.json": (_pickled("vocab.json"), "model.bad_file"),
    "zip: as safetensors": (_text(WEIGHTS, b"PK\x03\x04" + bytes(64)), "model.bad_weights"),
    "gguf": (_only("model.gguf"), "model.not_safetensors"),
    # ways out of the folder
    "link: weights": (_link(WEIGHTS, "{outside}/secret.safetensors"), "model.outside"),
    "link: config": (_link("config.json", "{outside}/secret.json"), "model.outside"),
    "link: tokenizer": (_link("tokenizer.json", "{outside}/secret.json"), "model.outside"),
    "link: tokenizer config": (_link("tokenizer_config.json", "{outside}/secret.json"), "model.outside"),
    "link: template": (_link("chat_template.jinja", "{outside}/secret.jinja"), "model.outside"),
    "link: templates": (_templates_elsewhere, "model.outside"),
    "link: index": (_link("model.safetensors.index.json", "{outside}/secret.json"), "model.outside"),
    "link: no cache's blobs": (_link_to_blobs, "model.outside"),
    "link: endless": (_link("tokenizer.json", "/dev/zero"), "model.outside"),
    "link: to itself": (_link("tokenizer.json", "{folder}/tokenizer.json"), "model.no_folder"),
    "pipe: tokenizer": (_pipe("tokenizer.json"), "model.no_file"),
    "pipe: template": (_pipe("chat_template.jinja"), "model.no_file"),
    "index: relative": (_index("../outside/secret.safetensors"), "model.outside"),
    "index: absolute": (_index("{outside}/secret.safetensors"), "model.outside"),
    "index: backslash": (_index("..\\outside\\secret.safetensors"), "model.outside"),
    "index: pickle": (_index("secret.bin"), "model.outside"),
    "index: another's": (_index_of_another, "model.bad_index"),
    "index: tensor in two files": (_two_files, "model.bad_index"),
    "index: deep": (_text("model.safetensors.index.json", f'{{"weight_map": {DEEP}'), "model.bad_json"),
    "config: other weights": (_config(transformers_weights="../outside/secret.safetensors"), "model.outside"),
    "config: adapter beside": (
        _text("adapter_config.json", '{"base_model_name_or_path": "../outside"}'), "model.adapter"
    ),
    "tokenizer: vocab elsewhere": (_tokenizer(vocab_file="/etc/passwd"), "model.outside"),
    "tokenizer: file elsewhere": (
        _tokenizer(fast_tokenizer_files=["tokenizer.4.0/../../outside/secret.json"]), "model.outside"
    ),
    "tokenizer: first argument": (_tokenizer(init_inputs=["/etc/passwd"]), "model.outside"),
    "tokenizer: template name": (_tokenizer(chat_template=NAMED), "model.outside"),
    # headers
    "header: endless": (_text(WEIGHTS, struct.pack("<Q", 1 << 63) + b"{}"), "model.bad_weights"),
    "header: long": (_huge(WEIGHTS, struct.pack("<Q", 90_000_000) + b"{"), "model.bad_weights"),
    "header: deep": (_raw_header(b'{"a": ' + DEEP.encode()), "model.bad_weights"),
    "header: twice": (
        _raw_header(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}'), "model.bad_weights"
    ),
    "header: a list": (_raw_header(b"[1, 2, 3]"), "model.bad_weights"),
    "header: no sizes": (_raw_header(b'{"a": 5}'), "model.bad_weights"),
    "header: overlap": (_shift(-64), "model.bad_weights"),
    "header: hole": (_shift(64), "model.bad_weights"),
    "header: negative": (_entry(data_offsets=[-128, 0]), "model.bad_weights"),
    "header: shape": (_entry(shape=[1 << 20, 64]), "model.bad_weights"),
    "header: overflow": (_entry(shape=[1 << 61, 1 << 61, 1 << 61]), "model.bad_weights"),
    "header: truth as size": (_entry(shape=[True, 64]), "model.bad_weights"),
    "header: dtype": (_entry(dtype="OBJ"), "model.bad_weights"),
    "weights: cut": (_cut(-10), "model.truncated"),
    "weights: longer": (_cut(4096), "model.truncated"),
    # sizes
    "size: vocabulary": (_config(vocab_size=10**12), "model.absurd"),
    "size: layers": (_config(num_hidden_layers=10**6), "model.absurd"),
    "size: context": (_config(max_position_embeddings=10**12), "model.absurd"),
    "size: any number": (_config(window=10**12), "model.absurd"),
    "size: digits": (_text("config.json", '{"vocab_size": 1' + "0" * 9000 + "}"), "model.bad_json"),
    "size: more layers": (_config(num_hidden_layers=900), "model.misfit"),
    "size: other vocabulary": (_config(vocab_size=100_000_000), "model.misfit"),
    "size: other weights": (_weights(vocab_size=64), "model.misfit"),
    "size: inner": (_config(intermediate_size=60_000_000), "model.misfit"),
    "size: labels": (_config(num_labels=5_000_000), "model.absurd"),
    "size: beams": (_config(num_beams=4096), "model.absurd"),
    "size: extra ids": (_tokenizer(extra_ids=5_000_000), "model.absurd"),
    "size: config": (_huge("config.json", b"{"), "model.large_file"),
    "size: tokenizer": (_huge("tokenizer.json", b"{"), "model.large_file"),
    "size: tokenizer config": (_huge("tokenizer_config.json", b"{"), "model.large_file"),
    "size: template": (_huge("chat_template.jinja", b"{{ 1 }}"), "model.large_file"),
    "size: index": (_huge("model.safetensors.index.json", b"{"), "model.large_file"),
    "deep: config": (_text("config.json", f'{{"a": {DEEP}'), "model.bad_json"),
    "deep: tokenizer config": (_text("tokenizer_config.json", f'{{"a": {DEEP}'), "model.bad_json"),
    "twice: config": (_text("config.json", TWICE), "model.bad_json"),
    "name: two lines": (_newline, "model.bad_weights"),
}  # fmt: skip


CATASTROPHE = "((((a|b|[a-z._0-9])+)+)+)+!"
"""A pattern that takes for ever to find that a module's name is not one of its."""


def _chain(step: str, pattern: dict[str, str], content: str, count: int) -> Spoil:
    """So many steps one behind the other, each of which makes its text longer."""
    return _part(step, {"type": "Sequence", f"{step}s": [
        {"type": "Replace", "pattern": pattern, "content": content} for _ in range(count)
    ]})  # fmt: skip


def _part(name: str, value: object) -> Spoil:
    return lambda folder, _outside: _edit(folder, "tokenizer.json", **{name: value})


SWELLING: dict[str, Spoil] = {
    "decoders": _chain("decoder", {"String": "e"}, "ee", 28),
    "decoders by an expression": _chain("decoder", {"Regex": "x*"}, "yy", 5),
    "normalizers": _chain("normalizer", {"String": " "}, "  ", 28),
    "token": _part("added_tokens", [{"id": 1, "content": "a" * 100_000, "special": False}]),
    "padding": _part("padding", {"strategy": {"Fixed": 1 << 30}, "direction": "Right", "pad_id": 0}),
    "ids around a row": _part(
        "post_processor", {"type": "TemplateProcessing", "special_tokens": {"<s>": {"id": "<s>", "ids": [1] * 5_000}}}
    ),
}
"""A tokenizer.json that makes gigabytes of a few letters: refused as model.absurd where a tokenizer is loaded."""


def make_swelling(name: str, folder: Path) -> Path:
    """The folder of this name: whole but for that."""
    tiny_model(folder)
    SWELLING[name](folder, folder)
    return folder


PLAIN_ADAPTER = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
_PAIR = {"base_model.model.q.lora_A.weight": [4, 64], "base_model.model.q.lora_B.weight": [64, 4]}


def make_adapter(name: str, folder: Path, outside: Path) -> Path:
    """An adapter that means harm, or the plain one under the name ``plain``."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(PLAIN_ADAPTER))
    write_safetensors(folder / "adapter_model.safetensors", _PAIR)
    (folder / "evil_module.py").write_text(f"import os\nos.remove({str(outside / 'canary')!r})\n")
    ADAPTERS.get(name, lambda *_: None)(folder, outside)
    return folder


def _adapter(**changes: object) -> Spoil:
    return lambda folder, _outside: _edit(folder, "adapter_config.json", **changes)


def _pickled_adapter(folder: Path, outside: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    _pickled("adapter_model.bin")(folder, outside)


ADAPTERS: dict[str, Spoil] = {
    "pickle": _pickled_adapter,
    "pickle as safetensors": _pickled("adapter_model.safetensors"),
    "module to import": _adapter(megatron_config={"a": 1}, megatron_core="evil_module"),
    "module named": _adapter(megatron_core="evil_module"),
    "library to import": _adapter(auto_mapping={"base_model_class": "A", "parent_library": "evil_module"}),
    "cache to unpickle": _adapter(init_lora_weights="corda", corda_config={"cache_file": "secret.bin"}),
    "other start": _adapter(init_lora_weights="pissa"),
    "another kind": _adapter(peft_type="PROMPT_TUNING"),
    "rank": _adapter(r=10**9),
    "names: pattern": _adapter(target_modules=CATASTROPHE),
    "names: text": _adapter(target_modules="q_proj"),
    "names: pattern in a list": _adapter(target_modules=[CATASTROPHE]),
    "names: no texts": _adapter(target_modules=[1, {"a": 1}]),
    "names: a hundred thousand": _adapter(target_modules=[f"q{number}" for number in range(100_000)]),
    "names: excluded": _adapter(exclude_modules=CATASTROPHE),
    "names: of layers": _adapter(layers_to_transform=[0], layers_pattern=[CATASTROPHE]),
    "names: of layers, a text": _adapter(layers_to_transform=[0], layers_pattern=CATASTROPHE),
    "names: saved": _adapter(modules_to_save=CATASTROPHE),
    "layers: texts": _adapter(layers_to_transform=["0"]),
    "layers: a hundred thousand": _adapter(layers_to_transform=list(range(100_000))),
    "layers: far": _adapter(layers_to_transform=10**12),
    "ranks: pattern": _adapter(rank_pattern={CATASTROPHE: 4}),
    "alphas: pattern": _adapter(alpha_pattern={CATASTROPHE: 4}),
    "ranks": _adapter(rank_pattern={"q_proj": 10**9}),
    "asks for trust": _adapter(trust_remote_code=True),
    "weights elsewhere": _link("adapter_model.safetensors", "{outside}/secret.safetensors"),
    "config elsewhere": _link("adapter_config.json", "{outside}/secret.json"),
    "config of two gigabytes": _huge("adapter_config.json", b"{"),
    "config a pipe": _pipe("adapter_config.json"),
    "config deep": _text("adapter_config.json", f'{{"r": {DEEP}'),
}
