"""Sends a finished export to the hub: into a repository that is private unless a person says otherwise.

create the repository ─► hash and send each file ─► one commit

The token goes to the hub alone: it is kept in no file, no log, no argument and no variable of another process. What was
sent stays at the hub by its hash, so a second try sends the rest.
"""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from core.contract.errors import Fault, HubError
from core.models.hub.client import is_offline

Tell = Callable[[int, int], None]
_CARD = "README.md"
_WEIGHTS = ".safetensors"
_FENCE = "---\n"


@dataclass
class _Progress:
    """Bytes read: each file is read to be hashed, and again to be sent."""

    total: int
    tell: Tell
    should_stop: Callable[[], bool]
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, size: int) -> None:
        """Tells the progress; ends the work where it was asked to stop."""
        if self.should_stop():
            raise InterruptedError("stopped")
        with self.lock:
            self.done += size
            self.tell(min(self.done, self.total), self.total)


class _Counted(io.BufferedReader):
    """A file whose reading is counted."""

    def __init__(self, path: Path, progress: _Progress) -> None:
        super().__init__(io.FileIO(path))
        self._progress = progress

    def read(self, size: int | None = -1, /) -> bytes:
        """See ``io.BufferedReader``."""
        content = super().read(size)
        self._progress.count(len(content))
        return content

    def readinto(self, buffer: Any, /) -> int:
        """See ``io.BufferedReader``."""
        count = super().readinto(buffer)
        self._progress.count(count)
        return count


def publish(
    folder: Path, to: str, tell: Tell, should_stop: Callable[[], bool], token: str = "", private: bool = True
) -> str:
    """Sends all files of an export's folder; returns the address of its page.

    Args:
        to: ``owner/name``.
        tell: told of (bytes done, bytes in all) from several threads; a byte counts when hashed and when sent.
        should_stop: asked at each read.
        token: with the right to write; empty: that of the person's own login.
        private: what a new repository is; one that is public is not written to where this is set.

    Raises:
        HubError: no token, a name or a repository that cannot be written to, no answer, or it was stopped.
        OSError: a file cannot be read.
    """
    with _explained(to, should_stop):
        from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
        from huggingface_hub.utils import validate_repo_id

        validate_repo_id(to)
        if "/" not in to:
            raise HubError("hub.bad_id", name=to)
        api = HfApi(token=token.strip() or get_token() or False)
        if not api.token:
            raise HubError("hub.token/none", name=to, endpoint=constants.ENDPOINT)
        page = str(api.create_repo(to, private=private, exist_ok=True))
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        _expect_own(api, to, private, set(files))
        progress = _Progress(2 * sum(path.stat().st_size for path in files.values()), tell, should_stop)
        card = files.pop(_CARD, None)
        operations = [CommitOperationAdd(name, _Counted(path, progress)) for name, path in files.items()]
        if card:
            operations.append(CommitOperationAdd(_CARD, _public_card(card.read_text(encoding="utf-8")).encode()))
        try:
            api.create_commit(to, operations, commit_message="Finetuned with Luthier")
        finally:
            for operation in operations:
                if isinstance(operation.path_or_fileobj, _Counted):
                    operation.path_or_fileobj.close()
    tell(progress.total, progress.total)
    return page


def _expect_own(api: Any, name: str, private: bool, files: set[str]) -> None:
    """Whether a repository that stood already may be written to.

    Raises:
        HubError: it is public, or holds weights that would be loaded in place of these.
    """
    info = api.model_info(name)
    if private and not info.private:
        raise HubError("hub.public", name=name)
    there = {str(entry.rfilename) for entry in info.siblings or ()}
    mine = {file for file in files if file.endswith(_WEIGHTS)}
    if mine and (others := sorted(file for file in there - mine if file.endswith(_WEIGHTS))):
        raise HubError("hub.other_weights", name=name, found=", ".join(others[:3]))


def _public_card(text: str) -> str:
    """The card as the hub takes it: the name of a folder on this machine is no base model there."""
    before, front, rest = (*text.split(_FENCE, 2), "", "")[:3]
    try:
        facts = yaml.safe_load(front)
    except yaml.YAMLError:
        facts = None
    if before or not isinstance(facts, dict):  # a person wrote it anew
        return text
    if "/" not in str(facts.get("base_model", "")):
        facts.pop("base_model", None)
    return f"{_FENCE}{yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)}{_FENCE}{rest}"


@contextmanager
def _explained(name: str, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Turns every error of huggingface_hub and the network into a Fault that repeats nothing of what was sent."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:  # noqa: BLE001 - the classes of the network below change between versions
        raise _translated(error, name, should_stop) from None


def _translated(error: Exception, name: str, should_stop: Callable[[], bool]) -> Fault:
    from huggingface_hub import constants, errors

    if should_stop():
        return HubError("hub.stopped/upload", name=name)
    if isinstance(error, errors.HFValidationError):
        return HubError("hub.bad_id", name=name)
    if is_offline():
        return HubError("hub.offline/upload", name=name)
    chain, inner = [error], error.__cause__ or error.__context__
    while isinstance(inner, Exception) and inner not in chain:  # an upload's error lies within another one
        chain.append(inner)
        inner = inner.__cause__ or inner.__context__
    statuses = (getattr(getattr(one, "response", None), "status_code", None) for one in chain)
    status = next((found for found in statuses if found is not None), None)
    if status == 401:
        return HubError("hub.token/refused", endpoint=constants.ENDPOINT, status=status)
    if status in (403, 404):
        return HubError("hub.write", name=name, status=status)
    if status is not None:
        return HubError("hub.unreachable/upload_status", endpoint=constants.ENDPOINT, name=name, status=status)
    return HubError("hub.unreachable/upload", endpoint=constants.ENDPOINT, name=name, kind=type(chain[-1]).__name__)
