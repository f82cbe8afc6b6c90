"""The language of a text: by its writing system, and where several languages share one, by their commonest words.

A word gives each of the n languages that share it 1/n points. A language is named where it has at least two different
words, two points and one point for every dozen words, and a third more points than the next; else it is unsure.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from core.contract.data import Finding
from core.data.doctor.findings.wording import finding, share

UNSURE = ""
_WORDS_LOOKED_AT = 120
_LETTERS_LOOKED_AT = 1500
_FEW = 0.005
"""Languages of a smaller share of the rows are not reported."""

_COMMON = {
    "English": "the of and a to in is i that for it with as was are this be on you not have or by from at an what "
    "which can do he his her she they we so no me my if but all one will would there has how more its your about who",
    "Spanish": "el la de que y en los las un una por con para es se del su lo más como pero al está son qué este",
    "French": "le la les de des et est un une dans pour que qui du en il pas sur au avec ce sont vous par plus ne ou",
    "German": "der die das und ist nicht ein eine zu den von mit auf für dem im sich des es auch wie oder sind ich",
    "Italian": "il di che e la per un una è con non sono del della i le si da nel più come gli alla ma questo",
    "Portuguese": "o de que e os um uma em para com não por do da no na é mais as se como dos ao você são",
    "Dutch": "de het een en van is dat niet op te in voor met zijn die aan er ook maar om als bij naar wordt je",
    "Swedish": "och att det som en är på av för inte med den till ett om har jag var kan från eller men vad",
    "Danish": "og at det er en til på af for ikke med den de som et har jeg hvad kan fra eller men der mig",
    "Norwegian": "og å det er en til på av for ikke med den de som et har jeg hva kan fra eller men meg noe",
    "Finnish": "ja on ei se että en oli hän mutta ovat kun niin myös tai mitä joka voi kanssa ole sen tämä",
    "Polish": "i w na nie się z do to że jest jak co po jego ale o przez dla czy są ten być oraz",
    "Czech": "a se v na je že to z do i o jsou jako pro ale by který nebo při podle také není jak",
    "Romanian": "și de în la cu că nu o un este pe pentru care din mai sunt ce sau prin să al fi",
    "Hungarian": "a az és hogy nem is egy ez van meg de csak volt vagy mint kell ha lehet azt mi",
    "Turkish": "ve bir bu için de da ile çok ne daha olarak gibi olan en mi var kadar sonra değil ben",
    "Indonesian": "yang dan di untuk dengan dari ini itu tidak adalah dalam pada ke akan atau oleh juga sebagai dapat",
    "Vietnamese": "và của là có không một được cho trong những với các này đã người để khi về như từ",
    "Russian": "и в не на что с по это как к но из у за от для он так же или если то все",
    "Ukrainian": "і в не на що з у та як до це за але від для або є його ми також був щоб",
    "Bulgarian": "и на в да се за е с не от по са като това че или ще до което при",
    "Arabic": "في من على أن إلى هذا التي عن مع هو ما لا كان هذه أو هي الذي كل",
    "Persian": "و در به از که این را با است برای یک آن می تا هم شود کرد خود",
    "Urdu": "کے کی میں ہے اور سے کا کو نے پر ہیں یہ کہ ایک نہیں بھی تھا جو",
}  # fmt: skip
_SCRIPTS = {
    "Latin": "A-Za-z\u00aa-\u024f\u1e00-\u1eff",
    "Cyrillic": "\u0400-\u052f",
    "Arabic script": "\u0600-\u06ff\u0750-\u077f",
    "Japanese": "\u3040-\u30ff",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff",
    "Korean": "\uac00-\ud7af",
    "Greek": "\u0370-\u03ff",
    "Hebrew": "\u0590-\u05ff",
    "Hindi": "\u0900-\u097f",
    "Bengali": "\u0980-\u09ff",
    "Tamil": "\u0b80-\u0bff",
    "Thai": "\u0e00-\u0e7f",
}
_SHARED = ("Latin", "Cyrillic", "Arabic script")
LANGUAGES = (*_COMMON, *(name for name in _SCRIPTS if name not in _SHARED))
"""All that ``language_of`` may name."""
_BEYOND_LATIN = re.compile("[\u0370-\u1dff\u3040-\ud7af]")
_LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in _COMMON.items():
    for _word in _words.split():
        _LANGUAGES_OF.setdefault(_word, []).append(_language)


def language_of(text: str, words: Sequence[str]) -> str:
    """The English name of the text's language, or UNSURE. ``words`` are its words in lower case."""
    script = "Latin" if text.isascii() else _script(text[:_LETTERS_LOOKED_AT])
    return _by_words(words[:_WORDS_LOOKED_AT]) if script in _SHARED else script


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """The share of each language among the rows whose language is sure, the commonest first."""
    known = sum(count for language, count in counts.items() if language != UNSURE)
    ordered = sorted(((count, language) for language, count in counts.items() if language != UNSURE), reverse=True)
    return {language: count / known for count, language in ordered}


def language_finding(rows_of: Mapping[str, Sequence[int]], counts: Mapping[str, int]) -> Finding | None:
    """More than one language; ``rows_of`` are row numbers, ``counts`` rows of each. One or two rows of a language are
    left out: a name or a quotation may have misled us."""
    mixed = shares(counts)
    main = next(iter(mixed), UNSURE)
    known = sum(counts.values()) - counts.get(UNSURE, 0)
    others = {language: rows for language, rows in rows_of.items() if language not in (main, UNSURE)}
    others = {language: rows for language, rows in others.items() if len(rows) > max(2, _FEW * known)}
    if not others:
        return None
    rows = sorted(row for numbers in others.values() for row in numbers)
    listed = [language for language in mixed if language in (main, *others)]
    named = ", ".join(f"{share(counts[language], known)} {language}" for language in listed)
    text = (
        f"The rows are in {len(others) + 1} languages: {named} (sure for {share(known, sum(counts.values()))} of the "
        "rows). The model answers in the language that its training mixed with the question's."
    )
    return finding("languages", "note", text, rows)


@cache
def _classes() -> dict[str, re.Pattern[str]]:
    """The letters of each writing system; the window is not to wait until they are compiled."""
    return {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}


def _script(text: str) -> str:
    """The writing system of most letters; Japanese mixes its own with Chinese characters."""
    if not _BEYOND_LATIN.search(text):
        return "Latin"
    counts = Counter({name: len(letters.findall(text)) for name, letters in _classes().items()})
    if counts["Japanese"] * 10 > counts["Chinese"] and counts["Japanese"]:
        counts["Japanese"] += counts.pop("Chinese", 0)
    name, most = counts.most_common(1)[0]
    total = counts.total()
    # One Chinese character says about as much as a short Latin word.
    heavy = [one for one in ("Chinese", "Japanese", "Korean") if counts[one] * 3 > total]
    if heavy:
        return max(heavy, key=lambda one: counts[one])
    return name if total and most * 2 > total else UNSURE


def _by_words(words: Sequence[str]) -> str:
    points: dict[str, float] = {}
    different: Counter[str] = Counter()
    for word, times in Counter(filter(_LANGUAGES_OF.__contains__, words)).items():
        for language in _LANGUAGES_OF[word]:
            points[language] = points.get(language, 0.0) + times / len(_LANGUAGES_OF[word])
            different[language] += 1
    scores = ((score, language) for language, score in points.items() if different[language] > 1)
    ranked = sorted(scores, reverse=True)[:2]
    if not ranked or ranked[0][0] < max(2.0, len(words) / 12):
        return UNSURE
    if len(ranked) > 1 and ranked[0][0] < 4 / 3 * ranked[1][0]:
        return UNSURE
    return ranked[0][1]
