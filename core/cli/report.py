"""``report RUN [RUN …]``: makes what is missing, follows it, and prints what the reports say; as JSON and HTML too."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from core.cli.follow import follow, of_state, say
from core.contract.errors import RunError
from core.contract.events import Event, Finished, Stage
from core.machine.children.tied import start_tied
from core.machine.disk import not_written, write_whole
from core.machine.locations import REPOSITORY, Locations
from core.report.schema import (
    Figure,
    Forgetting,
    HeldOut,
    Memorising,
    Moved,
    Part,
    Report,
    rankable,
    read_report,
)
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ReportRequest
from core.runs.record.job_record import RUNNING

MOST = 5
HTML = "studio.pages.report"
"""The module that makes the file of it: the page's own words and pictures stand there."""
_WHY = {
    "budget": "no time was left",
    "stopped": "it was stopped",
    "none": "nothing is there to be measured",
    "task": "it has no meaning for such a model",
    "memory": "memory ran out",
    "failed": "it failed",
}


def report(chosen: argparse.Namespace, locations: Locations) -> int:
    """Runs the command and returns its exit code."""
    if len(chosen.runs) > MOST:
        raise RunError("report.count", most=MOST, count=len(chosen.runs))
    store, made = RunStore(locations), []
    out = sys.stderr if chosen.json == "-" else sys.stdout
    for run_id in dict.fromkeys(chosen.runs):
        made.append(_made(store, run_id, chosen, out))
    said = [one.model_dump(mode="json") for one in made]
    if chosen.json:
        text = json.dumps(said[0] if len(said) == 1 else said, indent=1)
        if chosen.json == "-":
            print(text)
        else:
            _write(Path(chosen.json), text)
    for one in made:
        print("", *lines(one), sep="\n", file=out)
    if len(made) > 1:
        print("", *beside(made), sep="\n", file=out)
    if chosen.html:
        command = [sys.executable, "-m", HTML, str(locations.home), str(Path(chosen.html).absolute()), *chosen.runs]
        return start_tied(command, cwd=REPOSITORY).wait()
    return 0


def _made(store: RunStore, run_id: str, chosen: argparse.Namespace, out: TextIO) -> Report:
    """The run's report, made now where there is none, or where it is asked for anew."""
    run = store.open(run_id)
    record = store.report_record(run_id)
    working = record is not None and record.state in RUNNING
    stands = read_report(run.report_json)
    if working or stands is None or chosen.again or chosen.minutes:
        if not working:
            store.report(run_id, ReportRequest(minutes=chosen.minutes, again=chosen.again))

        def tell(line: str) -> None:
            print(line, file=out, flush=True)

        def gone() -> bool:
            known = store.report_record(run_id)
            return known is None or known.state == "lost"

        job = run.report_job
        try:
            last = follow(job, tell, gone, words=_Parts().line)
        except KeyboardInterrupt:
            tell(f"\nThe report is made all the same. See it:   {store.locations.command('report', run_id)}")
            raise
        if last is None:
            tell(of_state("lost", f"The report's processes are gone. Ask again.   (log: {job.log})"))
        stands = read_report(run.report_json)
    if stands is None:
        raise RunError("report.none", run_id=run_id, command=store.locations.command("report", run_id))
    return stands


class _Parts:
    """Events as lines, of progress one where another part begins."""

    def __init__(self) -> None:
        self._at = ("", "")

    def line(self, event: Event) -> str:
        if isinstance(event, Stage):
            before, self._at = self._at, (event.stage, event.text)
            return say(event) if self._at != before else ""
        if isinstance(event, Finished):
            return of_state("finished", f"after {event.seconds:.0f} s")
        return say(event)


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path.absolute(), text, mode=0o644)
    except OSError as error:
        raise not_written(path, error) from error


# ── in lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def lines(said: Report) -> Iterator[str]:
    """A report for a terminal."""
    yield f"report    {said.title} · {said.model} · {said.checkpoint} · {said.run_id}"
    yield f"made in   {said.seconds:.0f} s. {said.budget_text}"
    if said.resume_from:
        yield f"note      It went on from {said.resume_from}; before is the base model without that run's adapter."
    if said.held_out:
        yield from _held_out(said.held_out)
    for general in said.forgetting:
        yield from _forgetting(general)
    for tally in said.answers.tallies if said.answers else ():
        before = "–" if tally.passed_before is None else f"{tally.passed_before}"
        told = tally.fault or f"{before} of {tally.of} before, {tally.passed_after} after"
        yield f"check     {tally.check.name}: {told}"
    if said.moved:
        yield from _moved(said.moved)
    if said.memorising:
        yield from _memorising(said.memorising)
    for part in said.parts:
        if not part.whole and part.why != "task":
            yield _cut(part)
    for one in said.advice:
        yield f"do        {one.text}"
        yield f"          {one.reason}"


def beside(made: Sequence[Report]) -> Iterator[str]:
    """Several reports as a table, a line each; a note where their held-out rows differ."""
    yield f"{'':32} {'before':>9} {'after':>9} {'KL':>8} {'passed':>8} {'gap':>8}"
    for one in made:
        held_out, memorising = one.held_out, one.memorising
        told = (
            held_out.before.value if held_out and held_out.before else None,
            held_out.after.value if held_out else None,
            one.forgetting[0].kl.value if one.forgetting else None,
            memorising.gap.value if memorising and memorising.gap else None,
        )
        figures = ["–" if value is None else f"{value:.4f}" for value in told]
        tallies = [tally for tally in (one.answers.tallies if one.answers else ()) if tally.of]
        passed = f"{sum(t.passed_after for t in tallies)}/{sum(t.of for t in tallies)}" if tallies else "–"
        yield f"{one.title[:32]:32} {figures[0]:>9} {figures[1]:>9} {figures[2]:>8} {passed:>8} {figures[3]:>8}"
    if not rankable(made):
        yield "note      They were measured on different held-out rows: compare each run's own before and after."


def _held_out(part: HeldOut) -> Iterator[str]:
    yield f"held-out  {_pair(part.before, part.after, part.difference)} {part.unit}, {part.rows:,} rows: {part.change}"
    if part.has_perplexity:
        before = f"{part.before.exp.value:.2f} before, " if part.before else ""
        yield f"          perplexity {before}{part.after.exp.value:.2f} after"
    if part.accuracy_after:
        before = f"{part.accuracy_before.value:.1%} before, " if part.accuracy_before else ""
        yield f"          right {before}{part.accuracy_after.value:.1%} after"
    for group in part.groups:
        told = _pair(group.before, group.after, group.difference)
        yield f"          {group.by} {group.name} ({group.rows:,} rows): {told} {group.change}"


def _forgetting(part: Forgetting) -> Iterator[str]:
    told = _pair(part.before, part.after, part.difference)
    yield f"general   {part.name}, {part.texts} texts: {told}; KL {_figure(part.kl)} nats a token"


def _moved(part: Moved) -> Iterator[str]:
    relative = f", {part.relative:.2%} of the base's" if part.relative else ""
    yield f"moved     norm {part.norm:.4g}{relative}, in {len(part.matrices):,} matrices"
    for sentence in part.told:
        yield f"          {sentence}"


def _memorising(part: Memorising) -> Iterator[str]:
    if part.gap:
        yield f"by heart  held-out less training loss: {_figure(part.gap)}"
    for copied in part.copied[:1]:
        yield f"          longest copy {copied.tokens} tokens, from row {copied.from_row:,}: {copied.text[:80]!r}"


def _cut(part: Part) -> str:
    far = f"{part.done:,} of {part.total:,} {part.unit}" if part.total else "not measured"
    return f"cut       {part.name.replace('_', ' ')}: {far}; {part.text or _WHY[part.why]}"


def _pair(before: Figure | None, after: Figure, difference: Figure | None) -> str:
    if before is None or difference is None:
        return f"{_figure(after)} after"
    return f"{before.value:.4f} before, {after.value:.4f} after, difference {_figure(difference)}"


def _figure(figure: Figure) -> str:
    interval = "" if figure.low is None or figure.high is None else f" ({figure.low:.4f} to {figure.high:.4f})"
    return f"{figure.value:.4f}{interval}"
