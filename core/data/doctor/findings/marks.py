"""Findings on debris in texts: chat marks of another model, HTML, stock phrases of a chat service, invisible
characters, and letters that a wrong encoding damaged.

HTML is no finding in a row about web pages or code. Chat marks always are: a tokenizer that knows them reads them as
its own, and a turn ends in mid-sentence.

Cleaning removes invisible characters and makes odd line breaks plain ones. Joiners stay (emoji, Persian and Indic words
need them), and so do direction marks beside right-to-left letters. Remains of a letter stay too: a form feed before
"rac" was the formula's \\frac, and \\x80\\x94 behind an â a dash.
"""

import re
from typing import Literal

from core.contract.data import Example, Finding
from core.data.doctor.findings.wording import finding, how_many, is_often

Kind = Literal["chat_marks", "html", "markdown", "stock_phrases"]

# Every repetition below is bounded, so that no row takes quadratic time.
_CHAT = re.compile(
    r"<\|(?:im_start|im_end|im_sep|endoftext|eot_id|eom_id|start_header_id|end_header_id|begin_of_text|end_of_text"
    r"|user|assistant|system|end|endofprompt|channel|message|start|return)\|>"
    r"|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<｜[^｜\n]{1,40}｜>|\[/?(?:AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|(?:^|\n)[ \t]{0,20}(?:###\s*(?:Instruction|Response|Human|Assistant)\s*:|(?:Human|Assistant|USER|ASSISTANT): )"
    r"|^<s>|</s>\s{0,20}$"
)
_PHRASE = re.compile(
    r"\b(?:as an? (?:ai|artificial intelligence)(?: language)?(?: model| assistant|,)"
    r"|i(?:'m| am) (?:just |only )?an? (?:ai|artificial intelligence)(?: language)? (?:model|assistant)"
    r"|as a (?:large )?language model,? i (?:do not|don't|can ?not|can't|am not|am unable|have no)"
    r"|my knowledge cut-?off|regenerate response)",
    re.IGNORECASE,
)
_ENTITY = re.compile(
    r"&(?:amp|lt|gt|quot|nbsp|apos|hellip|mdash|ndash|rsquo|lsquo|ldquo|rdquo|#\d{2,5}|#x[0-9a-fA-F]{2,5});"
)
_TAG = re.compile(
    r"</?(?:p|br|div|span|font|li|ul|ol|td|tr|table|strong|em|b|i|u|sup|sub|h[1-6]|img|a)"
    r"(?:\s{1,20}[a-z-]{1,40}\s{0,20}=\s{0,20}[\"'][^>]{0,200})?\s{0,20}/?>",
    re.IGNORECASE,
)
_ABOUT_CODE = re.compile(
    r"\b(?:html5?|xhtml|css|xml|svg|jsx|javascript|react|angular|vue|php|tags?|mark-?up|web ?(?:page|site)s?|browser"
    r"|dom|elements?|entit(?:y|ies)|escap\w+|script|code|rss|template|latex|e-?mail)\b"
    r"|<!doctype|<html|<script|<head|<body|<\?xml",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"!\[[^\]\n]{0,200}\]\((?!https?:)[^)\n]{0,500}\)")
_ESCAPED = re.compile(r"(?<![\\\w:/])\\[nt](?=[A-Z\s]|\\n|$)")
_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)


_CHAT_HINTS = (
    "<|", "<｜", "inst]", "sys>", "_of_turn>", "###", "human: ", "assistant: ", "user: ", "s>", "[available", "[tool_",
)  # fmt: skip
_PHRASE_HINTS = ("an ai", "artificial", "language model", "knowledge cut", "regenerate")
"""Only a text that holds one of these, in lower case, is searched with the pattern, which is a hundred times slower."""


def marks_in(example: Example) -> frozenset[Kind]:
    """The kinds of left-over mark-up in a row."""
    answers = [turn.content for turn in example.messages if turn.role == "assistant" and example.mark is not False]
    answers += [text for text in (example.chosen, example.text) if text]
    texts = [turn.content for turn in example.messages if turn.role in ("user", "assistant")]
    texts += [text for text in (example.text, example.chosen, example.rejected) if text]
    whole = "\n\x00".join(texts)
    lower = whole.lower()
    kinds: set[Kind] = set()
    if any(hint in lower for hint in _CHAT_HINTS) and any(map(_CHAT.search, texts)):
        kinds.add("chat_marks")
    if any(hint in lower for hint in _PHRASE_HINTS) and any(map(_PHRASE.search, answers)):
        kinds.add("stock_phrases")
    html = [_ENTITY, _TAG] if "<" in whole or "&" in whole else []
    markdown = [_IMAGE, _ESCAPED] if "](" in whole or "\\" in whole else []
    if any(pattern.search(whole) for pattern in (*html, *markdown)):
        bare = _CODE_BLOCK.sub(" ", whole)
        if any(pattern.search(bare) for pattern in html) and not _ABOUT_CODE.search(whole):
            kinds.add("html")
        if markdown and (_IMAGE.search(bare) or (_ESCAPED.search(bare) and not _ABOUT_CODE.search(bare))):
            kinds.add("markdown")
    return frozenset(kinds)


def debris_finding(html: list[int], escaped: list[int], whole: int) -> Finding | None:
    """Rows with remains of HTML or Markdown."""
    rows = sorted({*html, *escaped})
    if not rows:
        return None
    kinds = [f"HTML tags or codes such as &nbsp; ({len(html):,})"] if html else []
    kinds += [f"a line break written out as \\n, or a picture that is not there ({len(escaped):,})"] if escaped else []
    text = (
        f"{how_many(len(rows), 'row holds', 'rows hold')} left-over mark-up in a text that is not about it: "
        f"{'; '.join(kinds)}. The model learns to write it."
    )
    return finding("markup", "warning" if is_often(rows, whole) else "note", text, rows)


_DIRECTIONS = "\u200e\u200f\u202a-\u202e\u2066-\u2069"
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_UNSEEN = re.compile(
    "[\x00-\x06\x0e-\x1f\x7f\ufeff\u200b\u2060\u180e\ufff9-\ufffb]|[\x07\x08](?![a-z])|(?<![\u00c2-\u00c5])\u00ad"
)
_BREAK = re.compile("[\u2028\u2029]|[\x0b\x0c](?![a-z])|(?<![\x80-\x9f\u00c2-\u00f4])\x85")
_DIRECTION = re.compile(f"[{_DIRECTIONS}]")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DAMAGE = re.compile(
    "\ufffd|\u00e2\u20ac[\u2122\u02dc\u0153\u009d\u201c\u201d\u00a6\u00a2\u009c\u0099\u0098]"
    "|\u00c3[\u00a0-\u00bf](?=[a-z\\s.,])|\u00c2[\u00a0\u00ab\u00bb\u00b0\u00a3]|\u00ef\u00bf\u00bd"
    "|[\x07\x08\x0b\x0c](?=[a-z])|[\x80-\x84\x86-\x9f]"
)
"""The replacement character, UTF-8 that was read as Windows-1252 or Latin-1, and escapes such as \\f that were read
for a formula's \\frac."""


def has_unseen(text: str) -> bool:
    """Whether cleaning would change the text."""
    if text.isascii() and not _CONTROLS.search(text):
        return False
    if _UNSEEN.search(text) or _BREAK.search(text):
        return True
    return _DIRECTION.search(text) is not None and not _reads_leftwards(text)


def clean(text: str) -> str:
    """The text without invisible characters."""
    if not has_unseen(text):
        return text
    text = _BREAK.sub("\n", _UNSEEN.sub("", text))
    return text if _reads_leftwards(text) else _DIRECTION.sub("", text)


def cleaned(example: Example) -> Example:
    """The row with every text of its turns cleaned."""
    messages = tuple(turn.model_copy(update={"content": clean(turn.content)}) for turn in example.messages)
    texts = {name: clean(getattr(example, name)) for name in ("text", "chosen", "rejected", "label", "second")}
    return example.model_copy(update={"messages": messages, "labels": tuple(map(clean, example.labels)), **texts})


def has_damage(text: str) -> bool:
    """Whether letters were lost by a wrong encoding, or a formula's backslashes by unescaping."""
    if text.isascii() and not _CONTROLS.search(text):
        return False
    return _DAMAGE.search(text) is not None


def _reads_leftwards(text: str) -> bool:
    return _RIGHT_TO_LEFT.search(text) is not None
