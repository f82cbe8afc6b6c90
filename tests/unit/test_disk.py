"""Small files of ours: whole or not there, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from core.disk import drafted, folder_bytes, is_full, write_whole


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
