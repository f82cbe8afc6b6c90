"""One rung of the ladder: a plain training loop over a classifier of transformers, timed.

AdamW, a linear schedule with a tenth of warm-up, gradients clipped at 1, dropout as the model's config has it. A step
is timed from its batch on the host to after the card has finished it.
"""

import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AttentionInterface, AutoConfig

from core.bench.classify.rows import ClassRows, dealt, packed, padded, read_rows, tokenizer_of
from core.bench.classify.setting import SHAPES, ClassifySetting, check
from core.bench.report import command_of, gib, machine_facts
from core.contract.errors import MachineError, first_line
from core.contract.tasks import Outputs
from core.model.attention import packed as packed_attention
from core.model.encoders import surgery
from core.model.encoders.forward import classify_logits
from core.model.encoders.layer import part
from core.model.encoders.load import load_classifier, new_classifier
from core.models.encoders import ENCODERS, longest_row

BACKEND = "inductor"
USUAL_ROWS = 32
"""Rows a step that the learning rate is said for."""
OPTIMS: dict[str, dict[str, Any]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
HALF = {"bf16": torch.bfloat16}


def measure(setting: ClassifySetting, say: Any = print, every: int = 0) -> dict[str, Any]:
    """Trains and measures one rung; the result is JSON.

    Raises:
        Fault: the setting, the model or the rows cannot be used, or memory was too small.
    """
    check(setting)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if setting.precision == "float32" else "high")
    try:
        work = _Work.of(setting, device)
        torch.manual_seed(setting.seed)
        trained = work.train(say, every)
        accuracy = work.accuracy()
    except torch.OutOfMemoryError as error:
        raise MachineError("bench.memory", reason=first_line(error)) from error
    finally:
        torch.set_float32_matmul_precision(before)
        packed_attention.register()
    lengths = [len(ids) for ids, _ in work.rows.train]
    return {
        "bench": "classify",
        "command": command_of(setting),
        "setting": asdict(setting),
        **machine_facts(device),
        "weights": "drawn at random" if setting.shape else f"of {Path(setting.model).name}",
        "rows": {
            "from": Path(setting.data).name or "made-up reviews", "labels": list(work.rows.labels),
            "train": len(lengths), "held_out": len(work.rows.held_out), "longest": max(lengths),
            "mean_tokens": round(sum(lengths) / len(lengths), 1),
        },
        "plan": work.lines,
        "accuracy": accuracy,
        **trained,
    }  # fmt: skip


@dataclass(frozen=True)
class _Work:
    """A rung made ready."""

    setting: ClassifySetting
    device: torch.device
    model: Any
    rows: ClassRows
    pad_id: int
    lines: list[str]

    @staticmethod
    def of(setting: ClassifySetting, device: torch.device) -> "_Work":
        tokenizer = tokenizer_of(setting)
        config = _config(setting, tokenizer)
        rows = read_rows(setting, tokenizer, min(setting.length, longest_row(config)))
        labels = Outputs(rows.labels)
        attention = packed_attention.NAME if setting.layout == "packed" else setting.attention
        if setting.shape:
            for name, value in labels.settings().items():
                setattr(config, name, value)
            model = new_classifier(config, device, setting.seed, attention)
        else:
            model = load_classifier(Path(setting.model).expanduser(), labels, device, setting.seed)
            model.set_attn_implementation(attention)
        lines = [f"attention: transformers' {attention}, rows padded to the longest of a step"]
        if setting.layout == "packed":
            plan = surgery.plan(model, setting.norm == "fused", HALF.get(setting.precision))
            surgery.apply(model, plan)
            lines = list(plan.lines())
        if setting.compiled:
            # Attention keeps its own kernels.
            outside = torch.compiler.disable(packed_attention.packed_attention)
            AttentionInterface.register(packed_attention.NAME, outside)
            for layer in part(surgery.body_of(model), ENCODERS[model.config.model_type].layers):
                layer.compile(backend=BACKEND, dynamic=True)
            lines.append(f"torch.compile ({BACKEND}) of each layer, attention outside of it")
        return _Work(setting, device, model, rows, config.pad_token_id or 0, lines)

    def train(self, say: Any, every: int) -> dict[str, Any]:
        """All steps; their figures."""
        setting, cuda = self.setting, self.device.type == "cuda"
        steps = dealt(len(self.rows.train), setting)
        batches = [self._batch([self.rows.train[row] for row in step]) for step in steps]
        timed_from = min(setting.warm_up, len(steps) - 1)
        rate = setting.learning_rate * (setting.batch / USUAL_ROWS) ** 0.5
        parameters = list(self.model.parameters())
        optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01, **OPTIMS[setting.optim])
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _share(step, len(steps)))
        self.model.train()
        seconds, losses = [], []
        for number, batch in enumerate(batches):
            if cuda and number == timed_from:
                torch.cuda.reset_peak_memory_stats(self.device)
            begun = time.perf_counter()
            labels = batch["labels"].to(self.device, non_blocking=True)
            loss = F.cross_entropy(self._logits(batch).float(), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0, foreach=setting.optim != "single")
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            schedule.step()
            losses.append(float(loss.detach()))  # waits for the card
            seconds.append(time.perf_counter() - begun)
            if every and (number + 1) % every == 0:
                say(f"step {number + 1} of {len(steps)}, {seconds[-1]:.4f} s")
        usual = statistics.median(seconds[timed_from:])
        real = sum(len(self.rows.train[row][0]) for step in steps for row in step) / len(steps)
        computed = sum(batch["input_ids"].numel() for batch in batches) / len(batches)
        return {
            "steps": len(steps),
            "learning_rate": rate,
            "seconds_a_step": round(usual, 6),
            "samples_per_second": round(setting.batch / usual, 1),
            "tokens_per_second": round(real / usual, 1),
            "padding_per_cent": round(100 * (1 - real / computed), 1),
            "first_step_seconds": round(seconds[0], 3),
            "compile_seconds": round(sum(seconds[:timed_from]) - timed_from * usual, 1) if setting.compiled else None,
            "peak_allocated_gib": gib(torch.cuda.max_memory_allocated(self.device)) if cuda else None,
            "losses": losses,
        }

    def accuracy(self) -> float:
        """Share of held-out rows whose label is given the highest logit."""
        rows, right = self.rows.held_out, 0
        self.model.eval()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            for first in range(0, len(rows), self.setting.batch):
                batch = self._batch(rows[first : first + self.setting.batch])
                right += int((self._logits(batch).argmax(1).cpu() == batch["labels"]).sum())
        return round(right / len(rows), 4)

    def _batch(self, rows: Any) -> dict[str, Any]:
        pinned = self.device.type == "cuda"
        return packed(rows, pinned) if self.setting.layout == "packed" else padded(rows, self.pad_id, pinned)

    def _logits(self, batch: dict[str, Any]) -> torch.Tensor:
        there = {
            name: value.to(self.device, non_blocking=True) if torch.is_tensor(value) else value
            for name, value in batch.items()
            if name != "labels"
        }
        half = HALF.get(self.setting.precision)
        if self.setting.layout == "packed":
            return classify_logits(self.model, there, half)
        with torch.autocast(self.device.type, dtype=half, enabled=half is not None):
            logits: torch.Tensor = self.model(**there).logits
        return logits


def _config(setting: ClassifySetting, tokenizer: Any) -> Any:
    """transformers' config of the shape, its vocabulary large enough for the tokenizer; or the folder's."""
    if not setting.shape:
        place = str(Path(setting.model).expanduser())
        return AutoConfig.from_pretrained(place, trust_remote_code=False, local_files_only=True)
    kind, sizes = SHAPES[setting.shape]
    config = AutoConfig.for_model(kind, **sizes)
    # Ids of special tokens in a default config are those of a published vocabulary.
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    pad = tokenizer.pad_token_id or 0
    vocabulary = max(config.vocab_size, len(tokenizer))
    if ENCODERS[kind].after_padding:
        pad = config.pad_token_id
    return AutoConfig.for_model(kind, **{**sizes, **special, "vocab_size": vocabulary, "pad_token_id": pad})


def _share(step: int, steps: int) -> float:
    """Of the learning rate in a step: a tenth of the steps up, then down to zero."""
    rising = max(1, steps // 10)
    return min((step + 1) / rising, (steps - step) / max(1, steps - rising))
