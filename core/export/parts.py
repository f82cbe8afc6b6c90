"""What an export is made of."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from core.contract.config import ModelChoice, RunConfig
from core.contract.data import Example
from core.contract.errors import DataError
from core.contract.forms import DEFAULT_QUANTISATION, FinishedFrom, Quantisation
from core.contract.tasks import DEFAULT_LEARNS, LEARNS, Learns
from core.data.service.checked import checked
from core.export.forms.classifier import Head
from core.machine.locations import Locations
from core.model.loading.load import config_of
from core.models.positions import is_placed, position_fields
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import RunRecord
from core.train.channel.channel import Channel


def examples_of(config: RunConfig) -> Iterator[Example]:
    """The rows of a run's data as it is now, as far as it can be read; none where its file is gone."""
    try:
        yield from checked(Path(config.data.path), config.data, Locations.find(), method=config.trained_method).rows()
    except (OSError, DataError):
        return


@dataclass(frozen=True)
class OfRun:
    """The run itself, for forms that are more than its weights; ``channel`` is the export job's."""

    folder: JobFolder
    record: RunRecord
    channel: Channel


@dataclass(frozen=True)
class Parts:
    """The base model's folder, its name in a card, and what the checkpoint holds: an adapter, or a whole model; with a
    head of scores, where there is one."""

    base: Path
    base_name: str
    trained: Path
    learns: Learns = LEARNS[DEFAULT_LEARNS]
    head: Head | None = None
    model: ModelChoice = field(default_factory=ModelChoice)
    """The run's: how positions are scaled."""
    weights: FinishedFrom = "original"
    dtype: torch.dtype | None = None
    """That the run computed in."""
    made_of: str = ""
    """Names all that decides what an export holds."""
    run: OfRun | None = None
    quantisation: Quantisation = DEFAULT_QUANTISATION
    importance: bool = False
    """Whether the quantiser weighs inputs by how large they are on the run's rows."""

    @cached_property
    def positions(self) -> dict[str, Any]:
        """Fields of the base's config that scale its positions as the run did; none where it did not."""
        return position_fields(config_of(self.base), self.model) if is_placed(self.model) else {}
