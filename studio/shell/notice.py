"""The offer to be told when a run ends: on the desktop, by a sound. Both off until somebody asks for them.

``assets/js/notice.js`` gives it life; the browser is asked for its permission only when the box is ticked.
"""

import json

from studio.shell.markup import Markup, join, tag
from studio.words.text import say


def notice() -> Markup:
    """Two boxes under one word."""
    boxes = (
        tag("label", tag("input", type="checkbox", data_notice=key), tag("span", say(f"notice.{key}")))
        for key in ("tell", "sound")
    )
    about = tag("p", say("notice.about"), class_="hint")
    fault = tag("p", role="status", class_="hint", data_notice="fault")
    inner = tag("div", *boxes, about, fault, class_="notice-list")
    sheet = tag("link", rel="stylesheet", href="/studio/assets/notice.css")
    told = json.dumps(say.under("notice"))
    return join(sheet, tag("details", tag("summary", say("notice.title")), inner, class_="notice", data_told=told))
