"""The doctor on recorded machines: what is wrong is said in one line with one action, within three seconds."""

import dataclasses
import os
import time
from pathlib import Path

import pytest
from recorded import MACHINES, Recorded, load

import core.machine.host
from core.machine.doctor.examine import examine, findings, read_surroundings
from core.machine.hardware import read_machine
from core.machine.host import Host
from studio.pages.doctor.page import view

SOON = 3.0
WORDS = {
    "03-driver-too-old": ["515.105.01", "CUDA 11.7", "12.6"],
    "04-driver-too-old-wsl": ["Windows driver", "wsl --shutdown"],
    "07-wsl-memory-cap": ["memory=6GB in .wslconfig", "wsl --shutdown"],
    "08-models-on-windows-disk": ["/mnt/d/huggingface/hub"],
    "10-wsl-pinned-memory": ["6 GB", ".wslconfig"],
    "17-two-cards": ["--cards 0,1"],
    "19-laptop-power-capped": ["55 of 140 W"],
    "21-a-game-holds-the-card": ["9.1 of 12.0 GB", "Game-Linux-Shipping"],
    "24-cpu-build": ["--torch cu130"],
    "25-torch-newer-than-driver": ["CUDA 12.8", "--torch cu128"],
    "27-clock-jumped": ["11 hours"],
}
"""What was read there and is named in the line."""

each_machine = pytest.mark.parametrize("name", [path.stem for path in MACHINES])


def machine(name: str, root: Path) -> tuple[dict[str, object], Recorded]:
    return load(next(path for path in MACHINES if path.stem == name), root)


@each_machine
def test_the_doctor_says_what_would_help_and_nothing_else(name: str, tmp_path: Path) -> None:
    said, host = machine(name, tmp_path)
    started = time.monotonic()
    found = examine(Path(str(said["home"])), host)
    assert time.monotonic() - started < SOON
    host.never.set()
    assert [one.code for one in found if one.action] == said["expected"]
    assert all((one.text + one.action).isprintable() for one in found)
    assert all(one.action for one in found if one.level != "fine")
    assert [one.level for one in found] == sorted((one.level for one in found), key=["fault", "advice", "fine"].index)
    assert str(view(found)).count('class="finding ') == len(found)
    lines = " ".join(f"{one.text} {one.action}" for one in found if one.action)
    assert [word for word in WORDS.get(name, ()) if word not in lines] == []


def test_every_card_is_listed_with_what_it_can_do_and_unlike_ones_are_noted(tmp_path: Path) -> None:
    said, host = machine("17-two-cards", tmp_path)
    lines = [one.text for one in examine(Path(str(said["home"])), host) if one.code.startswith("gpu.")]
    assert lines[:2] == [
        "RTX 3090 (0), 24 GB, bfloat16, driver 580.95.05.", "RTX 3060 (1), 12 GB, bfloat16, driver 580.95.05."
    ]  # fmt: skip
    assert "2 cards: a run takes the first" in lines[2]
    assert "each gets rows by its speed" in lines[3]


@each_machine
def test_any_file_may_be_missing_or_rubbish(name: str, tmp_path: Path) -> None:
    """No reading may end the doctor: every recorded file in turn gone, cut short, and filled with bytes."""
    said, host = machine(name, tmp_path)
    home = Path(str(said["home"]))
    host.said = {**said, "hangs": []}
    if "memory_gb" not in said:
        host.said["memory_gb"] = [16, 8]
    for file in list(said["files"]):  # type: ignore[call-overload]
        place = tmp_path / file.lstrip("/")
        for content in (b"", b"\xff\x00\n= , :\n" * 50, place.read_bytes()[:20]):
            place.write_bytes(content)
            assert findings(read_machine(home, host), read_surroundings(home, host))
        place.unlink()
        assert findings(read_machine(home, host), read_surroundings(home, host))


@pytest.mark.parametrize(
    ("name", "installed", "wanted"),
    [
        (
            "13-no-bfloat16",
            ("0.0.35", ""),
            "xformers 0.0.35 fits this PyTorch: attention on this card goes through it.",
        ),
        ("13-no-bfloat16", ("0.0.34", "==2.10.0"), "xformers 0.0.34 is made for PyTorch ==2.10.0, not 2.11.0+cu130:"),
        ("13-no-bfloat16", ("", ""), ""),
        ("01-desktop-linux", ("0.0.35", ""), ""),
        ("14-too-old-for-kernels", ("0.0.35", ""), ""),
    ],
)
def test_xformers_is_a_line_on_cards_that_take_it(
    name: str, installed: tuple[str, str], wanted: str, tmp_path: Path
) -> None:
    said, host = machine(name, tmp_path)
    host.said = {**said, "xformers": installed}
    lines = [one.text for one in examine(Path(str(said["home"])), host) if one.code == "gpu.xformers"]
    assert [line[: len(wanted)] for line in lines] == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    "answer", ["", "No devices were found\n", "CUDA Version: x", ",,,\n", "\x00\xff, ,\n" * 9, "a, b\n"]
)
def test_any_word_of_nvidia_smi_is_borne(answer: str, tmp_path: Path) -> None:
    said, host = machine("01-desktop-linux", tmp_path)
    header = said["nvidia-smi"][""]  # type: ignore[index]
    for answers in ({"": answer}, {"": header, "--query-gpu": answer, "--query-compute-apps": answer}):
        host.said = {**said, "nvidia-smi": answers}
        assert examine(Path("/home/you"), host)


def test_this_machine_is_examined_in_time(tmp_path: Path) -> None:
    started = time.monotonic()
    assert examine(tmp_path)
    assert time.monotonic() - started < SOON


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.machine.host, "COMMAND_SECONDS", 0.2)
    started = time.monotonic()
    assert Host().run(["sleep", "30"]) == ""
    assert time.monotonic() - started < 2
    assert Host().run(["a-program-that-is-not-there"]) == ""


def test_a_clock_behind_its_own_logs_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "runs" / "a" / "events.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("")
    assert Host().seconds_ahead(tmp_path) <= 0
    os.utime(log, (time.time() + 4000, time.time() + 4000))
    around = read_surroundings(tmp_path)
    assert 3900 < around.seconds_ahead < 4100
    found = findings(read_machine(tmp_path), dataclasses.replace(around, seconds_ahead=4000))
    assert "clock.behind" in {one.code for one in found}
