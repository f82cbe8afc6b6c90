"""The data room for the window: two warm children that can be killed, and nothing heavy here.

The *reader* (pyarrow) turns a person's file into Examples in the cache; the *renderer* (transformers) shows and
measures them under a template. A hostile file or template ends its child and gives one line; the studio's own process
is safe.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import DataFacts, DataReport, Example, Preview
from core.contract.errors import DataError
from core.data.facts import Measure, facts_of
from core.data.pipe import Child, Limits
from core.locations import Locations

__all__ = ["DataService"]

ALL_ROWS = 20_000
"""Up to so many rows every one is measured; above, a sample of SAMPLE_ROWS."""
SAMPLE_ROWS = 2_000
_SLICE = 1_000
"""Rows measured in one request: between two of them the renderer is free for a preview."""
_READER = Limits(seconds=60, start_seconds=60, memory_bytes=500 << 20)
_RENDERER = Limits(seconds=60, start_seconds=60, memory_bytes=1500 << 20)
_VERSION = 1
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json", "tokenizer.model",
    "added_tokens.json", "config.json",
)  # fmt: skip


class DataService:
    """What the window asks of a data file. Thread-safe; every method may raise DataError."""

    def __init__(self, locations: Locations, reader: Limits = _READER, renderer: Limits = _RENDERER) -> None:
        self._cache = locations.cache / "data"
        self.reader = Child("core.data.reader_child", "reader", reader)
        self.renderer = Child("core.data.renderer_child", "renderer", renderer)

    def warm(self) -> None:
        """Starts both children without waiting for them."""
        self.reader.warm()
        self.renderer.warm()

    def close(self) -> None:
        """Ends both children."""
        self.reader.close()
        self.renderer.close()

    def columns(self, path: Path) -> tuple[str, ...]:
        """The columns of a file, for mapping by hand where its layout is not recognised."""
        return tuple(self.reader.ask({"do": "columns", "path": str(path.resolve())}))

    def report(self, path: Path, choice: DataChoice) -> DataReport:
        """What is in a file: rows, usable rows, layout and why, and the first 200 problems."""
        return self._read(path, choice)[0]

    def preview(
        self,
        path: Path,
        choice: DataChoice,
        tokenizer_folder: Path,
        max_length: int,
        *,
        offset: int = 0,
        limit: int = 20,
        search: str = "",
        rows: Sequence[int] = (),
    ) -> Preview:
        """A page of rows as the model will see them; ``offset`` and ``limit`` count the rows that match.

        ``rows``: only those with these numbers in the file (what the doctor found); empty means all.
        """
        report, examples = self._read(path, choice)
        request = self._request("preview", examples, tokenizer_folder, _settled(choice, report))
        request |= {"max_length": max_length, "offset": offset, "limit": limit, "search": search}
        request["numbers"] = list(rows)
        return Preview.model_validate(self.renderer.ask(request))

    def facts(self, path: Path, choice: DataChoice, tokenizer_folder: Path, max_length: int) -> DataFacts:
        """Lengths of all rows (above 20,000: of a sample), measured once and then by arithmetic for any length."""
        report, examples = self._read(path, choice)
        settled = _settled(choice, report)
        kept = self._cache / f"measures-{_measures_key(report, settled, tokenizer_folder)}.json"
        if not kept.is_file():
            request = self._request("measure", examples, tokenizer_folder, settled)
            _write(kept, self._measure(request, report.usable))
        found = json.loads(kept.read_bytes())
        measures = [_measure(raw) for raw in found["measures"]]
        if not measures:
            raise DataError(
                "data.nothing",
                f"Expected rows to train on, found none that the template takes: {found['why'][0]}",
                "Choose another template or another layout.",
            )
        looked_at = len(measures) + found["refused"]
        usable = round(report.usable * len(measures) / looked_at)
        return facts_of(measures, max_length, usable, len(measures))

    def examples(self, path: Path, choice: DataChoice, indices: Sequence[int]) -> list[Example]:
        """The usable rows with these numbers (counted from 0, as ``split_rows`` counts), in the order asked."""
        wanted, found = set(indices), {}
        with Path(self._read(path, choice)[1]).open("rb") as lines:
            for number, line in enumerate(lines):
                if number in wanted:
                    found[number] = Example.model_validate_json(line)
        return [found[number] for number in indices if number in found]

    def _read(self, path: Path, choice: DataChoice) -> tuple[DataReport, str]:
        request = {"do": "read", "path": str(path.resolve()), "cache": str(self._cache)}
        found = self.reader.ask({**request, "choice": choice.model_dump(mode="json")})
        return DataReport.model_validate(found["report"]), found["examples"]

    def _request(self, do: str, examples: str, tokenizer_folder: Path, choice: DataChoice) -> dict[str, Any]:
        return {
            "do": do,
            "examples": examples,
            "tokenizer": str(tokenizer_folder.resolve()),
            "choice": choice.model_dump(mode="json"),
        }

    def _measure(self, request: dict[str, Any], usable: int) -> dict[str, Any]:
        stride = 1 if usable <= ALL_ROWS else usable // SAMPLE_ROWS
        whole: dict[str, Any] = {"measures": [], "refused": 0, "why": []}
        stop = usable if stride == 1 else stride * SAMPLE_ROWS
        for start in range(0, stop, _SLICE * stride):
            part = self.renderer.ask({**request, "rows": [start, min(stop, start + _SLICE * stride), stride]})
            whole["measures"] += part["measures"]
            whole["refused"] += part["refused"]
            whole["why"] = whole["why"] or part["why"]
        return whole


def _settled(choice: DataChoice, report: DataReport) -> DataChoice:
    """The choice with the layout that was recognised: whether a template applies depends on it."""
    return choice.model_copy(update={"layout": report.layout, "columns": report.mapping})


def _measures_key(report: DataReport, choice: DataChoice, tokenizer_folder: Path) -> str:
    digest = hashlib.sha256()
    for name in _TOKENIZER_FILES:
        file = tokenizer_folder / name
        digest.update(name.encode() + (file.read_bytes() if file.is_file() else b""))
    parts = [
        _VERSION, report.sha256, Path(report.path).suffix.lower(), choice.layout, sorted(choice.columns.items()),
        choice.template, choice.train_on, choice.system_prompt, digest.hexdigest(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _measure(raw: list[int]) -> Measure:
    length, flows, bos, *edges = raw
    ranges = tuple(zip(edges[::2], edges[1::2], strict=True))
    return Measure(length, ranges, bool(flows), bos)


def _write(target: Path, value: dict[str, Any]) -> None:
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(target)
