"""A run's folder that nobody has started."""

from core.contract.config import RunConfig
from core.runs.control.create import make_run, once
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder


def bare_run(store: RunStore, config: RunConfig, draft_id: str = "") -> JobFolder:
    """A new run's folder with an empty log; the same draft again gives the same folder."""
    with once(store.locations, draft_id) as (known, note):
        if known:
            return store.open(known)
        folder, lock = make_run(store.locations, config, note)
        lock.release()
        folder.events.unlink()
        return folder
