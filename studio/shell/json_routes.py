"""How JSON routes answer a fault: ``{"code", "message", "hint"}`` with 404 (no such run), 409, or 422 (bad values)."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from core.contract.errors import Fault
from studio.words.faults import told

DONE = {"ok": True}
"""The answer to a command that was obeyed."""


def answer_faults(app: FastAPI) -> None:
    """Has an application answer every ``Fault`` and every invalid request this way."""

    @app.exception_handler(Fault)
    def said(_: Request, error: Fault) -> JSONResponse:
        return JSONResponse(told(error), 404 if error.code == "run.unknown" else 409)

    @app.exception_handler(RequestValidationError)
    def misread(_: Request, error: RequestValidationError) -> JSONResponse:
        """Names the fields and repeats no value: it need not be text."""
        fields = ", ".join(sorted({str(fault["loc"][-1])[:40] for fault in error.errors() if fault["loc"]}))
        named = fields.encode("ascii", "replace").decode()
        message = f"The studio cannot use these values: {named}."
        return JSONResponse({"code": "request", "message": message, "hint": "Load the page again."}, 422)
