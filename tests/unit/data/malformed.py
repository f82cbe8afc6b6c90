"""Some sixty small files of every format, and what can be done to them, for the fuzz tests."""

import csv
import io
import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

CHAT = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello später 🦜"}]
TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, TURNS[1]]
CALLS = [
    TURNS[0],
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]},
    {"role": "tool", "content": "5"},
    TURNS[1],
]
TOOL_CHAT = [CHAT[0], {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1.50}}'},
             {"from": "observation", "value": "5"}, CHAT[1]]  # fmt: skip
ROWS: dict[str, list[Any]] = {
    "alpaca": [{"instruction": "Do", "input": "this", "output": "Done"}, {"instruction": "x", "output": "y"}],
    "prompt": [{"prompt": "a", "completion": "b"}, {"prompt": None, "completion": 1}],
    "sharegpt": [{"conversations": CHAT, "system": "Be"}, {"conversations": TOOL_CHAT, "tools": '[{"name": "f"}]'}],
    "messages": [{"messages": TURNS}, {"messages": PARTS}, {"messages": CALLS, "tools": [{"name": "f"}]}],
    "packed": [{"messages": json.dumps(TURNS)}],
    "pairs": [{"prompt": "a", "chosen": "b", "rejected": "c"}, {"prompt": TURNS[:1], "chosen": TURNS[1:],
              "rejected": [{"role": "assistant", "content": "No"}]}],
    "kto": [{"messages": TURNS, "label": True}, {"messages": TURNS, "label": False}],
    "labels": [{"text": "fine", "label": 1}, {"text": "bad", "label": "no"}, {"text": "odd", "label": 1.5}],
    "text": [{"text": "one\ntwo"}, {"text": ""}, {"text": 5}],
    "odd": [{"text": "x", "n": [1, -2.5e-7, 10**40, float("nan"), float("inf"), None, True, {"": []}]}, "a", 5, None],
}  # fmt: skip
TABLES = [
    [["instruction", "input", "output"], ["Do", "", "it, now"], ["Say", 'a "word"', "two\nlines"]],
    [["question", "answer"], ["a|b", "c;d"], ["später", "🦜"]],
    [["a fine film; a long one", "1"], ["bad, bad", "0"], ["x", "1"]],
    [["id", "text", "label", "text"], ["1", "a", "b", "c"]],
]
BOOKS = [
    "\ufeffone line\nanother line",
    "A very long line " * 400,
    "x\n\ny\n\n" * 900,
    "one line\nanother\r\nlast",
    "# Title\n\nwords " * 50 + "\n\n\nmore words\n",
    "\n\n",
    "ein später 🦜 Satz\n",
]
SUFFIXES = [".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", ".md", ".ndjson", ".dat"]
TOKENS = [
    b'"', b"{", b"}", b"[", b"]", b",", b":", b";", b"\t", b"|", b"\n", b"\r", b"\0", b"\\", b"'", b"\xff", b"\xfe",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"PAR1", b"\\ud800", b"\\u0000", b"\xed\xa0\x80",
    b"\xe2\x80\xa8", b"\xc2\x85", b"NaN", b"-Infinity", b"1e999", b"-", b"0x1", b"9" * 5000, b"[" * 300, b'{"a":' * 200,
    b'"' * 3, b'""""', b'{"text": "a", "text": "b"}', b"null", b"true", b"# ", b'{"data": [', b"\n\n\n", b" " * 100,
    b"\x1a", b"\x7f", b"\xf4\x90\x80\x80", b",,,,,,,,", b"\n\"", b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\x7f",
]  # fmt: skip


@cache
def corpus() -> tuple[tuple[str, bytes], ...]:
    """(suffix, content) of every seed; all are well formed, though not every row of them can be used."""
    return (*_of_json(), *_of_tables(), *((".md" if n % 2 else ".txt", text.encode()) for n, text in enumerate(BOOKS)),
            *_of_parquet())  # fmt: skip


def _of_json() -> Iterator[tuple[str, bytes]]:
    for number, rows in enumerate(ROWS.values()):
        lines = "".join(json.dumps(row, ensure_ascii=bool(number % 2)) + "\n" for row in rows)
        yield ".jsonl", lines.encode()
        yield ".json", json.dumps(rows, indent=[None, 1][number % 2]).encode()
        wrapped = {"version": 1, "data": rows, "more": {"a": [1]}}
        yield ".json", json.dumps(wrapped).encode(["utf-8", "utf-16", "utf-8-sig"][number % 3])


def _of_tables() -> Iterator[tuple[str, bytes]]:
    for number, table in enumerate(TABLES):
        for delimiter in ",;\t|":
            written = io.StringIO(newline="")
            quoting = csv.QUOTE_ALL if number % 2 else csv.QUOTE_MINIMAL
            ends = "\r\n" if delimiter == ";" else "\n"
            csv.writer(written, delimiter=delimiter, quoting=quoting, lineterminator=ends).writerows(table)
            encoding = "utf-16" if delimiter == "|" else "utf-8"
            yield (".tsv" if delimiter == "\t" else ".csv"), written.getvalue().encode(encoding)


def _of_parquet() -> Iterator[tuple[str, bytes]]:
    import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

    chats = [TURNS, None, TURNS]
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"text": ["one", "two", None]}, {}),
        ({"messages": chats, "id": [1, 2, 3]}, {"compression": "zstd"}),
        ({"prompt": ["a"] * 40, "completion": [str(n) for n in range(40)]}, {"row_group_size": 7}),
        ({"text": ["a"] * 30, "label": [0, 1, 1] * 10}, {"use_dictionary": False, "compression": "none"}),
        ({"text": ["x", "y"], "day": [datetime.date(1, 1, 1), None], "raw": [b"\xff", b""]}, {"compression": "gzip"}),
        ({"text": pa.array(["x", "y"]).dictionary_encode(), "m": pa.array([[("k", 1)], None],
          pa.map_(pa.string(), pa.int32()))}, {"data_page_version": "2.0"}),
        ({"text": ["z" * 500] * 100, "more": [[1, 2], None] * 50}, {"data_page_size": 100}),
    ]  # fmt: skip
    for columns, options in tables:
        written = io.BytesIO()
        pq.write_table(pa.table(columns), written, **options)
        yield ".parquet", written.getvalue()


def mutated(drawn: random.Random) -> tuple[str, bytes]:
    """A seed that was spoilt one to six times; now and then under another's name."""
    suffix, content = drawn.choice(corpus())
    for _ in range(drawn.randint(1, 6)):
        content = _spoilt(content, drawn)[: 1 << 18]
    return (drawn.choice(SUFFIXES) if drawn.random() < 0.15 else suffix), content


def _spoilt(content: bytes, drawn: random.Random) -> bytes:
    at = drawn.randint(0, len(content))
    before, behind = content[:at], content[at:]
    match drawn.choice(["flip", "insert", "insert", "noise", "remove", "cut", "repeat", "splice"]):
        case "flip":
            made = bytearray(content)
            for _ in range(drawn.randint(1, 8) if made else 0):
                made[drawn.randrange(len(made))] ^= 1 << drawn.randrange(8)
            return bytes(made)
        case "insert":
            return before + drawn.choice(TOKENS) * drawn.choice([1, 1, 1, 2, 50]) + behind
        case "noise":
            return before + drawn.randbytes(drawn.randint(1, 16)) + behind[drawn.randint(0, 16) :]
        case "remove":
            return before + behind[drawn.randint(1, 40) :]
        case "cut":
            return behind if drawn.random() < 0.3 else before
        case "repeat":
            return before + behind[: drawn.randint(1, 60)] * drawn.choice([2, 3, 100]) + behind
    other = drawn.choice(corpus())[1]
    return before + other[drawn.randint(0, len(other)) :]
