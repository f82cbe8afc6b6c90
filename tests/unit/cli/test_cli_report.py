"""``report`` on the command line: what it prints of reports that stand, alone, beside each other and as files."""

import json
from pathlib import Path

import pytest

from core.cli.commands import main
from core.contract.config import DataChoice, RunConfig
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from tests.bare_run import bare_run
from tests.report_example import example


@pytest.fixture
def reported(locations: Locations) -> list[str]:
    """Two runs with reports."""
    made = []
    for worth in (1.0, 0.4):
        run = bare_run(RunStore(locations), RunConfig(name="told", data=DataChoice(path="/data/rows.jsonl")))
        run.report_json.write_text(example(run.name, worth).model_dump_json(), encoding="utf-8")
        made.append(run.name)
    return made


def test_a_report_that_stands_is_printed_and_written(
    reported: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    assert main(["report", reported[0], "--json", str(file)]) == 0
    out = capsys.readouterr().out
    for words in (
        "1.9400 before, 1.3200 after, difference -0.6200 (-0.6500 to -0.5900) nats a token, 96 rows: better",
        "perplexity 6.96 before, 3.74 after",
        "language German (12 rows)",
        "KL 0.0610 (0.0410 to 0.0810) nats a token",
        "check     Right word: 1 of 4 before, 3 after",
        "check     Date: unterminated character set",
        "cut       answers: 4 of 20 prompts; no time was left",
        "do        Add rows in German: they learned least.",
    ):
        assert words in out
    assert json.loads(file.read_text("utf-8"))["run_id"] == reported[0]


def test_several_stand_in_one_table_and_as_one_list(reported: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *reported, "--json", "-"]) == 0
    told = capsys.readouterr()
    assert [one["run_id"] for one in json.loads(told.out)] == reported
    table = [line.split() for line in told.err.splitlines()[-3:]]
    assert [line[-5:] for line in table] == [
        ["before", "after", "KL", "passed", "gap"],
        ["1.9400", "1.3200", "0.0610", "7/9", "0.0800"],
        ["1.9400", "1.6920", "0.0610", "7/9", "0.0800"],
    ]
    assert main(["report", *reported, "a", "b", "c", "d"]) == 1
    assert "at most 5 runs" in capsys.readouterr().err


def test_a_run_that_cannot_have_one_says_why(locations: Locations, capsys: pytest.CaptureFixture[str]) -> None:
    run = bare_run(RunStore(locations), RunConfig(data=DataChoice(path="/data/rows.jsonl")))
    assert main(["report", run.name]) == 1
    assert "Expected a checkpoint" in capsys.readouterr().err
