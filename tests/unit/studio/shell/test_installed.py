"""The studio as an application: a manifest of ours, icons that are what they say, colours of the window's own sheet."""

from __future__ import annotations

import re
import struct

from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.machine.locations import ASSETS
from studio.server.access.routes import PAGES, is_allowed
from studio.shell.frame import head
from studio.shell.installed import MANIFEST, manifest, manifest_route


def test_the_manifest_is_ours_and_can_be_installed() -> None:
    app = FastAPI()
    app.include_router(manifest_route())
    answer = TestClient(app).get(MANIFEST)
    assert answer.headers["content-type"].startswith("application/manifest+json")
    assert answer.json() == manifest()
    assert (manifest()["name"], manifest()["display"], manifest()["start_url"]) == ("Luthier", "standalone", "/")
    assert is_allowed("GET", MANIFEST)
    assert {shortcut["url"] for shortcut in manifest()["shortcuts"]} <= set(PAGES)


def test_every_icon_is_a_picture_of_the_size_it_names() -> None:
    for icon in manifest()["icons"]:
        file = ASSETS / icon["src"].removeprefix("/studio/assets/")
        assert is_allowed("GET", icon["src"])
        if file.suffix == ".png":
            bytes_ = file.read_bytes()
            assert bytes_.startswith(b"\x89PNG\r\n")
            assert "{}x{}".format(*struct.unpack(">II", bytes_[16:24])) == icon["sizes"]
        else:
            assert "<svg" in file.read_text()
    assert {icon.get("purpose", "") for icon in manifest()["icons"]} >= {"any", "maskable"}


def test_every_page_names_the_manifest_once() -> None:
    found = re.findall(r'<link rel="manifest"[^>]*>', head())
    assert len(found) == 1
    assert 'crossorigin="use-credentials"' in found[0]
    assert f'href="{MANIFEST}"' in found[0]
