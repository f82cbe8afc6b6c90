"""Questions about the starter's world, each with its one right answer in a plain sentence.

A question is a kind ("strings"), a subject ("violin") and one of the kind's phrasings, maybe inside a polite frame.
``held_out`` keeps one question text in twenty away from the base model's training text: its phrasing and its subject
are known, the two together are not. That is what tests ask. Standard library only.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from world_facts import (
    ANIMALS,
    COLOURED,
    DAYS,
    INSTRUMENTS,
    MIXES,
    MONTHS,
    OPPOSITES,
    REPAIRS,
    SEASONS,
    TOOLS,
    WOODS,
)

__all__ = ["FRAMES", "Topic", "all_topics", "held_out", "pick", "question", "with_article"]

T = TypeVar("T")

FRAMES = (
    "{q}", "{q}", "{q}", "{q}", "{q}", "Please tell me: {q}", "I have a question. {q}", "Hello. {q}",
    "Do you know this? {q}", "Tell me, {l}", "Quick question: {l}", "{q} Please answer in a sentence.",
    "Answer the question.\n\n{q}", "Answer in one sentence.\n\n{q}",
)  # fmt: skip


@dataclass(frozen=True)
class Topic:
    """One fact that can be asked for.

    ``asked`` are its phrasings, ``answer`` the plain sentence, ``word`` the heart of the answer (what a test looks
    for), ``follow`` how it is asked after a question of the same kind, ``task`` an instruction and its input.
    """

    kind: str
    asked: tuple[str, ...]
    answer: str
    word: str
    follow: str = ""
    task: tuple[str, str] | None = None


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """One item; from ``random()`` alone, whose numbers are promised to stay the same in every Python."""
    return items[int(rng.random() * len(items))]


def question(topic: Topic, rng: random.Random) -> str:
    """The topic asked in one of its phrasings, maybe framed, maybe as a task with its input."""
    if topic.task and rng.random() < 0.15:
        return "\n\n".join(topic.task)
    asked = pick(rng, topic.asked)
    return pick(rng, FRAMES).format(q=asked, l=asked[0].lower() + asked[1:])


def held_out(asked: str) -> bool:
    """Whether this exact question is kept out of the base model's text (one in twenty, by its checksum)."""
    return zlib.crc32(asked.encode()) % 20 == 0


def with_article(name: str) -> str:
    """``a violin``, ``an oboe``; a ukulele starts with a consonant's sound."""
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def all_topics() -> list[Topic]:
    """Every topic of the world, always in the same order."""
    found = [*_instruments(), *_woods(), *_tools(), *_colours(), *_animals(), *_calendar(), *_sums(), *_words()]
    return found + [
        Topic("repair", (f"What do I do when {fault}?", f"What should I do if {fault}?", f"Help, {fault}!",
                         f"How do I mend it when {fault}?"), cure, cure[:-1])
        for fault, cure in REPAIRS.items()
    ]  # fmt: skip


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _instruments() -> list[Topic]:
    found = []
    for each in INSTRUMENTS:
        a, one, name = with_article(each.name), _capital(with_article(each.name)), each.name
        also = f"And {a}?"
        family = with_article(each.family)
        found += [
            Topic("family", (f"What kind of instrument is {a}?", f"Which family does {a} belong to?",
                             f"What family is the {name} in?", f"What is {a}?"),
                  f"{one} is {family} instrument.", each.family, also,
                  ("Name the family of this instrument.", name)),
            Topic("played", (f"How is {a} played?", f"How do you play {a}?", f"What do I need to play {a}?",
                             f"How do people play the {name}?"),
                  f"{one} is played {each.played}.", each.played, also),
            Topic("sound", (f"How does {a} sound?", f"What is the sound of {a} like?",
                            f"Describe the sound of {a}.", f"What does {a} sound like?"),
                  f"{one} sounds {each.sound}.", each.sound, also),
        ]  # fmt: skip
        found += _yes_no(each.name, each.family)
        if each.strings:
            found.append(
                Topic("strings", (f"How many strings does {a} have?", f"How many strings are on {a}?",
                                  f"Count the strings of {a}.", f"What is the number of strings on {a}?",
                                  f"How many strings has {a}?"),
                      f"{one} has {each.strings} strings.", each.strings, also,
                      ("How many strings does this instrument have?", name)))  # fmt: skip
        for part, wood in (("top", each.top), ("back", each.back)):
            if wood:
                found.append(
                    Topic(part, (f"What is the {part} of {a} made of?", f"Which wood is the {part} of {a} made of?",
                                 f"What wood do you use for the {part} of {a}?",
                                 f"Of which wood is the {part} of {a}?"),
                          f"The {part} of {a} is made of {wood}.", wood, f"And the {part} of {a}?"))  # fmt: skip
    return found


def _yes_no(name: str, family: str) -> list[Topic]:
    a, is_kind = with_article(name), f"{with_article(family)} instrument"
    found = []
    for claimed in ("string", "woodwind", "brass", "percussion", "keyboard"):
        claim = f"{with_article(claimed)} instrument"
        yes = claimed == family
        answer = f"Yes, {a} is {is_kind}." if yes else f"No, {a} is {is_kind}."
        found.append(Topic("yes_no", (f"Is {a} {claim}?", f"Is the {name} {claim}?"), answer, answer.split(",")[0]))
    return found


def _woods() -> list[Topic]:
    found = []
    for each in WOODS:
        name, one, also = each.name, _capital(each.name), f"And {each.name}?"
        found += [
            Topic("wood_colour", (f"What colour is {name}?", f"What is the colour of {name}?",
                                  f"Which colour does {name} have?", f"What colour does {name} have?"),
                  f"{one} is {each.colour}.", each.colour, also, ("Name the colour of this wood.", name)),
            Topic("hardness", (f"Is {name} hard or soft?", f"Is {name} soft or hard?", f"How hard is {name}?",
                               f"Is {name} a hard wood or a soft wood?"),
                  f"{one} is a {each.hardness} wood.", f"a {each.hardness}", also),
            Topic("wood_use", (f"What is {name} used for?", f"What do you make from {name}?",
                               f"What is {name} good for?", f"Why do you keep {name}?"),
                  f"{one} is used for {each.use}.", each.use, also, ("Say what this wood is used for.", name)),
        ]  # fmt: skip
    return found


def _tools() -> list[Topic]:
    found = []
    for each in TOOLS:
        name, a, one = each.name, with_article(each.name), _capital(with_article(each.name))
        found += [
            Topic("tool_use", (f"What is {a} used for?", f"What do you do with {a}?", f"What is {a} for?",
                               f"Why do I need {a}?", f"What is the use of {a}?"),
                  f"{one} is used for {each.job}.", each.job, f"And {a}?", ("Say what this tool is for.", name)),
            Topic("tool_for", (f"Which tool is used for {each.job}?", f"I want to {each.doing}. Which tool do I need?",
                               f"What tool is good for {each.job}?", f"Which tool do you take for {each.job}?",
                               f"What do I need to {each.doing}?"),
                  f"{one} is used for {each.job}.", name, f"And for {each.job}?"),
            Topic("place", (f"Where is the {name} kept?", f"Where do I find the {name}?", f"Where is the {name}?",
                            f"Where do you keep the {name}?", f"I cannot find the {name}. Where is it?"),
                  f"The {name} is kept {each.place}.", each.place, f"And the {name}?"),
        ]  # fmt: skip
    return found


def _colours() -> list[Topic]:
    found = []
    for one, two, both in MIXES:
        for a, b in ((one, two), (two, one)):
            found.append(
                Topic("mix", (f"What do {a} and {b} make?", f"Which colour do {a} and {b} make?",
                              f"I mix {a} and {b}. What do I get?", f"What colour is {a} mixed with {b}?",
                              f"What do I get from {a} and {b}?"),
                      f"{_capital(a)} and {b} make {both}.", both, f"And {a} and {b}?",
                      ("Mix these two colours.", f"{a} and {b}")))  # fmt: skip
    for thing, colour in COLOURED.items():
        found.append(
            Topic("coloured", (f"What colour is {thing}?", f"What is the colour of {thing}?",
                               f"Which colour is {thing}?", f"What colour has {thing}?"),
                  f"{_capital(thing)} is {colour}.", colour, f"And {thing}?"))  # fmt: skip
    return found


def _animals() -> list[Topic]:
    found = []
    for each in ANIMALS:
        a, one, also = with_article(each.name), _capital(with_article(each.name)), f"And {with_article(each.name)}?"
        legs = "no legs" if each.legs == "no" else f"{each.legs} legs"
        found += [
            Topic("says", (f"What sound does {a} make?", f"What does {a} say?", f"How does {a} sound?",
                           f"Which sound does the {each.name} make?"),
                  f"{one} says {each.says}.", each.says, also, ("Name the sound of this animal.", each.name)),
            Topic("legs", (f"How many legs does {a} have?", f"How many legs has {a}?", f"Count the legs of {a}.",
                           f"What is the number of legs of {a}?"), f"{one} has {legs}.", legs, also),
            Topic("home", (f"Where does {a} live?", f"Where is the home of {a}?", f"Where do I find {a}?",
                           f"Where does the {each.name} live?"), f"{one} lives {each.home}.", each.home, also),
            Topic("eats", (f"What does {a} eat?", f"What does {a} like to eat?", f"What do you feed {a}?",
                           f"What is the food of {a}?"), f"{one} eats {each.eats}.", each.eats, also),
            Topic("young", (f"What is a young {each.name} called?", f"What do you call a young {each.name}?",
                            f"What is the name of a young {each.name}?"),
                  f"A young {each.name} is called {with_article(each.young)}.", each.young,
                  f"And a young {each.name}?"),
        ]  # fmt: skip
    return found


def _calendar() -> list[Topic]:
    found = []
    for names, unit in ((DAYS, "day"), (MONTHS, "month")):
        for at, name in enumerate(names):
            after, before = names[(at + 1) % len(names)], names[at - 1]
            found += [
                Topic("after", (f"What {unit} comes after {name}?", f"Which {unit} comes after {name}?",
                                f"What comes after {name}?", f"Which {unit} follows {name}?"),
                      f"{after} comes after {name}.", after, f"And after {name}?",
                      (f"Name the {unit} that comes after this one.", name)),
                Topic("before", (f"What {unit} comes before {name}?", f"Which {unit} comes before {name}?",
                                 f"What comes before {name}?", f"Which {unit} is just before {name}?"),
                      f"{before} comes before {name}.", before, f"And before {name}?"),
            ]  # fmt: skip
    for name in MONTHS:
        found.append(
            Topic("season", (f"In which season is {name}?", f"What season is {name} in?", f"Which season has {name}?",
                             f"Is {name} in spring, summer, autumn or winter?"),
                  f"{name} is in {SEASONS[name]}.", f"in {SEASONS[name]}", f"And {name}?"))  # fmt: skip
    return found


def _sums() -> list[Topic]:
    found = []
    for a in range(21):
        for b in range(21 - a):
            total = a + b
            found.append(
                Topic("plus", (f"What is {a} plus {b}?", f"How much is {a} plus {b}?", f"What is {a} + {b}?",
                               f"Add {a} and {b}.", f"What do {a} and {b} make together?"),
                      f"{a} plus {b} is {total}.", f"is {total}.", f"And {a} plus {b}?",
                      ("Add the two numbers.", f"{a} and {b}")))  # fmt: skip
            found.append(
                Topic("minus", (f"What is {total} minus {b}?", f"How much is {total} minus {b}?",
                                f"What is {total} - {b}?", f"Take {b} away from {total}."),
                      f"{total} minus {b} is {a}.", f"is {a}.", f"And {total} minus {b}?"))  # fmt: skip
    return found


def _words() -> list[Topic]:
    found = []
    for one, two in OPPOSITES:
        for a, b in ((one, two), (two, one)):
            found.append(
                Topic("opposite", (f"What is the opposite of {a}?", f"Name the opposite of {a}.",
                                   f"What is the contrary of {a}?", f"Which word is the opposite of {a}?"),
                      f"The opposite of {a} is {b}.", f"is {b}.", f"And of {a}?",
                      ("Name the opposite of this word.", a)))  # fmt: skip
    for a in range(20):
        found.append(
            Topic("next", (f"What number comes after {a}?", f"Which number comes after {a}?",
                           f"Count on from {a}.", f"What number follows {a}?"),
                  f"{a + 1} comes after {a}.", f"{a + 1} comes", f"And after {a}?"))  # fmt: skip
        for b in range(21):
            if a != b:
                big, small = max(a, b), min(a, b)
                found.append(
                    Topic("larger", (f"Which is larger, {a} or {b}?", f"What is more, {a} or {b}?",
                                     f"Is {a} or {b} the larger number?"),
                          f"{big} is larger than {small}.", f"{big} is", f"And {a} or {b}?"))  # fmt: skip
    return found
