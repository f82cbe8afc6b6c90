"""A 7B's life on a card as a person leads it: started, paused for a game, resumed, stopped now, started again, stopped.

    PYTHONPATH=. python tests/gpu/life_on_card.py --work /tmp/mistral --out FILE.json

Runs of a model of Mistral-7B's shape, made here with random weights and a tokenizer in which every word is one token,
go through store, queue, supervisor and worker, as the window's do. The figures are the events' own times and what the
card says is in use, a few times a second::

    started        seconds from Start to the worker's first word, to loading, loaded, and the end of step 1
    first_step     seconds of "First step": the largest window tried, and step 1 itself
    pause, stop_now, stop
                   seconds from the command to its acknowledgement, to the state, and until the card is free as before
    resumed        step it went on from, and the same seconds as for ``started``

``--tiny`` is the same way with the tiny shape, for a machine without a card: no figures of use.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.contract.commands import parse_command
from core.contract.config import RunConfig
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail

FREE_AGAIN = 256 * 2**20
"""Another process's context may come or go meanwhile."""
PATIENCE_SECONDS = 240.0
SHAPE = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32768, "max_position_embeddings": 32768,
}  # fmt: skip
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
STEPS_BEFORE = 4


class Life:
    """One run and what is seen of it."""

    def __init__(self, store: RunStore, config: RunConfig) -> None:
        self.store, self.free_before = store, free_bytes()
        self.begun = time.time()
        self.folder: JobFolder = store.open(store.start(config))

    def events(self, kind: str = "") -> list[Any]:
        """All so far since the last start, of one kind."""
        found: list[Any] = [event for event in EventTail(self.folder.events).read() if event.at >= self.begun]
        return [event for event in found if event.kind == kind or not kind]

    def until(self, done: Callable[[], object], words: str) -> float:
        """The moment at which it is so."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not done():
            record = self.store.record(self.folder.name)
            if time.monotonic() > end or record.state in ("failed", "lost"):
                raise SystemExit(f"{words}: {record.state}, {record.failure}\n{self.folder.log.read_text()[-3000:]}")
            time.sleep(0.05)
        return time.time()

    def trains(self) -> dict[str, Any]:
        """Waits for a few steps; when each stage was reached."""
        self.until(lambda: len(self.events("step")) >= STEPS_BEFORE, "does not train")
        stages = {}
        for event in self.events("stage"):
            stages.setdefault(event.stage, round(event.at - self.begun, 2))
        first, hello = self.events("step")[0], self.events("hello")[0]
        plan, ready = self.events("plan"), min(e.at for e in self.events("stage") if e.stage == "first_step")
        return {
            "hello": round(hello.at - self.begun, 2),
            "stages": stages,
            "step_1": round(first.at - self.begun, 2),
            "first_step": round(first.at - ready, 2),
            "from_step": first.step - 1,
            "plan": list(plan[0].lines) if plan else [],
            "seconds_a_step": [round(event.seconds, 3) for event in self.events("step")],
        }

    def asked(self, verb: str, state: str) -> dict[str, float]:
        """Sends the command; seconds until it was heard, obeyed, and the card was free again."""
        sent = time.time()
        getattr(self.store, verb)(self.folder.name)
        self.until(lambda: self.store.record(self.folder.name).state == state, f"{verb} is not obeyed")
        command = parse_command(self.folder.commands.read_bytes().splitlines()[-1])
        at = command.at if command else sent
        there = self.events(state)[-1].at
        free = self.until(lambda: free_bytes() >= self.free_before - FREE_AGAIN, "the card is not free")
        heard = [event.at for event in self.events("acknowledged") if event.at >= at]
        figures = {"acknowledged": heard[0] - at if heard else -1.0, "state": there - at, "free": free - at}
        return {key: round(value, 2) for key, value in figures.items()}

    def goes_on(self) -> dict[str, Any]:
        """Resumes, and waits for a few steps more."""
        self.begun = time.time()
        self.store.resume(self.folder.name)
        return self.trains()


def free_bytes() -> int:
    """Of the card; 0 where there is none, which is always as before."""
    gpu = read_machine().gpu
    return (gpu.free_bytes or 0) if gpu else 0


def main() -> None:
    """Makes what is missing, leads two lives, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for model, data and runs (needs 20 GB)")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    chosen = parser.parse_args()
    layers, tokens = (2, 64) if chosen.tiny else (32, 2048)
    if chosen.tiny:
        SHAPE.update(TINY)
    chosen.work.mkdir(parents=True, exist_ok=True)
    model = chosen.work / f"mistral-shape-{layers}"
    make_model(model, layers)
    data = make_rows(chosen.work / "life.jsonl", 400, tokens)
    store = RunStore(Locations(chosen.work / "home").make())
    figures: dict[str, Any] = {"device": (gpu.name if (gpu := read_machine().gpu) else "cpu"), "tiny": chosen.tiny}
    config = config_of(model, data, tokens)
    life = Life(store, config)
    figures["started"] = life.trains()
    figures["pause"] = life.asked("pause", "paused")
    figures["resumed"] = life.goes_on()
    figures["stop_now"] = life.asked("stop_now", "stopped")
    life = Life(store, config)
    figures["started_again"] = life.trains()
    figures["stop"] = life.asked("stop", "stopped")
    figures["checkpoints"] = sorted(path.name for path in life.folder.checkpoints.iterdir())
    text = json.dumps(figures, indent=1)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n", encoding="utf-8")


def make_model(folder: Path, layers: int) -> None:
    """Random bf16 weights in shards, and a tokenizer of as many words as the model has rows."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return
    words = {"</s>": 0, "<unk>": 1} | {f"w{number}": number for number in range(2, SHAPE["vocab_size"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="</s>")
    config = MistralConfig(
        **{**SHAPE, "num_hidden_layers": layers},
        rms_norm_eps=1e-5, sliding_window=None, bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = MistralForCausalLM(config)
    model.save_pretrained(folder.with_suffix(".part"), max_shard_size="2GB")
    fast.save_pretrained(folder.with_suffix(".part"))
    folder.with_suffix(".part").rename(folder)


def make_rows(path: Path, rows: int, tokens: int) -> Path:
    """Rows of ``tokens - 1`` words; the end token that raw text gets makes each exactly ``tokens`` long."""
    draw = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            text = " ".join(f"w{draw.randrange(2, SHAPE['vocab_size'])}" for _ in range(tokens - 1))
            file.write(json.dumps({"text": text}) + "\n")
    return path


def config_of(model: Path, data: Path, tokens: int) -> RunConfig:
    """QLoRA as it is by default, on full rows."""
    return RunConfig.model_validate(
        {
            "model": {"source": "folder", "name": str(model)},
            "data": {"path": str(data), "layout": "text", "eval_fraction": 0.0},
            "train": {"max_length": tokens, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1},
        }
    )


if __name__ == "__main__":
    main()
