"""``python -m core.export.verify REQUEST.json``: an export reloaded by plain peft and transformers, in a fresh process.

It imports nothing else of this program and prints one line of JSON, ``{"checks": [...]}`` or ``{"fault": "..."}``.

- adapter: peft loads it onto the base; every tensor is bit-equal to the checkpoint's; the answer to a prompt differs
  from the base model's.
- merged: transformers loads it; its logits equal those of base + adapter to within 16-bit rounding.
- whole: transformers loads it; its logits equal the checkpoint's to within 16-bit rounding, and differ from the base's.
"""

import gc
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEMPLATE_SECONDS = 20
LEAST_COSINE = 0.999
"""Weights that differ by one rounding stay far above; a wrong scale or a lost layer falls far below."""


def main(arguments: Sequence[str]) -> int:
    """``request``: form, model class, folder, base, trained (of the checkpoint), prompt."""
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

    exported = load_file(Path(request["folder"]) / "adapter_model.safetensors")
    original = load_file(Path(request["trained"]) / "adapter_model.safetensors")
    same = exported.keys() == original.keys() and all(exported[name].equal(original[name]) for name in original)
    _expect(same, "the exported tensors differ from the checkpoint's")
    model = PeftModel.from_pretrained(_load(request["base"], request["class"]), request["folder"]).eval()
    tokenizer = _tokenizer(request["folder"])
    tuned = _logits(model, tokenizer, request["prompt"])
    with model.disable_adapter():
        base = _logits(model, tokenizer, request["prompt"])
    _expect(bool(tuned.isfinite().all()), "the reloaded adapter gives logits that are no numbers")
    moved = float((tuned - base).abs().max())
    trained = any(bool(tensor.any()) for name, tensor in exported.items() if "lora_B" in name)
    _expect(moved > 0 or not trained, "the reloaded adapter changes nothing")
    return [
        f"reloaded by plain peft {peft.__version__}: {len(exported)} tensors, bit-equal to the checkpoint",
        f"it moves the base model's logits by up to {moved:.3f} on a prompt of the data",
    ]


def _merged(request: dict[str, Any]) -> list[str]:
    from peft import PeftModel

    tokenizer = _tokenizer(request["folder"])
    expected = _logits(
        PeftModel.from_pretrained(_load(request["base"], request["class"]), request["trained"]).eval(),
        tokenizer,
        request["prompt"],
    )
    return _like(_load(request["folder"], request["class"]), tokenizer, request["prompt"], expected, "base + adapter")


def _whole(request: dict[str, Any]) -> list[str]:
    tokenizer, prompt = _tokenizer(request["folder"]), request["prompt"]
    expected = _logits(_load(request["trained"], request["class"], "float32"), tokenizer, prompt)
    model = _load(request["folder"], request["class"])
    checks = _like(model, tokenizer, prompt, expected, "the checkpoint")
    base = _logits(_load(request["base"], request["class"]), tokenizer, prompt)
    moved = float((_logits(model, tokenizer, prompt) - base).abs().max())
    _expect(moved > 0, "the reloaded model is the base model")
    return [*checks, f"it moves the base model's logits by up to {moved:.3f}"]


def _like(model: Any, tokenizer: Any, prompt: str, expected: Any, other: str) -> list[str]:
    """Checks of a whole model's logits against those of what it was made of."""
    import torch
    import transformers

    logits = _logits(model, tokenizer, prompt)
    _expect(bool(logits.isfinite().all()), "the exported model gives logits that are no numbers")
    cosine = float(torch.nn.functional.cosine_similarity(logits.double().flatten(), expected.double().flatten(), dim=0))
    _expect(cosine >= LEAST_COSINE, f"its logits have cosine {cosine:.5f} with {other}, expected {LEAST_COSINE}")
    return [
        f"reloaded by plain transformers {transformers.__version__}",
        f"logits against {other} on a prompt of the data: cosine {cosine:.6f}, largest difference "
        f"{float((logits - expected).abs().max()):.4f}",
    ]


CHECKS = {"adapter": _adapter, "merged": _merged, "whole": _whole}
"""The checks by form of export (``core.contract.forms``)."""


def _load(folder: str, kind: str, dtype: str = "auto") -> Any:
    import transformers

    return (
        getattr(transformers, kind)
        .from_pretrained(folder, dtype=dtype, local_files_only=True, use_safetensors=True)
        .eval()
    )


def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _logits(model: Any, tokenizer: Any, prompt: str) -> Any:
    """``[T, V]`` float32 logits of the prompt under the export's own chat template."""
    import torch

    text = prompt
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": prompt}]
        signal.alarm(TEMPLATE_SECONDS)  # a template is a foreign program; the signal ends this process
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        signal.alarm(0)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=not tokenizer.chat_template)["input_ids"]
    with torch.inference_mode():
        return model(input_ids=ids[:, :256], use_cache=False).logits[0].float()


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
