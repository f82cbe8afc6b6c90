"""A live page names all of its script's modules in its head, so that the browser asks for them at once.

A browser finds a module's imports only in the module: found one after another, the watch page's last one was asked for
at the end of four journeys, and its numbers after that.
"""

import os
import re
from functools import cache

from core.machine.locations import ASSETS
from studio.shell.markup import Markup, join, tag

_IMPORT = re.compile(r'^import .* from "(\.[\w./]+\.js)";$', re.MULTILINE)
_LIVE = re.compile(r' data-live="(\w+)"')


def preloads(content: Markup) -> Markup:
    """What stands in the head of a page with this content; nothing where it has no script of its own."""
    live = _LIVE.search(content)
    if live is None:
        return Markup()
    names = dict.fromkeys((*_needed(f"pages/{live.group(1)}.js"), *_needed("notice.js")))
    return join(*(tag("link", rel="modulepreload", href=f"/studio/assets/js/{name}") for name in names))


@cache
def _needed(script: str) -> tuple[str, ...]:
    """A script and all that it leads to, itself first; paths below ``assets/js``."""
    names = [script]
    for name in names:  # grows while it is walked
        source = (ASSETS / "js" / name).read_text(encoding="utf-8")
        imported = (os.path.normpath(f"{name}/../{path}") for path in _IMPORT.findall(source))
        names += [other for other in imported if other not in names]
    return tuple(names)
