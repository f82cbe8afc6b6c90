"""A data service without children that answers from a table, a machine without a card, and what a window sends."""

import html
import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from core.contract.config import DataChoice
from core.contract.data import Checkup, DataFacts, DataReport, Finding, Preview, PreviewRow, Span
from core.contract.errors import DataError, HubError
from core.contract.rows import RoleGuess, RowChange, RowTable, RowWish, TableRow
from core.data.files.keep import KeptFile
from core.machine.hardware import Machine
from studio.pages.new_run.form import CHOSEN
from studio.pages.new_run.handlers import Handlers

FINDING = Finding(
    code="exact_duplicates", level="warning", count=3, text="3 rows repeat an <earlier> one.", rows=(4, 9, 11),
    fix="keep_first", fix_text="Leave out 3 repeated rows",
)  # fmt: skip


def report_of(path: Path | str, rows: int = 400, **more: Any) -> DataReport:
    """The report of a made file."""
    known: dict[str, Any] = {
        "path": str(path), "sha256": "ab" * 32, "bytes": 1000, "rows": rows, "usable": rows, "layout": "alpaca",
        "reason": "columns instruction and output", "columns": ("instruction", "output"),
        "mapping": {"instruction": "instruction", "output": "output"},
        "roles": ("instruction", "input", "output", "system"), "method": "sft",
    }  # fmt: skip
    return DataReport(**(known | more))


class FakeData:
    """Stands for ``DataService``: four hundred rows of twenty tokens, or the error it is given."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: DataError | None = None
        self.slow = False
        self.sampled = False
        self.guess = RoleGuess(layout="")

    def report(self, path: Path, choice: DataChoice, method: str | None = None) -> DataReport:
        self.asked.append("report")
        if self.error:
            raise self.error
        return report_of(path)

    def facts(self, path: Path, choice: DataChoice, folder: Path, max_length: int, *, method: str) -> DataFacts:
        self.asked.append(f"facts {max_length}")
        return DataFacts(
            rows=400, lengths=(20,) * 400, trained=(9,) * 400, max_length=max_length, longest=20, mean=20.0,
            sampled=self.sampled,
        )  # fmt: skip

    def tokenise(
        self, path: Path, choice: DataChoice, folder: Path, on_progress: Any, cancelled: Any, *, method: str
    ) -> bool:
        self.asked.append("tokenise")
        on_progress(100, 400)
        if self.error:
            raise self.error
        while self.slow and not cancelled():
            time.sleep(0.01)
        self.sampled = cancelled()
        return not cancelled()

    def first_look(self, path: Path, choice: DataChoice, seconds: float = 0.0) -> DataReport:
        if seconds:  # a small file: read whole
            return self.report(path, choice)
        self.asked.append("first_look")
        return report_of(path, rows=50, complete=False)

    def check(self, path: Path, choice: DataChoice, on_progress: Any, cancelled: Any) -> DataReport:
        self.asked.append("check")
        on_progress(10, 100, 7)
        while self.slow and not cancelled():
            time.sleep(0.01)
        if cancelled():
            raise DataError("data.stopped", about="it")
        if self.error:
            raise self.error
        return report_of(path)

    def checkup(self, path: Path, choice: DataChoice, *_: Any, on_progress: Any, cancelled: Any, **__: Any) -> Checkup:
        self.asked.append("checkup")
        on_progress(40, 400)
        return Checkup(rows=400, findings=(FINDING,), languages={"English": 0.9, "German": 0.1})

    def fix(self, path: Path, choice: DataChoice, fixes: Any) -> KeptFile:
        self.asked.append(f"fix {fixes}")
        return KeptFile(Path("/made/mended.jsonl"), "cd" * 32, "mended.jsonl")

    def mix(self, parts: Any, name: str, seed: int, on_progress: Any, cancelled: Any) -> KeptFile:
        self.asked.append(f"mix {[(part.name, choice.layout, weight) for part, choice, weight in parts]}")
        return KeptFile(Path("/made/mixture.jsonl"), "cd" * 32, "mixture.jsonl")

    def from_hub(self, name: str, subset: str, split: str, rows: int, on_progress: Any, cancelled: Any) -> KeptFile:
        self.asked.append(f"hub {name} {subset} {split} {rows}")
        raise HubError("hub.offline/data", name=name)

    def preview(self, path: Path, choice: DataChoice, folder: Path, max_length: int, **page: Any) -> Preview:
        self.asked.append(f"preview {list(page['rows'])}")
        spans = (Span(text="<b>Q</b>", kind="read", tokens=3), Span(text="A", kind="trained", tokens=1))
        return Preview(rows=(PreviewRow(row=1, spans=spans, tokens=4, trained_tokens=1),), total=40, template="ChatML")

    def roles(self, path: Path, choice: DataChoice) -> RoleGuess:
        self.asked.append("roles")
        return self.guess

    def table(self, path: Path, choice: DataChoice, wish: RowWish, **more: Any) -> RowTable:
        self.asked.append(f"table {wish.first} {wish.finding} {bool(more['checkup'])}".strip())
        cells = {"Customer Message": "<b>Where is it?</b>", "Agent Reply": "Here."}
        rows = tuple(TableRow(row=wish.first + 1 + place, cells=cells) for place in range(wish.count))
        return RowTable(columns=tuple(cells), rows=rows, matching=400, rows_in_file=400)

    def source_of(self, path: Path) -> Path:
        return Path(str(path).replace("/edited.jsonl", "/own.jsonl"))

    def change(self, path: Path, change: RowChange) -> None:
        self.asked.append(f"change {path.name} {change.model_dump(exclude_defaults=True)}")

    def undo(self, path: Path) -> None:
        self.asked.append(f"undo {path.name}")

    def redo(self, path: Path) -> None:
        self.asked.append(f"redo {path.name}")

    def changed(self, path: Path, choice: DataChoice) -> KeptFile:
        self.asked.append(f"changed {path.name}")
        return KeptFile(Path("/made/edited.jsonl"), "cd" * 32, "edited.jsonl")

    def row(self, path: Path, choice: DataChoice, number: int) -> dict[str, str]:
        return {"Customer Message": "<b>Where is it?</b>", "Agent Reply": "Here."}


MACHINE = Machine(
    gpus=(), cpu_count=2, ram_total_bytes=16 << 30, ram_free_bytes=12 << 30, disk_free_bytes=50 << 30,
    system="Linux", wsl=False,
)  # fmt: skip


@dataclass
class Window:
    """Stands for ``gr.Request``, of which only the window's id is read."""

    session_hash: str = "window-1"


class Names(dict[str, str]):
    """Stands for a page's parts, of which each is its own name, and so are the keys of answers."""

    def __missing__(self, name: str) -> str:
        return name


def shown(handlers: Handlers, **changes: Any) -> list[Any]:
    """What the fields send, with some of them changed."""
    values = dict(zip(handlers.form.fields, handlers.form.values(handlers.drafts.load()), strict=True))
    return list((values | changes).values())


def told(do: dict[str, Any], **form: str) -> str:
    """What a button within a board sends."""
    return json.dumps({"value": do, "form": form, "n": "1"})


def asked_by(drawn: str) -> list[dict[str, Any]]:
    """What each button or option of a board asks for."""
    return [json.loads(html.unescape(value)) for value in re.findall(r'data-value="([^"]*)"', drawn)]


def in_the_end(answers: Iterator[dict[Any, Any]]) -> dict[Any, Any]:
    """All that the page shows after the last answer."""
    said: dict[Any, Any] = {}
    for answer in answers:
        said |= {part: value for part, value in answer.items() if value != gr.skip()}
    return said


def choose(handlers: Handlers, window: Any = None, **fields: Any) -> dict[Any, Any]:
    """What is answered where a choice sets these fields, as that of a file does."""
    answer = {handlers.form.fields[key]: value for key, value in fields.items()}
    return handlers.data.chosen(window or Window(), shown(handlers), answer)


def look(handlers: Handlers, **changes: Any) -> dict[Any, Any]:
    """What the page shows after these changes and a look."""
    said = choose(handlers, **{key: changes.pop(key) for key in CHOSEN if key in changes})
    said |= handlers.edited(Window(), *shown(handlers, **changes))
    return in_the_end(itertools.chain([said], handlers.looked(Window())))
