"""The model hub, through huggingface_hub: describe a model, fetch it with progress.

Only safetensors, JSON, tokenizer files and chat templates are fetched. ``HF_HOME``, ``HF_ENDPOINT``,
``HF_HUB_OFFLINE`` and the token are read by huggingface_hub at its first import, which is slow and so inside functions.
Faults repeat nothing that a server said, so that no token gets into them.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.errors import Fault, HubError, MachineError
from core.machine.disk import is_full
from core.machine.host import Host, begun
from core.models.checks.files import read_json
from core.models.checks.folder import TOKENIZER_NAMES, check_config, spec_of
from core.models.checks.weights import INDEX_NAME, weights_bytes
from core.models.encoders import TOKENIZERS
from core.models.hub.cache import cache_root, cached_folder, is_commit, is_revision, repository_folder

TOKENIZER_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
MODEL_FILES = ("*.safetensors", *TOKENIZER_FILES)
NOT_ALWAYS_NEEDED = ("*/*", "consolidated*.safetensors", "adapter*")
"""Folders inside a repository (onnx, original), a second copy of the weights, adapters."""
SPARE_BYTES = 500_000_000
POLL_SECONDS = 0.2
_AWAY = ("hub.unreachable", "hub.offline", "hub.gated")
"""With these faults a cached copy is taken as it is."""


class FetchStopped(HubError):  # noqa: N818 - nothing failed: somebody asked for it
    """A download was stopped; what was fetched is kept, and the next one goes on from there."""

    def __init__(self, repo_id: str) -> None:
        super().__init__("hub.stopped", name=repo_id)


def describe(repo_id: str, revision: str = "") -> ModelSpec:
    """What a hub model is, from its listing and its config.json, or from the cache where the hub cannot be asked. The
    spec's ``revision`` is the commit.

    Raises:
        HubError: missing, gated, unreachable, or without safetensors.
        ModelError: the model cannot be trained on here (remote code, foreign quantisation, no text model).
    """
    _check_revision(repo_id, revision)
    try:
        info = _model_info(repo_id, revision)
        path = _download_file(repo_id, "config.json", info.sha)
    except HubError as error:
        folder = cached_folder(repo_id, revision)
        if folder is None or error.code not in _AWAY:
            raise
        return spec_of(read_json(folder / "config.json"), "hub", repo_id, folder.name, folder)
    spec = spec_of(read_json(path), "hub", repo_id, info.sha, cached_folder(repo_id, info.sha))
    template = ((info.config or {}).get("tokenizer_config") or {}).get("chat_template")
    return spec.model_copy(
        update={
            "licence": str((info.card_data or {}).get("license") or ""),
            "gated": bool(info.gated),
            "instruct": bool(template)
            or any(entry.rfilename == "chat_template.jinja" for entry in info.siblings or ()),
            "download_bytes": sum(size for name, size in _wanted(info).items() if name.endswith(".safetensors")),
        }
    )


def fetch(
    repo_id: str, revision: str, on_progress: Callable[[int, int], None], should_stop: Callable[[], bool]
) -> Path:
    """Downloads a model into the Hugging Face cache; returns its folder, whose name is the commit.

    ``on_progress(done_bytes, total_bytes)`` is called in the caller's thread, at least at the end. A whole cached copy
    of a commit is returned without a request.

    Raises:
        FetchStopped: ``should_stop()`` answered yes.
        HubError: missing, gated, unreachable, offline, or without safetensors.
        ModelError: it cannot be trained on here; raised before its weights are fetched.
        MachineError: the disk is too small for it.
    """
    _check_revision(repo_id, revision)
    cached = cached_folder(repo_id, revision)
    try:
        info = None if cached and (is_commit(revision) or is_offline()) else _model_info(repo_id, revision)
    except HubError as error:
        if cached is None or error.code not in _AWAY:
            raise
        info = None
    if cached and info is None:
        total = weights_bytes(cached)
        on_progress(total, total)
        return cached
    assert info is not None
    sizes, commit = _wanted(info), info.sha
    check_config(read_json(_download_file(repo_id, "config.json", commit)), repo_id)
    needed = sum(sizes.values()) - _present(repo_id, commit, sizes) + SPARE_BYTES
    free = Host().free_bytes(cache_root())
    if free is not None and SPARE_BYTES < needed > free:
        raise MachineError("disk.small", needed=needed / 1e9, name=repo_id, folder=cache_root(), free=free / 1e9)
    if INDEX_NAME in sizes:
        # Before any weights: it shows that what a stopped download left is incomplete.
        _download_file(repo_id, INDEX_NAME, commit)
    folder = _download(repo_id, commit, sizes, on_progress, should_stop)
    if not is_commit(revision):  # the branch's name beside the snapshot, as huggingface_hub does when asked by name
        reference = repository_folder(repo_id) / "refs" / (revision or "main")
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(commit, encoding="utf-8")
    return folder


def fetch_tokenizer(repo_id: str, revision: str = "") -> Path:
    """The folder with config, tokenizer and template of a hub model; what is cached is returned without a request.

    Raises:
        HubError: as ``fetch``.
    """
    _check_revision(repo_id, revision)
    if folder := cached_folder(repo_id, revision):
        return folder
    from huggingface_hub import snapshot_download

    wanted: dict[str, Any] = {
        "revision": revision or None,
        "allow_patterns": list(TOKENIZER_FILES),
        "ignore_patterns": [*NOT_ALWAYS_NEEDED, INDEX_NAME],
        "tqdm_class": _counting_bar(threading.Event(), []),
    }
    try:
        folder = Path(snapshot_download(repo_id, local_files_only=True, **wanted))
        if any((folder / name).is_file() for name in (*TOKENIZER_NAMES, *TOKENIZERS)):
            return folder
    except (OSError, ValueError):
        pass  # nothing of it was fetched before
    with explained(repo_id, revision):
        return Path(snapshot_download(repo_id, **wanted))


def _check_revision(repo_id: str, revision: str) -> None:
    """To be called before huggingface_hub makes a path of it."""
    if revision and not is_revision(revision):
        raise HubError("hub.no_revision/unknown", name=repo_id, revision=revision[:80])


def _download(
    repo_id: str,
    commit: str,
    sizes: dict[str, int],
    on_progress: Callable[[int, int], None],
    should_stop: Callable[[], bool],
) -> Path:
    """A snapshot download in its own thread, so that it can be stopped while the hub is silent."""
    stop, bars = threading.Event(), list[Any]()

    def work() -> Path:
        with explained(repo_id, commit):
            from huggingface_hub import snapshot_download

            bar, wanted = _counting_bar(stop, bars), sorted(sizes)
            return Path(
                snapshot_download(repo_id, revision=commit, allow_patterns=wanted, max_workers=4, tqdm_class=bar)
            )

    present, total = _present(repo_id, commit, sizes), sum(sizes.values())
    fetched = begun(work, "download")
    try:
        while not fetched.done():
            if should_stop():
                raise FetchStopped(repo_id)
            # Bytes received and bytes written have a bar each.
            counted = max((int(bar.counted) for bar in list(bars)), default=0)
            on_progress(min(present + counted, total), total)
            wait([fetched], POLL_SECONDS)
    finally:
        stop.set()
    folder = fetched.result()
    on_progress(total, total)
    return folder


def _model_info(repo_id: str, revision: str) -> Any:
    """The hub's listing of a repository with file sizes."""
    with explained(repo_id, revision):
        from huggingface_hub import HfApi, constants

        return HfApi().model_info(
            repo_id, revision=revision or None, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )


def _download_file(repo_id: str, name: str, commit: str) -> Path:
    with explained(repo_id, commit):
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(repo_id, name, revision=commit, tqdm_class=_counting_bar(threading.Event(), [])))


def _wanted(info: Any) -> dict[str, int]:
    """Names and sizes of the files that are fetched.

    Raises:
        HubError: no safetensors among them.
    """

    def is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    names = {str(entry.rfilename): int(entry.size or 0) for entry in info.siblings or ()}
    wanted = {
        name: size
        for name, size in names.items()
        if is_one_of(name, MODEL_FILES) and not is_one_of(name, NOT_ALWAYS_NEEDED)
    }
    if not any(name.endswith(".safetensors") for name in wanted):
        other = next((name for name in sorted(names) if name.endswith((".bin", ".gguf", ".pt", ".pth"))), "no weights")
        raise HubError("hub.not_safetensors", id=info.id, found=other)
    return wanted


def _present(repo_id: str, commit: str, sizes: dict[str, int]) -> int:
    """Bytes of the wanted files that already lie in the snapshot."""
    folder = repository_folder(repo_id) / "snapshots" / commit
    return sum(size for name, size in sizes.items() if (folder / name).exists())


def _counting_bar(stop: threading.Event, bars: list[Any]) -> Any:
    """A silent ``tqdm_class`` that counts bytes, and ends the download when ``stop`` is set."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    class CountingBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.counted = 0.0
            if kwargs.get("unit") == "B":
                bars.append(self)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if stop.is_set():
                raise InterruptedError("stopped")
            self.counted += n or 0
            return None

    return CountingBar


@contextmanager
def explained(repo_id: str, revision: str) -> Iterator[None]:
    """Turns every error of huggingface_hub, the network and the disk into a Fault."""
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
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return HubError("hub.refused", name=repo_id, status=status)
    if status is not None:
        return HubError("hub.unreachable/status", endpoint=constants.ENDPOINT, name=repo_id, status=status)
    return HubError("hub.unreachable/no_answer", endpoint=constants.ENDPOINT, name=repo_id, kind=type(error).__name__)
