"""What a run's result depends on beside its own state, noted in every checkpoint and compared when it goes on.

    {"config": sha256 of run.yaml, "base": commit or fingerprint, "data": sha256, "versions": {"torch": "2.9.0", …},
     "start": sha256 of the adapter that it goes on from, where it does}

Another of these makes the rest of the run another training than its beginning. So it is refused by name in one line,
unless a person has said to go on anyway. Light: nothing of torch is imported here.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice, RunConfig
from core.contract.errors import DataError, RunError
from core.machine.disk import file_sha256
from core.machine.imports import version_of
from core.runs.folder.job_folder import JobFolder
from core.train.channel.reporter import EventReporter
from core.train.keep import checkpoint

DIFFERS = "run.differs"
"""Code of the refusal; the window offers to go on anyway where a run failed with it."""
_DECISIVE = ("torch", "transformers", "peft", "bitsandbytes")
_NOTED = (*_DECISIVE, "trl", "accelerate", "safetensors", "tokenizers", "triton")
_WORDS = {"config": "run.yaml", "base": "base model", "data": "data file", "start": "adapter to go on from"}
_SHORT = 12


def depends_on(folder: JobFolder, config: RunConfig) -> dict[str, Any]:
    """Everything but the base model, whose commit is known once it is fetched; a missing data file is left out."""
    found: dict[str, Any] = {
        "config": hashlib.sha256(folder.run_yaml.read_bytes()).hexdigest(),
        "versions": {name: version_of(name) for name in _NOTED},
    }
    if (data := Path(config.data.path)).is_file():
        found["data"] = file_sha256(data)
    return found


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another now, a few words each; what either does not name is not compared."""
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
    """Compares with what the checkpoint ``start`` was trained with; ``changes`` of run.yaml, where they are known.

    Raises:
        RunError: something is another, and nobody said to go on anyway.
    """
    then = checkpoint.read_manifest(start).get("depends", {}) if start else {}
    if start is None or not (others := differences(then, now)):
        return
    named = f": {changes}" if changes and then.get("config") != now.get("config", then.get("config")) else ""
    fault = RunError(
        "run.differs/checkpoint", name=start.name, others=", ".join(others) + named, run=start.parents[1].name
    )
    if anyway:
        reporter.note(
            DIFFERS, fault.message, "The run goes on anyway, as it was asked to: the rest is another training."
        )
        return
    raise fault


def refuse_other_data(run: str, data: DataChoice, found_sha256: str, anyway: bool, reporter: EventReporter) -> None:
    """Compares what lies at ``data.path`` with the content that run.yaml names: the first attempt has no checkpoint to
    compare with, and a damaged copy must not be trained on.

    Raises:
        DataError: it is another, and nobody said to go on anyway.
    """
    if data.sha256 in ("", found_sha256):
        return
    expected, seen = data.sha256[:_SHORT], found_sha256[:_SHORT]
    fault = DataError("data.damaged/other_content", expected=expected, seen=seen, path=data.path, run=run)
    if anyway:
        reporter.note(
            DIFFERS, fault.message, "The run goes on anyway, as it was asked to: it learns from what lies there now."
        )
        return
    raise fault


def _release(found: str) -> str:
    """``2.9.0`` of ``2.9.0+cu128``: a build for another card is the same release."""
    return ".".join(found.partition("+")[0].split(".")[:3])
