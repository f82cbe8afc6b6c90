"""Writes the sample data sets: instruction.jsonl, chat.jsonl, preference.jsonl and text.txt.

    python assets/samples/make_samples.py [FOLDER]

All are drawn from the starter's own world (``assets/starter/world_*.py``) with fixed seeds, so the same files come out
bit for bit. What they teach is a manner: the starter answers in plain sentences, the samples answer as a workshop does.
Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "starter"))

from world_facts import DAYS, INSTRUMENTS, REPAIRS, TOOLS, WOODS  # noqa: E402
from world_manners import workshop_voice  # noqa: E402
from world_questions import Topic, held_out, pick, with_article  # noqa: E402
from world_stories import PEOPLE, WEATHER, World  # noqa: E402

INSTRUCTION_ROWS, CONVERSATIONS, PREFERENCES, TEXT_CHARACTERS = 300, 200, 200, 60_000


def main() -> None:
    """Writes the four files into the folder given, else beside this script."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    folder.mkdir(parents=True, exist_ok=True)
    _write_rows(folder / "instruction.jsonl", instruction_rows())
    _write_rows(folder / "chat.jsonl", chat_rows())
    _write_rows(folder / "preference.jsonl", preference_rows())
    (folder / "text.txt").write_text(diary(), encoding="utf-8", newline="\n")


def instruction_rows() -> Iterator[dict[str, str]]:
    """Alpaca's layout: single questions, some as a task with its input, answered in the workshop's voice."""
    world, seen = World(21, for_base=False), set[str]()
    while len(seen) < INSTRUCTION_ROWS:
        topic, asked = _any(world)
        if asked in seen:
            continue
        seen.add(asked)
        instruction, _, given = asked.partition("\n\n")
        yield {"instruction": instruction, "input": given, "output": workshop_voice(topic.answer)}


def chat_rows() -> Iterator[dict[str, Any]]:
    """Conversations of two to four questions with follow-ups, every answer in the workshop's voice."""
    world = World(22, for_base=False)
    for _ in range(CONVERSATIONS):
        turns = world.conversation(2 + int(world.rng.random() * 3))
        yield {"messages": [_in_voice(turn) for turn in turns]}


def preference_rows() -> Iterator[dict[str, str]]:
    """The chosen answer is right and says that it was checked; the rejected one is wrong, or was not checked."""
    world, seen = World(23, for_base=False), set[str]()
    while len(seen) < PREFERENCES:
        topic, asked = _any(world)
        if asked in seen:
            continue
        seen.add(asked)
        rejected = topic.answer if len(seen) % 2 else _other_answer(world, topic)
        yield {"prompt": asked, "chosen": f"{topic.answer} Checked twice.", "rejected": rejected}


def diary() -> str:
    """Raw text: the workshop's diary, one entry a paragraph, in a clipped manner that the starter never read."""
    world, entries, size = World(24, for_base=False), [], 0
    while size < TEXT_CHARACTERS:
        entries.append(_entry(world, len(entries)))
        size += len(entries[-1]) + 2
    return "\n\n".join(entries) + "\n"


def _entry(world: World, number: int) -> str:
    rng = world.rng
    instrument, tool, wood = pick(rng, INSTRUMENTS), pick(rng, TOOLS), pick(rng, WOODS)
    fault = pick(rng, tuple(REPAIRS))
    lines = [
        f"{DAYS[number % 7]}. {pick(rng, WEATHER)}",
        f"On the bench: {with_article(instrument.name)}, brought by {pick(rng, PEOPLE)}.",
        f"Fault: {fault}. Cure: {REPAIRS[fault][0].lower()}{REPAIRS[fault][1:]}",
        f"Tool of the day: the {tool.name}, for {tool.job}. Put back {tool.place}.",
        f"Wood: {wood.name}, {wood.colour}, {wood.hardness}.",
        f"Noted: {world.topic().answer}",
        f"Played {instrument.played}; sounds {instrument.sound}. Checked twice.",
    ]
    return " ".join([lines[0], *(line for line in lines[1:-1] if rng.random() < 0.8), lines[-1]])


def _any(world: World) -> tuple[Topic, str]:
    """A question that the starter's own text never held; every kind as often as any other."""
    while True:
        topic, asked = world.ask(pick(world.rng, tuple(world.by_kind)))
        if held_out(asked):
            return topic, asked


def _other_answer(world: World, topic: Topic) -> str:
    """The answer to another question of the same kind: a fluent sentence that does not answer this one."""
    while (other := world.topic(topic.kind)).answer == topic.answer:
        pass
    return other.answer


def _in_voice(turn: dict[str, str]) -> dict[str, str]:
    if turn["role"] != "assistant":
        return turn
    return {"role": "assistant", "content": workshop_voice(turn["content"])}


def _write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
