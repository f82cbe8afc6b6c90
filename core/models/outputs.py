"""The names of a head's scores, beside an adapter or in a model's config.json."""

import json
from pathlib import Path

from core.contract.errors import ModelError
from core.contract.tasks import OUTPUTS_FILE, Outputs


def write_outputs(outputs: Outputs, folder: Path) -> None:
    """Names of scores beside an adapter."""
    (folder / OUTPUTS_FILE).write_text(json.dumps(outputs.settings(), indent=1, ensure_ascii=False), encoding="utf-8")


def read_outputs(folder: Path) -> Outputs:
    """What ``write_outputs`` wrote, or a model's config.json says.

    Raises:
        ModelError: there is neither, or it is damaged.
    """
    beside = folder / OUTPUTS_FILE
    path = beside if beside.is_file() else folder / "config.json"
    try:
        return Outputs.of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError("model.no_labels", folder=folder) from error
