"""How many tokens a pass has under a cap, as a plan chooses: fewer that are kept beat more that are recomputed."""

from dataclasses import replace

from core.bench.rows import BenchRows
from core.bench.setting import Setting
from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.estimate import resolve
from core.machine.hardware import Machine
from core.model.loading.random_weights import find_shape
from core.models.catalog import find_model

GIB = 2**30


def planned_tokens(setting: Setting, config: RunConfig, rows: BenchRows, machine: Machine) -> int:
    """Tokens a pass on a card of ``--vram-gb``; 0 where nothing is to be planned, or no card is there to plan for."""
    if setting.checkpointing != "auto" or not setting.vram_gb or machine.gpu is None:
        return 0
    card = replace(machine.gpu, free_bytes=int(setting.vram_gb * GIB))
    train = {"checkpointing": "auto", "memory_gib": setting.vram_gb, "tokens_per_pass": 0}
    wanted = config.model_copy(update={"train": config.train.model_copy(update=train)})
    full, _ = resolve(wanted, _spec(setting), _facts(rows, config.train.max_length), replace(machine, gpus=(card,)))
    return full.train.tokens_per_pass


def _spec(setting: Setting) -> ModelSpec:
    if not setting.model.startswith("random:"):
        return find_model("folder", setting.model)
    spec = find_shape(setting.model.removeprefix("random:"))
    if not setting.layers:
        return spec
    return spec.model_copy(update={"shape": spec.shape.model_copy(update={"num_hidden_layers": setting.layers})})


def _facts(rows: BenchRows, max_length: int) -> DataFacts:
    lengths = tuple(rows.train.length(row) for row in range(len(rows.train)))
    return DataFacts(
        rows=len(lengths), lengths=lengths, trained=lengths, max_length=max_length,
        longest=max(lengths), mean=sum(lengths) / len(lengths),
    )  # fmt: skip
