"""The launcher's decisions are pure functions: every one is tried on recorded inputs."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

import launcher
from core.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
HEADER = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: {cuda}     |"


RTX = "8.9, NVIDIA GeForce RTX 4090\n"


def driver(cuda: str, card: str = RTX) -> launcher.Driver | None:
    return launcher.parse_driver(HEADER.format(cuda=cuda), card)


def test_the_launcher_needs_the_standard_library_only() -> None:
    code = "import sys; sys.path = [path for path in sys.path if 'site-packages' not in path]; import launcher"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("found", "platform", "build"),
    [
        (driver("13.0"), "linux", "cu130"),
        (driver("13.2", "12.0, NVIDIA GeForce RTX 5080\n"), "linux", "cu130"),
        (driver("12.9", "8.6, NVIDIA GeForce RTX 3060\n"), "linux", "cu128"),
        (driver("12.8", "7.5, NVIDIA GeForce RTX 2060\n"), "linux", "cu128"),
        (driver("12.6", "8.6, NVIDIA GeForce RTX 3090\n"), "linux", "cu126"),
        (driver("13.0", "6.1, NVIDIA GeForce GTX 1080\n"), "linux", "cu126"),
        (driver("13.0", ""), "linux", "cu130"),
        (None, "linux", "cpu"),
        (None, "darwin", "pypi"),
    ],
)
def test_driver_card_and_platform_decide_the_build(found: launcher.Driver | None, platform: str, build: str) -> None:
    assert launcher.choose_torch(found, platform).build == build


def test_newer_nvidia_smi_writes_umd() -> None:
    assert driver("", "") is None
    found = launcher.parse_driver("CUDA UMD Version: 13.1", "9.0, NVIDIA H200\n8.9, NVIDIA L4\n")
    assert found == launcher.Driver((13, 1), (9, 0), "NVIDIA H200")


def test_torch_is_pinned_with_its_build_and_the_index_is_an_extra_one() -> None:
    arguments = launcher.torch_arguments("cu130")
    assert arguments[0].endswith("+cu130")
    assert arguments[1] == "--extra-index-url"
    assert arguments[2].endswith("/cu130")
    assert "--index-url" not in arguments


@pytest.mark.parametrize(
    ("refuse", "said"),
    [
        (lambda: launcher.choose_torch(driver("11.8"), "linux"), "its driver knows CUDA 11.8"),
        (lambda: launcher.check_machine((3, 8, 10), "linux"), "needs Python 3.11"),
        (lambda: launcher.check_machine((3, 10, 12), "linux"), "needs Python 3.11"),
        (lambda: launcher.check_machine((3, 12, 0), "win32"), "wsl --install"),
        (lambda: launcher.split_options(["--torch=cu999"]), "--torch takes one of"),
        (lambda: launcher.check_room("cu130", 3 << 30), "free disk"),
        (launcher.make_venv, "sudo apt install python3-venv"),
    ],
)
def test_a_machine_that_will_not_do_is_one_line_that_says_what_to_do(
    refuse: Callable[[], object], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launcher, "VENV", tmp_path / ".venv")
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    launcher.check_room("cpu", 5 << 30)
    with pytest.raises(launcher.StopError) as error:
        refuse()
    assert (said in str(error.value), "\n" in str(error.value)) == (True, False)


def test_setup_options_are_taken_and_the_rest_is_handed_on() -> None:
    options, rest = launcher.split_options(["--torch", "cpu", "train", "a.yaml", "--setup-only", "--home", "x"])
    assert options == {"torch": "cpu", "setup_only": "yes"}
    assert rest == ["train", "a.yaml", "--home", "x"]


RETRY = "WARNING: Retrying (Retry(total=4)) ... Failed to establish a new connection: [Errno 111]: /whl/cpu/torch/\n"
MISSING = "ERROR: No matching distribution found for torch==2.13.0+cpu"


@pytest.mark.parametrize(
    ("output", "build", "words"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "", "disk is full"),
        ("WARNING: Retrying ... Temporary failure in name resolution", "", "no network"),
        ("ERROR: No matching distribution found for torch==2.11.0+cu130", "", "--torch pypi"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS",
            "",
            "not the one that was locked",
        ),
        ("noise\nERROR: something else broke\n", "", "something else broke"),
        ("", "", "no output"),
        (RETRY + MISSING, "cpu", "could not be reached. Connect and start again, or take PyPI's build"),
        (RETRY + "ERROR: Could not install packages", "cpu", "could not be reached"),
        (MISSING, "cpu", "too new"),
        (RETRY + "ERROR: No matching distribution found for torch>=2.10", "", "no network"),
        (RETRY + "ERROR: No matching distribution found for torch>=2.10", "pypi", "no network"),
    ],
)
def test_pip_failures_become_one_line_that_tells_an_index_out_of_reach_from_no_network(
    output: str, build: str, words: str
) -> None:
    line = launcher.explain(output, build)
    assert (words in line, "\n" in line) == (True, False)


def test_ready_needs_the_same_python_and_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launcher, "VENV", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    plain, tests = launcher.wanted_stamp(False), launcher.wanted_stamp(True)
    assert launcher.is_ready(plain, dict(tests))
    assert not launcher.is_ready(tests, dict(plain))
    assert not launcher.is_ready(plain, dict(plain, packages="older"))
    assert not launcher.is_ready(plain, {})


def test_help_needs_no_setup_and_names_every_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "launcher.py"), "--help"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    for command in COMMANDS:
        assert f"launcher.py {command}" in done.stdout
    assert "--home" in done.stdout


@pytest.mark.parametrize("called", [["tests/e2e/shots.py"], ["-m", "tests.chaos"]])
def test_a_script_beside_the_tests_finds_what_it_imports_without_pytest(called: list[str]) -> None:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}  # the test command's
    done = subprocess.run(
        [sys.executable, *called, "--help"], cwd=ROOT, env=own, capture_output=True, text=True, check=False
    )
    assert "usage:" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "words", [["lock", "-h"], ["audit", "--help"], ["test", "-h"], ["train", "-h"], ["--no-browser", "-h"]]
)
def test_help_of_a_command_installs_nothing(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is answered by the Python that stands, without any package (-S)."""

    def fail(*_: object) -> None:
        raise AssertionError("something was installed")

    def run(program: str, target: list[str], environment: dict[str, str]) -> None:
        assert program == sys.executable
        done = subprocess.run([program, "-S", *target[1:]], env=environment, check=False)
        raise SystemExit(done.returncode)

    for name in ("set_up", "install"):
        monkeypatch.setattr(launcher, name, fail)
    monkeypatch.setattr(launcher, "VENV", tmp_path / "none")
    monkeypatch.setattr(launcher.os, "execve", run)
    monkeypatch.setattr(launcher.os, "chdir", lambda _: None)
    with pytest.raises(SystemExit) as leaving:
        launcher.main(words)
    assert leaving.value.code == 0
    assert "launcher.py" in capfd.readouterr().out


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main(["--version"]) == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert capsys.readouterr().out == f"Luthier {project['version']}\n"


def test_a_second_start_hands_over_without_network_within_two_seconds(tmp_path: Path) -> None:
    """A ready environment is only read: the fake interpreter below stands for it and tells what it was given."""
    for name in ("launcher.py", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    shutil.copytree(launcher.LOCKS, tmp_path / "presets" / "locks")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    (tmp_path / ".venv" / "luthier.json").write_text(json.dumps(launcher.wanted_stamp(False)))
    environment = {"PATH": "/usr/bin:/bin", "https_proxy": "http://127.0.0.1:9", "HOME": os.environ.get("HOME", "/")}
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "launcher.py"), "--port", "9000"],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["-m", "studio", "--port", "9000"]
    assert time.monotonic() - started < 2


def test_another_build_is_set_up_again_and_no_wish_keeps_the_one_that_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launcher, "VENV", tmp_path)
    monkeypatch.setattr(launcher, "STAMP", tmp_path / "luthier.json")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    stamp = {**launcher.wanted_stamp(False), "torch": "cpu"}
    assert launcher.is_ready(launcher.wanted_stamp(False), stamp, "cpu")
    assert not launcher.is_ready(launcher.wanted_stamp(False), stamp, "pypi")
    installed: list[list[str]] = []
    monkeypatch.setattr(launcher, "make_venv", lambda: None)
    monkeypatch.setattr(launcher, "install", lambda packages, build="": installed.append(packages))
    monkeypatch.setattr(launcher, "read_driver", lambda: driver("13.0"))
    launcher.STAMP.write_text(json.dumps(stamp))
    launcher.set_up(None, False)
    assert installed[0] == launcher.locked()
    assert installed[1][0].endswith("+cpu")
    assert installed[2][:2] == ["--no-deps", "--no-build-isolation"]  # nothing comes beside the lock, not even to build
    assert launcher.read_stamp()["torch"] == "cpu"
    (tmp_path / "left").touch()
    monkeypatch.setattr(launcher, "make_venv", lambda: launcher.VENV.mkdir(exist_ok=True))
    launcher.set_up("pypi", True)
    assert not (tmp_path / "left").exists()  # a +cpu build of a fitting version would satisfy pip: all is made anew
    assert installed[3] == launcher.locked("development")
    launcher.set_up(None, False)
    assert installed[7] == launcher.torch_arguments("pypi")
    launcher.STAMP.unlink()
    launcher.set_up(None, True)
    assert installed[9] == launcher.locked("development")
    assert installed[10][0].endswith("+cu130")
    launcher.set_up("cpu", True)
    assert installed[12] == launcher.locked("development", "cpu-kernels")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--home", "X", "train", "a.yaml"], ["train", "--home", "X", "a.yaml"]),
        (["--home=X", "runs"], ["runs", "--home=X"]),
        (["--home", "X"], ["--home", "X"]),
        (["--home", "X", "--port", "9000"], ["--home", "X", "--port", "9000"]),
        (["train", "a.yaml", "--home", "X"], ["train", "a.yaml", "--home", "X"]),
        (["--home"], ["--home"]),
    ],
)
def test_a_home_before_the_command_goes_behind_it(words: list[str], expected: list[str]) -> None:
    assert launcher.command_first(words) == expected


def test_a_folder_with_a_json_of_its_own_shadows_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, str] = {}
    monkeypatch.setattr(launcher.os, "execve", lambda program, words, environment: given.update(environment))
    launcher.hand_over(["runs"])
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        [sys.executable, "-m", "core.cli", "runs"],
        cwd=tmp_path,
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No runs yet" in done.stdout, done.stderr
    assert given["PYTHONUTF8"] == "1"  # text is UTF-8 also where LC_ALL says C


def test_pip_takes_nothing_from_the_persons_folder_path_or_pip_conf(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pip.conf with ``user = true`` and a json.py in the folder both ended the setup; PYTHONPATH hid packages."""
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "pip.conf").write_text("[install]\nuser = true\n")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (next(venv.glob("lib/*/site-packages")) / "borrowed.pth").write_text(str(Path(pip.__file__).parents[1]))
    monkeypatch.setattr(launcher, "VENV", venv)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    launcher.install(["--no-index", str(made_wheel(tmp_path))])
    assert list(venv.glob("lib/*/site-packages/tiny.py"))


def made_wheel(folder: Path) -> Path:
    """A package of one empty module, as pip takes it."""
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info/"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr(about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(about + "RECORD", "")
    return wheel
