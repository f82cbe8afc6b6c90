"""What can go wrong with the hub, each as one line that says what to do. Nothing that a server wrote is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager

from core.contract.errors import HubError, MachineError, StudioError
from core.machine.disk import is_full


@contextmanager
def explained(repo_id: str, revision: str) -> Iterator[None]:
    """Turns every fault of huggingface_hub, of the network below it and of the disk into a StudioError."""
    try:
        yield
    except StudioError:
        raise
    except Exception as error:  # the classes of the network below change between versions
        raise _translate(error, repo_id, revision) from error


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE was set when huggingface_hub was first imported."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _translate(error: Exception, repo_id: str, revision: str) -> StudioError:
    from huggingface_hub import constants, errors

    at = f" at revision {revision}" if revision else ""
    if is_full(error):
        return MachineError(
            "disk.full",
            f"The disk filled up while {repo_id} was fetched.",
            "Free some space; it goes on where it stood.",
        )
    if isinstance(error, errors.GatedRepoError):
        return HubError(
            "hub.gated",
            f"{repo_id} is given only to people who accepted its terms, and no such token was found.",
            f"Accept the terms at {constants.ENDPOINT}/{repo_id}, then run: hf auth login",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return HubError(
            "hub.no_revision",
            f"Expected {repo_id}{at} on the hub, found no such revision.",
            "Leave the revision empty.",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return HubError(
            "hub.missing",
            f"Expected a model {repo_id!r} on the hub, found none (or it is private).",
            "Check the spelling (owner/name); for a private model run: hf auth login",
        )
    if isinstance(error, errors.HFValidationError):
        return HubError(
            "hub.bad_id", f"Expected a hub id such as owner/name, found {repo_id!r}.", "Check the spelling."
        )
    if is_offline():
        return HubError(
            "hub.offline",
            f"Expected {repo_id}{at} in the cache, since HF_HUB_OFFLINE is set; found no whole copy.",
            "Unset HF_HUB_OFFLINE to fetch it, or choose a model that is cached.",
        )
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return HubError("hub.no_file", f"{repo_id} lacks a file that is needed (config.json).", "Choose another model.")
    return _by_answer(error, repo_id, constants.ENDPOINT)


def _by_answer(error: Exception, repo_id: str, endpoint: str) -> HubError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return HubError(
            "hub.refused", f"The hub refused {repo_id} (HTTP {status}).", "Renew the token with: hf auth login"
        )
    if status is not None:
        return HubError(
            "hub.unreachable",
            f"Expected an answer from {endpoint} about {repo_id}, found HTTP {status}.",
            "Try again later; cached models work meanwhile.",
        )
    return HubError(
        "hub.unreachable",
        f"Expected an answer from {endpoint} about {repo_id}, found none ({type(error).__name__}).",
        "Check the network; cached models, local folders and the starter work without it.",
    )
