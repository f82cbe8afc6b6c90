"""The command line of a run on several machines: what it refuses before anything starts, and what it tells."""

import argparse
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.cli.commands import main
from core.cli.machines import beside, meet
from core.contract.errors import Fault, RunError
from core.machine.cards import CardLock, CardSet
from core.machine.locations import Locations
from core.runs.ranks.nodes import NODES_VARIABLE, Door, Meeting, other_than
from core.runs.ranks.start import forget_launchers


def asked(**values: Any) -> argparse.Namespace:
    usual = {"nodes": 2, "node_rank": 0, "rendezvous": "10.0.0.1:29500", "file": "rows.jsonl", "set": [], "cards": None}
    return argparse.Namespace(**usual | values)


def test_machine_0_tells_its_supervisor_where_the_others_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODES_VARIABLE, "")
    meet(asked(nodes=0))
    assert Meeting.told(os.environ) is None
    meet(asked(rendezvous="[fe80::1]:29500"))
    assert Meeting.told({NODES_VARIABLE: "3 first:29500 60"}) == Meeting(3, "first", 29500, 60.0)
    assert Meeting.told(os.environ) == Meeting(2, "fe80::1", 29500)


def test_ranks_of_another_launcher_are_not_ours() -> None:
    """accelerate takes a process that srun or torchrun started for one of several, and waits for the others."""
    theirs = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "PMI_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    told = {**theirs, "MASTER_PORT": "1", "SLURM_NODEID": "1", "LUTHIER_CARDS": "cpu,cpu"}
    forget_launchers(told)
    assert told == {"SLURM_NODEID": "1", "LUTHIER_CARDS": "cpu,cpu"}


@pytest.mark.parametrize("wrong", [
    {"rendezvous": ""}, {"rendezvous": "first"}, {"rendezvous": "first:0"}, {"rendezvous": "first:99999"}, {"nodes": 1},
    {"node_rank": 2}, {"node_rank": -1},
])  # fmt: skip
def test_machines_without_a_place_or_a_number_are_refused(wrong: dict[str, Any], locations: Locations) -> None:
    with pytest.raises(Fault) as caught:
        beside(asked(**wrong), locations) if "node_rank" in wrong else meet(asked(**wrong))
    assert caught.value.key == "ranks.rendezvous"


def test_a_machine_without_the_data_or_the_first_machine_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, home = tmp_path / "rows.jsonl", ["--home", str(tmp_path / "home")]
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["train", str(rows), *home, "--nodes", "2", "--node-rank", "1", "--rendezvous", place]
    assert main(command) == 1
    assert f"own copy of the data at {rows}" in capsys.readouterr().err
    rows.write_text('{"prompt": "a", "completion": "b"}\n', encoding="utf-8")
    monkeypatch.setattr("core.cli.machines.Meeting", SimpleNamespace(at=lambda *given: Meeting.at(*given, seconds=0.1)))
    monkeypatch.setenv("LUTHIER_NODE", "")
    assert main(command) == 1
    said = capsys.readouterr().err
    assert f"The first machine did not answer at {place} within 0 s: Connection refused." in said
    assert "Traceback" not in said


def test_a_machine_whose_cards_are_taken_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, locations = tmp_path / "rows.jsonl", Locations.find(str(tmp_path / "home")).make()
    rows.write_text('{"prompt": "a", "completion": "b"}\n', encoding="utf-8")
    monkeypatch.setattr("core.runs.ranks.node.start_rank", lambda *_: pytest.fail("started"))
    lock = CardLock(locations, CardSet())
    assert lock.acquire("run a")
    home = ["--home", str(locations.home)]
    assert main(["train", str(rows), *home, "--nodes", "2", "--node-rank", "1", "--rendezvous", "127.0.0.1:9"]) == 1
    assert "Expected a free CPU, found it held by run a." in capsys.readouterr().err
    lock.release()


def test_a_port_that_is_taken_and_what_differs_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RunError, match="in use"):
        Door(Meeting(2, "127.0.0.1", taken.getsockname()[1]), print, print)
    mine = {"code": "a", "data": "d", "versions": {"torch": "2.13.0", "bitsandbytes": ""}}
    assert not other_than(mine, mine)
    told = other_than(mine, {"code": "b", "data": "e", "versions": {"torch": "2.11.0"}})
    assert told == ("torch 2.11.0 in place of 2.13.0, another version of Luthier, another data file")
