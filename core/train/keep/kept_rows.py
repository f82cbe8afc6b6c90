"""Which rows are held out, and that the order is as it was: drawn once, kept with the run, and never drawn otherwise.

It lies in rows.json (``core.runs.folder.held_out_rows``), where the window reads it, too.

A later version of this program may cut, split or shuffle otherwise. A run that goes on must not: what it held out would
be trained on. So the split is taken from here, and other tokens or another order are refused by name.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.contract.config import RunConfig
from core.contract.errors import MachineError, RunError
from core.data.deal.packing import epoch_batches
from core.machine.disk import cure
from core.runs.folder.held_out_rows import Draw, read_draw, write_draw
from core.train.channel.channel import Channel
from core.train.keep.depends import DIFFERS
from core.train.step.rows import PairRows, TextRows

Split = tuple[list[int], list[int]]
"""Rows to train on and rows held out, both ascending."""
EPOCHS_COMPARED = 2


@dataclass(frozen=True)
class KeptRows:
    """The draw of one run, in ``path``. ``anyway``: a person said to go on though things differ."""

    path: Path
    config: RunConfig
    channel: Channel
    anyway: bool = False

    def agree(self, rows: TextRows | PairRows, numbers: Sequence[int], drawn: Split) -> Split:
        """The split as it was drawn at first; at the first attempt the one that was drawn now, which is then kept.

        Args:
            numbers: of each row, its number in the data file.

        Raises:
            RunError: tokens or order are others, and nobody said to go on anyway.
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
            RunError: it is not, and nobody said to go on anyway.
        """
        others = []
        if (then.rows, then.tokens_sha256) != (now.rows, now.tokens_sha256):
            others.append(f"other tokens in its rows ({now.rows:,} rows, {then.rows:,} before)")
        else:
            alike = len(then.held_out) == len(now.held_out)  # a million rows are dealt in a second
            order = now.order_sha256 if alike else self._order(then.rows - len(then.held_out))
            if then.order_sha256 != order:
                others.append("another order of its rows")
        if not others:
            return True
        fault = RunError("run.differs/rows", others=others[0], run=self.path.parent.name)
        if not self.anyway:
            raise fault
        self.channel.reporter.note(
            DIFFERS, fault.message, "The run goes on anyway, as it was asked to: the rest is another training."
        )
        return False

    def _order(self, rows: int) -> str:
        """Of the first epochs' batches: every row of each, as it is dealt."""
        digest = hashlib.sha256()
        for epoch in range(EPOCHS_COMPARED):
            dealt = epoch_batches(rows, self.config.rows_per_step, epoch, self.config.train.seed)
            digest.update(json.dumps(dealt).encode())
        return digest.hexdigest()

    def _read(self) -> Draw | None:
        """What was kept; None where there is nothing, or nothing that can be read: it is then drawn again."""
        try:
            return read_draw(self.path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            pass
        self.channel.reporter.note(
            "rows.unreadable", f"{self.path.name} is damaged.", "The rows are drawn again from the seed."
        )
        return None

    def _write(self, found: Draw) -> None:
        try:
            write_draw(self.path, found)
        except OSError as error:
            raise MachineError(
                "disk.write/file", name=self.path.name, reason=error.strerror, cure=cure(error)
            ) from error
