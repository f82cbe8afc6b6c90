"""What is in the Hugging Face cache; never asks the network.

The layout is the documented one of huggingface_hub: ``models--OWNER--NAME`` holds ``refs/BRANCH`` (a commit) and
``snapshots/COMMIT/`` with links to ``blobs`` (https://huggingface.co/docs/huggingface_hub, "Manage your cache").
"""

import re
from pathlib import Path

from core.contract.errors import ModelError
from core.models.checks.files import is_plain_name
from core.models.checks.weights import weight_files

_REVISION = re.compile(r"\w[\w.+@#=,/-]{0,199}")


def is_cached(repo_id: str, revision: str = "") -> bool:
    """Whether a whole model is in the cache."""
    return cached_folder(repo_id, revision) is not None


def cached_folder(repo_id: str, revision: str = "") -> Path | None:
    """The snapshot folder of a whole cached model (config and every weight file), else None."""
    root = repository_folder(repo_id)
    commit = revision or "main"
    if not is_revision(commit):
        return None
    if not is_commit(commit):
        reference = root / "refs" / commit
        if not reference.is_file():
            return None
        commit = reference.read_text(encoding="utf-8", errors="replace").strip()[:80]
    if not is_plain_name(commit):
        return None  # a reference file must not lead to another folder
    folder = root / "snapshots" / commit
    if not (folder / "config.json").is_file():
        return None
    try:
        return folder if all(path.exists() for path in weight_files(folder)) else None
    except ModelError:
        return None


def cached_repositories() -> list[str]:
    """Ids of all models in the Hugging Face cache, whole or not."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir(cache_root())
    except (CacheNotFound, OSError):
        return []
    return sorted(repo.repo_id for repo in cache.repos if repo.repo_type == "model")


def cache_root() -> Path:
    """huggingface_hub's cache folder; HF_HOME and HF_HUB_CACHE move it."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repository_folder(repo_id: str) -> Path:
    """The cache's folder of one model: refs, snapshots, blobs."""
    return cache_root() / f"models--{repo_id.replace('/', '--')}"


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit hash."""
    return len(revision) == 40 and all(letter in "0123456789abcdef" for letter in revision)


def is_revision(revision: str) -> bool:
    """Whether it can be the name of a branch, a tag or a commit. The cache makes a path of it (``refs/NAME``), which
    must not leave its folder."""
    return _REVISION.fullmatch(revision) is not None and ".." not in revision
