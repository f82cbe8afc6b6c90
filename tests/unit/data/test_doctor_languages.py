"""Languages by their writing and their commonest words: some thirty told apart, and silence where nothing is sure."""

import pytest
from whole_rows import examine

from core.contract.data import Example
from core.data.doctor.findings.languages import UNSURE, language_of
from core.data.doctor.findings.text_words import words_of

SAID = {
    "English": "The ship has left the harbour and will not be back before the end of the week, which is what they told",
    "Spanish": "barco ha salido del puerto y no volverá antes de que termine la semana, según lo que nos dijeron ayer.",
    "French": "bateau a quitté le port et il ne sera pas de retour avant la fin de la semaine, c'est ce que l'on nous",
    "German": "Schiff hat den Hafen verlassen und wird nicht vor dem Ende der Woche zurück sein, wie man es uns sagte.",
    "Italian": "nave ha lasciato il porto e non tornerà prima della fine della settimana, come ci hanno detto ieri gli",
    "Portuguese": "O navio deixou o porto e não volta antes do fim da semana, como nos disseram ontem os homens que lá",
    "Dutch": "schip heeft de haven verlaten en is niet voor het einde van de week terug, zoals ze ons gisteren zeiden.",
    "Swedish": "Skeppet har lämnat hamnen och kommer inte tillbaka före slutet av veckan, det är vad de sade till oss",
    "Danish": "Skibet har forladt havnen og kommer ikke tilbage før ugens udgang, det er hvad de sagde til mig og til",
    "Norwegian": "forlatt havnen og kommer ikke tilbake før uken er over, det er hva de sa til meg etter noe venting.",
    "Finnish": "lähtenyt satamasta ja se ei palaa ennen kuin viikko on ohi, niin kuin he sanoivat, mutta hän ei tiedä.",
    "Polish": "Statek wyszedł z portu i nie wróci przed końcem tygodnia, jak nam to powiedziano, ale nie jest to pewne",
    "Czech": "Loď opustila přístav a nevrátí se před koncem týdne, jak nám řekli, ale není to jisté, protože je to na",
    "Romanian": "Nava a părăsit portul și nu se va întoarce până la sfârșitul săptămânii, din ce ni s-a spus, dar nu",
    "Hungarian": "A hajó elhagyta a kikötőt, és nem tér vissza a hét vége előtt, ahogy azt nekünk mondták, de ez csak",
    "Turkish": "limandan ayrıldı ve hafta sonuna kadar geri dönmeyecek, bize böyle söylendi ama bu çok da kesin değil.",
    "Indonesian": "itu telah meninggalkan pelabuhan dan tidak akan kembali sebelum akhir pekan, seperti yang dikatakan",
    "Vietnamese": "tàu đã rời cảng và sẽ không trở về trước cuối tuần, đó là những gì người ta nói với chúng tôi trong",
    "Russian": "Корабль покинул порт и не вернётся до конца недели, как нам сказали, но это ещё не точно, так что мы",
    "Ukrainian": "Корабель залишив порт і не повернеться до кінця тижня, як нам сказали, але це ще не є точно, що він",
    "Bulgarian": "Корабът напусна пристанището и няма да се върне преди края на седмицата, както ни казаха, но това не",
    "Arabic": "السفينة الميناء ولن تعود قبل نهاية الأسبوع كما قيل لنا في هذا اليوم، لكن لا أحد يعرف ما هو الذي كان على",
    "Persian": "کشتی بندر را ترک کرد و تا پایان هفته باز نمی گردد، این را به ما گفتند که هم در راه است و هم با باد.",
    "Urdu": "جہاز بندرگاہ سے نکل گیا ہے اور ہفتے کے آخر تک واپس نہیں آئے گا، یہ ہم کو کل بتایا گیا تھا جو سچ ہے۔",
    "Chinese": "船已经离开港口，周末之前不会回来，这是他们昨天告诉我们的。",
    "Japanese": "船は港を出て、週末までは戻らないと昨日聞きました。",
    "Korean": "배는 항구를 떠났고 주말 전에는 돌아오지 않는다고 어제 들었습니다.",
    "Greek": "Το πλοίο έφυγε από το λιμάνι και δεν θα επιστρέψει πριν από το τέλος της εβδομάδας.",
    "Hebrew": "הספינה עזבה את הנמל ולא תחזור לפני סוף השבוע, כך אמרו לנו אתמול.",
    "Hindi": "जहाज बंदरगाह से निकल चुका है और सप्ताह के अंत से पहले वापस नहीं आएगा।",
    "Thai": "เรือออกจากท่าแล้วและจะไม่กลับมาก่อนสิ้นสัปดาห์",
}


@pytest.mark.parametrize("language", SAID)
def test_languages_are_told_apart(language: str) -> None:
    text = SAID[language]
    assert language_of(text, words_of(text)) == language


@pytest.mark.parametrize(
    "text",
    ["", "Paris", "x = 3 * (y + 2) ** 0.5", "def run(self, path): return self.items[path].open()", "OK OK OK",
     "1234 5678", "2 plus 18? 2 plus 18: 20, plus 2 plus 18",
     "Kyle Julian Frederick Tyson Marseille", "\U0001f600\U0001f600", "…"],
)  # fmt: skip
def test_nothing_is_said_of_what_is_no_language_or_too_short(text: str) -> None:
    assert language_of(text, words_of(text)) == UNSURE


@pytest.mark.parametrize(("german", "told"), [(0, False), (2, False), (3, True), (10, True)])
def test_a_mix_is_a_note_with_the_rarer_rows_and_a_row_or_two_make_none(german: int, told: bool) -> None:
    said = ["English"] * 30 + ["German"] * german
    rows = [Example(row=row, text=f"{row} {SAID[language]} {row}") for row, language in enumerate(said, start=1)]
    checkup = examine(rows)
    found = {finding.code: finding for finding in checkup.findings}
    assert ("languages" in found) is told
    assert len(checkup.languages) == 1 + bool(german)
    if german == 10:
        assert checkup.languages == {"English": 0.75, "German": 0.25}
        assert (found["languages"].level, found["languages"].rows) == ("note", tuple(range(31, 41)))
        assert "75% English, 25% German (sure for 100% of the rows)" in found["languages"].text
