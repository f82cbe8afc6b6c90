"""The proofs under one root: started, listed, stopped, deleted.

::

    proofs/2026-11-21_1130_kernels_k3f9/
      proof.yaml  events.jsonl  supervisor.json  worker.log      a job like a run
      result.json                                                what ``core.bench`` wrote

A proof is a detached job. ``core.bench`` is known here only by its command line and its JSON.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import yaml

from core.contract.errors import RunError
from core.contract.estimate import ProvenHere
from core.contract.weight_forms import ARITHMETICS, EIGHT_BIT, ArithmeticName
from core.machine.disk import read_object, read_plain
from core.machine.hardware import Machine
from core.machine.locations import ASSETS, Locations
from core.machine.yaml_text import MOST_YAML_BYTES, NOT_YAML, load_yaml
from core.models.catalog import STARTER
from core.runs.control.create import make_job, throw_away
from core.runs.control.mailbox import send
from core.runs.control.takeover import take_over
from core.runs.folder.job_folder import JobFolder, drawn_tail
from core.runs.process.processes import SUPERVISOR_COMMAND, start_supervisor
from core.runs.record.job_record import RUNNING, RunRecord, folded
from core.runs.record.summary import nobody_lives

Kind = Literal["kernels", "parity", "ladder", "eight"]
KINDS: tuple[Kind, ...] = get_args(Kind)
COMMANDS: Mapping[Kind, str] = {kind: kind for kind in KINDS} | {"eight": "parity"}
"""What of ``core.bench`` measures each kind."""
GIB = 1 << 30
_MOST_RESULT_BYTES = 4 << 20
PROOF_ID = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}_\d{{6}}_({'|'.join(KINDS)})_[a-z0-9]{{4}}", re.ASCII)
_PARITY = ("--steps", "20", "--held-out", "8", "--jobs", "1")
_EIGHT = ("--steps", "300", "--warm-up", "0", "--held-out", "40", "--learning-rate", "2e-3", "--jobs", "1")
_SHORT = ("--steps", "5", "--warm-up", "1")
_LAYERS = ((30, 32), (20, 20), (14, 12), (9, 6), (5, 3))
"""Free GiB, and the layers that the ladder's largest rung without recomputing fits there; less memory takes one."""


@dataclass(frozen=True)
class Proof:
    """One proof: its job's record, and its result (for the ladder, so far)."""

    id: str
    kind: Kind
    flags: tuple[str, ...]
    record: RunRecord
    result: dict[str, Any] | None


def flags_for(kind: Kind, machine: Machine) -> tuple[str, ...]:
    """The flags of ``python -m core.bench`` for a kind on this machine: on a card as many layers of Mistral 7B's shape
    as it has free memory for, on the CPU the tiny model. 8 bits are proven by the built-in model and its samples:
    random weights learn nothing that rounding could spoil."""
    if kind == "kernels":
        return ()
    if kind == "eight":
        rows = ("--rows", f"file:{ASSETS / 'samples' / 'chat.jsonl'}", "--max-length", "512")
        shape = ("--model", str(STARTER), *rows, "--batch", "4", "--accumulation", "1")
        return ("--arithmetic", ",".join(multiplied(machine)), *shape, *_EIGHT)
    rows = ("--batch", "2", "--accumulation", "2")
    length = _PARITY if kind == "parity" else ()
    if not machine.gpu:
        return ("--model", "random:tiny", "--rows", "dense:64", *rows, *(length or _SHORT))
    free = machine.gpu.free_bytes or machine.gpu.total_bytes or 0
    layers = next((count for least, count in _LAYERS if free >= least * GIB), 1)
    return ("--model", "random:mistral-7b", "--layers", str(layers), "--rows", "dense:1024", *rows, *length)


def multiplied(machine: Machine) -> tuple[ArithmeticName, ...]:
    """The 8-bit arithmetics that this machine's card multiplies; none without a card."""
    card = machine.gpu
    if card is None or card.compute_capability is None:
        return ()
    return tuple(name for name in EIGHT_BIT if card.compute_capability >= ARITHMETICS[name].capability)


def proven(proof_id: str, result: dict[str, Any], machine: Machine, at: float) -> list[ProvenHere]:
    """What a result of 8-bit arithmetic says to "auto", a line each; a loss that was no number is twice as high.

    Raises:
        LookupError, TypeError, ValueError: it is none.
    """
    if machine.gpu is None:
        return []
    return [
        ProvenHere(
            proof=proof_id, card=machine.gpu.name, arithmetic=name, steps=result["steps"], at=at,
            **{key: 1.0 if found[key] is None else found[key] for key in ("share", "worst", "spread")},
        )
        for name, found in result["verdicts"].items()
    ]  # fmt: skip


def read_flags(folder: JobFolder) -> tuple[Kind, tuple[str, ...]]:
    """What ``proof.yaml`` asks for.

    Raises:
        RunError: no such file can be read.
    """
    try:
        raw = load_yaml(read_plain(folder.proof_yaml, MOST_YAML_BYTES).decode())
        if raw["kind"] not in KINDS:
            raise ValueError(raw["kind"])
        return raw["kind"], tuple(str(flag) for flag in raw["flags"])
    except (OSError, TypeError, *NOT_YAML) as error:
        raise RunError("proof.request", path=folder.proof_yaml) from error


class Proofs:
    """All proofs of one root. Holds no state."""

    def __init__(self, locations: Locations, supervisor_command: Sequence[str] = SUPERVISOR_COMMAND) -> None:
        self._locations = locations
        self._command = supervisor_command

    def start(self, kind: Kind, machine: Machine) -> str:
        """Starts a proof as a job of its own; its id.

        Raises:
            RunError: one of this kind is at work, or this machine has no card that it is of.
            MachineError: the disk does not take it, or no process can be made.
        """
        if any(proof.kind == kind and proof.record.state in RUNNING for proof in self.all()):
            raise RunError("proof.busy/start", kind=kind)
        if kind == "eight" and not multiplied(machine):
            raise RunError("proof.eight")
        self._locations.proofs.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{time.strftime('%Y-%m-%d_%H%M%S')}_{kind}_{drawn_tail()}"
        text = yaml.safe_dump({"kind": kind, "flags": list(flags_for(kind, machine))}, sort_keys=False)
        folder, lock = make_job(self._locations.proofs / name, "proof.yaml", text)
        start_supervisor(folder, self._locations, lock, self._command, "ask again")
        return name

    def all(self) -> list[Proof]:
        """All proofs, newest first; what cannot be read is left out."""
        readable = (proof for folder in self._folders() if (proof := self._read(folder)))
        return sorted(readable, key=lambda proof: proof.id, reverse=True)

    def stop(self, proof_id: str) -> None:
        """Has a proof's processes ended within 3 s.

        Raises:
            RunError: no such proof.
        """
        send(self._open(proof_id), "stop_now")

    def delete(self, proof_id: str) -> None:
        """Deletes a proof that has ended.

        Raises:
            RunError: no such proof, or it is at work.
        """
        folder = self._open(proof_id)
        with take_over(folder, 0.0) as dead:
            if dead is None:
                raise RunError("proof.busy/delete", proof_id=proof_id)
            throw_away(folder.path)

    def _open(self, proof_id: str) -> JobFolder:
        folder = JobFolder(self._locations.proofs / proof_id) if PROOF_ID.fullmatch(proof_id) else None
        if folder is None or not folder.proof_yaml.is_file():
            raise RunError("proof.unknown", proof_id=proof_id[:80])
        return folder

    def _folders(self) -> list[JobFolder]:
        if not self._locations.proofs.is_dir():
            return []
        return [JobFolder(path) for path in self._locations.proofs.iterdir() if PROOF_ID.fullmatch(path.name)]

    def _read(self, folder: JobFolder) -> Proof | None:
        try:
            dead, (kind, flags) = nobody_lives(folder), read_flags(folder)
            record = folded(folder)
        except (RunError, OSError):
            return None
        if dead and record.state in RUNNING and nobody_lives(folder):
            record = replace(record, state="lost")
        return Proof(
            folder.name, kind, flags, record, read_object(folder.path / "result.json", _MOST_RESULT_BYTES) or None
        )
