"""A real disk that is really full: a program of its own, run as ``unshare --user --map-root-user --mount``.

It mounts a small disk in memory, and trains on it again and again, each time with a megabyte more left free before the
disk is full. When the run says that it waits, room is made. Each run must end with the adapter of an undisturbed one.
What came out is printed as JSON: ``{"points": [[free_bytes, waited, equal], …], "written_bytes": …}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

STEP_BYTES = 1 << 20
DISK_BYTES = 512 << 20
MOST_POINTS = 64
HERE = Path(__file__).resolve()


def main(place: Path, look_first: bool, stride: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place)], check=True)
    os.environ["LUTHIER_HOME"] = str(place / "home")
    import torch
    from tiny_run import make_model, raw_config, weights, write_instructions

    from core.contract.config import RunConfig
    from core.runs.folder.job_folder import JobFolder
    from core.runs.folder.run_yaml import dump_config
    from core.runs.log.events_log import PatientWriter
    from core.train.channel import channel
    from core.train.channel.command_queue import NoCommands
    from core.train.keep import checkpoint
    from core.train.run import train

    class Log(PatientWriter):
        """Makes room as soon as the run says that it waits."""

        waited = False

        def write(self, event: Any) -> Any:
            said = super().write(event)
            if event.kind == "stage" and event.stage == "waiting":
                assert "free" in event.text or "No space left" in event.text, event.text
                type(self).waited = True
                filler.unlink(missing_ok=True)
            return said

    channel.POLL_SECONDS = 0.02
    if not look_first:
        checkpoint._require_room = lambda *_: None
    filler, source = place / "filler", place.parent / "source"
    source.mkdir()
    raw = raw_config(make_model(source), write_instructions(source / "rows.jsonl"))
    raw["lora"].update(r=128, lora_alpha=128)
    raw["train"].update(max_steps=4, save_steps=1, eval_steps=2, learning_rate=1e-3)
    config = RunConfig.model_validate(raw)

    def run(name: str) -> tuple[JobFolder, bool]:
        folder = JobFolder(place / "home" / "runs" / name)
        folder.path.mkdir(parents=True)
        folder.run_yaml.write_text(dump_config(config), encoding="utf-8")
        fill(filler, free)
        Log.waited = False
        log = Log(folder.events, 1)
        train(folder, log, NoCommands())
        log.close()
        filler.unlink(missing_ok=True)
        lines = folder.events.read_bytes().splitlines(keepends=True)
        assert all(json.loads(line) and line.endswith(b"\n") for line in lines), "a torn line"
        assert json.loads(lines[-1])["kind"] == "finished"
        assert [json.loads(line)["step"] for line in lines if b'"kind":"step"' in line] == [1, 2, 3, 4]
        assert not list(folder.path.rglob(".tmp*"))
        assert not list(folder.path.glob(".room"))
        return folder, Log.waited

    free = DISK_BYTES
    whole, _ = run("whole")
    wanted = weights(whole)
    size = sum(path.stat().st_size for path in whole.checkpoints.rglob("*") if path.is_file())
    points: list[tuple[int, bool, bool]] = []
    free = 0
    while not points or points[-1][1]:  # until there is room for everything, so the sweep covers every write
        assert len(points) < MOST_POINTS, points
        folder, waited = run(f"free-{free}")
        adapter = weights(folder)
        equal = adapter.keys() == wanted.keys() and all(torch.equal(adapter[name], wanted[name]) for name in wanted)
        points.append((free, waited, equal))
        subprocess.run(["rm", "-rf", str(folder.path)], check=True)
        free += stride * STEP_BYTES
    print(json.dumps({"points": points, "written_bytes": size}))


def fill(filler: Path, free: int) -> None:
    """Leaves ``free`` bytes."""
    stand = os.statvfs(filler.parent)
    rest = stand.f_bavail * stand.f_frsize - free
    with filler.open("wb") as file:
        while rest > 0:
            rest -= file.write(bytes(min(rest, 1 << 20)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "look", int(sys.argv[3]))
