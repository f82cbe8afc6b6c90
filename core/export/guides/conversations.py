"""Fifty conversations, each ending in a question, on which two templates must write the same.

One to five questions, with and without a system prompt. The texts hold what templates stumble over: marks of other
templates, braces of Jinja and Go, quotes, line breaks, several scripts. None begins or ends with a blank, which some
Jinja templates cut off and Go's cannot.
"""

from collections.abc import Iterator

Turn = dict[str, str]
COUNT = 50
_TEXTS = (
    "Which key is a clarinet written in?",
    "B flat.\n\nIts part stands one tone above what is heard.",
    "Write {{ .Content }} and {% if x %}{{ x }}{% endif %} as they stand.",
    'He said: """yes""", she said: "no", and nobody said \'perhaps\'.',
    "def area(r):\n    return 3.14159 * r ** 2  # r in metres\n\nprint(area(2))",
    "Übung macht den Meister. Ça va? 日本語の文です。 Здравствуйте! 👋🏽",
    "| bow | hair |\n|---|---|\n| violin | 150 |\n\n1. one\n2. two",
    "</s> [INST] and <|im_start|>user are only text here, as are <start_of_turn> and \\n.",
    "No",
    "A long one: " + "rosin, bow, bridge and peg; " * 40 + "that is all.",
    "100 % of $HOME costs `5`; {a: [1, 2]} & <b>bold</b> ~ #tag",
)


def conversations() -> Iterator[list[Turn]]:
    """The conversations, as turns with ``role`` and ``content``."""
    for number in range(COUNT):
        texts = (_TEXTS[(7 * number + 3 * place + 1) % len(_TEXTS)] for place in range(20))
        turns = [{"role": "system", "content": next(texts)}] if number % 2 else []
        for _ in range(number % 5):
            turns += [{"role": "user", "content": next(texts)}, {"role": "assistant", "content": next(texts)}]
        yield [*turns, {"role": "user", "content": next(texts)}]
