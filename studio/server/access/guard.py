"""The guard, which every request passes first: pure ASGI.

    Host ours? ─► Origin, Sec-Fetch-Site ours? ─► start token? ─► cookie known? ─► route allowed? ─► the window

Any page of the web can send requests to 127.0.0.1, and any process can connect. So a request must name our host and
port (against DNS rebinding), come from our own pages (against cross-site requests), carry the Strict cookie that a
start token or the password of ``--listen`` gives, and ask for an allowed route (``routes.py``); else the answer is 403.
A long answer ends when its session is revoked.
"""

import asyncio
import hmac
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.server.access.bodies import whole_body
from studio.server.access.listening import Front
from studio.server.access.pages import locked_page, opening_page, password_page
from studio.server.access.peer import is_anothers
from studio.server.access.routes import is_allowed
from studio.server.access.sessions import COOKIE_SECONDS, AccessTokens
from studio.shell.frame import PAGES

_CLOSED = {"code": "door.closed", "message": "This browser was not let in.", "hint": "Start the studio again."}
_FORM_BYTES, _FORM_SECONDS = 4096, 10.0
_LOOK_SECONDS = 2.0
"""How often a long answer checks its session."""
_FROM_PROXIES = (b"forwarded", b"x-forwarded-", b"x-real-ip", b"x-direct-url")
"""Headers of proxies, which are dropped: there is none before the studio."""


class Guard:
    """Wraps the application. ``secret`` returns what a second start shows for a token (``studio.json``, 0600),
    ``landing`` the first page after entering; ``command`` is the one that opens the studio."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: AccessTokens,
        front: Front,
        secret: Callable[[], str],
        landing: Callable[[], str] = lambda: "/",
        command: str = "python3 launcher.py",
    ) -> None:
        self._landing, self._command = landing, command
        self._app = app
        self._tokens = tokens
        self._front = front
        self._secret = secret
        self._cookie = f"luthier_{front.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        try:
            answer = await self._answer(scope, headers, receive)
        except OSError as error:
            answer = PlainTextResponse(f"Luthier cannot use its own folder: {error.strerror or error}.", 503)
        if answer is None:
            kept = [pair for pair in scope["headers"] if not pair[0].lower().startswith(_FROM_PROXIES)]
            cookie = self._given(headers)
            line = _Line(receive, send, lambda: self._tokens.knows(cookie))
            await self._app({**scope, "headers": kept}, line.receive, line.send)
        else:
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """The guard's own answer, or None where the request may go on."""
        path, method = scope["path"], scope["method"]
        if not self._front.is_host(headers.getlist("host")):
            return PlainTextResponse("This studio answers at its own address only.", 403)
        if path == "/studio/token":
            return self._token(method, headers)
        if not self._same_site(method, path, headers):
            return PlainTextResponse("This request comes from another site.", 403)
        if path == "/enter":
            return await self._enter(scope, headers, receive)
        if not self._tokens.knows(self._given(headers)):
            wants_page = path in PAGES and "text/html" in headers.get("accept", "")
            return self._locked() if wants_page else JSONResponse(_CLOSED, 403)
        return None if is_allowed(method, path) else PlainTextResponse("No session uses this.", 403)

    def _same_site(self, method: str, path: str, headers: Headers) -> bool:
        """Whether a page of ours asks, or a person who opened an address. Other pages may link to the start address."""
        host, origins, sites = headers["host"], headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if any(origin != f"{self._front.scheme}://{host}" for origin in origins):
            return False
        if method == "GET" and path == "/enter":
            return headers.get("sec-fetch-dest", "document") == "document"
        if any(site not in ("same-origin", "none") for site in sites):
            return False
        return method == "GET" or bool(origins)  # every browser names the origin of what it writes

    def _token(self, method: str, headers: Headers) -> Response:
        """A fresh token for a second start; never for a page, which sends Origin or Sec-Fetch-Site."""
        shown = headers.get("authorization", "").removeprefix("Bearer ")
        from_page = "origin" in headers or "sec-fetch-site" in headers
        secret = self._secret() if method == "POST" and not from_page else ""
        if not secret or not hmac.compare_digest(shown.encode(), secret.encode()):
            return PlainTextResponse("Not for a page.", 403)
        return JSONResponse({"token": self._tokens.token()}, headers={"Cache-Control": "no-store"})

    async def _enter(self, scope: Scope, headers: Headers, receive: Receive) -> Response:
        """Takes the address's token or the password. Answers 200 and refreshes: a redirect would keep the other site's
        Sec-Fetch-Site."""
        if scope["method"] == "POST":
            return await self._password(scope, receive)
        if scope["method"] != "GET":
            return PlainTextResponse("No session uses this.", 403)
        if is_anothers(scope.get("client"), self._front.port):
            return self._locked()  # the token stays valid for its own browser
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if cookie := self._tokens.enter(token):
            return await self._let_in(cookie)
        if self._tokens.knows(self._given(headers)):
            return await self._landed()
        return self._locked()

    async def _password(self, scope: Scope, receive: Receive) -> Response:
        if self._front.password is None or (body := await whole_body(receive, _FORM_BYTES, _FORM_SECONDS)) is None:
            return self._locked()
        words = parse_qs(body.decode("utf-8", "replace")).get("password", [""])[0]
        address = str((scope.get("client") or ("",))[0])
        verdict = await asyncio.to_thread(self._front.password.judge, words, address)
        return await self._let_in(self._tokens.admit()) if verdict == "right" else _page(password_page(verdict), 403)

    async def _landed(self) -> Response:
        return _page(opening_page(await asyncio.to_thread(self._landing)))

    async def _let_in(self, cookie: str) -> Response:
        response = await self._landed()
        response.set_cookie(
            self._cookie, cookie, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", path="/",
            secure=self._front.scheme == "https",
        )  # fmt: skip
        return response

    def _locked(self) -> Response:
        return _page(password_page() if self._front.password else locked_page(self._command), 403)

    def _given(self, headers: Headers) -> str:
        """Our cookie; those of all programs on this host arrive together, since cookies ignore ports."""
        return cookie_parser(headers.get("cookie", "")).get(self._cookie, "")


class _Line:
    """An allowed request's channels, cut where its session ends before the answer."""

    def __init__(self, receive: Receive, send: Send, stands: Callable[[], bool]) -> None:
        self._receive, self._send, self._stands = receive, send, stands
        self._looked = asyncio.get_running_loop().time()
        self._cut = self._begun = False

    async def receive(self) -> Message:
        """What the browser sends; a disconnect once the line is cut."""
        return {"type": "http.disconnect"} if self._cut else await self._receive()

    async def send(self, message: Message) -> None:
        """Passes the answer on while the session is valid."""
        if self._cut:
            return
        now = asyncio.get_running_loop().time()
        if self._begun and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            if not self._stands():
                self._cut = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
        self._begun = True
        await self._send(message)


def _page(html: str, status: int = 200) -> HTMLResponse:
    headers = {
        "Cache-Control": "no-store",
        # An address with a token must not leak; the password form needs an origin.
        "Referrer-Policy": "same-origin" if status == 403 else "no-referrer",
        "Content-Security-Policy": (
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        ),
    }
    return HTMLResponse(html, status, headers=headers)
