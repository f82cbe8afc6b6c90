"""Downloading the base model: a network that fails in the middle of it, and a full disk, are waited out.

A hub that never answered is a fault at once. Imports no torch.
"""

from pathlib import Path

from core.contract.catalogue import ModelSpec
from core.contract.errors import HubError
from core.models.hub.client import FetchStopped, fetch
from core.train.channel.channel import Channel

RETRY_SECONDS = 10.0


def fetch_base(spec: ModelSpec, channel: Channel) -> Path:
    """The folder of a hub model, whole.

    Raises:
        Leave: pause or stop; what was fetched is kept.
        Fault: as ``core.models.hub.client.fetch``.
    """
    reporter, commands, answered = channel.reporter, channel.commands, False

    def fetching(done: int, total: int) -> None:
        nonlocal answered
        answered = True
        reporter.stage("downloading", spec.title, done, total, "bytes")

    while True:
        try:
            return channel.until_disk_takes(lambda: fetch(spec.name, spec.revision, fetching, lambda: commands.leaving))
        except FetchStopped:
            commands.check()
            raise
        except HubError as error:
            if error.code != "hub.unreachable" or not answered:
                raise
            reporter.stage("waiting", f"The network. {error.message} {error.hint}")
            commands.wait(RETRY_SECONDS)
