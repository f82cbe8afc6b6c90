"""Small files of ours: whole or not there, whatever happens while they are written."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.machine.disk import cure, drafted, folder_bytes, is_full, open_plain, read_plain, write_whole
from core.machine.locations import REPOSITORY


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "known.json"
    write_whole(target, "first\n")
    write_whole(target, "höher".encode(), durable=True)
    assert target.read_text(encoding="utf-8") == "höher"
    assert list(tmp_path.iterdir()) == [target]
    assert folder_bytes(tmp_path) == 6
    assert folder_bytes(tmp_path, "known.json") == 0


def test_what_only_its_owner_reads_was_never_readable_by_others(tmp_path: Path) -> None:
    seen = []
    real = os.open

    def opened(path: Path, flags: int, mode: int = 0o777) -> int:
        seen.append(mode)
        return real(path, flags, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        write_whole(tmp_path / "secret", "x", mode=0o600)
    assert seen == [0o600]
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_what_stood_and_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "known.json"
    write_whole(target, "first")

    def cut_short() -> None:
        with drafted(target) as draft:
            draft.write_text("sec")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space") as caught:
        cut_short()
    assert is_full(caught.value)
    assert not is_full(PermissionError(errno.EACCES, "no"))
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_text() == "first"


def test_a_file_that_others_wrote_is_read_only_where_it_is_a_plain_one(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"12345678")
    (tmp_path / "link").symlink_to(plain)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert read_plain(plain, 8) == b"12345678"
    for name, why in {"link": os.strerror(errno.ELOOP), "folder": "Not a regular", "pipe": "Not a regular"}.items():
        with pytest.raises(OSError, match=why):
            read_plain(tmp_path / name, 8)
    with pytest.raises(OSError, match="Larger than 7 bytes"):
        read_plain(plain, 7)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="Not a regular"):
        os.close(open_plain(Path("/dev/null")))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_link_is_never_followed_to_write_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "log").symlink_to(elsewhere)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        os.close(open_plain(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    assert not elsewhere.exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "Make room on this disk, then resume."),
        (errno.EDQUOT, "Make room"),
        (errno.ENOLCK, "keeps no file locks"),
        (errno.EOPNOTSUPP, "keeps no file locks"),
        (errno.EROFS, "right to write"),
        (errno.EIO, "does not answer"),
        (errno.ELOOP, "can be written"),
    ],
)
def test_a_disk_that_refuses_is_cured_by_its_reason(code: int, words: str) -> None:
    refused = OSError(code, os.strerror(code))
    assert words in cure(refused, "then resume")
    around = RuntimeError("around it")
    around.__cause__ = refused
    assert cure(around) == cure(refused)


def test_nothing_that_a_command_makes_may_be_written_by_others(tmp_path: Path) -> None:
    """Under ``umask 000``, and with a store that makes a run."""
    made = (
        "import sys; from core.cli.commands import main; from core.machine.terminal import exit_code;"
        "from core.contract.config import DataChoice, RunConfig; from core.machine.locations import Locations;"
        "from core.runs.control.store import RunStore; from tests.bare_run import bare_run;"
        "home = sys.argv[1];"
        "exit_code(lambda: bare_run(RunStore(Locations.find(home).make()), "
        "RunConfig(data=DataChoice(path='/x')), 'draft').exports.mkdir() or 0);"
        "sys.exit(main(['runs', '--home', home]))"
    )
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-c", made, str(home)], cwd=REPOSITORY, umask=0, check=True, capture_output=True)
    found = {path: path.stat().st_mode & 0o777 for path in [home, *home.rglob("*")]}
    assert len(found) > 8
    assert {path: oct(mode) for path, mode in found.items() if mode & 0o022} == {}
    assert {path: oct(mode) for path, mode in found.items() if path.parent in (tmp_path, home) and mode & 0o077} == {}
