"""The model hub, through huggingface_hub's own code: describe, fetch with progress, and what lies in its cache.

Only safetensors, JSON, tokenizer files and chat templates are fetched, never ``*.bin`` and never Python. ``HF_HOME``,
``HF_ENDPOINT``, ``HF_HUB_OFFLINE`` and the token are huggingface_hub's own and are read by it when it is first
imported. It is imported inside functions, so that the window does not wait for it. Every fault becomes one line; no
line repeats what a server said, so no token can stand in it.
"""

import shutil
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from core.contract.catalogue import ModelSpec
from core.contract.errors import HubError, MachineError
from core.models.checks.files import read_json
from core.models.checks.folder import TOKENIZER_NAMES, check_config, is_instruct, read_shape
from core.models.checks.weights import INDEX_NAME, weight_files
from core.models.hub.cache import cache_root, cached_folder, is_commit, is_revision, repository_folder
from core.models.hub.faults import explained, is_offline

TOKENIZER_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
MODEL_FILES = ("*.safetensors", *TOKENIZER_FILES)
NOT_ALWAYS_NEEDED = ("*/*", "consolidated*.safetensors", "adapter*")
"""Folders inside a repository (onnx, original), a second copy of the weights, adapters."""
SPARE_BYTES = 500_000_000
POLL_SECONDS = 0.2


class FetchStopped(HubError):  # noqa: N818 - nothing failed: somebody asked for it
    """A download ended since somebody asked for it; what was fetched so far is kept and gone on with later."""

    def __init__(self, repo_id: str) -> None:
        super().__init__("hub.stopped", name=repo_id)


def describe(repo_id: str, revision: str = "") -> ModelSpec:
    """What a hub model is, from its listing and its config.json; no weights are fetched.

    ``revision`` of the answer is the commit. A cached model is described from the cache where the hub cannot be asked.

    Raises:
        HubError: missing, gated, unreachable, or without safetensors.
        ModelError: the model cannot be trained on here (remote code, foreign quantisation, no text model).
    """
    _check_revision(repo_id, revision)
    try:
        info = _model_info(repo_id, revision)
        path = _download_file(repo_id, "config.json", str(info.sha))
    except HubError as error:
        folder = cached_folder(repo_id, revision)
        if folder is None or error.code not in ("hub.unreachable", "hub.offline", "hub.gated"):
            raise
        return _spec(repo_id, folder.name, read_json(folder / "config.json"), folder)
    config = read_json(path)
    check_config(config, repo_id)
    sizes = _wanted(info)
    spec = _spec(repo_id, str(info.sha), config, cached_folder(repo_id, str(info.sha)))
    return spec.model_copy(
        update={
            "licence": str((info.card_data or {}).get("license") or ""),
            "gated": bool(info.gated),
            "instruct": _brings_template(info),
            "download_bytes": sum(size for name, size in sizes.items() if name.endswith(".safetensors")),
        }
    )


def fetch(
    repo_id: str, revision: str, on_progress: Callable[[int, int], None], should_stop: Callable[[], bool]
) -> Path:
    """Downloads a model into the Hugging Face cache; returns its folder, whose name is the commit.

    ``on_progress(done_bytes, total_bytes)`` is called in the caller's thread, at least at the end; without Xet
    huggingface_hub counts in pieces of 10 MB. A whole cached copy
    of a commit is returned without a request.

    Raises:
        FetchStopped: ``should_stop()`` answered yes.
        HubError: missing, gated, unreachable, offline, or without safetensors.
        ModelError: it cannot be trained on here, which is known before its weights are fetched.
        MachineError: the disk is too small for it.
    """
    _check_revision(repo_id, revision)
    folder = cached_folder(repo_id, revision)
    if folder is not None and (is_commit(revision) or is_offline()):
        return _cached_whole(folder, on_progress)
    try:
        info = _model_info(repo_id, revision)
    except HubError as error:
        if folder is None or error.code not in ("hub.unreachable", "hub.offline", "hub.gated"):
            raise
        return _cached_whole(folder, on_progress)
    sizes = _wanted(info)
    check_config(read_json(_download_file(repo_id, "config.json", str(info.sha))), repo_id)
    total = sum(sizes.values())
    _check_disk(total - _present(repo_id, str(info.sha), sizes), repo_id)
    if INDEX_NAME in sizes:
        # Before any weights: with it, what a stopped download left behind is known to be incomplete.
        _download_file(repo_id, INDEX_NAME, str(info.sha))
    present = _present(repo_id, str(info.sha), sizes)
    return _Download(repo_id, str(info.sha), revision, sorted(sizes)).run(present, total, on_progress, should_stop)


def fetch_tokenizer(repo_id: str, revision: str = "") -> Path:
    """The folder with config, tokenizer and template of a hub model, for the preview; a few megabytes at most.

    What was fetched before is given again without a request.

    Raises:
        HubError: as ``fetch``.
    """
    _check_revision(repo_id, revision)
    folder = cached_folder(repo_id, revision) or _tokenizer(repo_id, revision, here=True)
    if folder is None:
        with explained(repo_id, revision):
            folder = _tokenizer(repo_id, revision, here=False)
    assert folder is not None
    return folder


def _check_revision(repo_id: str, revision: str) -> None:
    """Before huggingface_hub makes a path of it, and whatever a mirror of the hub would answer."""
    if revision and not is_revision(revision):
        raise HubError("hub.no_revision/unknown", name=repo_id, revision=revision[:80])


def _tokenizer(repo_id: str, revision: str, here: bool) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            repo_id,
            revision=revision or None,
            allow_patterns=list(TOKENIZER_FILES),
            ignore_patterns=[*NOT_ALWAYS_NEEDED, INDEX_NAME],
            tqdm_class=_counting_bar(threading.Event(), []),
            local_files_only=here,
        )
    except (OSError, ValueError):
        if here:
            return None
        raise
    return Path(found) if any((Path(found) / name).is_file() for name in TOKENIZER_NAMES) or not here else None


class _Download:
    """One snapshot download in a thread of its own, so that a hub that falls silent can still be stopped."""

    def __init__(self, repo_id: str, commit: str, revision: str, names: list[str]) -> None:
        self.repo_id, self.commit, self.revision, self.names = repo_id, commit, revision, names
        self.stop = threading.Event()
        self.bars: list[Any] = []
        self.folder: Path | None = None
        self.error: BaseException | None = None

    def run(
        self, present: int, total: int, on_progress: Callable[[int, int], None], should_stop: Callable[[], bool]
    ) -> Path:
        thread = threading.Thread(target=self._fetch, name="download", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                if should_stop():
                    raise FetchStopped(self.repo_id)
                on_progress(min(present + self._counted(), total), total)
                thread.join(POLL_SECONDS)
        finally:
            self.stop.set()
        if self.error is not None:
            raise self.error
        assert self.folder is not None
        on_progress(total, total)
        return self.folder

    def _fetch(self) -> None:
        from huggingface_hub import snapshot_download

        try:
            with explained(self.repo_id, self.revision):
                found = snapshot_download(
                    self.repo_id,
                    revision=self.commit,
                    allow_patterns=self.names,
                    max_workers=4,
                    tqdm_class=_counting_bar(self.stop, self.bars),
                )
            self._remember(Path(found))
            self.folder = Path(found)
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread, which raises it
            self.error = error

    def _remember(self, folder: Path) -> None:
        """Writes the branch's name beside the snapshot, as huggingface_hub does when it is asked by name."""
        if not is_commit(self.revision):
            reference = folder.parents[1] / "refs" / (self.revision or "main")
            reference.parent.mkdir(parents=True, exist_ok=True)
            reference.write_text(self.commit, encoding="utf-8")

    def _counted(self) -> int:
        # Bytes received and bytes written are two bars of the same bytes: the fuller one is what was done.
        return max((int(bar.counted) for bar in list(self.bars)), default=0)


def _model_info(repo_id: str, revision: str) -> Any:
    """The hub's listing of a repository with file sizes; one request, ended after huggingface_hub's own time-out."""
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
    names = {str(entry.rfilename): int(entry.size or 0) for entry in info.siblings or ()}
    wanted = {
        name: size
        for name, size in names.items()
        if _matches(name, MODEL_FILES) and not _matches(name, NOT_ALWAYS_NEEDED)
    }
    if not any(name.endswith(".safetensors") for name in wanted):
        found = next((name for name in sorted(names) if name.endswith((".bin", ".gguf", ".pt", ".pth"))), "no weights")
        raise HubError("hub.not_safetensors", id=info.id, found=found)
    return wanted


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _brings_template(info: Any) -> bool:
    names = {str(entry.rfilename) for entry in info.siblings or ()}
    config = info.config or {}
    return "chat_template.jinja" in names or bool((config.get("tokenizer_config") or {}).get("chat_template"))


def _spec(repo_id: str, commit: str, config: dict[str, Any], folder: Path | None) -> ModelSpec:
    return ModelSpec(
        key=f"hub:{repo_id}",
        title=repo_id.rpartition("/")[2],
        source="hub",
        name=repo_id,
        revision=commit,
        model_type=str(config["model_type"]),
        shape=read_shape(config, repo_id),
        instruct=is_instruct(folder) if folder else False,
        cached=folder is not None,
        folder=str(folder or ""),
    )


def _cached_whole(folder: Path, on_progress: Callable[[int, int], None]) -> Path:
    total = sum(path.stat().st_size for path in weight_files(folder))
    on_progress(total, total)
    return folder


def _present(repo_id: str, commit: str, sizes: dict[str, int]) -> int:
    """Bytes of the wanted files that already lie in the snapshot."""
    folder = repository_folder(repo_id) / "snapshots" / commit
    return sum(size for name, size in sizes.items() if (folder / name).exists())


def _check_disk(needed_bytes: int, repo_id: str) -> None:
    folder = cache_root()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed_bytes > 0 and free < needed_bytes + SPARE_BYTES:
        raise MachineError(
            "disk.small",
            needed=(needed_bytes + SPARE_BYTES) / 1000000000.0,
            name=repo_id,
            folder=cache_root(),
            free=free / 1000000000.0,
        )


def _counting_bar(stop: threading.Event, bars: list[Any]) -> Any:
    """A silent tqdm that counts bytes and ends the download when asked: ``tqdm_class`` is there for it."""
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
