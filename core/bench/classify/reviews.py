"""Made-up reviews with their verdict, for a ladder without a file: 20 to some 250 words, as people write them.

Most clauses of a review say what its verdict says, some the opposite, some nothing; "not" turns a word round.
"""

import random

THINGS = (
    "the plot", "the acting", "the music", "the camera", "the dialogue", "the ending", "the first half", "the villain",
    "the lead", "the humour", "the pace", "the costume work", "the second act", "the script", "the editing",
)  # fmt: skip
GOOD = (
    "warm", "gripping", "clever", "funny", "moving", "fresh", "elegant", "honest", "bold", "charming", "splendid",
    "patient", "precise", "touching", "alive",
)  # fmt: skip
BAD = (
    "dull", "clumsy", "hollow", "tired", "loud", "confused", "lazy", "stiff", "forced", "bland", "endless", "cheap",
    "cold", "predictable", "messy",
)  # fmt: skip
DEGREES = ("", "very", "rather", "quite", "truly", "almost", "often", "surprisingly")
ASIDES = (
    "we saw it on a rainy tuesday with friends", "it runs for a little over two hours", "the hall was half empty",
    "my brother had read the book", "one scene in the middle is set at a harbour", "it was shot in black and white",
    "the director has made three others", "a train ride takes up much of the story", "nobody left before the credits",
)  # fmt: skip
JOINS = (", and ", " . ", " , while ", " ; ", " . then again , ", " , because ")
LABELS = ("bad", "good")


def reviews(count: int, seed: int) -> list[tuple[str, str]]:
    """``count`` texts with their labels, the same for the same seed."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    made = []
    for _ in range(count):
        label = draw.randrange(2)
        clauses = min(24, 3 + int(draw.lognormvariate(1.7, 0.7)))
        text = _clause(draw, label)
        for _ in range(clauses):
            said = draw.random()
            clause = _clause(draw, label if said < 0.6 else 1 - label) if said < 0.75 else draw.choice(ASIDES)
            text += draw.choice(JOINS) + clause
        made.append((text + " .", LABELS[label]))
    return made


def _clause(draw: random.Random, label: int) -> str:
    negated = draw.random() < 0.2
    words = (BAD, GOOD)[label if not negated else 1 - label]
    parts = (draw.choice(THINGS), "is", "not" if negated else "", draw.choice(DEGREES), draw.choice(words))
    return " ".join(part for part in parts if part)
