"""A training as a rank beside rank 0 does it: with its settings and rows, a share of every step, no log and no disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.model.loading.together import Together
from core.models.suited import put
from core.runs.folder.job_folder import JobFolder
from core.runs.ranks.node import NODE_VARIABLE
from core.runs.ranks.start import cards_here
from core.train.attempt import Attempt
from core.train.channel.channel import Channel
from core.train.channel.reporter import EventReporter
from core.train.keep.depends import Split
from core.train.ranks.group import JOIN_SECONDS, Told, join
from core.train.ranks.member import Member, Silence
from core.train.run import device_for
from core.train.setup import Earlier, prepare
from core.train.step.rows import Rows


@dataclass(frozen=True)
class GivenRows:
    """Rank 0's draw of held-out rows."""

    told: Told

    def agree(self, rows: Rows, _numbers: Sequence[int], _drawn: Split) -> Split:
        """Rows to train on and rows held out.

        Raises:
            RunError: the rows here are not rank 0's.
        """
        if rows.sha256() != self.told.rows_sha256:
            raise RunError("ranks.other_rows")
        kept = set(self.told.held_out)
        return [row for row in range(len(rows)) if row not in kept], sorted(kept)


def _placed(config: RunConfig, folder: JobFolder) -> RunConfig:
    """On another machine than rank 0's data and model lie where its own run.yaml says."""
    if NODE_VARIABLE not in os.environ:
        return config
    mine = folder.config()
    config = put(config, "data.path", mine.data.path)
    return put(config, "model.name", mine.model.name) if config.model.source == "folder" else config


def follow(folder: JobFolder, member: Member) -> None:
    """Joins the ranks when rank 0 says where, and trains with them to the last step.

    Raises:
        Fault: what rank 0 is to say.
    """
    where = member.hear()
    os.environ.update(where["networks"])
    device = device_for(0)
    store = dist.TCPStore(where["host"], where["port"], timeout=timedelta(seconds=JOIN_SECONDS))
    told = Told(**join(store, where["rank"], where["count"], device).told())
    config = _placed(RunConfig.model_validate(told.config), folder)
    torch.manual_seed(config.train.seed)
    channel = Channel.unsteered(EventReporter(Silence()))
    together = Together(cards_here(os.environ).ranks, member.first, member.shared)
    subject, _ = prepare(config, folder, device, channel, Earlier(kept=GivenRows(told), together=together))
    attempt = Attempt.of_rank(subject, channel, told)
    attempt.train()
    attempt.loop.finish()
