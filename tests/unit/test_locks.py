"""The lock holds what pyproject.toml asks for, by version and hash and nothing else, for every supported Python."""

import json
import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import locks
import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import launcher

ROOT = locks.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FILES = sorted(locks.LOCKS.glob("*.txt"))
LINE = re.compile(
    r"(#.*|[a-z0-9][a-z0-9-]*==[0-9][0-9a-z.!+]*( ; [a-zA-Z0-9_ .'<>=!()]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?)"
)


def held(*names: str) -> list[Requirement]:
    """The requirements of some files of the lock."""
    texts = [(locks.LOCKS / f"{name}.txt").read_text("utf-8") for name in names]
    return [Requirement(key) for text in texts for key in locks.read_entries(text)]


def environment(python: str, **machine: str) -> dict[str, str]:
    """What a requirement's marker is asked under."""
    return {**default_environment(), "python_version": python, "python_full_version": f"{python}.0", **machine}


def chosen(requirements: list[Requirement], python: str, **machine: str) -> dict[str, str]:
    """Name to version of what this Python installs on this machine."""
    here = environment(python, **machine)
    found: dict[str, str] = {}
    for one in requirements:
        if one.marker is None or one.marker.evaluate(here):
            assert one.name not in found, f"{one.name} twice for Python {python}"
            found[canonicalize_name(one.name)] = next(iter(one.specifier)).version
    return found


def test_a_lock_is_names_versions_markers_and_hashes_and_no_address_or_path() -> None:
    assert [path.stem for path in FILES] == ["cpu-kernels", "development", "packages", "tools"]
    for path in FILES:
        odd = [line for line in path.read_text("utf-8").splitlines() if not LINE.fullmatch(line)]
        assert odd == [], path.name
        assert "://" not in path.read_text("utf-8")
        entries = locks.read_entries(path.read_text("utf-8"))
        assert entries
        assert [key for key, text in entries.items() if "--hash=sha256:" not in text] == []


@pytest.mark.parametrize("python", locks.PYTHONS)
@pytest.mark.parametrize(
    "machine", [{}, {"sys_platform": "darwin", "platform_machine": "arm64"}], ids=["linux", "macos"]
)
def test_the_lock_satisfies_what_the_project_asks_for(python: str, machine: dict[str, str]) -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {
        ("packages",): PROJECT["project"]["dependencies"],
        ("packages", "development"): extras["dev"],
        ("packages", "development", "tools"): extras["tools"],
        ("cpu-kernels",): extras["cpu-kernels"],
    }
    for files, requirements in wanted.items():
        found = chosen(held(*files), python, **machine)
        for one in map(Requirement, requirements):
            if one.name == "torch" or (one.marker and not one.marker.evaluate(environment(python, **machine))):
                continue
            assert one.specifier.contains(found[canonicalize_name(one.name)], prereleases=True), one


def test_torch_is_pinned_to_versions_that_the_project_allows_and_in_no_lock() -> None:
    (allowed,) = [one for one in map(Requirement, PROJECT["project"]["dependencies"]) if one.name == "torch"]
    assert all(allowed.specifier.contains(one) for one in launcher.TORCH_VERSIONS.values())
    names = {one.name for one in held("packages", "development", "tools", "cpu-kernels")}
    assert not {name for name in names if name == "torch" or name.startswith(("nvidia-cu", "nvidia-nccl"))}
    (own,) = PROJECT["tool"]["uv"]["dependency-metadata"]
    found = chosen(held("packages"), "3.12")
    for one in map(Requirement, own["requires-dist"]):  # with these there torch's installation fetches none of its own
        assert one.specifier.contains(found[one.name])


def test_setup_takes_the_lock_and_nothing_beside_it() -> None:
    told = launcher.locked("development")
    assert told[:4] == ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    assert [word.rpartition("/")[2] for word in told if word.endswith(".txt")] == ["packages.txt", "development.txt"]


def test_what_is_installed_is_what_is_locked() -> None:
    """Where setup made this environment from this lock: one that was put together by hand is its owner's."""
    stamp = launcher.read_stamp()
    if stamp.get("packages") != launcher.wanted_stamp(True)["packages"]:
        pytest.skip("this environment was not made from this lock")
    found = chosen(held("packages", "development"), f"{stamp['python']}")
    wrong = {}
    for name, locked in found.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "none"
        if installed == "none" or Version(installed) != Version(locked):
            wrong[name] = (locked, installed)
    assert wrong == {}


def test_a_changed_lock_is_a_new_setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    before = launcher.wanted_stamp(False)
    (tmp_path / "packages.txt").write_text("a==1\n")
    monkeypatch.setattr(launcher, "LOCKS", tmp_path)
    assert launcher.wanted_stamp(False) != before


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, "Nothing is known"),
        ([{"name": "a", "skip_reason": "not found"}], 2, "Connect to the internet"),
        (
            [
                {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]},
                {"name": "b", "skip_reason": ""},
            ],
            1,
            "PYSEC-1 (mended in 2)",
        ),
    ],
)
def test_an_audit_that_asked_nobody_is_no_good_news(
    found: list[dict[str, Any]], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert locks.judge(found) == code
    assert said in capsys.readouterr().out


def test_entries_are_read_as_they_are_written(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCKS", tmp_path)
    hashes = f" \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}"
    entries = {
        "a==1": f"a==1{hashes}",
        "b==2 ; python_full_version < '3.12'": f"b==2 ; python_full_version < '3.12'{hashes}",
    }
    locks.write("packages", entries)
    assert locks.read_all() == entries
    assert json.dumps(sorted(path.name for path in tmp_path.iterdir())) == '["packages.txt"]'
