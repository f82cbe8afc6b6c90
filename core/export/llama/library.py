"""llama.cpp's C library out of the wheel of xllamacpp, of which the exact version is pinned: its C symbols are not
promised. Layouts as in that version's ``llama.h``; ``opened`` compares the defaults that the library fills in.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from core.contract.errors import ModelError

PACKAGE = "xllamacpp"
_COUNTS = ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq")
_KINDS = ("ctx_type", "rope_scaling_type", "pooling_type", "attention_type", "flash_attn_type")
_ROPE = ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")
_LOADED = ("vocab_only", "check_tensors", "use_extra_bufts", "no_host", "no_alloc", "load_mtp")
_SWITCHES = ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full", "kv_unified")
_F16 = 1
"""``GGML_TYPE_F16``, in which keys and values are held by default."""


class ModelParams(ctypes.Structure):
    """``llama_model_params``."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        *((name, c_int32) for name in ("n_gpu_layers", "split_mode", "load_mode", "lazy_mode", "main_gpu")),
        *((name, c_void_p) for name in ("tensor_split", "progress_callback", "progress_data", "kv_overrides")),
        *((name, c_bool) for name in _LOADED),
    )


class ContextParams(ctypes.Structure):
    """``llama_context_params``."""

    _fields_ = (
        *((name, c_uint32) for name in _COUNTS),
        *((name, c_int32) for name in ("n_threads", "n_threads_batch", *_KINDS)),
        *((name, c_float) for name in _ROPE),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("moe_cache_size", c_size_t),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        *((name, c_bool) for name in _SWITCHES),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(ctypes.Structure):
    """``llama_batch``: tokens of one sequence, with positions, and which of them give logits."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


LOG = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
_SIGNATURES = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (LOG, c_void_p)),
    "llama_model_default_params": (ModelParams, ()),
    "llama_context_default_params": (ContextParams, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParams)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    "llama_model_n_ctx_train": (c_int32, (c_void_p,)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParams)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_memory_clear": (None, (c_void_p, c_bool)),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_get_logits": (POINTER(c_float), (c_void_p,)),
    "llama_tokenize": (c_int32, (c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool)),
    "llama_adapter_lora_init": (c_void_p, (c_void_p, c_char_p)),
    "llama_set_adapters_lora": (c_int32, (c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_float))),
    "ggml_cpu_init": (None, ()),
    "ggml_quantize_chunk": (
        c_size_t,
        (c_int32, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p),
    ),
}


def _loaded(file: str) -> ctypes.CDLL:
    """Raises OSError. Where the system has no OpenMP library, torch brings one."""
    try:
        return ctypes.CDLL(file)
    except OSError:
        import torch  # noqa: F401

        return ctypes.CDLL(file)


@cache
def opened() -> ctypes.CDLL:
    """The library, its functions declared.

    Raises:
        ModelError: the package is missing, cannot be loaded, or is not as expected.
    """
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError("export.package", package=PACKAGE, python=sys.executable)
    found = sorted(Path(spec.submodule_search_locations[0]).glob(f"{PACKAGE}*.so"))
    try:
        library = _loaded(str(found[0]))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, IndexError, AttributeError) as error:
        raise ModelError("export.llama", reason=str(error) or "its library is not in the package") from error
    library.ggml_cpu_init()
    context, model = library.llama_context_default_params(), library.llama_model_default_params()
    sizes = (context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max, context.type_k, context.type_v)
    if sizes != (512, 2048, 512, 1, _F16, _F16) or context.samplers or context.ctx_other or model.vocab_only:
        raise ModelError("export.llama", reason="it is another version than the one that this program knows")
    return library
