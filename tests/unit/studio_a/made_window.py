"""A data service without children that answers from a table, and a machine without a card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import DataFacts, DataReport, Preview, PreviewRow, Span
from core.contract.errors import DataError
from core.hardware import Machine


class FakeData:
    """Stands for ``DataService``: four hundred rows of twenty tokens, or the error it is given."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: DataError | None = None
        self.usable = 400

    def report(self, path: Path, choice: DataChoice) -> DataReport:
        self.asked.append("report")
        if self.error:
            raise self.error
        return DataReport(
            path=str(path), sha256="ab" * 32, bytes=1000, rows=400, usable=self.usable, layout="alpaca",
            reason="columns instruction and output", columns=("instruction", "output"),
            mapping={"instruction": "instruction", "output": "output"},
            roles=("instruction", "input", "output", "system"), method="sft",
        )  # fmt: skip

    def facts(self, path: Path, choice: DataChoice, folder: Path, max_length: int) -> DataFacts:
        self.asked.append(f"facts {max_length}")
        return DataFacts(
            rows=400, lengths=(20,) * 400, trained=(9,) * 400, max_length=max_length, longest=20, mean=20.0
        )  # fmt: skip

    def preview(self, path: Path, choice: DataChoice, folder: Path, max_length: int, **page: Any) -> Preview:
        self.asked.append(f"preview {page['offset']}")
        spans = (Span(text="<b>Q</b>", kind="read", tokens=3), Span(text="A", kind="trained", tokens=1))
        return Preview(rows=(PreviewRow(row=1, spans=spans, tokens=4, trained_tokens=1),), total=40, template="ChatML")

    def columns(self, path: Path) -> tuple[str, ...]:
        return ("a", "b")


MACHINE = Machine(
    gpus=(), cpu_count=2, ram_total_bytes=16 << 30, ram_free_bytes=12 << 30, disk_free_bytes=50 << 30,
    system="Linux", wsl=False,
)  # fmt: skip
