"""A run on several machines: ``--nodes``, ``--node-rank`` and ``--rendezvous`` of train and resume."""

import argparse
import os
import sys
from pathlib import Path

from core.contract.config import RunConfig
from core.contract.errors import ConfigError, DataError, RunError
from core.machine.locations import Locations
from core.runs.control.wish import RUN_YAMLS
from core.runs.folder.run_yaml import read_wish, wish_of
from core.runs.ranks.node import join_run
from core.runs.ranks.nodes import NODES_VARIABLE, Meeting


def meet(chosen: argparse.Namespace) -> None:
    """Tells the supervisor that this command starts where the other machines come to; nothing where there are none.

    Raises:
        ConfigError: there is no place to meet, or machine 0 is not meant.
    """
    if not chosen.nodes:
        return
    if chosen.node_rank:
        raise ConfigError("ranks.rendezvous", given=f"--node-rank {chosen.node_rank}, where only machine 0 can")
    os.environ[NODES_VARIABLE] = str(Meeting.at(chosen.nodes, chosen.rendezvous))


def beside(chosen: argparse.Namespace, locations: Locations) -> int:
    """The ranks of this machine, until the run of machine 0 is over; Ctrl+C ends them, and the run waits for others."""
    meeting = Meeting.at(chosen.nodes, chosen.rendezvous)
    if not 0 < chosen.node_rank < chosen.nodes:
        raise ConfigError("ranks.rendezvous", given=f"machine {chosen.node_rank} of {chosen.nodes}")
    config = _own(Path(chosen.file), chosen.set, chosen.cards)
    if not Path(config.data.path).is_file():
        raise DataError("ranks.no_data", path=config.data.path)

    def say(text: str) -> None:
        print(f"machine {chosen.node_rank:<2} {text}", file=sys.stderr, flush=True)

    join_run(config, locations, meeting, chosen.node_rank, say)
    say("the run is over")
    return 0


def _own(file: Path, settings: list[str], cards: str | None) -> RunConfig:
    """What of a run.yaml or data file is this machine's: where data and model lie, and its cards."""
    settings = [*settings, *([] if cards is None else [f"train.cards={cards}"])]
    config = read_wish(file, settings) if file.suffix.lower() in (*RUN_YAMLS, "") else wish_of(file, settings)[0]
    if config.resume_from:
        raise RunError("ranks.resume_from")
    return config
