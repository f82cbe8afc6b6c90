"""Loads a frozen base model from a folder: 4-bit NF4 with double quantisation, or 16-bit (32-bit on the CPU).

No code of the model is run (``trust_remote_code=False``) and only safetensors are read; callers run
``core.models.checks.folder.check_folder`` first. NF4 (Dettmers et al. 2023, arXiv:2305.14314) is applied to every
linear layer but the head; norms, embeddings and the head stay in the compute dtype.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer

from core.contract.config import ModelChoice
from core.contract.errors import MachineError, ModelError, first_line
from core.machine.limits import reading_model
from core.model.attention import packed
from core.model.faults import is_card_fault
from core.model.layers.peft_bnb import forbid_cpu_repacking
from core.model.loading.assemble import Target
from core.model.loading.rotary import place_by_row
from core.model.loading.together import ALONE, Together
from core.model.loading.weights import Progress, read_weights
from core.models.checks.tokenizer import check_growth
from core.models.positions import scaling_words, stretch


@dataclass(frozen=True)
class LoadedModel:
    """A frozen base model, its tokenizer (with a padding token) and its compute dtype."""

    model: Any
    tokenizer: Any
    dtype: torch.dtype
    line: str = ""
    """How the weights were read, for people."""

    @property
    def dtype_name(self) -> str:
        """As a config has it."""
        return str(self.dtype).removeprefix("torch.")


def load_base(
    folder: Path,
    choice: ModelChoice,
    device: torch.device,
    on_progress: Progress | None = None,
    attn_implementation: str = "",
    cache: Path | None = None,
    *,
    together: Together = ALONE,
) -> LoadedModel:
    """Loads config, tokenizer and weights of ``folder`` onto ``device``.

    Args:
        folder: holds config.json, tokenizer files and safetensors.
        choice: quantisation and dtype.
        on_progress: called with (bytes read, total bytes) after each tensor; what it raises ends the loading.
        attn_implementation: a registered attention; empty: ``packed.choose_attention``.
        cache: root of the cache of quantised weights (``weight_cache``); None uses none.
        together: this process among those of the machine that load the same at once.

    Raises:
        ModelError: weights are missing, incomplete or not understood, or config or tokenizer grow too large in memory.
        MachineError: the weights do not fit in memory.
    """
    dtype = resolve_dtype(choice.dtype, device)
    config = stretch(config_of(folder), choice)
    packed.register()
    name = attn_implementation or packed.choose_attention(config)
    target = Target(device, dtype, choice.quantization, name, max(0, choice.streamed_layers))
    tokenizer = tokenizer_of(folder)
    with plain_words(folder):
        model, line = read_weights(folder, config, target, on_progress, cache, together=together)
    freeze(model)
    place_by_row(model)
    line += f"; positions: {words}" if (words := scaling_words(choice)) else ""
    model.name_or_path = choice.name if choice.source == "hub" else str(folder)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what quantising needed beside the weights
    return LoadedModel(model=model, tokenizer=tokenizer, dtype=dtype, line=line)


def config_of(folder: Path) -> Any:
    """transformers' config of a model's folder. Raises ModelError."""
    with plain_words(folder), reading_model(folder.name):
        return AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)


def tokenizer_of(folder: Path) -> Any:
    """Its tokenizer, with a token for padding. Raises ModelError."""
    check_growth(folder)
    with plain_words(folder), reading_model(folder.name):
        return ensure_padding(AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False))


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The named dtype; ``auto`` is bfloat16 where the card has it, else float16, and float32 on the CPU."""
    if name != "auto":
        return {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}[name]
    if device.type != "cuda":
        return torch.float32
    # Not is_bf16_supported(): it is also True where bfloat16 is only emulated.
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def ensure_padding(tokenizer: Any) -> Any:
    """Gives the tokenizer one of its own tokens for padding, so that no embedding must be resized.

    Padded positions are masked and never trained, so any token will do.
    """
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
    tokenizer.padding_side = "right"
    return tokenizer


def freeze(model: Any) -> None:
    """Freezes a base model after loading: no gradients, no KV cache, no repacking."""
    forbid_cpu_repacking(model)  # before any forward pass
    model.requires_grad_(False)
    model.config.use_cache = False


@contextmanager
def plain_words(folder: Path | str) -> Iterator[None]:
    """Turns errors of loading into Faults; faults of the card pass unchanged."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MachineError("model.memory", name=getattr(folder, "name", folder)) from error
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        if is_card_fault(error):
            raise  # a fresh process may load it
        reason = first_line(error)
        raise ModelError("model.load", folder=folder, reason=reason) from error
