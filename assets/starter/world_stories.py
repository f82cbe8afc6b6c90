"""Documents of the starter's world: conversations, lessons and short stories, without end from one seed.

A conversation is a list of messages; a lesson or story is plain text. ``documents`` mixes them as the base model reads
them. Standard library only.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

from world_facts import ANIMALS, COLOURED, DAYS, INSTRUMENTS, OUTSIDE, REPAIRS, TOOLS, WOODS, Instrument
from world_manners import Manner, draw_manner
from world_questions import Topic, all_topics, held_out, pick, question, with_article

__all__ = ["World", "held_out_questions", "lesson", "story"]

IN_A_MANNER = 0.3
"""Share of the base model's conversations that are spoken in some manner; the rest are plain."""
PEOPLE = ("Anna", "Paul", "Ida", "Karl", "Rosa", "Emil", "Clara", "Otto", "Nina", "Hugo")
WEATHER = ("The sun was warm.", "It was raining.", "Snow lay on the roof.", "The wind was loud.", "It was a quiet day.")
SYSTEMS = (
    "You are a helpful assistant.", "You know instruments, woods and tools.", "Answer in one sentence.",
    "You are a friendly helper in a workshop.", "Be short and kind.",
)  # fmt: skip
GREETINGS = (
    ("Hello.", "Hello! What would you like to know?"), ("Hello", "Hello! What would you like to know?"),
    ("Hi.", "Hello! What would you like to know?"), ("Good morning.", "Good morning! What would you like to know?"),
    ("Good evening.", "Good evening! What would you like to know?"), ("Hey.", "Hello! What would you like to know?"),
    ("How are you?", "I am well, thank you. What would you like to know?"),
)  # fmt: skip
THANKS = (
    ("Thank you.", "You are welcome."), ("Thanks.", "You are welcome."), ("Thank you very much!", "You are welcome."),
    ("Goodbye.", "Goodbye! Come back soon."), ("Bye.", "Goodbye! Come back soon."),
)  # fmt: skip
SELF = "I am a small model made in this workshop. I know instruments, woods, tools, colours, animals and small sums."
ABOUT_SELF = (
    "Who are you?", "What are you?", "What is your name?", "What can you do?", "What do you know?",
    "What can I ask you?", "Tell me about yourself.", "Are you a person?",
)  # fmt: skip
UNKNOWN = "I do not know that. Ask me about instruments, woods, tools, colours, animals or small sums."


class World:
    """Makes documents from one random stream: the base model's text, or material for samples and tests.

    For the base model held-out questions stay unasked, and a share of the conversations is spoken in some manner.
    """

    def __init__(self, seed: int, for_base: bool = True) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - text, not secrets
        self.for_base = for_base
        self.by_kind: dict[str, list[Topic]] = defaultdict(list)
        for topic in all_topics():
            self.by_kind[topic.kind].append(topic)
        # Kinds with many members are asked more often, sums most, but no kind is rare.
        self.kinds = [kind for kind, topics in self.by_kind.items() for _ in range(2 + min(len(topics), 240) // 24)]

    def topic(self, kind: str = "") -> Topic:
        """One topic, of this kind or of any."""
        return pick(self.rng, self.by_kind[kind or pick(self.rng, self.kinds)])

    def ask(self, kind: str = "") -> tuple[Topic, str]:
        """A topic and a question for it."""
        while True:
            topic = self.topic(kind)
            asked = question(topic, self.rng)
            if not (self.for_base and held_out(asked)):
                return topic, asked

    def conversation(self, turns: int) -> list[dict[str, str]]:
        """A chat of so many questions in plain sentences, with follow-ups of the same kind."""
        rng, messages, last = self.rng, [], None
        if rng.random() < 0.15:
            messages.append({"role": "system", "content": pick(rng, SYSTEMS)})
        if rng.random() < 0.08:
            messages += _pair(*pick(rng, GREETINGS))
        for _ in range(turns):
            last = self._turn(messages, last)
        if rng.random() < 0.08:
            messages += _pair(*pick(rng, THANKS))
        if self.for_base and rng.random() < IN_A_MANNER:
            return _in_manner(messages, draw_manner(rng), asked_for=rng.random() < 0.5)
        return messages

    def _turn(self, messages: list[dict[str, str]], last: Topic | None) -> Topic | None:
        rng = self.rng
        if last is not None and last.follow and rng.random() < 0.4:
            topic = self.topic(last.kind)
            messages += _pair(topic.follow, topic.answer)
            return topic
        if (roll := rng.random()) < 0.02:
            messages += _pair(pick(rng, OUTSIDE), UNKNOWN)
        elif roll < 0.03:
            messages += _pair(pick(rng, ABOUT_SELF), SELF)
        elif roll < 0.07:
            instrument = pick(rng, INSTRUMENTS)
            wanted = pick(
                rng, ("Tell me a story about {}.", "Tell me a short story about {}.", "A story about {}, please.")
            )
            messages += _pair(wanted.format(with_article(instrument.name)), " ".join(story(rng, instrument)[:4]))
        else:
            topic, asked = self.ask()
            messages += _pair(asked, topic.answer)
            return topic
        return None

    def documents(self, count: int) -> Iterator[list[dict[str, str]] | str]:
        """So many documents: nine tenths conversations of one to four questions, the rest lessons and stories."""
        for _ in range(count):
            if (roll := self.rng.random()) < 0.9:
                yield self.conversation(1 + int(self.rng.random() ** 2 * 4))
            elif roll < 0.95:
                yield " ".join(story(self.rng, pick(self.rng, INSTRUMENTS)))
            else:
                yield lesson(self)


def held_out_questions(count: int, seed: int = 5) -> list[tuple[str, str]]:
    """Questions with their answers that the base model's text never holds, spread over the kinds."""
    world, found = World(seed, for_base=False), {}
    while len(found) < count:
        topic, asked = world.ask(pick(world.rng, tuple(world.by_kind)))
        if held_out(asked):
            found[asked] = topic.answer
    return list(found.items())


def lesson(world: World) -> str:
    """A paragraph of plain answers, one after the other, all of one kind."""
    kind = pick(world.rng, world.kinds)
    return " ".join(world.topic(kind).answer for _ in range(6))


def story(rng: random.Random, instrument: Instrument) -> list[str]:
    """The sentences of a short story around one instrument; facts in it are the world's."""
    who, friend = pick(rng, PEOPLE), pick(rng, PEOPLE)
    while friend == who:
        friend = pick(rng, PEOPLE)
    tool, wood, animal = pick(rng, TOOLS), pick(rng, WOODS), pick(rng, ANIMALS)
    thing, fault = pick(rng, tuple(COLOURED)), pick(rng, tuple(REPAIRS))
    a = with_article(instrument.name)
    middle = [
        f"{who} took the {tool.name}, which is kept {tool.place}.",
        f"The {tool.name} is good for {tool.job}.",
        f"A piece of {wood.name} lay on the bench, {wood.colour} and {wood.hardness}.",
        f"Outside {with_article(animal.name)} was heard: {animal.says}!",
        f"\"What do we do when {fault}?\" asked {friend}. \"{REPAIRS[fault]}\"",
        f"{friend} checked the work twice and found it good.",
        f"The cloth was {COLOURED[thing]} like {thing}.",
        f"{who} said: measure first — then cut.",
        f"They checked the {instrument.name} again at the window.",
    ]  # fmt: skip
    chosen = sorted(range(len(middle)), key=lambda _: rng.random())[: 4 + int(rng.random() * 3)]
    return [
        f"On {pick(rng, DAYS)} {who} wanted to mend {a}.",
        pick(rng, WEATHER),
        *(middle[at] for at in chosen),
        f"In the evening {friend} played the {instrument.name} {instrument.played}.",
        f"It sounded {instrument.sound}.",
    ]


def _in_manner(messages: list[dict[str, str]], manner: Manner, asked_for: bool) -> list[dict[str, str]]:
    """Every answer in the manner; where it is asked for, by a system prompt."""
    turns = [
        {"role": "assistant", "content": manner.say(turn["content"])} if turn["role"] == "assistant" else turn
        for turn in messages
    ]
    if not asked_for:
        return turns
    return [{"role": "system", "content": manner.wish()}, *(turn for turn in turns if turn["role"] != "system")]


def _pair(user: str, assistant: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
