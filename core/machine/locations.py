"""Where things lie: one root folder, moved by ``--home`` or LUTHIER_HOME; and the repository's own folders."""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.contract.errors import MachineError

__all__ = ["ASSETS", "PRESETS", "REPOSITORY", "Locations"]

REPOSITORY = Path(__file__).resolve().parents[2]
ASSETS = REPOSITORY / "assets"
PRESETS = REPOSITORY / "presets"
USUAL = "luthier-studio"


@dataclass(frozen=True)
class Locations:
    """The folders and files under one root. Nothing is created by asking; ``make()`` creates the folders, private."""

    home: Path

    @classmethod
    def find(cls, home: str | Path | None = None) -> Locations:
        """The given root, else LUTHIER_HOME, else ``~/luthier-studio`` (``~/luthier`` is where a clone lies).

        Raises:
            MachineError: the root would be the repository's own folder.
        """
        chosen = home or os.environ.get("LUTHIER_HOME") or Path.home() / USUAL
        root = Path(chosen).expanduser().resolve()
        if root == REPOSITORY:
            message = f"Expected a folder for runs and data, found Luthier's own program folder: {root}."
            raise MachineError("home.repository", message, "Choose another: --home ~/luthier-studio")
        return cls(root)

    @property
    def runs(self) -> Path:
        """One folder a run."""
        return self.home / "runs"

    @property
    def data(self) -> Path:
        """Data files, kept once each under their content hash."""
        return self.home / "data"

    @property
    def uploads(self) -> Path:
        """Files on their way in, under names of ours."""
        return self.home / "uploads"

    @property
    def locks(self) -> Path:
        """One lock file a card (``gpu-UUID``) and one for the CPU."""
        return self.home / "locks"

    @property
    def cache(self) -> Path:
        """What can be thrown away: tokenised rows, lengths."""
        return self.home / "cache"

    @property
    def proofs(self) -> Path:
        """What was proven and measured on this machine, one folder a proof."""
        return self.home / "proofs"

    @property
    def queue(self) -> Path:
        """The waiting jobs, in order."""
        return self.home / "queue.json"

    @property
    def kernels(self) -> Path:
        """With what our kernels were tried and ran."""
        return self.home / "kernels.json"

    @property
    def draft(self) -> Path:
        """What the visitor has chosen so far."""
        return self.home / "draft.json"

    @property
    def studio(self) -> Path:
        """The living studio's process and port, for a second start to find."""
        return self.home / "studio.json"

    @property
    def sessions(self) -> Path:
        """Hashed cookies of the browsers that were let in (0600)."""
        return self.home / "sessions.json"

    @property
    def password(self) -> Path:
        """The salted hash of the password of ``--listen`` (0600)."""
        return self.home / "password.json"

    def command(self, *words: str | Path) -> str:
        """A command line for a person, quoted for a shell; it names this root where it would not be found without."""
        known = self.home == (Path.home() / USUAL).resolve() and not os.environ.get("LUTHIER_HOME")
        home = () if known else ("--home", str(self.home))
        return shlex.join(["python3", "launcher.py", *map(str, words), *home])

    def expected(self, named: bool) -> Locations:
        """These, for a command that makes nothing: a root that somebody named has to stand there.

        Raises:
            MachineError: nothing, or no folder, has that name.
        """
        variable = os.environ.get("LUTHIER_HOME")
        if (named or variable) and not self.home.is_dir():
            where = "--home" if named else f"LUTHIER_HOME={variable}"
            message = f"Expected a folder with runs at {self.home}, found no such folder."
            raise MachineError("home.missing", message, f"Check {where}: nothing is made by looking.")
        return self

    def make(self) -> Locations:
        """Creates the folders, readable by their owner only.

        Raises:
            MachineError: all users of this machine may write to the root.
        """
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(self.home)
        for folder in (self.home, self.runs, self.data, self.uploads, self.locks, self.cache):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self


def _check_owner(home: Path) -> None:
    """Whoever may write beside our files may put others in their place.

    A disk that keeps no permissions (Windows' under WSL, a USB stick) shows everything as everybody's: there they say
    nothing, and nothing could be done.
    """
    if not home.stat().st_mode & stat.S_IWOTH:
        return
    from tempfile import TemporaryFile  # brings much along, and is asked here only

    with suppress(OSError), TemporaryFile(dir=home) as file:  # made with 0600
        if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
            return
    message = f"Expected a folder for runs and data that only you may write to, found one that everybody may: {home}."
    raise MachineError("home.open", message, f"Choose another, such as --home {home / 'luthier'}; or: chmod o-w {home}")
