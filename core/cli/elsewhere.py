"""Other programs: their recipes as a run.yaml (``import``), and a run's curves in them (``metrics``)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.contract.errors import ConfigError
from core.machine.locations import Locations
from core.machine.yaml_text import shown
from core.runs.control.store import RunStore
from core.runs.metrics.follow import pass_on
from core.runs.metrics.sinks import SINKS
from core.runs.recipes.reading import Imported, read_recipe


def metrics(run_id: str, sink: str, locations: Locations) -> int:
    """Passes a run's metrics on until it ends; returns the exit code.

    Raises:
        RunError, ConfigError: no such run, or it is done already; the library is missing.
    """
    folder, row = RunStore(locations).open(run_id), SINKS[sink]
    where = row.where.format(home=locations.home)
    print(f"{row.title} is told of {run_id} until it ends; Ctrl+C leaves it. See it:   {where}", flush=True)
    try:
        passed = pass_on(folder, sink, locations)
    except KeyboardInterrupt:
        print("\nThe run goes on. The same command goes on from here.")
        return 130
    print(f"{passed:,} steps and evaluations passed on.")
    return 0


def import_recipe(file: Path, kind: str, out: str, locations: Locations) -> int:
    """Writes the run.yaml and says what became of each key; returns the exit code.

    Raises:
        ConfigError: the file cannot be read or is no recipe, or another file stands where its config would.
    """
    read = read_recipe(file, kind)
    path = Path(out) if out else Path(f"{file.stem}.run.yaml")
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(read.run_yaml())
    except FileExistsError as error:
        raise ConfigError("recipe.exists", path=path) from error
    except OSError as error:
        raise ConfigError("config.unreadable", path=path, reason=error.strerror or error) from error
    print(*lines(read), f"written   {path}   Train it:   {locations.command('train', path)}", sep="\n")
    return 0


def lines(read: Imported) -> Iterator[str]:
    """What is taken, what its program does by itself, what is not needed, and last what is lost."""
    yield f"{'recipe':9} {read.recipe.title}"
    for one in read.mapped:
        theirs = ", ".join(f"{key}: {_value(value)}" for key, value in one.theirs)
        yield f"{'taken' if theirs else 'usual':9} {theirs}{' → ' if theirs else ''}{one.ours} = {_value(one.value)}"
    for left in sorted(read.left, key=lambda one: one.decides):
        yield f"{'LOST' if left.decides else 'left out':9} {left.key}: {_value(left.value)}   ({left.why})"
    for problem in read.problems:
        yield f"{'to do':9} {problem}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) and len(value) < 80 else shown(value)
