"""Made rows of which some are copies of others, for the test's own process and for another one."""

from random import Random

from core.contract.data import Example, Message


def texts_with_copies(rows: int, seed: int, longest: int = 120) -> tuple[list[list[str]], list[tuple[int, int]]]:
    """Random texts over words as common as in a language (1 / rank), and copies of some with words exchanged."""
    dice = Random(seed)
    words = [f"w{number}" for number in range(5000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    texts = [dice.choices(words, weights, k=dice.randint(15, longest)) for _ in range(rows)]
    pairs = []
    for _ in range(rows // 5):
        first = dice.randrange(rows)
        copy = list(texts[first])
        for _ in range(dice.randint(1, max(1, len(copy) // 12))):
            copy[dice.randrange(len(copy))] = dice.choice(words)
        pairs.append((first, len(texts)))
        texts.append(copy)
    return texts, pairs


def exchange(question: str, answer: str) -> tuple[Message, ...]:
    return Message(role="user", content=question), Message(role="assistant", content=answer)


def rows_to_group() -> list[Example]:
    texts, _ = texts_with_copies(200, seed=3)
    said = [exchange(" ".join(text[:8]), " ".join(text[8:])) for text in texts]
    rows = [Example(row=2 * number + 1, messages=turns) for number, turns in enumerate(said)]
    return [*rows, rows[4].model_copy(update={"row": 999})]
