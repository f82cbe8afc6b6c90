"""An export sent to a hub on loopback: what arrives, what is refused, and where the token is not."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_stand_in import TOKEN
from hub_that_takes import HubThatTakes

from core.contract.errors import HubError
from core.models.hub.publish import publish

CARD = "---\nbase_model: {base}\ntags: [lora]\n---\n# A model\n"
Send = Callable[..., str]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubThatTakes]:
    from huggingface_hub import constants

    with HubThatTakes(tmp_path / "hub") as made:
        monkeypatch.setattr(constants, "ENDPOINT", made.endpoint)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield made


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "README.md").write_text(CARD.format(base="my-folder"), encoding="utf-8")
    (folder / "config.json").write_text("{}")
    for part in (1, 2):
        (folder / f"model-{part}.safetensors").write_bytes(bytes([part]) * 300_000)
    return folder


def send(folder: Path, to: str = "me/model", token: str = TOKEN, private: bool = True, stop_at: int = 100) -> list[int]:
    """Returns the shares that were told."""
    told = [0]
    tell = lambda done, total: told.append(100 * done // total)  # noqa: E731
    page = publish(folder, to, tell, lambda: told[-1] > stop_at, token, private)
    assert page.endswith(f"/{to}")
    return told


def test_all_files_arrive_in_a_private_repository_and_the_token_goes_nowhere_else(
    hub: HubThatTakes, export: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logged = io.StringIO()
    handler, before = logging.StreamHandler(logged), logging.root.level
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.DEBUG)
    try:
        told = send(export)
    finally:
        logging.root.removeHandler(handler)
        logging.root.setLevel(before)
    assert hub.private == {"me/model"}
    sent = {path.name: path.read_bytes() for path in hub.models["me/model"].iterdir()}
    assert sent.keys() == {path.name for path in export.iterdir()}
    assert sent["model-2.safetensors"] == (export / "model-2.safetensors").read_bytes()
    assert b"base_model" not in sent["README.md"], "a folder of this machine is no model of the hub"
    assert b"tags" in sent["README.md"]
    assert told[-1] == 100
    assert any(0 < share < 100 for share in told)
    assert TOKEN not in logged.getvalue() + "".join(capfd.readouterr()) + str(os.environ)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_a_second_try_sends_the_rest_alone(hub: HubThatTakes, export: Path) -> None:
    hub.slots = 1
    with pytest.raises(HubError) as caught:
        send(export)
    assert caught.value.code == "hub.unreachable"
    assert len(hub.blobs) == 1
    hub.slots, hub.requests = 1, []
    send(export)
    assert len([one for one in hub.requests if one.startswith("PUT")]) == 1
    with pytest.raises(HubError) as caught:
        send(export, "me/other", stop_at=20)
    assert (caught.value.code, "me/other" in hub.models) == ("hub.stopped", True)
    assert not list((hub.root / "me/other").iterdir())


def test_the_persons_own_login_serves_where_no_token_is_given(hub: HubThatTakes, export: Path, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="found none") as caught:
        send(export, token=" ")
    assert caught.value.code == "hub.token"
    assert hub.requests == []
    (tmp_path / "token").write_text(TOKEN)
    send(export, token="")


@pytest.mark.parametrize(
    ("to", "token", "code"),
    [
        ("no-owner", TOKEN, "hub.bad_id"),
        ("me/../model", TOKEN, "hub.bad_id"),
        ("me/model", "hf_another", "hub.token"),
        ("somebody/model", TOKEN, "hub.write"),
    ],
)
def test_what_the_hub_refuses_is_said_without_the_token(
    hub: HubThatTakes, export: Path, to: str, token: str, code: str
) -> None:
    with pytest.raises(HubError) as caught:
        send(export, to, token)
    assert caught.value.code == code
    assert token not in str(caught.value.told())
    assert caught.value.__cause__ is None


def test_a_public_repository_and_other_weights_are_left_alone(hub: HubThatTakes, export: Path) -> None:
    send(export, private=False)
    assert hub.private == set()
    with pytest.raises(HubError, match="found a public one"):
        send(export)
    (export / "model-2.safetensors").rename(export / "model.safetensors")
    with pytest.raises(HubError, match=r"found model-2\.safetensors"):
        send(export, private=False)


def test_a_base_of_the_hub_is_named(hub: HubThatTakes, export: Path) -> None:
    (export / "README.md").write_text(CARD.format(base="owner/base"), encoding="utf-8")
    send(export)
    assert "base_model: owner/base" in hub.cards[-1]


def test_a_card_that_a_person_wrote_anew_is_sent_as_it_is(hub: HubThatTakes, export: Path) -> None:
    for card in ("# Mine\n", "---\ntags: [\n---\n# Mine\n"):
        (export / "README.md").write_text(card, encoding="utf-8")
        send(export)
        assert hub.cards[-1] == card
