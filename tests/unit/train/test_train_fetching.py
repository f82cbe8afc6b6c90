"""A download whose network goes away: waited for, gone on with, and left at once by who wants to stop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.contract.commands import Command
from core.contract.errors import HubError, MachineError
from core.contract.events import Stage
from core.models.hub.client import FetchStopped
from core.train import fetching
from core.train.channel.channel import Channel
from core.train.channel.command_queue import Leave
from core.train.fetching import fetch_base

GONE = HubError.told_by(
    {"code": "hub.unreachable", "message": "Expected an answer, found none.", "hint": "Check the network."}
)
FULL = MachineError.told_by({"code": "disk.full", "message": "The disk filled up.", "hint": "Free some space."})


class Spec:
    name, revision, title = "a/b", "", "Tiny"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """What happens at each try after its first bytes, in order; None: the rest came too."""
    tries: list[Exception | None] = []

    def fetch(name: str, _revision: str, progress: Callable[[int, int], None], leaving: Callable[[], bool]) -> Path:
        if leaving():
            raise FetchStopped(name)
        outcome = tries.pop(0)
        if outcome is not None and outcome.args == ("at once",):
            raise GONE
        progress(len(tries), 10)
        if outcome is not None:
            raise outcome
        return Path("/models/whole")

    monkeypatch.setattr(fetching, "fetch", fetch)
    monkeypatch.setattr(fetching, "RETRY_SECONDS", 0.2)
    return tries


def stages(said: Any) -> list[str]:
    stages: list[Stage] = said.of("stage")
    return [event.stage for event in stages]


def test_a_network_and_a_disk_that_come_back_are_waited_for(
    said: Any, channel: Channel, hub: list[Exception | None]
) -> None:
    hub.extend([GONE, FULL, GONE, None])
    assert fetch_base(Spec(), channel) == Path("/models/whole")  # type: ignore[arg-type]
    assert stages(said) == ["downloading", "waiting"] * 3 + ["downloading"]
    texts = [event.text for event in said.of("stage") if event.stage == "waiting"]
    assert texts[0].startswith("The network. Expected an answer, found none.")
    assert "disk" in texts[1]


def test_a_hub_that_never_answered_is_a_fault_at_once(channel: Channel, hub: list[Exception | None]) -> None:
    hub.append(Exception("at once"))
    with pytest.raises(HubError, match="found none"):
        fetch_base(Spec(), channel)  # type: ignore[arg-type]
    hub.append(HubError.told_by({"code": "hub.gated", "message": "Not for everybody.", "hint": "Accept the terms."}))
    with pytest.raises(HubError, match="Not for everybody"):
        fetch_base(Spec(), channel)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_who_waits_for_the_network_still_hears(
    channel: Channel, letters: Any, hub: list[Exception | None], monkeypatch: pytest.MonkeyPatch, verb: Any
) -> None:
    monkeypatch.setattr(fetching, "RETRY_SECONDS", 60.0)
    hub.append(GONE)
    channel.commands.start()
    letters.waiting = [Command(verb=verb)]
    try:
        with pytest.raises(Leave) as left:
            fetch_base(Spec(), channel)  # type: ignore[arg-type]
    finally:
        channel.commands.close()
    assert left.value.verb == verb
