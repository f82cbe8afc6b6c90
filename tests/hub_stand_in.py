"""A small model hub on loopback: the hub's own routes, over folders of ours, for tests of the real download code.

``with HubStandIn({"owner/name": folder}) as hub`` serves each folder at one commit. ``hub.environment(home)`` is what a
child process needs to use it: huggingface_hub reads its address when it is imported. Sets of ids make trouble on
purpose: ``gated`` wants a token, ``silent`` accepts and never answers, ``slow`` sends a megabyte every tenth of a
second, ``echoing`` fails and quotes all that it was sent, the token too. Every request is kept in ``hub.requests``.
"""

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import prod
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_letmein"
PIECE = 1_000_000


class HubStandIn:
    """A hub of some folders; ``gated``, ``silent`` and ``slow`` may be changed while it runs."""

    def __init__(self, models: Mapping[str, Path], handler: "type[_Handler] | None" = None) -> None:
        self.models = dict(models)
        self.gated, self.silent, self.slow, self.echoing, self.private = (set[str]() for _ in range(5))
        self.requests: list[str] = []
        self.closing = threading.Event()
        stand_in = self

        class Handler(handler or _Handler):  # type: ignore[misc]
            hub = stand_in

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def endpoint(self) -> str:
        """The address for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for a child whose cache is ``home``; time-outs are short."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_ETAG_TIMEOUT": "4",
            "HF_HUB_DOWNLOAD_TIMEOUT": "4",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "no_proxy": "127.0.0.1,localhost",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def files(self, model: str) -> dict[str, Path]:
        """The files of one model by their name in the repository."""
        folder = self.models[model]
        return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


class _Handler(BaseHTTPRequestHandler):
    hub: HubStandIn
    paths: tuple[str, ...] | list[str] = ()
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Tests read ``hub.requests`` instead."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.paths = parse_qs(asked).get("paths", []) or json.loads(asked or "{}").get("paths", [])
        self._answer()

    def _answer(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        # Data sets have the same routes under a name of their own.
        if parts[0] == "datasets":
            parts = parts[1:]
        if parts[:2] in (["api", "models"], ["api", "datasets"]) and len(parts) >= 4:
            return self._api("/".join(parts[2:4]), parts[4:])
        if len(parts) >= 5 and parts[2] == "resolve":
            return self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        return self._error(404, "EntryNotFound")

    def _known(self, model: str, revision: str) -> bool:
        """Answers trouble itself; True where the model can be served."""
        if model in self.hub.silent:
            self.hub.closing.wait(60)
            return False
        if model in self.hub.echoing:
            quoted = " ".join(f"{name}: {value}" for name, value in self.headers.items())
            content = json.dumps({"error": quoted}).encode()
            self._reply(500, content, {"X-Error-Message": quoted, "X-Request-Id": quoted})
            return False
        if model not in self.hub.models:
            self._error(404, "RepoNotFound")
        elif revision not in ("main", COMMIT):
            self._error(404, "RevisionNotFound")
        else:
            return True
        return False

    def _api(self, model: str, rest: list[str]) -> None:
        revision = rest[1] if len(rest) > 1 else "main"
        if not self._known(model, revision):
            return None
        if rest == ["auth-check"] and self._is_refused(model):
            return self._error(403, "GatedRepo")
        files = self.hub.files(model)
        if rest[:1] in (["tree"], ["paths-info"]):
            under = "/".join(rest[2:])
            return self._json(
                [{"type": "file", "oid": _etag(path), "size": path.stat().st_size, "path": name}
                 for name, path in files.items()
                 if (name in self.paths if rest[0] == "paths-info" else name.startswith(under))]
            )  # fmt: skip
        return self._json(
            {
                "id": model,
                "sha": COMMIT,
                "private": model in self.hub.private,
                "gated": "manual" if model in self.hub.gated else False,
                "siblings": [{"rfilename": name, "size": path.stat().st_size, "blobId": _etag(path)}
                             for name, path in files.items()],
                "cardData": {"license": "apache-2.0"},
            }
        )  # fmt: skip

    def _is_refused(self, model: str) -> bool:
        return model in self.hub.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}"

    def _file(self, model: str, revision: str, name: str) -> None:
        if not self._known(model, revision):
            return None
        if self._is_refused(model):
            return self._error(403, "GatedRepo")
        path = self.hub.files(model).get(name)
        if path is None:
            return self._error(404, "EntryNotFound")
        content = path.read_bytes()
        start, stop = self._range(len(content))
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("ETag", f'"{_etag(path)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if self.command == "GET":
            self._send(content[start:stop], slow=model in self.hub.slow)
        return None

    def _range(self, size: int) -> tuple[int, int]:
        words = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        return int(words[0] or 0), min(int(words[2]) + 1 if words[2] else size, size)

    def _send(self, content: bytes, slow: bool) -> None:
        piece = PIECE if slow else max(1, len(content))
        try:
            for start in range(0, len(content), piece):
                self.wfile.write(content[start : start + piece])
                if slow and self.hub.closing.wait(0.1):
                    return
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _json(self, value: Any) -> None:
        self._reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str) -> None:
        self._reply(status, b"", {"X-Error-Code": code})

    def _reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def tiny_model(folder: Path, shards: int = 1, megabytes: float = 0.0) -> Path:
    """A Llama-shaped folder made by hand: config, tokenizer files, safetensors of zeros.

    It is enough to be found and fetched, and no model that answers. ``megabytes`` pads each weight file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY_CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "BPE"}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "README.md").write_text("A stand-in.\n")
    (folder / "modeling_evil.py").write_text("raise SystemExit('never fetched, never run')\n")
    tensors = llama_tensors(TINY_CONFIG)
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, int(megabytes * 1_000_000))
        return folder
    dealt = [dict(list(tensors.items())[number::shards]) for number in range(shards)]
    weight_map = {key: name for name, part in zip(names, dealt, strict=True) for key in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    for name, part in zip(names, dealt, strict=True):
        write_safetensors(folder / name, part, int(megabytes * 1_000_000))
    return folder


def llama_tensors(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """Names and shapes of a Llama with a tied head, as its config says."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    keys = hidden * config["num_key_value_heads"] // heads
    layer = {
        "input_layernorm": [hidden], "post_attention_layernorm": [hidden],
        "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner],
        "self_attn.q_proj": [hidden, hidden], "self_attn.o_proj": [hidden, hidden],
        "self_attn.k_proj": [keys, hidden], "self_attn.v_proj": [keys, hidden],
    }  # fmt: skip
    found = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for number in range(config["num_hidden_layers"]):
        found |= {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    return found


def write_safetensors(path: Path, tensors: Mapping[str, list[int]], padding_bytes: int = 0) -> None:
    """A file of zeros with these tensors, and one more of ``padding_bytes``."""
    header, place = {}, 0
    wanted = {**tensors, **({f"padding.{path.stem}": [padding_bytes // 2]} if padding_bytes else {})}
    for name, shape in wanted.items():
        end = place + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(place))


TINY_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
