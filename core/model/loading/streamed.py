"""Loads a model of which some layers stream: their matrices go from disk over the card, where they are quantised, to
host memory, one at a time. So no more of the machine's memory is needed than they take there.

transformers builds the model on the CPU as ever (``assemble``), but gets stand-ins of no size for the matrices of all
decoder layers; what else there is, it reads. Then each matrix is read and put where it belongs: on the card, or in
host memory, with a place in a slot (``core.model.streaming``). The embedding's rows are looked up on the host too,
unless it is the head as well and that stays; the head streams where more is asked for than there are layers. Of several
processes that load it together one reads all that (``together``).
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from core.contract.errors import MachineError
from core.contract.weight_forms import WEIGHT_FORMS
from core.machine.host import Host
from core.model.layers.peft_bnb import held_tensors, hold_at, matrices_of, quantise_into, read_quantised, stand_in
from core.model.loading.assemble import Entry, Target, assemble, auto_class
from core.model.loading.tensor_stream import WORDS, NotStreamableError
from core.model.loading.together import ALONE, Kept, Together, laid, taken, told_of
from core.model.streaming.head import head_on_host, host_head_of
from core.model.streaming.host_pages import HostPages, Span
from core.model.streaming.layers import Streamed, ring_of, spread, stream
from core.model.streaming.ring import Ring
from core.model.streaming.rows import on_host

GIB = 2**30
KEPT_FREE_BYTES = 2 * GIB
"""Of the machine's memory, for all else that a process needs there."""
Entries = Mapping[str, Entry]


@dataclass(frozen=True)
class _Matrix:
    """A decoder layer's matrix: its name among the entries, and its shape."""

    key: str
    shape: tuple[int, int]


@dataclass(frozen=True)
class _Given:
    """An entry for a tensor that is there."""

    tensor: torch.Tensor

    def __getitem__(self, _index: Any) -> torch.Tensor:
        return self.tensor

    def get_dtype(self) -> str:
        """The dtype's name in safetensors, which transformers asks for."""
        return WORDS[self.tensor.dtype]


def assemble_streamed(
    config: Any,
    entries: Entries,
    target: Target,
    name: str,
    after: Callable[[], None] = lambda: None,
    *,
    together: Together = ALONE,
) -> tuple[Any, dict[str, Any]]:
    """``assemble`` with ``target.streamed`` layers in host memory, evenly spread; with one more the head, too.

    Args:
        after: called after each layer.
        together: this process among those of the machine that do the same at once.

    Raises:
        NotStreamableError: transformers joins or renames the weights of the layers.
        MachineError: the host memory is too small for them.
        RunError: the process that reads them for all does not.
    """
    with torch.device("meta"):
        skeleton = auto_class().from_config(config)
    matrices = _matrices(skeleton, entries)
    which = spread(len(matrices), min(target.streamed, len(matrices)))
    ends = _ends(skeleton, target.streamed > len(matrices))
    if together.first:
        _require_room(skeleton, matrices, which, target, together)
    rows = {} if together.reads else _ends_apart(skeleton, ends, entries)
    model, report = _built(config, entries, (matrices, rows), target, name)
    pages = HostPages(pin=target.device.type == "cuda", shared=together.memory)
    kept: list[tuple[nn.Module, list[Kept]]] = []
    spans: list[Span] = []
    layers = decoder_layers(model)
    for layer, of_layer, streamed in zip(layers, matrices, which, strict=True):
        if not streamed or together.reads:
            for path, one in of_layer.items():
                _read(layer.get_submodule(path), one, entries, target)
        if streamed:
            lies, size = laid(layer) if together.reads else taken(layer, together.told(len(spans)), target.device)
            spans.append(pages.span(size))
            if together.reads:
                _write(lies, spans[-1])
                together.tell(len(spans) - 1, **told_of(lies, size))
            kept.append((layer, lies))
        after()
    ring = Ring(spans, target.device)
    for number, (layer, lies) in enumerate(kept):
        for matrix in lies:
            matrix.show(ring.slots[number % len(ring.slots)])
        stream(layer, [matrix.matrix for matrix in lies], Streamed(ring, number))
    _keep_ends(model, _ends(model, target.streamed > len(matrices)), target.device, (pages, together, len(spans)))
    _settle(model, target.device)
    model.hf_device_map = {"": target.device}
    if target.device.type == "cuda":
        torch.cuda.empty_cache()  # what quantising needed
    return model, report


def decoder_layers(model: Any) -> nn.ModuleList:
    """A causal model's decoder layers, first to last."""
    layers: nn.ModuleList = model.base_model.layers
    return layers


def streamed_line(model: Any, together: Together = ALONE) -> str:
    """What of a loaded model streams, for people."""
    ring = ring_of(model)
    if ring is None:
        return ""
    head = " and the head" if host_head_of(model.get_output_embeddings()) else ""
    line = f"; {len(ring.spans)} of {len(decoder_layers(model))} layers{head} stream from the machine's memory"
    staged = f", {ring.plain_bytes / GIB:.1f} GB of it not pinned and slower to copy" if ring.plain_bytes else ""
    shared = f", once for all {together.count} processes" if together.memory is not None else ""
    return f"{line} ({ring.host_bytes / GIB:.1f} GB{shared}{staged})"


def _matrices(skeleton: Any, entries: Entries) -> list[dict[str, _Matrix]]:
    """Of each decoder layer its matrices by name within it."""
    prefix, found = f"{skeleton.base_model_prefix}.", []
    named = {id(module): name for name, module in skeleton.named_modules()}
    for layer in decoder_layers(skeleton):
        one = {}
        for path, matrix in matrices_of(layer).items():
            key = f"{named[id(matrix)]}.weight"
            key = key if key in entries else key.removeprefix(prefix)
            if key not in entries:
                raise NotStreamableError(f"transformers makes {key} of other weights")
            one[path] = _Matrix(key, (matrix.out_features, matrix.in_features))
        found.append(one)
    return found


@dataclass(frozen=True)
class _Ends:
    """Which of a model's ends stay in host memory: its embedding, its head, both, which may be one, or neither."""

    embedding: nn.Embedding | None
    head: nn.Linear | None

    @property
    def both(self) -> dict[int, nn.Embedding | nn.Linear]:
        """One for each weight, by its identity."""
        return {id(end.weight): end for end in (self.head, self.embedding) if end is not None}


def _ends(model: Any, head: bool) -> _Ends:
    """``head``: whether the head is asked for; one with a bias, or of a class of its own, stays on the card."""
    embedding, top = model.get_input_embeddings(), model.get_output_embeddings()
    top_stays = not head or type(top) is not nn.Linear or top.bias is not None
    tied = top is not None and top.weight is embedding.weight
    usual = isinstance(embedding, nn.Embedding) if tied else type(embedding) is nn.Embedding
    return _Ends(embedding if usual and not (tied and top_stays) else None, None if top_stays or not usual else top)


def _ends_apart(skeleton: Any, ends: _Ends, entries: Entries) -> dict[str, torch.Size]:
    """Name and shape of the ends that stay in host memory, where they are read as they are."""
    kept = ends.both
    named = {name: one for name, one in skeleton.named_modules() if id(getattr(one, "weight", None)) in kept}
    shapes = {f"{name}.weight": one.weight.shape for name, one in named.items()}
    shapes |= {name.removeprefix(f"{skeleton.base_model_prefix}."): shape for name, shape in shapes.items()}
    return {name: shape for name, shape in shapes.items() if name in entries}


def _built(
    config: Any,
    entries: Entries,
    elsewhere: tuple[list[dict[str, _Matrix]], Mapping[str, torch.Size]],
    target: Target,
    name: str,
) -> tuple[Any, dict[str, Any]]:
    """The model on the CPU, with stand-ins for what lies ``elsewhere``: matrices of its layers, other tensors."""
    matrices, others = elsewhere
    config = copy.deepcopy(config)
    if target.form.loading:
        # Named in the config, so that transformers takes the weights as quantised already.
        config.quantization_config = target.quantization_config().to_dict()
    quantised = getattr(config, "quantization_config", None) is not None
    ends = stand_in() if quantised else {}
    given: dict[str, Entry] = {}
    keys = {one.key: one for layer in matrices for one in layer.values()}
    for key, entry in entries.items():
        if key in keys:
            stands = ends or {"": torch.zeros((), dtype=target.dtype).expand(keys[key].shape)}
            given |= {key + end: _Given(tensor) for end, tensor in stands.items()}
        elif key in others:
            given[key] = _Given(torch.zeros((), dtype=target.dtype).expand(others[key]))
        elif key.partition(".weight.")[0] + ".weight" not in keys:
            given[key] = entry
    cpu = replace(target, device=torch.device("cpu"), quantization="none", streamed=0)
    model, report = assemble(config, given, cpu, name)
    # How stand-ins were read says nothing of the weights.
    noted = getattr(model, "_weight_conversions", None) or []
    model._weight_conversions = [one for one in noted if not any(map(_of_quantiser, getattr(one, "operations", ())))]
    return model, report


def _of_quantiser(operation: Any) -> bool:
    return getattr(operation, "hf_quantizer", None) is not None


def _read(matrix: Any, one: _Matrix, entries: Entries, target: Target) -> None:
    """Reads one matrix onto the card, in its form."""
    stored = {key[len(one.key) :]: key for key in _beside(one.key, entries)}
    values = entries[one.key][...]
    if stored:
        of_values = {end.removeprefix("."): entries[key][...] for end, key in stored.items()}
        read_quantised(matrix, values.to(target.device), of_values)
    else:
        quantise_into(matrix, values.to(target.device, target.dtype))


def _beside(key: str, entries: Entries) -> list[str]:
    ends = (".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".quant_state.bitsandbytes__nf4")
    return [key + end for end in ends if key + end in entries]


def _write(lies: list[Kept], span: Span) -> None:
    """Writes a layer's tensors to host memory, and lets go of them."""
    for matrix in lies:
        tensors = held_tensors(matrix.matrix)
        for (start, _, _), tensor in zip(matrix.places, tensors, strict=True):
            span.write(start, tensor)
        hold_at(matrix.matrix, [tensor.new_empty(0) for tensor in tensors])


def _keep_ends(model: Any, ends: _Ends, device: torch.device, whose: tuple[HostPages, Together, int]) -> None:
    """Has the embedding's rows looked up in host memory, and the head's come from there; ``whose``: the pages and the
    processes that share them, and the number of the first line that says that a table is there."""
    pages, together, first = whose
    tables = {}
    for number, (which, end) in enumerate(ends.both.items(), first):
        if together.memory is None:
            tables[which] = end.weight.data.cpu().contiguous()
            continue
        if not together.reads:
            together.told(number)
        table = end.weight.data  # where another process reads, a stand-in of its shape
        shared = pages.piece(table.nbytes).view(table.dtype).view(table.shape)
        if together.reads:
            shared.copy_(table)
            together.tell(number)
        tables[which] = table = end.weight.data = shared
    new: dict[nn.Module, nn.Module] = {}
    if (embedding := ends.embedding) is not None:
        new[embedding] = on_host(embedding, tables[id(embedding.weight)], device)
    if (head := ends.head) is not None:
        new[head] = head_on_host(head, tables[id(head.weight)], device)
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child in new:
                parent._modules[name] = new[child]


def _settle(model: Any, device: torch.device) -> None:
    """Brings what lies on the CPU still to the card."""
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None and parameter.device != device:
                parameter.data = parameter.data.to(device)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(device)


def _require_room(
    skeleton: Any, matrices: list[dict[str, _Matrix]], which: list[bool], target: Target, together: Together
) -> None:
    """Refuses before anything is read. Raises MachineError."""
    form, sizes = WEIGHT_FORMS[target.quantization], []
    for layer in matrices:
        sizes.append(sum(form.matrix_bytes(*one.shape, target.dtype.itemsize) for one in layer.values()))
    # With the head where it is asked for, and without.
    of_ends, of_embedding = (
        sum(end.weight.numel() for end in _ends(skeleton, head).both.values()) * target.dtype.itemsize
        for head in (target.streamed > len(matrices), False)
    )
    copies = together.copies
    needed = copies * (sum(size for size, streamed in zip(sizes, which, strict=True) if streamed) + of_ends)
    _, free = Host().memory()
    there = free - together.count * KEPT_FREE_BYTES
    if needed > there:
        fit = min(len(sizes), max(0, int((there // copies - of_embedding) // max(sizes))))
        lack, room, layers = needed / GIB, max(0, there) / GIB, sum(which)
        if copies > 1:
            raise MachineError("memory.streamed/each", needed=lack, count=copies, free=room, layers=layers, fit=fit)
        raise MachineError("memory.streamed", needed=lack, free=room, layers=layers, fit=fit)
