"""A run as one file to give away, ``NAME.luthier.zip``: settings, log, report, note and tags, its verdict in words.

::

    luthier.json      version, the run's id, and size and SHA-256 of every other entry
    run.yaml  asked.json  events.jsonl  report.json  rows.json  marks.json  verdict.txt
    adapter/          only where it is asked for: the best checkpoint's, and its step in MANIFEST.json

It holds neither data nor weights, and no path, user or host of this machine: a path becomes the name of its file, in
settings as in what the log says, whose lines get new checksums. Answers that were sampled stay as they were said.
"""

import getpass
import hashlib
import json
import os
import re
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.machine.disk import open_plain, read_plain
from core.machine.locations import REPOSITORY
from core.runs.folder.flaws import MOST_BYTES
from core.runs.folder.job_folder import JobFolder, checkpoint_step
from core.runs.folder.manifest import MANIFEST
from core.runs.folder.notes import Asked, named_config, read_asked, read_marks
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventTail
from core.runs.log.lines import sealed
from core.runs.record.job_record import folded
from core.runs.record.outcome import by_merit, measured_at, outcome
from core.runs.record.words import STATE_WORDS, outcome_line

Hide = Callable[[str, bool], str]
ENDING = ".luthier.zip"
VERSION = 1
CONTENTS = "luthier.json"
TEXTS = ("run.yaml", "asked.json", "events.jsonl", "report.json", "rows.json", "marks.json", "verdict.txt")
"""What such a file may hold beside its table of contents and an adapter."""
ADAPTER = "adapter"
WEIGHTS = ("adapter_config.json", "adapter_model.safetensors")
_BLOCK = 1 << 20
_PATH = re.compile(r"(?<![\w/.:])~?(?:/[\w.@+-]+){2,}/?")
"""An absolute path within a sentence."""
_SHORTEST = 4
"""Shorter folders and names (/tmp, /root, "me") are no person's."""
_SAID = frozenset({"sample"})
"""Events whose texts a model or a row has: nothing but this machine's own folders is taken out of them."""


def file_name(folder: JobFolder) -> str:
    """What the file is called: the run's name, in letters that every disk takes."""
    config = named_config(folder)
    plain = re.sub(r"[^\w.+-]+", "-", config.name if config else "", flags=re.ASCII).strip("-.")[:80]
    return f"{plain or folder.name}{ENDING}"


def write_run_file(folder: JobFolder, target: BinaryIO, with_adapter: bool = False) -> None:
    """Writes a run that nobody works on into ``target``, which is empty.

    Raises:
        RunError: it has no adapter that could go with it.
        ConfigError: its run.yaml cannot be read.
        OSError: the disk does not take it.
    """
    record, config, hide = folded(folder), folder.config(), _hiding(folder)
    checkpoint = None
    if with_adapter:  # the best checkpoint that holds one
        held = (one for one in by_merit(folder) if all((one / ADAPTER / name).is_file() for name in WEIGHTS))
        checkpoint = next(held, None) if config.learns.adapter else None
        if checkpoint is None:
            raise RunError("run.file/no_adapter", run_id=folder.name)
    listed: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, blocks in _texts(folder, config, hide):
            _add(archive, listed, name, blocks)
        became = outcome(record)
        verdict = outcome_line(became) if became else STATE_WORDS[record.state]
        _add(archive, listed, "verdict.txt", iter([f"{verdict}\n".encode()]))
        if checkpoint:
            _add_adapter(archive, listed, checkpoint)
        about = {"version": VERSION, "run": folder.name, "at": round(time.time()), "files": listed}
        archive.writestr(CONTENTS, json.dumps(about, indent=1))


def reduced(config: RunConfig) -> RunConfig:
    """The config without the folders of this machine: of each path the last part."""
    data = config.data.model_copy(update={"path": Path(config.data.path).name})
    model = config.model
    if model.source == "folder":
        model = model.model_copy(update={"name": Path(model.name).name})
    return config.model_copy(update={"data": data, "model": model})


def _texts(folder: JobFolder, config: RunConfig, hide: Hide) -> Iterator[tuple[str, Iterator[bytes]]]:
    named, asked = named_config(folder) or config, read_asked(folder)
    yield "run.yaml", iter([dump_config(reduced(named)).encode()])
    if asked:
        less = Asked(config=reduced(asked.config), seconds=asked.seconds, version=asked.version)
        yield "asked.json", iter([less.model_dump_json().encode()])
    yield "events.jsonl", _log(folder, hide)
    marks = read_marks(folder).model_copy(update={"pinned": False})
    yield "marks.json", iter([marks.model_dump_json().encode()])
    for name in ("rows.json", "report.json"):
        with suppress(OSError, ValueError):
            text = read_plain(folder.path / name, MOST_BYTES.get(name, 8 << 20))
            if name == "report.json":
                text = json.dumps(_said(json.loads(text), hide, True)).encode()
            yield name, iter([text])


def _log(folder: JobFolder, hide: Hide) -> Iterator[bytes]:
    """The sound lines of the log, hidden and sealed anew."""
    number = 0
    for line in EventTail(folder.events).read_lines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for seal in ("n", "crc32"):
            event.pop(seal, None)
        number += 1
        text = json.dumps(_said(event, hide, event.get("kind") in _SAID), separators=(",", ":"), ensure_ascii=False)
        yield sealed(text.encode(errors="backslashreplace"), number) + b"\n"


def _said(value: Any, hide: Hide, own: bool) -> Any:
    """A JSON value with every text in it hidden."""
    if isinstance(value, str):
        return hide(value, own)
    if isinstance(value, list):
        return [_said(item, hide, own) for item in value]
    return {key: _said(item, hide, own) for key, item in value.items()} if isinstance(value, dict) else value


def _hiding(folder: JobFolder) -> Hide:
    """What takes this machine out of a text; of ``own`` words, a model's or a row's, only its folders and its name."""
    own_places = (folder.path, *list(folder.path.parents)[:3], REPOSITORY, Path.home())
    places = sorted({str(place) for place in own_places if len(str(place)) > _SHORTEST}, key=len, reverse=True)
    known = re.compile("|".join(rf"{re.escape(place)}(?:/[\w.@+-]+)*/?" for place in places))
    names = {socket.gethostname()}
    with suppress(OSError, KeyError):
        names.add(getpass.getuser())
    words = [re.escape(name) for name in names if len(name) > _SHORTEST]
    mine = re.compile(rf"\b(?:{'|'.join(words)})\b") if words else None
    host = re.compile(rf"\b{re.escape(socket.gethostname())}\b") if len(socket.gethostname()) > _SHORTEST else None

    def last(match: re.Match[str]) -> str:
        return match[0].rstrip("/").rpartition("/")[2]

    def hide(text: str, own: bool) -> str:
        text = known.sub(last, text)
        if not own:
            text = _PATH.sub(last, text)
        pattern = host if own else mine
        return pattern.sub("this-machine", text) if pattern else text

    return hide


# ── the adapter ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _add_adapter(archive: zipfile.ZipFile, listed: dict[str, dict[str, Any]], checkpoint: Path) -> None:
    """Its two files, and the step that they are of; the base model's folder becomes its name."""
    settings = json.loads(read_plain(checkpoint / ADAPTER / WEIGHTS[0], 1 << 20))
    base = settings.get("base_model_name_or_path")
    if isinstance(base, str) and base.startswith("/"):
        settings["base_model_name_or_path"] = Path(base).name
    _add(archive, listed, f"{ADAPTER}/{WEIGHTS[0]}", iter([json.dumps(settings, indent=2).encode()]))
    with os.fdopen(open_plain(checkpoint / ADAPTER / WEIGHTS[1]), "rb") as file:
        _add(archive, listed, f"{ADAPTER}/{WEIGHTS[1]}", iter(lambda: file.read(_BLOCK), b""))
    measured = measured_at(checkpoint)
    facts = {"step": checkpoint_step(checkpoint.name) or 0, **(measured.facts if measured else {"eval_loss": None})}
    _add(archive, listed, f"{ADAPTER}/{MANIFEST}", iter([json.dumps(facts).encode()]))


def _add(archive: zipfile.ZipFile, listed: dict[str, dict[str, Any]], name: str, blocks: Iterator[bytes]) -> None:
    """One entry, block by block, with its size and hash in the table of contents."""
    digest, count = hashlib.sha256(), 0
    entry = zipfile.ZipInfo(name)  # no time of this machine, and no owner
    entry.compress_type = zipfile.ZIP_STORED if name.endswith(".safetensors") else zipfile.ZIP_DEFLATED
    with archive.open(entry, "w", force_zip64=True) as out:
        for block in blocks:
            digest.update(block)
            count += len(block)
            out.write(block)
    listed[name] = {"bytes": count, "sha256": digest.hexdigest()}
