"""The root folder of runs and data (``--home`` or LUTHIER_HOME), and the repository's folders."""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.errors import MachineError

REPOSITORY = Path(__file__).resolve().parents[2]
ASSETS = REPOSITORY / "assets"
PRESETS = REPOSITORY / "presets"
USUAL = "luthier-studio"


class Entry:
    """A path by its name below the owner's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _type: type | None = None) -> Path:
        folder: Path = owner.home if isinstance(owner, Locations) else owner.path
        return folder / self._name


@dataclass(frozen=True)
class Locations:
    """The folders and files under one root; only ``make()`` creates any."""

    home: Path

    @classmethod
    def find(cls, home: str | Path | None = None) -> Locations:
        """The given root, else LUTHIER_HOME, else ``~/luthier-studio`` (``~/luthier`` may be a clone).

        Raises:
            MachineError: the root would be the repository's own folder.
        """
        chosen = home or os.environ.get("LUTHIER_HOME") or Path.home() / USUAL
        root = Path(chosen).expanduser().resolve()
        if root == REPOSITORY:
            raise MachineError("home.repository", root=root)
        return cls(root)

    runs = Entry("runs")
    """One folder a run."""
    data = Entry("data")
    """Data files under their content hashes."""
    uploads = Entry("uploads")
    """Unfinished uploads, under our own names."""
    locks = Entry("locks")
    """One lock file a card (``gpu-UUID``) and one for the CPU."""
    changes = Entry("changes")
    """A person's changes of rows of data files, a list under each file's content hash."""
    cache = Entry("cache")
    """Tokenised rows and lengths, which can be made again."""
    proofs = Entry("proofs")
    """One folder a proof."""
    queue = Entry("queue.json")
    """The waiting jobs, in order."""
    kernels = Entry("kernels.json")
    """The environment in which our kernels last ran."""
    draft = Entry("draft.json")
    """The choices of the form for a new run."""
    report_choices = Entry("report_choices.json")
    """What answers have to be, and the texts that nothing may be forgotten of."""
    settings = Entry("settings.json")
    """What was chosen for the whole studio."""
    studio = Entry("studio.json")
    """The living studio's process and port, for a second start."""
    sessions = Entry("sessions.json")
    """Hashed cookies of the browsers that were let in (0600)."""
    password = Entry("password.json")
    """The salted hash of the password of ``--listen`` (0600)."""

    def command(self, *words: str | Path) -> str:
        """A command line for a person, quoted for a shell, with ``--home`` where that is needed."""
        known = self.home == (Path.home() / USUAL).resolve() and not os.environ.get("LUTHIER_HOME")
        home = () if known else ("--home", str(self.home))
        return shlex.join(["python3", "launcher.py", *map(str, words), *home])

    def expected(self, named: bool) -> Locations:
        """These, for a command that creates nothing; a root that was named must exist.

        Raises:
            MachineError: it is no folder.
        """
        variable = os.environ.get("LUTHIER_HOME")
        if (named or variable) and not self.home.is_dir():
            where = "--home" if named else f"LUTHIER_HOME={variable}"
            raise MachineError("home.missing", home=self.home, where=where)
        return self

    def make(self) -> Locations:
        """Creates the folders, readable by their owner only.

        Raises:
            MachineError: all users of this machine may write to the root.
        """
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Who may write to the root may replace our files. A disk without permissions (Windows' under WSL, a USB stick)
        # shows every file as writable by all: it is told by a file made with 0600, and accepted.
        if self.home.stat().st_mode & stat.S_IWOTH:
            from tempfile import TemporaryFile  # slow to import, and rarely needed

            keeps = True
            with suppress(OSError), TemporaryFile(dir=self.home) as file:
                keeps = not os.fstat(file.fileno()).st_mode & stat.S_IWOTH
            if keeps:
                raise MachineError("home.open", home=self.home, proposed=self.home / "luthier")
        for folder in (self.home, self.runs, self.data, self.uploads, self.locks, self.cache):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self
