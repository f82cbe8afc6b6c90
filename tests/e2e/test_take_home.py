"""A finished export is put on the hub from the page: private, with a token that is asked for and kept nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from driving import running_studio
from hub_stand_in import TOKEN
from hub_that_takes import HubThatTakes
from made_runs import RUN, append, past, write_run
from visiting import let_in, listening, shows

from core.contract.events import Exported, Finished, Queued, Starting
from core.machine.locations import Locations
from core.runs.folder.job_folder import JobFolder

pytestmark = pytest.mark.browser
LOST = "At q4_0 what training brought is lost."


def exported(run: JobFolder) -> None:
    job = JobFolder(run.jobs / "mine")
    job.path.mkdir(parents=True)
    job.export_yaml.write_text("name: mine\nform: gguf\n")
    last = Exported(at=9.0, attempt=1, name="mine", form="gguf", bytes=9, warnings=(LOST,))
    append(job, [Queued(at=1.0), Starting(at=2.0, attempt=1), last, Finished(at=10.0, attempt=1)])
    (run.exports / "mine").mkdir(parents=True)
    (run.exports / "mine" / "README.md").write_text("---\nbase_model: a/b\n---\n# Mine\n")
    (run.exports / "mine" / "model-Q4_0.gguf").write_bytes(bytes(100_000))


def test_an_export_is_put_on_the_hub(browser: Any, tmp_path: Path) -> None:
    exported(write_run(Locations(tmp_path).make(), past(100, finished=True), RUN, checkpoints=(100,)))
    own = {"HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "", "HF_HUB_DISABLE_XET": "1"}
    with HubThatTakes(tmp_path / "hub") as hub, running_studio(tmp_path, HF_ENDPOINT=hub.endpoint, **own) as studio:
        context = let_in(browser, studio, 30)
        page = listening(context.new_page())
        page.goto(f"{studio.root}/take-home?run={RUN}")
        shows(page, '.job [role="alert"]', LOST)
        page.get_by_text("Put it on the Hugging Face Hub").click()
        shows(page, ".sending", "not stored")
        page.get_by_label("Repository").fill("me/mine")
        token = page.locator('.sending input[type="password"]')
        token.fill("hf_another")
        page.get_by_role("button", name="Upload").click()
        shows(page, ".sending .fault-line", "token")
        assert token.input_value() == ""
        token.fill(TOKEN)
        page.get_by_role("button", name="Upload").click()
        shows(page, ".sending .job-path", "private")
        assert f"{hub.endpoint}/me/mine" in page.locator(".sending .job-path").inner_text()
        assert token.input_value() == ""
        assert page.faults == []
        context.close()
    assert hub.private == {"me/mine"}
    assert (hub.root / "me/mine" / "model-Q4_0.gguf").stat().st_size == 100_000
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "hub" not in path.parents]
    assert not any(TOKEN.encode() in path.read_bytes() for path in kept)
