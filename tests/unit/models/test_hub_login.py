"""This machine's login at a hub on loopback: where the token comes from, what is kept, and where it never stands."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_stand_in import TOKEN, HubStandIn, _Handler

from core.contract.errors import Fault
from core.models.hub.login import Login, log_in, log_out, login_of_machine


class _Knowing(_Handler):
    """Knows one person's token, and says what it was sent where it does not."""

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        sent = self.headers.get("Authorization", "")
        if sent != f"Bearer {TOKEN}":
            return self._reply(401, json.dumps({"error": sent}).encode(), {})
        return self._json({"name": "me", "type": "user", "auth": {"accessToken": {"displayName": "bench"}}})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    from huggingface_hub import constants, hf_api
    from huggingface_hub.utils import _git_credential

    with HubStandIn({}, _Knowing) as made:
        monkeypatch.setattr(constants, "ENDPOINT", made.endpoint)
        monkeypatch.setattr(hf_api.HfApi, "endpoint", made.endpoint, raising=False)
        monkeypatch.setattr(hf_api.api, "endpoint", made.endpoint)
        monkeypatch.setattr(_git_credential, "ENDPOINT", made.endpoint)  # no credential of this machine is touched
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
        monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "hf" / "stored_tokens"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield made


def test_a_token_is_kept_used_and_removed_with_none_beside_it(hub: HubStandIn, tmp_path: Path) -> None:
    from huggingface_hub import get_token

    assert login_of_machine() == Login()
    log_in(TOKEN)
    assert login_of_machine() == Login(file=str(tmp_path / "hf" / "token"))
    assert get_token() == TOKEN
    stored = tmp_path / "hf" / "stored_tokens"
    stored.write_text(stored.read_text() + "\n[other]\nhf_token = hf_another\n")
    log_out()
    assert login_of_machine() == Login()
    assert TOKEN not in stored.read_text()
    assert "hf_another" in stored.read_text(), "a token beside it stays"
    log_out()  # nothing is there: nothing happens


def test_a_variable_goes_before_the_file(hub: HubStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(TOKEN)
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_variable")
    assert login_of_machine() == Login(variable="HF_TOKEN")


@pytest.mark.parametrize("token", ["hf_wrong", "", "hf_wröng", "hf_a\nX-Header: b", "api_org_abc"])
def test_a_token_that_the_hub_does_not_know_is_refused_and_repeated_nowhere(
    hub: HubStandIn, token: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, logged = logging.getLogger(), io.StringIO()  # the default run has no log capture
    monkeypatch.setattr(root, "handlers", [*root.handlers, logging.StreamHandler(logged)])
    monkeypatch.setattr(root, "level", logging.DEBUG)
    with pytest.raises(Fault) as fault:
        log_in(token)
    assert fault.value.key == "hub.login/unknown"
    cause = fault.value.__context__ if fault.value.__cause__ else ""
    said = f"{fault.value} {cause} {logged.getvalue()} {capfd.readouterr()}"
    assert not token or token not in said
    assert not (tmp_path / "hf" / "token").exists()


def test_no_answer_and_no_network_are_said_apart(hub: HubStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    hub.__exit__()
    with pytest.raises(Fault) as fault:
        log_in(TOKEN)
    assert fault.value.key == "hub.login/unreachable"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Fault) as fault:
        log_in(TOKEN)
    assert fault.value.key == "hub.login/offline"


def test_a_disk_that_does_not_take_it_is_said_as_that(hub: HubStandIn, tmp_path: Path) -> None:
    (tmp_path / "hf").write_text("a file where the folder should be")
    with pytest.raises(Fault) as fault:
        log_in(TOKEN)
    assert fault.value.key == "disk.write/file"
    assert TOKEN not in str(fault.value)
