"""``python -m core.export.verify REQUEST.json``: an export reloaded by plain peft and transformers, in a fresh process.

It imports nothing else of this program and prints one line of JSON, ``{"checks": [...]}`` or ``{"fault": "..."}``.

- adapter: peft loads it onto the base; every tensor is bit-equal to the checkpoint's; the answer to a prompt differs
  from the base model's.
- merged: transformers loads it; its logits equal those of base + adapter to within 16-bit rounding, or where that is
  large those of its first layers in float32; where it is made of what the run held, the base's matrices are each
  quantised while they are used.
- whole: transformers loads it; its logits equal the checkpoint's to within 16-bit rounding, and differ from the base's.
- script: its rows become the tokens that the run learned from; where the base is small, the first step's loss is the
  run's.

Of a model that is larger than the machine's memory the first layers are loaded alone, and compared the same way; that
each tensor of an exported adapter has a place in the whole model is then checked by names and shapes.

Of a model with a head of scores these are the scores of texts of the data, padded to one batch; each text alone has the
same, and the config names them.
"""

import contextlib
import gc
import hashlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from typing import Any

TEMPLATE_SECONDS = 20
MOST_WORK = 4e12
"""Operations of a step that a processor does in a minute."""
LEAST_COSINE, LEAST_ROUNDED = 0.999, 0.99
"""Weights that differ by one rounding stay far above; a wrong scale or a lost layer falls far below. Between the two
the sums' own rounding to 16 bits may be it: then the first half of the layers is compared in float32."""
MOST_APART = 0.1
"""Scores are few, and may all be near zero: they may differ by so much of the largest one, or of a half. They are
computed in the dtype of what they are compared with, so that only the weights are rounded."""


def main(arguments: Sequence[str]) -> int:
    """``request``: form, model class, folder, base, trained (of the checkpoint), prompt; where positions are scaled
    ``positions``: fields of the base's config; of a model larger than the memory ``layers``: how many are loaded; of a
    head of scores also ``scores``: settings (of the class, with the names), pad_id, special (whether the tokenizer adds
    its own tokens), examples (texts, or pairs of texts)."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    gc.disable()  # importing makes half a million objects that all stay
    try:
        import peft  # noqa: F401
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401

        gc.freeze()
        gc.enable()
        checks = CHECKS[request["form"]](request)
        print(json.dumps({"checks": checks}))
    except Exception as error:  # noqa: BLE001 - told to the export
        words = (str(error).strip().splitlines() or [""])[0]
        print(json.dumps({"fault": f"{type(error).__name__}: {words}"}))
    return 0


def _adapter(request: dict[str, Any]) -> list[str]:
    import peft
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoConfig

    exported = load_file(Path(request["folder"]) / "adapter_model.safetensors")
    original = load_file(Path(request["trained"]) / "adapter_model.safetensors")
    same = exported.keys() == original.keys() and all(exported[name].equal(original[name]) for name in original)
    _expect(same, "the exported tensors differ from the checkpoint's")
    if "positions" in request:
        own = AutoConfig.from_pretrained(request["folder"], local_files_only=True).rope_parameters
        _expect(own == request["positions"]["rope_parameters"], "config.json scales positions otherwise than the run")
    model = PeftModel.from_pretrained(_base(request), request["folder"]).eval()
    part = _part(request)
    if part:
        _find_places(request, exported)
    tokenizer = _tokenizer(request["folder"])
    tuned = _logits(model, tokenizer, request)
    with model.disable_adapter():
        base = _logits(model, tokenizer, request)
    _expect(bool(tuned.isfinite().all()), "the reloaded adapter gives logits that are no numbers")
    moved = float((tuned - base).abs().max())
    trained = any(bool(tensor.any()) for name, tensor in exported.items() if "lora_B" in name)
    _expect(moved > 0 or not trained, "the reloaded adapter changes nothing")
    first = f"reloaded by plain peft {peft.__version__}: {len(exported)} tensors, bit-equal to the checkpoint"
    if "scores" in request:
        return [first, *part, *_names(model, request)]
    return [first, *part, f"it moves the base model's logits by up to {moved:.3f} on a prompt of the data"]


def _merged(request: dict[str, Any]) -> list[str]:
    try:
        return _part(request) + _beside_adapter(request, "auto")
    except UnlikeError as found:
        if not found.cosine >= LEAST_ROUNDED:
            raise
        cosine = found.cosine
    # Out of the handler, whose traceback holds a whole model.
    whole = request.get("layers", _config(request)["num_hidden_layers"])
    half = max(1, whole // 2)  # in twice the memory a layer
    said = f"compared by the first {half} layers in float32, since sums in 16 bits give a cosine of {cosine:.5f}"
    return [*_part(request), said, *_beside_adapter(request | {"layers": half}, "float32")]


def _beside_adapter(request: dict[str, Any], dtype: str) -> list[str]:
    """A merged model's logits beside those of base + adapter."""
    from peft import PeftModel

    tokenizer = _tokenizer(request["folder"])
    base = _base(request, dtype)
    dtype = str(base.dtype).removeprefix("torch.") if "scores" in request else dtype
    model = PeftModel.from_pretrained(base, request["trained"]).eval()
    other = "base + adapter"
    if "held" in request:
        _hold_in_four_bits(model, request)
        other = "base in 4 bits + adapter"
    expected = _logits(model, tokenizer, request)
    del base, model
    made = _load(request["folder"], request["class"], dtype, **_first_layers(request))
    return _like(made, tokenizer, request, (expected, other))


def _hold_in_four_bits(model: Any, request: dict[str, Any]) -> None:
    """Has each matrix of the layers be what bitsandbytes makes of it in NF4 with double quantisation, while it is used:
    a whole model is never quantised. An adapter that began at what quantising takes away keeps that beginning."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    from safetensors import safe_open

    held, kept = getattr(torch, request["held"]), dict[Any, Any]()

    def hold(module: Any, *_: Any) -> None:
        matrix = _matrix(module)
        kept[module] = weight = matrix.weight.data
        with torch.compiler.set_stance("force_eager"):
            packed, state = quantize_4bit(weight.to(held).reshape(-1), compress_statistics=True, quant_type="nf4")
            matrix.weight.data = dequantize_4bit(packed, state).view(weight.shape).to(weight.dtype)

    def release(module: Any, *_: Any) -> None:
        _matrix(module).weight.data = kept.pop(module)

    for name, module in model.named_modules():
        inside = any(part.isdigit() for part in name.split(".")) and ".lora_" not in name
        if inside and not name.endswith(".base_layer") and isinstance(_matrix(module), torch.nn.Linear):
            module.register_forward_pre_hook(hold)
            module.register_forward_hook(release)
    with safe_open(Path(request["trained"]) / "adapter_model.safetensors", "pt") as file:
        corrected = request["corrected"] in (file.metadata() or {})
    for name, parameter in model.named_parameters() if corrected else ():
        if ".lora_A." in name:
            parameter.data[len(parameter) // 2 :] = 0.0


def _matrix(module: Any) -> Any:
    """A layer itself, or that which peft has wrapped."""
    return getattr(module, "base_layer", module)


def _whole(request: dict[str, Any]) -> list[str]:
    tokenizer = _tokenizer(request["folder"])
    first = _first_layers(request)
    trained = _padded(_load(request["trained"], request["class"], "float32", **first), request)
    expected = _logits(trained, tokenizer, request)
    del trained
    model = _load(request["folder"], request["class"], "float32" if "scores" in request else "auto", **first)
    checks = _part(request) + _like(model, tokenizer, request, (expected, "the checkpoint"))
    if "scores" in request:  # the base has no such head
        return checks
    base = _logits(_base(request), tokenizer, request)
    moved = float((_logits(model, tokenizer, request) - base).abs().max())
    _expect(moved > 0, "the reloaded model is the base model")
    return [*checks, f"it moves the base model's logits by up to {moved:.3f}"]


def _like(model: Any, tokenizer: Any, request: dict[str, Any], known: tuple[Any, str]) -> list[str]:
    """Checks of a whole model's logits against ``known`` ones, of what it was made of."""
    import torch
    import transformers

    expected, other = known
    logits = _logits(model, tokenizer, request)
    _expect(bool(logits.isfinite().all()), "the exported model gives logits that are no numbers")
    loaded = f"reloaded by plain transformers {transformers.__version__}"
    apart = float((logits - expected).abs().max())
    if "scores" in request:
        _expect(_near(logits, expected), f"its scores differ from those of {other} by up to {apart:.4f}")
        said = f"scores of {len(logits)} texts against {other}: largest difference {apart:.4f}"
        return [loaded, said, *_names(model, request)]
    cosine = float(torch.nn.functional.cosine_similarity(logits.double().flatten(), expected.double().flatten(), dim=0))
    if not cosine >= LEAST_COSINE:  # nor where it is no number
        raise UnlikeError(cosine, other)
    said = f"logits against {other} on a prompt of the data: cosine {cosine:.6f}, largest difference {apart:.4f}"
    return [loaded, said]


def _names(model: Any, request: dict[str, Any]) -> list[str]:
    """Checks the names of the scores, and that no text's scores depend on the padding beside it."""
    wanted, named = request["scores"]["settings"]["id2label"], model.config.id2label
    names = {str(number): name for number, name in named.items()}
    _expect(names == wanted, f"its config names the scores {list(named.values())[:5]}")
    tokenizer, scores = _tokenizer(request["folder"]), request["scores"]
    together = _logits(model, tokenizer, request)
    for number, example in enumerate(scores["examples"]):
        alone = _logits(model, tokenizer, {**request, "scores": {**scores, "examples": [example]}})[0]
        _expect(_near(alone, together[number]), "a text's scores depend on the texts beside it")
    return [f"{len(named)} scores, named; those of a batch are each text's own"]


def _near(logits: Any, expected: Any) -> bool:
    return bool((logits - expected).abs().max() <= MOST_APART * max(0.5, float(expected.abs().max())))


def _script(request: dict[str, Any]) -> list[str]:
    folder = Path(request["folder"])
    told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    found = spec_from_file_location("train", folder / "train.py")
    assert found is not None
    assert found.loader is not None
    script: Any = module_from_spec(found)
    sys.dont_write_bytecode = True
    found.loader.exec_module(script)
    checks, tokens, split, made = [], 0, script.split, list[Any]()

    def noted(*pieces: Any) -> Any:
        made.append(split(*pieces))
        return made[-1]

    script.split = noted
    for name, expected in told["sha256"].items():
        digest = hashlib.sha256()
        with (folder / name).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                made.clear()
                script.features(json.loads(line))
                digest.update(json.dumps(made).encode())
                tokens += sum(map(len, chain(*made))) if number in told["first_step"] else 0
        _expect(digest.hexdigest() == expected, f"{name} becomes other tokens than the run's")
        checks.append(f"{name}: {number + 1:,} rows, the run's own tokens")
    return [*checks, _first_loss(script, told, request, tokens)]


def _first_loss(script: Any, told: dict[str, Any], request: dict[str, Any], tokens: int) -> str:
    """What the script's first step loses, beside the run's."""
    size = sum(file.stat().st_size for file in Path(request["base"]).glob("*.safetensors"))
    if not told["same_loss"] or not told["losses"]:
        return "the first step's loss is not compared: it depends on noise, or on the card"
    run = told["losses"][0]
    if 3 * size * tokens > MOST_WORK:
        return f"the run's first step lost {run:.4f}; not compared, since the base model is large for a processor"
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as scratch:
        trainer = script.build(request["base"], 1)
        trainer.args.output_dir, trainer.args.save_strategy, trainer.args.eval_strategy = scratch, "no", "no"
        trainer.train()
        shutil.rmtree(Path(request["folder"]) / "checkpoints", ignore_errors=True)
    loss = next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    _expect(abs(loss - run) <= told["within"] * max(1.0, run), f"its first step loses {loss:.4f}, the run's {run:.4f}")
    return f"its first step loses {loss:.4f}, the run's {run:.4f}"


CHECKS = {"adapter": _adapter, "merged": _merged, "whole": _whole, "script": _script}
"""The checks by form of export (``core.contract.forms``)."""


def _load(folder: str, kind: str, dtype: str = "auto", **settings: Any) -> Any:
    import transformers

    return (
        getattr(transformers, kind)
        .from_pretrained(folder, dtype=dtype, local_files_only=True, use_safetensors=True, **settings)
        .eval()
    )


def _base(request: dict[str, Any], dtype: str = "auto") -> Any:
    """The base model; where a head of scores was trained, with a drawn one in its place."""
    positions = request.get("positions", {}) | _first_layers(request)
    if "scores" not in request:
        return _load(request["base"], request["class"], dtype, **positions)
    settings = {**request["scores"]["settings"], **_labels(request), "ignore_mismatched_sizes": True}
    return _padded(_load(request["base"], request["class"], **positions, **settings), request)


def _labels(request: dict[str, Any]) -> dict[str, Any]:
    """The config's field of a head's labels, whose numbers JSON has as words; none without such a head."""
    labels = request["scores"]["settings"]["id2label"] if "scores" in request else {}
    return {"id2label": {int(number): name for number, name in labels.items()}} if labels else {}


def _first_layers(request: dict[str, Any]) -> dict[str, Any]:
    """Fields of the config by which only the first layers are loaded; none where all are."""
    if "layers" not in request:
        return {}
    kinds = _config(request).get("layer_types")
    return {"num_hidden_layers": request["layers"]} | ({"layer_types": kinds[: request["layers"]]} if kinds else {})


def _part(request: dict[str, Any]) -> list[str]:
    """What of the model is loaded, where it is not the whole."""
    if "layers" not in request:
        return []
    of = _config(request)["num_hidden_layers"]
    return [f"larger than this machine's free memory: compared by its first {request['layers']} of {of} layers"]


def _config(request: dict[str, Any]) -> dict[str, Any]:
    """The base's config.json."""
    return dict(json.loads((Path(request["base"]) / "config.json").read_text(encoding="utf-8")))


def _find_places(request: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Checks that an adapter's tensors are those of the whole model, which is made without weights."""
    import torch
    import transformers
    from peft import PeftConfig, get_peft_model, set_peft_model_state_dict

    config = transformers.AutoConfig.from_pretrained(request["base"], local_files_only=True, **_labels(request))
    with torch.device("meta"):
        model = getattr(transformers, request["class"]).from_config(config)
        model = get_peft_model(model, PeftConfig.from_pretrained(request["folder"]), low_cpu_mem_usage=True)
    told = set_peft_model_state_dict(model, tensors, low_cpu_mem_usage=True)
    lacking = [name for name in told.missing_keys if ".lora_" in name]
    _expect(not lacking and not told.unexpected_keys, "the adapter's tensors are not those of the whole model")


def _padded(model: Any, request: dict[str, Any]) -> Any:
    """The model with the padding's id, at which transformers looks for the end of a text."""
    if "scores" in request:
        model.config.pad_token_id = request["scores"]["pad_id"]
    return model


def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _logits(model: Any, tokenizer: Any, request: dict[str, Any]) -> Any:
    """``[T, V]`` float32 logits of the prompt under the export's own chat template; or ``[texts, scores]``."""
    import torch

    if scores := request.get("scores"):
        how = {"add_special_tokens": scores["special"], "truncation": True, "max_length": 256}
        inputs = tokenizer.pad([tokenizer(*texts, **how) for texts in scores["examples"]], return_tensors="pt")
        with torch.inference_mode():
            return model(**inputs).logits.float()
    text = prompt = request["prompt"]
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": prompt}]
        signal.alarm(TEMPLATE_SECONDS)  # a template is a foreign program; the signal ends this process
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        signal.alarm(0)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=not tokenizer.chat_template)["input_ids"]
    with torch.inference_mode():
        return model(input_ids=ids[:, :256], use_cache=False).logits[0].float()


class UnlikeError(ValueError):
    """Logits that differ by more than rounding of weights."""

    def __init__(self, cosine: float, other: str) -> None:
        super().__init__(f"its logits have cosine {cosine:.5f} with {other}, expected {LEAST_COSINE}")
        self.cosine = cosine


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
