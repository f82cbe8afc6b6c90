"""Out of memory in a training run: the same step again, in smaller micro-batches, and the plan corrected.

The failed batch's gradients and tensors are freed, and the whole batch is done again with the same random numbers: the
gradient is the same sum in another order. What is tried::

    half the tokens, down to the longest row ─► recompute ─► inputs in host memory ─► smaller still ─► smaller tiles
      ─► once more as it is (memory is defragmented now) ─► wait for what other programs took ─► fault

A budget fills the memory however small a micro-batch is, so it is lowered along with them. Each change is a
``Correction``, with which the next attempt begins; checkpoints carry the tokens per micro-batch.

Where several ranks compute one batch, each computes its share again while the others wait for its sums; what it had to
change, all change after that step (``agree``), so that rank 0 writes the ``Correction``.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from core.contract.config import RunConfig
from core.contract.errors import MachineError
from core.contract.events import Correction
from core.estimate.fit import SPARE
from core.estimate.inputs.work import GIB
from core.estimate.terms import context_of
from core.model.faults import is_out_of_memory
from core.model.layers.checkpointing import let_go_of_inputs, recomputes_in_tiles, set_checkpointing
from core.train.channel.channel import Channel
from core.train.channel.meter import Meter, context_bytes, held_bytes
from core.train.safety.memory import (
    SpillWatch,
    Taken,
    halved,
    let_go_of,
    may_allocate,
    pass_tokens,
    state_bytes,
    there_for_us,
)  # fmt: skip
from core.train.safety.preflight import preflight
from core.train.step.trainer import AtRank

T = TypeVar("T")
LOWER = 7 / 8
LOWERED_AT_MOST = 4
"""Times that a budget is lowered before every layer is recomputed."""
_KEPT_LESS = {"recompute": 1, "offload": 2}
LEAST_TILE = 512
"""Tokens: smaller tiles take hardly less."""
STEP_TRIES = 2
TAKEN_BYTES = 64 * 2**20
WAIT_SECONDS = 30.0
"""Longest wait for other programs' memory before a step is tried again."""


def tries_the_largest(device: torch.device) -> bool:
    """Whether a preflight is worth its time."""
    return device.type == "cuda"


class OomRecovery:
    """Recovery of one attempt; ``spills``: the card's memory may spill into the machine's without an error."""

    def __init__(self, trainer: Any, config: RunConfig, channel: Channel, meter: Meter, spills: bool = False) -> None:
        self._trainer, self._train, self._channel, self._meter = trainer, config.train, channel, meter
        self._device: torch.device = trainer.args.device
        self._on_card = self._device.type == "cuda"
        self._memory = "card's memory" if self._on_card else "machine's memory"
        self._policy = config.train.checkpointing if config.train.checkpointing != "auto" else "none"
        self._allowed = may_allocate(config.train.memory_gib, self._device)
        self._lowered = 0
        self._others_bytes = self._held_by_others()
        self._card_bytes = torch.cuda.mem_get_info(self._device)[1] if self._on_card else 0
        self._preflight_due = tries_the_largest(self._device)
        self._spill = SpillWatch() if spills else None
        self._longest = 0
        """Length of the longest row that is trained on; 0 until it is needed."""

    def before_the_first_step(self, model: Any) -> None:
        """Runs the preflight, once an attempt."""
        if self._preflight_due:
            self._preflight_due = False
            preflight(self._trainer, model, self._channel.reporter, self.until_it_fits)

    def until_it_fits(self, work: Callable[[], T]) -> T:
        """``work()``, which computes a whole batch, again and smaller for as long as memory runs out.

        Raises:
            MachineError: nothing makes it smaller, and no other program took memory.
            Leave: somebody asked to pause or stop while it waited.
        """
        last_try = False
        while True:
            try:
                return work()
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._trainer.forget()
                let_go_of_inputs(self._trainer.trained.model)
                let_go_of(error)
            if self._spill is not None:
                self._spill.begin_again()
            lengths = self._lengths()
            tokens = pass_tokens(lengths, self._trainer.packed)
            if self.make_smaller(lengths, f"The {self._memory} ran out in a pass of {tokens:,} tokens."):
                continue
            if last_try and not self._wait_for_others():
                kept = "" if self._policy in ("none", "budget") else ", activations recomputed"
                raise MachineError("memory.row", tokens=max(lengths), kept=kept, memory=self._memory)
            last_try = True

    def make_smaller(self, lengths: Sequence[int], reason: str) -> bool:
        """One change after which rows of these lengths take less memory; False where there is none left."""
        rows, packed = self._trainer.rows, self._trainer.packed
        self._longest = self._longest or max(rows.length(row, packed) for row in range(len(rows)))
        new, changed = halved(lengths, packed, self._longest), False
        if new:
            changed = self._cut_to(new, reason)
        if not new or (self._policy == "budget" and self._on_card):
            changed = self._keep_less(reason) or changed
        if not changed and (new := halved(lengths, packed)):
            changed = self._cut_to(new, reason)
        return changed or self._smaller_tiles(pass_tokens(lengths, packed), reason)

    @property
    def kept_less(self) -> int:
        """How often layers were made to keep less for the backward pass, as a number that grows."""
        return self._lowered + (LOWERED_AT_MOST + 1) * _KEPT_LESS.get(self._policy, 0)

    def agree(self, ranks: Sequence[AtRank]) -> None:
        """After a step's sums: this rank's passes become as small as the smallest of all."""
        if not ranks:
            return
        least = min(range(len(ranks)), key=lambda rank: ranks[rank].tokens_per_pass)
        most = max(range(len(ranks)), key=lambda rank: ranks[rank].kept_less)
        reason = f"The {self._memory} ran out on rank {{}}."
        if ranks[least].tokens_per_pass < self._trainer.tokens_per_pass:
            self._cut_to(ranks[least].tokens_per_pass, reason.format(least))
        while self.kept_less < ranks[most].kept_less and self._keep_less(reason.format(most)):
            pass

    def optimiser_full(self, tries: int) -> None:
        """Memory ran out in the optimiser's step; frees some before it is tried again.

        Raises:
            MachineError: it was tried often enough.
        """
        self._trainer.forget_ahead()
        if tries > STEP_TRIES:
            raise MachineError("memory.optimizer", memory=self._memory)
        self._channel.reporter.note(
            "memory.optimizer",
            f"The {self._memory} ran out in the optimiser's step; what was free was given back, and it is done again.",
        )

    def step_done(self) -> None:
        """After a step: where memory has spilled, micro-batches get smaller."""
        if self._spill is None or not (times := self._spill.add(self._taken())):
            return
        slower = f"steps take {times:.0f} times as long" if times > 1 else "torch holds more than the card has"
        cured = self.make_smaller(self._lengths(), "The card's memory had spilled into the machine's.")
        self._channel.reporter.note(
            "memory.spill",
            f"The card's memory has spilled into the machine's: {slower}, and nothing of the card is free.",
            "Close what else uses the card (games, browsers); "
            + ("passes are smaller from here on." if cured else "passes are as small as they get."),
        )
        self._trainer.forget()
        if self._on_card:
            torch.cuda.empty_cache()
        if cured:
            self._spill.begin_again()
        else:
            self._spill = None  # said, and nothing is left to do

    def _taken(self) -> Taken:
        lap = self._meter.last
        if not self._on_card:
            return Taken(lap.tokens, lap.seconds, None)
        used, total = self._meter.card.used_bytes, self._card_bytes
        free = None if used is None else max(0, total - used)
        return Taken(lap.tokens, lap.seconds, free, held_bytes(self._device), total)

    def _lengths(self) -> list[int]:
        """Lengths of the rows of the present or last micro-batch."""
        return [self._trainer.rows.length(row, self._trainer.packed) for row in self._trainer.in_pass]

    def _held_by_others(self) -> int:
        """Card memory used outside torch's allocator; 0 on the CPU."""
        return context_bytes(self._device) or 0

    def _wait_for_others(self) -> bool:
        """Waits while other programs hold more of the card than when the run began; False where they do not."""
        before = self._held_by_others()
        taken = before - self._others_bytes
        if taken < TAKEN_BYTES:
            return False
        with self._meter.aside(), self._channel.reporter.aside():
            text = f"for the card's memory: other programs took {taken / GIB:.1f} GiB since this run began"
            self._channel.reporter.stage("waiting", text)
            until = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < until and self._held_by_others() > before - TAKEN_BYTES:
                self._channel.commands.wait(1.0)
        return True

    def _cut_to(self, tokens: int, reason: str) -> bool:
        self._correct("tokens_per_pass", self._trainer.cut_to(tokens), tokens, reason)
        return True

    def _keep_less(self, reason: str) -> bool:
        """Makes layers keep less for the backward pass; False where they keep least already."""
        old = self._policy
        if old == "budget" and self._on_card and self._lowered < LOWERED_AT_MOST:
            self._lowered += 1
            self._allowed = int(min(LOWER * self._allowed, SPARE * there_for_us(self._device)))
            trained, made = self._trainer.trained, bool(self._trainer.optimizer.state)
            state = 0 if made else state_bytes(self._train.optim, trained)
            tile = max(0, self._train.tile_tokens)
            set_checkpointing(trained.model, "auto", self._allowed, state, tile_tokens=tile)
            gib = round((self._allowed + context_of(torch.cuda.get_device_name(self._device))) / GIB, 2)
            self._correct("memory_gib", self._train.memory_gib, gib, reason)
            self._train = self._train.model_copy(update={"memory_gib": gib})
            return True
        if old == "offload" or (old == "recompute" and not self._on_card):
            return False
        self._policy = "recompute" if old == "none" or not self._on_card else "offload"
        tile = max(0, self._train.tile_tokens)
        set_checkpointing(self._trainer.trained.model, self._policy, tile_tokens=tile)
        self._correct("checkpointing", old, self._policy, reason)
        return True

    def _smaller_tiles(self, tokens: int, reason: str) -> bool:
        """Has our layers computed in tiles of half as many tokens; False where these are none, or small already."""
        model, old = self._trainer.trained.model, max(0, self._train.tile_tokens)
        new = (old if 0 < old < tokens else tokens) // 2
        if new < LEAST_TILE or not recomputes_in_tiles(model):
            return False
        set_checkpointing(model, "offload" if self._on_card else "recompute", tile_tokens=new)
        self._correct("tile_tokens", old, new, reason)
        self._train = self._train.model_copy(update={"tile_tokens": new})
        return True

    def _correct(self, name: str, old: object, new: object, reason: str) -> None:
        correction = Correction(key=f"train.{name}", old=str(old), new=str(new), reason=reason)
        self._channel.reporter.say(correction)
