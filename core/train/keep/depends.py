"""What a run's result depends on: noted in every checkpoint, compared on a resume, refused by name where it differs.

    {"config": sha256 of run.yaml, "base": commit or fingerprint, "data": sha256, "versions": {"torch": "2.9.0", …},
     "start": sha256 of the adapter that it goes on from, where it does}

The split is drawn once and kept in rows.json (``core.runs.folder.held_out_rows``), since a later version of this
program may split or shuffle otherwise, and held-out rows would then be trained on.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice, RunConfig
from core.contract.errors import DataError, Fault, RunError
from core.data.deal.packing import epoch_batches
from core.machine.disk import file_sha256, not_written
from core.machine.imports import version_of
from core.runs.folder.held_out_rows import Draw, read_draw, write_draw
from core.runs.folder.job_folder import JobFolder
from core.train.channel.channel import Channel
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint
from core.train.step.rows import Rows

DIFFERS = "run.differs"
"""Code of the refusal; the studio offers to go on anyway."""
_DECISIVE = ("torch", "transformers", "peft", "bitsandbytes")
_NOTED = (*_DECISIVE, "accelerate", "safetensors", "tokenizers", "triton")
_WORDS = {"config": "run.yaml", "base": "base model", "data": "data file", "start": "adapter to go on from"}
_SHORT = 12


def depends_on(folder: JobFolder, config: RunConfig) -> dict[str, Any]:
    """Everything but the base model, whose commit is known once it is fetched; a missing data file is left out."""
    depends: dict[str, Any] = {
        "config": hashlib.sha256(folder.run_yaml.read_bytes()).hexdigest(),
        "versions": {name: version_of(name) for name in _NOTED},
    }
    if (data := Path(config.data.path)).is_file():
        depends["data"] = file_sha256(data)
    return depends


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, a few words each; only what both name is compared."""
    others = [
        f"another {words} ({now[key][:_SHORT]} in place of {then[key][:_SHORT]})"
        for key, words in _WORDS.items()
        if key in then and key in now and then[key] != now[key]
    ]
    old, new = then.get("versions", {}), now.get("versions", {})
    others += [
        f"{name} {new[name] or 'missing'} in place of {old[name] or 'none'}"
        for name in _DECISIVE
        if name in old and name in new and _release(old[name]) != _release(new[name])
    ]
    return others


def refuse_others(
    start: Path | None, now: Mapping[str, Any], anyway: bool, reporter: EventReporter, changes: str = ""
) -> None:
    """Compares with what checkpoint ``start`` was trained with; ``changes`` of run.yaml are told where known.

    Raises:
        RunError: something differs, and ``anyway`` is False.
    """
    then = checkpoint.read_manifest(start).get("depends", {}) if start else {}
    if start is None or not (others := differences(then, now)):
        return
    named = f": {changes}" if changes and then.get("config") != now.get("config", then.get("config")) else ""
    fault = RunError(
        "run.differs/checkpoint", name=start.name, others=", ".join(others) + named, run=start.parents[1].name
    )
    _refuse(fault, anyway, reporter)


def refuse_other_data(run: str, data: DataChoice, found_sha256: str, anyway: bool, reporter: EventReporter) -> None:
    """Compares the data file with the SHA-256 in run.yaml, for a first attempt, which has no checkpoint.

    Raises:
        DataError: it differs, and ``anyway`` is False.
    """
    if data.sha256 in ("", found_sha256):
        return
    expected, seen = data.sha256[:_SHORT], found_sha256[:_SHORT]
    fault = DataError("data.damaged/other_content", expected=expected, seen=seen, path=data.path, run=run)
    _refuse(fault, anyway, reporter, "it learns from what lies there now")


def _refuse(fault: Fault, anyway: bool, reporter: EventReporter, rest: str = "the rest is another training") -> None:
    if not anyway:
        raise fault
    reporter.note(DIFFERS, fault.message, f"The run goes on anyway, as it was asked to: {rest}.")


def _release(version: str) -> str:
    """``2.9.0`` of ``2.9.0+cu128``."""
    return ".".join(version.partition("+")[0].split(".")[:3])


Split = tuple[list[int], list[int]]
"""Rows to train on and rows held out, both ascending."""
EPOCHS_COMPARED = 2


@dataclass(frozen=True)
class KeptRows:
    """The draw of one run, in ``path``. ``anyway``: a person chose to go on though things differ."""

    path: Path
    config: RunConfig
    channel: Channel
    anyway: bool = False

    def agree(self, rows: Rows, numbers: Sequence[int], drawn: Split) -> Split:
        """The split of the first attempt; at the first attempt ``drawn``, which is then kept.

        Args:
            numbers: each row's number in the data file.

        Raises:
            RunError: tokens or order differ, and ``anyway`` is False.
            Leave: pause or stop, while the disk was full.
        """
        train, held_out = drawn
        now = Draw(
            rows=len(rows),
            tokens_sha256=rows.sha256(),
            held_out=held_out,
            order_sha256=self._order(len(train)),
            numbers=[numbers[row] for row in held_out],
            held_out_sha256=rows.take(held_out).sha256() if held_out else "",
        )
        then = self._read()
        if then is None or not self._same(then, now):
            self.channel.until_disk_takes(lambda: self._write(now))
            return drawn
        kept = set(then.held_out)
        return [row for row in range(now.rows) if row not in kept], sorted(kept)

    def _same(self, then: Draw, now: Draw) -> bool:
        """Whether this is the same data in the same order.

        Raises:
            RunError: it is not, and ``anyway`` is False.
        """
        alike = len(then.held_out) == len(now.held_out)  # a million rows are dealt in a second
        if (then.rows, then.tokens_sha256) != (now.rows, now.tokens_sha256):
            others = f"other tokens in its rows ({now.rows:,} rows, {then.rows:,} before)"
        elif then.order_sha256 != (now.order_sha256 if alike else self._order(then.rows - len(then.held_out))):
            others = "another order of its rows"
        else:
            return True
        fault = RunError("run.differs/rows", others=others, run=self.path.parent.name)
        _refuse(fault, self.anyway, self.channel.reporter)
        return False

    def _order(self, rows: int) -> str:
        """SHA-256 of the first epochs' batches."""
        digest = hashlib.sha256()
        for epoch in range(EPOCHS_COMPARED):
            dealt = epoch_batches(rows, self.config.rows_per_step, epoch, self.config.train.seed)
            digest.update(json.dumps(dealt).encode())
        return digest.hexdigest()

    def _read(self) -> Draw | None:
        """What was kept; None where it is missing or damaged."""
        try:
            return read_draw(self.path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            hint = "The rows are drawn again from the seed."
            self.channel.reporter.note("rows.unreadable", f"{self.path.name} is damaged.", hint)
            return None

    def _write(self, draw: Draw) -> None:
        try:
            write_draw(self.path, draw)
        except OSError as error:
            raise not_written(self.path.name, error) from error
