"""The stand-in of the hub with the routes of an upload (create, preupload, large files by hash, commit), for whoever
sends ``TOKEN``. Repositories are folders below ``root``, ``private`` names the private ones, ``blobs`` holds what was
sent by its hash."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from hub_stand_in import COMMIT, TOKEN, HubStandIn, _Handler

LARGE = (".safetensors", ".gguf", ".bin")


class HubThatTakes(HubStandIn):
    """``slots``: how many large files it takes before it fails with HTTP 400 (others are tried again)."""

    def __init__(self, root: Path) -> None:
        super().__init__({}, _Taking)
        self.root, self.slots = root, 1000
        self.blobs = dict[str, bytes]()
        self.cards = list[str]()


class _Taking(_Handler):
    hub: HubThatTakes

    def do_PUT(self) -> None:  # noqa: N802 - http.server's names
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.requests.append(f"PUT {self.path}")
        self.hub.slots -= 1
        if self.hub.slots < 0:
            return self._reply(400, b"{}", {})
        self.hub.blobs[hashlib.sha256(content).hexdigest()] = content
        return self._reply(200, b"", {})

    def do_POST(self) -> None:  # noqa: N802
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.hub.requests.append(f"POST {self.path}")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._reply(401, json.dumps({"error": str(self.headers)}).encode(), {})
        path = self.path.partition("?")[0]
        if path == "/api/repos/create":
            return self._create(json.loads(content))
        if path == "/api/validate-yaml":
            self.hub.cards.append(json.loads(content)["content"])
            return self._json({})
        if "/preupload/" in path:
            files = [{"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                      "shouldIgnore": False} for file in json.loads(content)["files"]]  # fmt: skip
            return self._json({"files": files})
        if path.endswith(".git/info/lfs/objects/batch"):
            return self._json({"objects": [self._wanted(one) for one in json.loads(content)["objects"]]})
        return self._commit("/".join(path.split("/")[3:5]), content)

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] == "somebody":
            return self._reply(403, b"{}", {})
        answer = {"url": f"{self.hub.endpoint}/{name}", "name": name}
        if name in self.hub.models:
            return self._reply(409, json.dumps(answer).encode(), {})
        self.hub.models[name] = folder = self.hub.root / name
        folder.mkdir(parents=True)
        if asked.get("visibility") == "private":
            self.hub.private.add(name)
        return self._json(answer)

    def _wanted(self, one: dict[str, Any]) -> dict[str, Any]:
        """Where an object is to be sent, unless it is here."""
        place = {} if one["oid"] in self.hub.blobs else {"upload": {"href": f"{self.hub.endpoint}/blobs/{one['oid']}"}}
        return {**one, **({"actions": place} if place else {})}

    def _commit(self, name: str, content: bytes) -> None:
        for line in map(json.loads, content.decode().splitlines()):
            value = line["value"]
            if line["key"] == "file":
                (self.hub.models[name] / value["path"]).write_bytes(base64.b64decode(value["content"]))
            if line["key"] == "lfsFile":
                (self.hub.models[name] / value["path"]).write_bytes(self.hub.blobs[value["oid"]])
        self._json({"success": True, "commitOid": COMMIT, "commitUrl": f"{self.hub.endpoint}/{name}/commit/{COMMIT}"})
