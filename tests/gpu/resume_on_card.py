"""The same run three times undisturbed and once cut off and resumed, on a card; what came out as JSON.

``python resume_on_card.py FOLDER deterministic|free``: a process of its own, since cuBLAS reads its workspace's setting
before the first kernel. Prints ``{case: {"spread": …, "resumed": …, "changed": …, "resumed_from": …}}``: the largest
distance between two undisturbed adapters, that of the resumed one to the nearest of them, and how far training moved
them, each as a norm.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "8-bit, packed, fast": {"r": 32, "lora_dropout": 0.0},
    "8-bit, packed, dropout": {"r": 32, "lora_dropout": 0.1},
}
STEPS, DIES_AT = 8, 5
SET = {"deterministic": True, "free": False}


def main(root: Path, deterministic: bool) -> None:
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch
    from dying_log import Killed, Log
    from tiny_run import make_in, weights

    from core.contract.config import RunConfig
    from core.runs.folder.job_folder import JobFolder
    from core.runs.folder.run_yaml import dump_config
    from core.train.channel.command_queue import NoCommands
    from core.train.run import train

    torch.use_deterministic_algorithms(deterministic, warn_only=True)  # what has no such form shows in the spread
    make_in(str(root), hidden_size=256, intermediate_size=512)
    raw: dict[str, Any] = json.loads((root / "run.json").read_text())
    raw["model"].update(quantization="nf4", dtype="bfloat16")
    raw["train"].update(
        optim="adamw_8bit", max_steps=STEPS, eval_steps=100, save_steps=2, tokens_per_pass=128, learning_rate=2e-3,
        checkpointing="recompute",
    )  # fmt: skip

    def folder_for(case: str, name: str) -> JobFolder:
        folder = JobFolder(root / "runs" / f"{list(CASES).index(case)}-{name}")
        folder.path.mkdir(parents=True)
        config = {**raw, "lora": {**raw["lora"], **CASES[case]}}
        folder.run_yaml.write_text(dump_config(RunConfig.model_validate(config)), encoding="utf-8")
        return folder

    def flat(folder: JobFolder, name: str = "") -> torch.Tensor:
        found = weights(folder, name)
        return torch.cat([found[key].flatten().double() for key in sorted(found)])

    said: dict[str, dict[str, float]] = {}
    for case in CASES:
        undisturbed = [folder_for(case, f"whole-{number}") for number in range(3)]
        for folder in undisturbed:
            train(folder, Log(folder), NoCommands())
        broken = folder_for(case, "broken")
        with contextlib.suppress(Killed):
            train(broken, Log(broken, 1, lambda event: event.kind == "step" and event.step == DIES_AT), NoCommands())
        resumed = Log(broken, 2)
        train(broken, resumed, NoCommands())
        wholes, ours = [flat(folder) for folder in undisturbed], flat(broken)
        said[case] = {
            "spread": max(float((one - other).norm()) for one, other in itertools.combinations(wholes, 2)),
            "resumed": min(float((ours - one).norm()) for one in wholes),
            "changed": float((wholes[0] - flat(undisturbed[0], f"step-{STEPS - 2:06d}")).norm()),
            "resumed_from": resumed.of("starting")[0].resumed_step,
        }
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), SET[sys.argv[2]])
