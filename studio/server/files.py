"""Our own files for the browser: styles, scripts, pictures. Nothing else of ``assets`` is served."""

from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class OurFiles(StaticFiles):
    """Static files of the kinds above, asked for again at each load (they are small, and an update shows at once)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, follow_symlink=False)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, or 404 where it is none of ours."""
        kind = _KINDS.get(Path(path).suffix)
        if kind is None:
            return PlainTextResponse("Not found.", 404)
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        if response.status_code == 200:
            response.headers["Content-Type"] = kind
        return response
