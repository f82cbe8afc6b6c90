"""Pages for browsers without a session: opening, locked, and password. Their styles are inline: no file is served."""

from html import escape

from studio.words.text import say

_STYLE = """
:root{color-scheme:light dark;--paper:#f6f5f2;--ink:#201d1a;--soft:#5c564e}
@media(prefers-color-scheme:dark){:root{--paper:#171614;--ink:#efece7;--soft:#aaa397}}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:26rem;padding:2rem}h1{font-size:1.375rem;margin:0 0 .5rem}p{margin:0 0 .75rem;color:var(--soft)}
code{display:block;color:var(--ink);font:15px/1.5 ui-monospace,Consolas,monospace}
label{display:block;margin:0 0 .25rem}form{margin:1rem 0 0}[role=alert]{color:var(--ink);font-weight:600}
input,button{font:inherit;color:inherit;background:transparent;border:1px solid var(--soft);border-radius:6px;
padding:.5rem .75rem;min-height:44px;box-sizing:border-box}input{width:100%;margin:0 0 .75rem}
button{cursor:pointer}:focus-visible{outline:2px solid var(--ink);outline-offset:2px}
"""


def opening_page(path: str) -> str:
    """Refreshes to a page of ours at once."""
    return _page(say("door.opening"), "", f'<meta http-equiv="refresh" content="0;url={escape(path)}">')


def locked_page(command: str) -> str:
    """Says that this browser has no session, and which command opens the studio."""
    body = f"<p>{escape(say('door.why'))}</p><p>{escape(say('door.cure'))}<code>{escape(command)}</code></p>"
    return _page(say("door.title"), body, "")


def password_page(verdict: str = "") -> str:
    """Asks for the password of ``--listen``; ``verdict`` is that of the last try."""
    said = f'<p role="alert">{escape(say(f"door.password.{verdict}"))}</p>' if verdict else ""
    form = (
        f'<form method="post" action="/enter"><label for="password">{escape(say("door.password"))}</label>'
        '<input id="password" name="password" type="password" autocomplete="current-password" required autofocus>'
        f"<button>{escape(say('door.password.send'))}</button></form>"
    )
    return _page(say("door.password.title"), f"<p>{escape(say('door.password.why'))}</p>{said}{form}", "")


def _page(title: str, body: str, head: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">{head}<style>{_STYLE}</style></head>'
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
