"""A person at the window, without a browser: what the page's own scripts send, and what the page then shows.

New run is Gradio's: its page carries every component and which event asks which function. An event is sent to the queue
(``/gradio_api/queue/join``), its answers are heard (``/gradio_api/queue/data``), written into the components, and what
waits for the event is asked next, as Gradio's script does. All else is Luthier's own routes.
"""

from __future__ import annotations

import html
import json
import re
import secrets
import time
from pathlib import Path
from typing import Any

import httpx
from gradio_client.utils import apply_diff

PATIENCE = 120.0
_CONFIG = re.compile(r"window\.gradio_config = (\{.*?\});\s*</script>", re.S)
_BREAKS = re.compile(r"</(?:p|li|h\d|dd|div|tr|summary|section|header)>")


def words_of(drawn: Any) -> str:
    """What a piece of HTML says: a line each."""
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", str(drawn or ""), flags=re.S)
    text = _BREAKS.sub("\n", text.replace("</dt>", ": ").replace("</b>", " ").replace("</span>", " "))
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return "\n".join(line for raw in text.splitlines() if (line := " ".join(raw.split())))


class Visitor:
    """A browser that was let in by the studio's address."""

    def __init__(self, address: str) -> None:
        self.root = address.split("/enter")[0]
        self.http = httpx.Client(base_url=self.root, headers={"Origin": self.root}, timeout=PATIENCE, trust_env=False)
        self.http.get(address).raise_for_status()

    def page(self, path: str) -> str:
        """A page, as it is sent."""
        answer = self.http.get(path, headers={"Accept": "text/html"})
        answer.raise_for_status()
        return answer.text

    def ask(self, path: str, body: Any = None) -> Any:
        """One of our own routes. A fault is raised in its words."""
        answer = self.http.get(path) if body is None else self.http.post(path, json=body)
        if answer.status_code >= 400:
            raise SystemExit(f"{path} was refused: {answer.text[:2000]}")
        return answer.json()

    def drop(self, file: Path) -> str:
        """Drops a file on the page; the upload's id."""
        named = {"X-File-Name": file.name, "Content-Type": "application/octet-stream"}
        answer = self.http.put("/studio/upload", content=file.read_bytes(), headers=named)
        answer.raise_for_status()
        return str(answer.json()["id"])


class NewRun:
    """The page New run in one window."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.window = visitor, secrets.token_hex(6)
        until = time.monotonic() + PATIENCE
        while not visitor.ask("/studio/standing")["built"] and time.monotonic() < until:
            time.sleep(0.1)
        found = _CONFIG.search(visitor.page("/"))
        if found is None:
            raise SystemExit("New run carries no components")
        config = json.loads(found[1])
        parts = [(int(one["id"]), one["props"]) for one in config["components"]]
        self.events = config["dependencies"]
        self.named = {str(props["elem_id"]): number for number, props in parts if props.get("elem_id")}
        self.values: dict[int, Any] = {number: props.get("value") for number, props in parts}
        self.able: dict[int, bool] = {number: props.get("interactive") is not False for number, props in parts}
        for event in self.events:
            if any(target[1] == "load" for target in event["targets"]):
                self._run(event)

    def shows(self, name: str) -> str:
        """What a part of the page says."""
        return words_of(self.values[self.named[name]])

    def field(self, key: str) -> Any:
        """What a field holds."""
        return self.values[self.named[key.replace(".", "-")]]

    def put(self, key: str, value: Any, event: str = "input") -> None:
        """A person sets a field, or a script types into a hidden one."""
        number = self.named[key.replace(".", "-")]
        self.values[number] = value
        self._happens(number, event)

    def model(self, name: str) -> None:
        """A person types a folder or an id into the model's field, and leaves it: the script then tells of it."""
        self.values[self.named["model-name"]] = name
        told = {"value": {"model.name": name}, "form": {}, "n": secrets.token_hex(4)}
        self.put("act-change", json.dumps(told), "change")

    def press(self, name: str) -> None:
        """A person presses a button that can be pressed."""
        number = self.named[name]
        if not self.able[number]:
            raise SystemExit(f"{name} cannot be pressed: {self.values[number]}")
        self._happens(number, "click")

    def _happens(self, number: int, kind: str) -> None:
        asked = [event for event in self.events if [number, kind] in event["targets"]]
        if not asked:
            raise SystemExit(f"nothing hears {kind} of component {number}")
        for event in asked:
            self._run(event, number)

    def _run(self, event: dict[str, Any], trigger: int | None = None) -> None:
        """Asks, shows each answer, and goes on with what follows."""
        data = [self.values[number] for number in event["inputs"]]
        asked = {"data": data, "event_data": None, "fn_index": event["id"], "trigger_id": trigger,
                 "session_hash": self.window}  # fmt: skip
        number = self.visitor.ask("/gradio_api/queue/join", asked)["event_id"]
        well, changed = self._heard(number, event)
        for later in self.events:
            if later["trigger_after"] == event["id"] and (well or not later["trigger_only_on_success"]):
                self._run(later)
            if any([state, "change"] in later["targets"] for state in changed):
                self._run(later)

    def _heard(self, number: str, event: dict[str, Any]) -> tuple[bool, list[int]]:
        """Writes the answers of an event into the page; whether it ended well, and the states that it changed."""
        shown: list[Any] = []
        query = {"session_hash": self.window}
        with self.visitor.http.stream("GET", "/gradio_api/queue/data", params=query) as stream:
            for line in stream.iter_lines():
                said = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                if said.get("event_id") != number:
                    continue
                if said["msg"] == "process_generating":
                    new = said["output"]["data"]
                    shown = [apply_diff(*pair) for pair in zip(shown, new, strict=True)] if shown else new
                    self._write(event, shown)
                if said["msg"] == "process_completed":
                    if said["success"] and not shown:
                        self._write(event, said["output"]["data"])
                    return bool(said["success"]), list(said["output"].get("changed_state_ids") or ())
        raise SystemExit("the studio's answer broke off")

    def _write(self, event: dict[str, Any], answers: list[Any]) -> None:
        for number, answer in zip(event["outputs"], answers, strict=True):
            update = isinstance(answer, dict) and answer.get("__type__") == "update"
            if update and answer.get("interactive") is not None:
                self.able[number] = bool(answer["interactive"])
            if not update or "value" in answer:
                self.values[number] = answer["value"] if update else answer
