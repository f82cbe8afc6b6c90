"""What can go wrong with the hub, each as one line that says what to do. Nothing that a server wrote is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager

from core.contract.errors import Fault, HubError, MachineError
from core.machine.disk import is_full


@contextmanager
def explained(repo_id: str, revision: str) -> Iterator[None]:
    """Turns every fault of huggingface_hub, of the network below it and of the disk into a Fault."""
    try:
        yield
    except Fault:
        raise
    except Exception as error:  # the classes of the network below change between versions
        raise _translate(error, repo_id, revision) from error


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE was set when huggingface_hub was first imported."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _translate(error: Exception, repo_id: str, revision: str) -> Fault:
    from huggingface_hub import constants, errors

    at = f" at revision {revision}" if revision else ""
    if is_full(error):
        return MachineError("disk.full/download", name=repo_id)
    if isinstance(error, errors.GatedRepoError):
        return HubError("hub.gated/model", name=repo_id, endpoint=constants.ENDPOINT)
    if isinstance(error, errors.RevisionNotFoundError):
        return HubError("hub.no_revision/not_there", name=repo_id, at=at)
    if isinstance(error, errors.RepositoryNotFoundError):
        return HubError("hub.missing/model", name=repo_id)
    if isinstance(error, errors.HFValidationError):
        return HubError("hub.bad_id", name=repo_id)
    if is_offline():
        return HubError("hub.offline/model", name=repo_id, at=at)
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return HubError("hub.no_file", name=repo_id)
    return _by_answer(error, repo_id, constants.ENDPOINT)


def _by_answer(error: Exception, repo_id: str, endpoint: str) -> HubError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return HubError("hub.refused", name=repo_id, status=status)
    if status is not None:
        return HubError("hub.unreachable/status", endpoint=endpoint, name=repo_id, status=status)
    return HubError("hub.unreachable/no_answer", endpoint=endpoint, name=repo_id, kind=type(error).__name__)
