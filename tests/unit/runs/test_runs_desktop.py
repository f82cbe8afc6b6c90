"""A run tells on the desktop how it ended: with a program that is there, its words whole, and only where that was
switched on."""

import base64
import sys
from pathlib import Path

import pytest

from core.contract.events import Evaluation, Event, Failed, Finished, Queued, Starting, Step, Stopped
from core.machine.locations import Locations
from core.machine.settings import Settings, write_settings
from core.runs.folder.job_folder import JobFolder
from core.runs.process import desktop
from core.runs.supervise.telling import tell_end

TITLE, BODY = "Finished: $(reboot); 'quoted' <b>", 'loss 2.5 → 1.4 & "more" `x`\nsecond line'


def found(name: str) -> str:
    return f"/bin/{name}"


def test_each_platform_gets_the_words_as_arguments_or_hidden_from_every_parser() -> None:
    words = 'loss 2.5 → 1.4 & "more" `x` second line'
    linux = desktop.command(TITLE, BODY, wsl=False, find=found, platform="linux")
    assert linux == ["/bin/notify-send", "--app-name=Luthier", "--", TITLE, words.replace("&", "&amp;")]
    mac = desktop.command(TITLE, BODY, wsl=False, find=found, platform="darwin")
    assert mac[0] == "/bin/osascript"
    assert mac[-2:] == [TITLE, words]
    assert TITLE not in "".join(mac[:-2])
    windows = desktop.command(TITLE, BODY, wsl=True, find=found, platform="linux")
    script = base64.b64decode(windows[-1]).decode("utf-16-le")
    assert base64.b64encode(TITLE.encode()).decode() in script
    assert "reboot" not in script
    assert "{{" not in script
    assert script.count("'") % 2 == 0


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_without_a_program_nothing_is_shown(platform: str) -> None:
    assert desktop.command(TITLE, BODY, wsl=platform == "linux", find=lambda _: None, platform=platform) == []
    assert len(desktop.command("x" * 900, "", wsl=False, find=found, platform="linux")[3]) == 200


@pytest.mark.skipif(sys.platform != "linux", reason="notify-send is Linux's")
def test_the_program_is_called_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/told\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert desktop.can_tell(wsl=False)
    desktop.tell(TITLE, BODY, wsl=False)
    assert (tmp_path / "told").read_text().splitlines()[2] == TITLE


LEARNED = [Evaluation(loss=2.5, rows=5), Step(step=9), Evaluation(step=9, loss=1.4, rows=5), Finished()]
FULL = Failed(code="disk.full", message="The disk is full.", hint="")


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (LEARNED, [("Finished: mine", "It learned: held-out loss 2.500 → 1.400.")]),
        ([Queued(reason="run x holds the card"), *LEARNED],
         [("Finished: mine", "It learned: held-out loss 2.500 → 1.400. The queue is done.")]),
        ([*LEARNED[:2], Evaluation(step=9, loss=3.5, rows=5), Finished()],
         [("Came out worse: mine", "Do not use this one: it got worse, held-out loss 2.500 → 3.500.")]),
        ([FULL], [("Failed: mine", "The disk is full.")]),
        ([Stopped()], []),
    ],
)  # fmt: skip
def test_an_end_is_told_where_it_was_switched_on(tmp_path: Path, events: list[Event], told: list[object]) -> None:
    locations = Locations(tmp_path).make()
    folder = JobFolder(locations.runs / "2026-11-20_2243_test_k3f9")
    folder.path.mkdir()
    folder.run_yaml.write_text("name: mine\ndata: {path: /data/rows.jsonl}\n")
    lines = [Queued(), Starting(attempt=1), *events]
    folder.events.write_text("".join(f"{event.model_dump_json()}\n" for event in lines))
    seen: list[object] = []

    def show(title: str, body: str, wsl: bool) -> None:
        seen.append((title, body))

    tell_end(folder, locations, wsl=False, show=show)
    assert seen == [], "nobody asked for it"
    write_settings(locations, Settings(notify=True))
    tell_end(folder, locations, wsl=False, show=show)
    assert seen == told
