"""What must be true of a run's folder after every strike, said by a reader that repairs nothing.

1. The newest checkpoint under a final name is whole, none is older than what was acknowledged as saved, and every good
   one holds exactly the bytes that its step has. The best that was acknowledged stands.
2. The log is events to its last newline, holds every event whose writing had returned, and a reader that followed it
   across the strikes folds to the same record as one that comes fresh.
3. No command was obeyed twice.
"""

from collections import Counter
from pathlib import Path

from core.contract.events import parse_event
from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.log.events_log import EventTail
from core.runs.record.job_record import RunFold, fold, folded
from core.runs.record.summary import summarise
from core.train.keep import checkpoint

from .seam import Ledger
from .small import eval_loss, files_of, loss_of


def must(true: object, *words: object) -> None:
    """Raises AssertionError with these words unless ``true``; kept where asserts are switched off."""
    if not true:
        raise AssertionError(" ".join(str(word) for word in words))


class Reader:
    """Follows one run's folder across its strikes."""

    def __init__(
        self, folder: JobFolder, ledger: Ledger, weight_bytes: int, durable: frozenset[str] | None = None
    ) -> None:
        """``durable``: the kinds of events that stay when the power goes; None: it does not go, and all stay."""
        self.folder, self.ledger, self.weight_bytes, self.durable = folder, ledger, weight_bytes, durable
        self._tail, self._fold = EventTail(folder.events), RunFold()

    def judge(self) -> None:
        """All that must be true at any moment at which nobody writes.

        Raises:
            AssertionError: something is not; the words say what.
        """
        self._judge_checkpoints()
        self._judge_log()
        obeyed = Counter(words[1] for words in self.ledger.lines("obeyed"))
        must(all(times == 1 for times in obeyed.values()), "obeyed twice:", obeyed)
        stale = {words[1] for words in self.ledger.lines("obeyed") if int(words[2]) > int(words[3])}
        must(not stale, "obeyed by a later attempt than it was meant for:", stale)

    def judge_end(self, total_steps: int) -> None:
        """All that must be true of a finished run, whatever happened to it: it is the uninterrupted one."""
        self.judge()
        record = folded(self.folder)
        must(record.state == "finished", "ended as", record.state)
        steps = [(step.step, step.loss) for step in record.steps]
        must(steps == [(step, loss_of(step)) for step in range(1, total_steps + 1)], "other steps:", steps)
        sent = {words[1] for words in self.ledger.lines("sent") if int(words[2]) >= record.attempt}
        must(sent <= record.acknowledged, "never received:", sent - record.acknowledged)
        newest = checkpoint.latest_good(self.folder)
        must(newest and newest.name == checkpoint.step_name(total_steps), "ends at", newest)
        must(newest.name in {event.name for event in record.checkpoints}, "the last checkpoint was never announced")  # type: ignore[union-attr]
        standing = sorted(path.name for path in self.folder.checkpoints.iterdir())
        must(all(checkpoint_step(name) is not None for name in standing), "left behind:", standing)
        must(len(standing) <= checkpoint.KEPT + 1, "more than the last two and the best:", standing)

    def _judge_checkpoints(self) -> None:
        standing = {
            step: path for path in self.folder.checkpoints.glob("*") if (step := checkpoint_step(path.name)) is not None
        }
        saved = [int(words[1]) for words in self.ledger.lines("saved")]
        bad: list[tuple[str, str]] = []
        newest = checkpoint.latest_good(self.folder, lambda path, why: bad.append((path.name, why)))
        must(not bad, "unreadable newest checkpoint:", bad)
        if saved:
            must(newest, "step", max(saved), "was acknowledged as saved and nothing stands")
            must(max(standing) >= max(saved), "step", max(saved), "was acknowledged, the newest is", max(standing))
        for step, path in standing.items():
            if not checkpoint.verify(path):
                self._judge_bytes(path, step)
        self._judge_best()

    def _judge_bytes(self, path: Path, step: int) -> None:
        for name, data in files_of(step, self.weight_bytes).items():
            must((path / name).read_bytes() == data, path.name, "verifies and holds other bytes in", name)

    def _judge_best(self) -> None:
        measured = [loss for words in self.ledger.lines("measured") if (loss := eval_loss(int(words[1]))) is not None]
        if not measured:
            return
        best = checkpoint.best(self.folder)
        loss = checkpoint.read_manifest(best).get("eval_loss") if best else None
        must(loss is not None and loss <= min(measured), "the best was", min(measured), "and what stands is", loss)

    def _judge_log(self) -> None:
        lines = EventTail(self.folder.events).read_lines()
        events = [event for line in lines if (event := parse_event(line)) is not None]
        must(len(events) == len(lines), "the log has a line that is no event")
        there = Counter((event.kind, str(event.step)) for event in events)
        wrote = Counter((words[1], words[2]) for words in self.ledger.lines("wrote"))
        lost = {entry for entry in wrote - there if self.durable is None or entry[0] in self.durable}
        must(not lost, "written and not in the log:", lost)
        for event in self._tail.read():
            self._fold.add(event)
        fresh = fold(events)
        must(self._fold.record == fresh, "a follower's record differs from a fresh reader's")
        self.folder.summary_json.unlink(missing_ok=True)
        cold, warm = summarise(self.folder), summarise(self.folder)
        must(cold == warm, "the kept summary differs from the cold one")
        last = fresh.steps[-1].loss if fresh.steps else None
        must((cold.last_step, cold.train_loss) == (fresh.last_step, last), "the summary differs from the record")
