"""``python -m core.talk.child``: one model with its adapter, answering over a pipe.

The base model's answer comes from the same weights inside ``disable_adapter()``, so that both differ by what was
learned and by nothing else. The card's lock is taken without waiting and held while this process lives; it leaves when
its pipe closes, and within seconds when a run waits for the card.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from core.contract.errors import MachineError, StudioError
from core.locations import Locations
from core.runs.locks import CardLock, held_by
from core.runs.queue import card_wanted
from core.talk.words import Ask, Fault, Piece, Setup, Side

__all__ = ["main"]

LOOK_SECONDS = 1.0


class Cancelled(Exception):  # noqa: N818 - it is no error
    """The question was taken back."""


class Mouth:
    """The one place that writes to the client; its lines never interleave."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.Lock()

    def say(self, word: dict[str, Any]) -> None:
        """One line."""
        with self._lock:
            self._out.write(json.dumps(word) + "\n")
            self._out.flush()


def main() -> int:
    """Reads Setup, then questions, until stdin closes."""
    # Libraries print to stdout; the pipe is for our words alone.
    mouth = Mouth(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    try:
        setup = Setup.model_validate_json(sys.stdin.readline())
        locations = Locations.find(setup.home)
        card = _take_card(locations, setup.lock_name)
        speaker = _load(setup)
    except StudioError as error:
        mouth.say(Fault(code=error.code, message=error.message, hint=error.hint).model_dump())
        return 1
    mouth.say({"ready": True})
    asked: queue.Queue[Ask] = queue.Queue()
    cancelled: set[str] = set()
    threading.Thread(target=_read, args=(asked, cancelled), daemon=True).start()
    threading.Thread(target=_leave_when_wanted, args=(locations, mouth), daemon=True).start()
    with contextlib.closing(_Held(card)):
        while True:
            _answer(speaker, asked.get(), cancelled, mouth)


class _Held:
    """Keeps the card's lock alive as long as it is in scope."""

    def __init__(self, card: CardLock) -> None:
        self.close = card.release


def _take_card(locations: Locations, lock_name: str) -> CardLock:
    card = CardLock(locations.make(), lock_name)
    if not card.acquire(wait=False, holder="Try"):
        holder = held_by(locations, lock_name) or "another program"
        raise MachineError(
            "card.busy", f"Expected a free card, found it held by {holder}.", "Ask again when it has ended."
        )
    return card


def _read(asked: queue.Queue[Ask], cancelled: set[str]) -> None:
    for line in sys.stdin:
        word = json.loads(line)
        if "cancel" in word:
            cancelled.add(word["cancel"])
        else:
            asked.put(Ask.model_validate(word))
    os._exit(0)  # the client is gone; a generation in mid-word has nobody to listen


def _leave_when_wanted(locations: Locations, mouth: Mouth) -> None:
    while not card_wanted(locations):
        time.sleep(LOOK_SECONDS)
    fault = Fault(
        code="card.busy", message="A run waits for the card, so the model left it.", hint="Ask when it has ended."
    )
    mouth.say(fault.model_dump(exclude={"id"}))
    os._exit(0)


def _answer(speaker: Any, ask: Ask, cancelled: set[str], mouth: Mouth) -> None:
    try:
        for side in speaker.sides:
            for text in speaker.stream(ask, side, lambda: ask.id in cancelled):
                mouth.say(Piece(id=ask.id, side=side, text=text).model_dump())
            mouth.say(Piece(id=ask.id, side=side, done=True).model_dump())
    except Cancelled:
        cancelled.discard(ask.id)
    except StudioError as error:
        mouth.say(Fault(id=ask.id, code=error.code, message=error.message, hint=error.hint).model_dump())


def _load(setup: Setup) -> Any:
    # Heavy imports wait until the card is ours: a busy card is answered at once.
    import torch

    from core.data.render import apply_template_to, stop_token_ids
    from core.model.adapters import load_adapter
    from core.model.loading import load_base

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load_base(Path(setup.folder), setup.model, device)
    apply_template_to(loaded.tokenizer, setup.data)
    model = load_adapter(loaded.model, Path(setup.adapter), trainable=False) if setup.adapter else loaded.model
    return Speaker(model.eval(), loaded.tokenizer, stop_token_ids(loaded.tokenizer, setup.data), bool(setup.adapter))


class Speaker:
    """A loaded model that answers, as itself or as the base model under its adapter."""

    def __init__(self, model: Any, tokenizer: Any, stops: tuple[int, ...], adapted: bool) -> None:
        self._model, self._tokenizer, self._stops = model, tokenizer, stops
        self.sides: tuple[Side, ...] = ("base", "tuned") if adapted else ("base",)
        self._adapted = adapted

    def stream(self, ask: Ask, side: Side, is_cancelled: Any) -> Iterator[str]:
        """The answer in pieces of text, as they become whole characters.

        Raises:
            Cancelled: in mid-answer.
        """
        from transformers import TextIteratorStreamer

        streamer = TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        faults: list[BaseException] = []
        work = threading.Thread(target=self._generate, args=(ask, side, streamer, is_cancelled, faults))
        work.start()
        try:
            for text in streamer:
                if text:
                    yield text
        finally:
            work.join()
        if is_cancelled():
            raise Cancelled
        if faults:
            raise _explained(faults[0])

    def _generate(self, ask: Ask, side: Side, streamer: Any, is_cancelled: Any, faults: list[BaseException]) -> None:
        import torch
        from transformers import StoppingCriteriaList

        alone = self._adapted and side == "base"
        sampling = {"temperature": ask.temperature, "top_p": ask.top_p} if ask.temperature > 0 else {}
        try:
            ids = self._prompt(ask).to(self._model.device)
            torch.manual_seed(ask.seed)
            with torch.inference_mode(), self._model.disable_adapter() if alone else contextlib.nullcontext():
                self._model.generate(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=ask.max_new_tokens,
                    do_sample=ask.temperature > 0,
                    pad_token_id=self._tokenizer.pad_token_id,
                    eos_token_id=list(self._stops) or None,
                    streamer=streamer,
                    stopping_criteria=StoppingCriteriaList([_stop_when(is_cancelled)]),
                    use_cache=True,
                    **sampling,
                )
        except BaseException as error:  # noqa: BLE001 - said by the other thread, which waits for the stream's end
            faults.append(error)
            streamer.end()

    def _prompt(self, ask: Ask) -> Any:
        messages = list(ask.messages)
        if not self._tokenizer.chat_template:
            return self._tokenizer("\n".join(message["content"] for message in messages), return_tensors="pt")[
                "input_ids"
            ]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self._tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]


def _stop_when(asked: Any) -> Any:
    import torch

    def stop(input_ids: Any, *_scores: Any, **_options: Any) -> Any:
        return torch.full((input_ids.shape[0],), bool(asked()), device=input_ids.device)

    return stop


def _explained(error: BaseException) -> StudioError:
    import torch

    if isinstance(error, StudioError):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return MachineError("memory.gpu", "The card's memory ran out while answering.", "Ask for a shorter answer.")
    words = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return MachineError(
        "talk.fault", f"The model could not answer: {words}", "Ask something else, or another checkpoint."
    )


if __name__ == "__main__":
    sys.exit(main())
