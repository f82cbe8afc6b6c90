"""What a prepared run will need, as lines of a terminal or values of JSON."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.contract.estimate import Suggestion
from core.data.service.data_service import DataService
from core.estimate import make_it_fit
from core.machine.locations import Locations
from core.runs.control.prepare import Prepared, prepare
from core.runs.control.wish import RUN_YAMLS, proposed_wish
from core.runs.folder.run_yaml import read_wish
from core.runs.record.learned import speeds

WAYS_SHOWN = 4


def prepared(file: Path, settings: Sequence[str], made: Callable[[], Locations]) -> Prepared:
    """What is to run: of a run.yaml, or of a data file with the settings that are proposed for it. The root folder is
    ``made`` once the run.yaml is read."""
    wish = read_wish(file, settings) if file.suffix.lower() in (*RUN_YAMLS, "") else None
    locations = made()
    with closing(DataService(locations)) as service:
        if wish is not None:
            return prepare(wish, locations, service)
        config, proposed = proposed_wish(file, settings, locations, service)
        ready = prepare(config, locations, service)
    return replace(ready, resolved=(*proposed, *ready.resolved))


def forecast_lines(prepared: Prepared, ways: list[Suggestion]) -> Iterator[str]:
    """Memory by parts, steps, time, energy and disk; how the data was read; each automatic value with its reason."""
    needed = prepared.estimate
    if needed.cards > 1:
        names = ", ".join(gpu.title for gpu in prepared.machine.gpus)
        what, names = ("cards", names) if names else ("processes", "on this processor")
        yield f"{what:12} {needed.cards:10,}       {names}; the memory is each one's"
    for term in needed.terms:
        alone = f"; {mib(term.bytes).strip()} at another moment" if term.bytes > term.at_peak else ""
        yield f"{term.key:12} {mib(term.at_peak)}   {term.how}{alone}"
    yield f"{'peak':12} {mib(needed.peak_bytes)}   {needed.sentence}"
    yield f"{'steps':12} {needed.total_steps:10,}       {needed.tokens_per_epoch:,} tokens an epoch"
    time = length_of_time(*needed.seconds) if needed.seconds else "unknown"
    yield f"{'time':12} {time} ({needed.time_basis})"
    if kwh := needed.energy_kwh:
        yield f"{'energy':12} {kwh[0]:.2g} to {kwh[1]:.2g} kWh ({needed.energy_basis})"
    fetched = f", and {mib(needed.download_bytes).strip()} to fetch" if needed.download_bytes else ""
    yield f"{'disk':12} {mib(needed.checkpoints_bytes)}   checkpoints{fetched}"
    for number, line in enumerate(prepared.data_lines()):
        yield f"{'' if number else 'data':12} {line}"
    for line in (*prepared.resolved_lines(), *needed.notes):
        yield f"{'':12} {line}"
    for way in ways:
        changes = ", ".join(f"{key}: {value}" for key, value in way.changes.items())
        yield f"{'would fit':12} {way.text} ({changes})"


def as_values(prepared: Prepared, ways: list[Suggestion]) -> dict[str, Any]:
    """The same for programs, as the classes of ``core.contract`` name it."""
    return {
        "config": prepared.config.model_dump(mode="json"),
        "resolved": [value.model_dump() for value in prepared.resolved],
        "data": prepared.report.model_dump(mode="json"),
        "estimate": prepared.estimate.model_dump(mode="json"),
        "would_fit": [way.model_dump(mode="json") for way in ways],
    }


def ways_to_fit(prepared: Prepared, locations: Locations) -> list[Suggestion]:
    """What would make a run fit that does not, the mildest first."""
    if prepared.estimate.verdict not in ("tight", "too_large"):
        return []
    asked = prepared.asked.with_method(prepared.report.method)
    ways = make_it_fit(asked, prepared.spec, prepared.facts, prepared.machine, speeds(locations))
    return list(ways[:WAYS_SHOWN])


def length_of_time(low: float, high: float) -> str:
    """A range of seconds in a fitting unit."""
    units = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
    size, unit = next(((size, unit) for size, unit in units if high >= 2 * size), units[-1])
    digits = 0 if low >= 10 * size else 1
    return f"{low / size:.{digits}f} to {high / size:.{digits}f} {unit}"


def mib(size: int) -> str:
    """Bytes in MiB, in a column's width."""
    return f"{size / 2**20:10,.1f} MiB"


def probe_lines(prepared: Prepared, locations: Locations) -> Iterator[str]:
    """Measures a run's longest step beside what was planned, and says meanwhile what is done."""
    from core.proof.probe.client import probe

    doing = {
        "starting": "a process of its own",
        "loading": prepared.spec.title,
        "stepping": "the longest step, again and again",
    }
    tell = lambda stage: print(f"{stage:12} {doing[stage]}", flush=True)  # noqa: E731
    measured = probe(prepared.config, prepared.spec, prepared.facts, locations, tell)
    if measured.random_weights:
        yield f"{'':12} with random weights: {prepared.spec.title} is not on this machine yet"
    planned = prepared.estimate
    if prepared.machine.gpu:
        yield f"{'memory':12} {mib(measured.peak_bytes)}   by tensors; planned {mib(planned.allocated_bytes)}"
        yield f"{'':12} {mib(measured.reserved_bytes)}   held for them; planned {mib(planned.reserved_bytes)}"
    else:  # on the CPU both count the whole process with its libraries
        yield f"{'memory':12} {mib(measured.peak_bytes)}   of the whole process; planned {mib(planned.peak_bytes)}"
    yield f"{'step':12} {measured.seconds_per_step:10.3f} s     {measured.tokens_per_second:,.0f} tokens a second"
    if planned.cards > 1:
        yield f"{'':12} by one of {planned.cards} cards, its share of a step"
    if measured.spilled:
        yield f"{'spilled':12} The card was full, and its memory reached into the machine's: choose a smaller run."
