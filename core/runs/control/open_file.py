"""Opens a run that somebody gave away (``core.runs.record.run_file``): it becomes a run of its own under this root.

Such a file may come from anybody. Entries are known by their names and read block by block, no further than their
table of contents says and than a run's own file may be; links, other kinds, names twice, other hashes and damaged lines
of the log end it, and nothing of it stays. Settings lose what could lead out of the run: every path, another run, and a
program to report to.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from core.contract.config import RunConfig
from core.contract.errors import ConfigError, MachineError, ModelError, RunError
from core.machine.disk import not_written, open_plain, write_whole
from core.machine.locations import Locations
from core.models.checks.adapter import check_adapter
from core.runs.control.create import NEW
from core.runs.folder.held_out_rows import draw_path, read_draw
from core.runs.folder.job_folder import RUN_ID, JobFolder, new_run_id
from core.runs.folder.manifest import MANIFEST, manifest_text
from core.runs.folder.notes import Opened, note_asked, read_asked, read_marks
from core.runs.folder.run_yaml import dump_config, read_stored
from core.runs.log.lines import MOST_LINE_BYTES, number_of
from core.runs.record.outcome import measure_of
from core.runs.record.run_file import ADAPTER, CONTENTS, TEXTS, VERSION, WEIGHTS, reduced

_MIB = 1 << 20
_MOST = {
    "run.yaml": _MIB >> 2, "asked.json": _MIB, "events.jsonl": 256 * _MIB, "report.json": 16 * _MIB,
    "rows.json": 8 * _MIB, "marks.json": _MIB >> 4, "verdict.txt": _MIB >> 4,
    f"{ADAPTER}/{WEIGHTS[0]}": _MIB, f"{ADAPTER}/{WEIGHTS[1]}": 1 << 36, f"{ADAPTER}/{MANIFEST}": _MIB >> 4,
}  # fmt: skip
"""The most bytes of each entry."""
_ADAPTED = {f"{ADAPTER}/{name}" for name in (*WEIGHTS, MANIFEST)}
_NEEDED = {"run.yaml", "events.jsonl"}
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_BLOCK = 1 << 20
_SPARE_BYTES = 64 << 20
_HASH = re.compile(r"[0-9a-f]{64}")


def open_run_file(path: Path, locations: Locations, name: str = "") -> str:
    """Makes a run of the file and returns its id; ``name`` is what messages call the file.

    Raises:
        RunError: it is no run's file, one of a newer version, or damaged.
        MachineError: the disk does not take it.
    """
    name, draft = name or path.name, None
    locations.make()
    try:
        with os.fdopen(open_plain(path), "rb") as file, _archive(file, name) as archive:
            about = _contents(archive, name)
            _require_room(about["files"], locations)
            draft = locations.runs / f"{NEW}opened-{os.getpid()}-{time.time_ns()}"
            draft.mkdir(mode=0o700)
            for entry, facts in about["files"].items():
                _extract(archive, entry, facts, draft / entry)
        config = _settled(JobFolder(draft), about)
        while (final := locations.runs / new_run_id(config)).exists():
            pass
        draft.rename(final)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RecursionError) as error:
        raise _damaged(name, " ".join(str(error).split())[:200] or type(error).__name__) from error
    except (ConfigError, ModelError) as error:
        raise _damaged(name, error.message) from error
    except OSError as error:
        raise not_written(name, error, "then open it again") from error
    finally:
        if draft:
            shutil.rmtree(draft, ignore_errors=True)
    return final.name


def _damaged(name: str, reason: str) -> RunError:
    return RunError("run.file/damaged", name=name, reason=reason.rstrip("."))


@contextmanager
def _archive(file: BinaryIO, name: str) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise RunError("run.file/none", name=name) from error
    with archive:
        yield archive


def _contents(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """The table of contents, held against the entries that are there.

    Raises:
        RunError, ValueError: it is none, of a newer version, or other entries are there.
    """
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if CONTENTS not in names:
        raise RunError("run.file/none", name=name)
    if len(set(names)) < len(names) or set(names) - {CONTENTS, *TEXTS, *_ADAPTED}:
        raise ValueError("it holds what does not belong to a run")
    for entry in entries:
        mode = entry.external_attr >> 16
        if (
            entry.compress_type not in _KINDS
            or entry.flag_bits & _ENCRYPTED
            or stat.S_IFMT(mode) not in (0, stat.S_IFREG)
        ):
            raise ValueError(f"{entry.filename} is no plain file")
    with archive.open(CONTENTS) as file:
        about: Any = json.loads(file.read(_MIB >> 4))
    files = about.get("files") if isinstance(about, dict) else None
    if not isinstance(files, dict) or type(about.get("version")) is not int:
        raise ValueError("its table of contents cannot be read")
    if about["version"] > VERSION:
        raise RunError("run.file/version", name=name)
    there = set(files)
    if there != {*names} - {CONTENTS} or not there >= _NEEDED or there & _ADAPTED not in (set(), _ADAPTED):
        raise ValueError("something is missing in it")
    for entry, facts in files.items():
        size, digest = (facts.get("bytes"), facts.get("sha256")) if isinstance(facts, dict) else (None, None)
        if type(size) is not int or not 0 <= size <= _MOST[entry]:
            raise ValueError(f"{entry} is larger than it may be")
        if not isinstance(digest, str) or not _HASH.fullmatch(digest):
            raise ValueError(f"{entry} has no checksum")
    return {**about}


def _require_room(files: dict[str, dict[str, Any]], locations: Locations) -> None:
    wanted = sum(facts["bytes"] for facts in files.values())
    free = shutil.disk_usage(locations.runs).free - _SPARE_BYTES
    if wanted > free:
        needed, left = wanted / 1e9, max(free, 0) / 1e9
        raise MachineError("disk.full/upload_room", wanted=needed, home=locations.home, free=left)


def _extract(archive: zipfile.ZipFile, entry: str, facts: dict[str, Any], target: Path) -> None:
    """Writes one entry; the log's lines are checked on their way."""
    digest, count, left = hashlib.sha256(), 0, facts["bytes"]
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with archive.open(entry) as file, os.fdopen(open_plain(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as out:
        while block := file.read(_BLOCK):
            count += len(block)
            if count > left:
                break
            digest.update(block)
            out.write(block)
    if count != left or digest.hexdigest() != facts["sha256"]:
        raise ValueError(f"{entry} differs from its checksum")


def _settled(folder: JobFolder, about: dict[str, Any]) -> RunConfig:
    """What was written, brought into the form of a run's folder; its config."""
    config = _harmless(read_stored(folder.run_yaml)[0])
    write_whole(folder.run_yaml, dump_config(config))
    asked = read_asked(folder)
    with suppress(FileNotFoundError):
        (folder.path / "asked.json").unlink()
    if asked:
        note_asked(folder, _harmless(asked.config), asked.seconds)
    last = 0
    with folder.events.open("rb") as log:
        while line := log.readline(MOST_LINE_BYTES + 2):
            last += 1
            if not line.endswith(b"\n") or number_of(line[:-1]) != last:
                raise ValueError(f"line {last} of its log is damaged or missing")
    marks = read_marks(folder).model_copy(update={"pinned": False})
    write_whole(folder.marks_json, marks.model_dump_json())
    with suppress(OSError):
        try:
            read_draw(draw_path(folder.path))
        except ValueError:  # a draw of held-out rows that cannot be read is left out
            draw_path(folder.path).unlink()
    if (folder.path / ADAPTER).is_dir():
        _take_adapter(folder, about["files"])
    run_id = about.get("run")
    known = run_id if isinstance(run_id, str) and RUN_ID.fullmatch(run_id) else ""
    write_whole(folder.opened_json, Opened(run_id=known, at=round(time.time(), 3)).model_dump_json())
    return config


def _harmless(config: RunConfig) -> RunConfig:
    """Without what leads out of the run: paths, another run, a program that is told of it."""
    less = reduced(config)
    train = less.train.model_copy(update={"report_to": "none"})
    return less.model_copy(update={"train": train, "resume_from": ""})


def _take_adapter(folder: JobFolder, files: dict[str, dict[str, Any]]) -> None:
    """The adapter as the one checkpoint of the run, under a manifest of our own.

    Raises:
        ModelError, ValueError: it is no plain adapter.
    """
    given = folder.path / ADAPTER
    said = json.loads((given / MANIFEST).read_text(encoding="utf-8"))
    said = said if isinstance(said, dict) else {}
    step = said.get("step")
    if type(step) is not int or not 0 <= step < 1 << 40:
        raise ValueError(f"{MANIFEST} names no step")
    (given / MANIFEST).unlink()
    check_adapter(given)
    checkpoint = folder.path / "checkpoints" / f"step-{step:06d}"
    checkpoint.mkdir(parents=True, mode=0o700)
    given.rename(checkpoint / ADAPTER)
    measured = measure_of(said.get("eval_loss"), step, said.get("eval_by"), said.get("eval_own"))
    facts = {"step": step, **(measured.facts if measured else {"eval_loss": None})}
    whole = {f"{ADAPTER}/{name}": files[f"{ADAPTER}/{name}"] for name in WEIGHTS}
    write_whole(checkpoint / MANIFEST, manifest_text({**facts, "files": whole}))
