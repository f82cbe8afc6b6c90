"""The names of a head's scores, beside an adapter or in a model's config.json."""

import json
import math
from pathlib import Path
from typing import get_args

from core.contract.errors import ModelError
from core.contract.tasks import OUTPUTS_FILE, Outputs, Problem
from core.machine.disk import read_plain

_MOST_BYTES = 8 << 20
_MOST_NAMES = 1 << 16
"""As of a config.json (``core.models.checks.claims``)."""


def write_outputs(outputs: Outputs, folder: Path) -> None:
    """Names of scores beside an adapter."""
    (folder / OUTPUTS_FILE).write_text(json.dumps(outputs.settings(), indent=1, ensure_ascii=False), encoding="utf-8")


def read_outputs(folder: Path) -> Outputs:
    """What ``write_outputs`` wrote, or a model's config.json says; the folder may come from anybody.

    Raises:
        ModelError: there is neither, or it is damaged.
    """
    beside = folder / OUTPUTS_FILE
    path = beside if beside.is_file() else folder / "config.json"
    try:
        outputs = Outputs.of(json.loads(read_plain(path, _MOST_BYTES)))
        known = outputs.problem in get_args(Problem) and len(outputs.names) <= _MOST_NAMES
        if not (known and math.isfinite(outputs.mean) and 0 < outputs.scale < math.inf):
            raise ValueError(
                f"{len(outputs.names)} scores, {outputs.problem}, {outputs.mean} + {outputs.scale} · score"
            )
        return outputs
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError("model.no_labels", folder=folder) from error
