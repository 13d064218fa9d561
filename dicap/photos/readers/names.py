"""Names that are unlikely to be classes: words for nothing, several names in one, a name with a doubt or a number."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from dicap.errors import DataError, first_of
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row
from dicap.photos.readers.question import Question, typed
from dicap.settings import Own

# Words for nothing in some languages. Some are classes elsewhere: NA is North America, and sodium. `-` means none of the classes.
NOTHING = re.compile(
    r"(?!-$)[-–—_.…?/\"']+|<?n/?a>?|#n/a|#[a-z0/]+[!?]|n\.a\.?|nan|nil|null|void|none( of (these|them|the above))?|nothing|empty"
    r"|blank|missing|tbd|skip(ped)?|ignored?|excluded?"
    r"|_*background_*|no[ _-]?(label|class|tag|object|finding|annotation)(s|es)?|to[ _-]?(do|sort|label)"
    r"|(un|not[ _-]?)(known|defined|labell?ed|specified|sorted|sure)|kein[es]?|nichts|unbekannt|aucune?|rien|inconnue?|ningun[oa]"
    r"|nada|nessun[oa]|niente|nenhuma?|geen|niets|onbekend|ingen|brak|нет|无|無|没有|未知|なし|不明|없음",
    re.IGNORECASE,
)
NUMBERS = re.compile(r"[-+]?\d+([.,]\d+)?( \d+)*")
CODED = re.compile(r"\W*[01](\W*[01])*\W*")  # a column of such cells may hold a mark for each class
# What people write into cells instead of names: ticks, quotes, brackets, scores and counts (`2x cat`).
ODD = re.compile(
    r"true|false|yes|no|[\[({#,，、|'\"`«»“-‟‘-‛‹›「-』].*|\d+\s*[x×*]\s.*"
    r"|.+[:=@(\[]\s*\d[\d.,%\s]*[)\]]?|.+[\s/|_-](0?[.,]\d+|1[.,]0+|\d+([.,]\d+)?\s*%)",
    re.IGNORECASE,
)
# Another name with a doubt, a count or a no: `no cat`, `2 cat`, `cat?`, `maybe cat`, `cat (maybe)`.
DOUBTED = re.compile(
    r"(?:[!~¬?-]\s*|(?:no|not|non|without|kein|keine|maybe|perhaps|probably|possibl[ey])[ _-]|\d+ (?=[^\W\d]))?(.+?)"
    r"(?:\s*\?+|[ _-]?\(?(?:maybe|unsure|uncertain|doubtful)\)?)?",
    re.IGNORECASE,
)
LISTING = ",，、|"  # marks that usually separate names
SIGN = re.compile(r"</?\w+ ?/?>|[,，、|]|[-_]*[^\w ,，、|.'’()\[\]{}-]+[-_]*")  # tags as `<br>`, and marks that names seldom hold
WORD = re.compile(r" (?:and|or|und|et|y|[-_.]+) |_+|-+|[ .'’]")  # separators, if all parts are whole names


def with_words(listing: Listing, own: Own, looking: bool = False) -> Listing:
    """Apply `own.words` to words for nothing.

    Args:
        looking: whether names beside `own.names` may be new classes.

    Raises DataError if a word for nothing stands beside a name; Question if such a word, or another name that is unlikely to be a
    class, is neither settled by the options nor among `own.names`.
    """
    if own.classes and own.format == "table":  # the user has seen the heads
        return listing
    rows = [row for row in listing.rows if row.split != "unlabeled"]
    places, certain = _places(rows), {*(own.names or ())}
    nothing = {name for name in places if name not in certain and says_nothing(name, places)}
    asked = sorted(nothing & {name for row in rows for name in row.labels or ()})
    if asked and own.words == "auto":
        ways = "--words none reads it as none of the classes, --words empty as an empty cell, --names as a class"
        text = f"{places[asked[0]]}: labels: is {asked[0]} a class, or does it say nothing? {ways}"
        raise Question(text, names=asked)
    if looking or own.names is None:
        separator = ";" if own.value is not None else own.separator
        ask_of_names(rows, certain | nothing, separator if own.format == "table" else None)
    if not nothing or own.words == "class":
        return listing
    rows = []
    for row in listing.rows:
        if words := nothing & (row.labels or frozenset()):
            if words != row.labels:
                text = f"{min(words)!r} means none (own.words) but stands beside names; take it out"
                raise DataError(f"{row.where}: labels: {text}")
            empty = own.words == "empty"
            row = replace(row, labels=None if empty else frozenset(), empty=empty and own.format == "table")
        rows.append(row)
    return replace(listing, rows=rows)


def ask_of_names(rows: Collection[Row], certain: Collection[str], separator: str | None) -> None:
    """Ask about names that may be something else than the name of one class.

    Args:
        certain: names that are known to be classes.
        separator: what separates names in cells, beside `;`; `auto`: not known; None: a program wrote the names.

    Raises DataError for names with doubts, scores or quotes, or with another mark than the option says; Question with the mark
    that may separate several names.
    """
    places = _places(rows)
    names, others = {*places, *certain}, [name for name in places if name not in certain]
    is_coded = separator is not None and any(len(name) > 1 for name in names) and all(map(CODED.fullmatch, names))
    if odd := [name for name in others if is_coded or doubt_of(name, names, separator is not None)]:
        text = f"{places[odd[0]]}: labels: is {first_of([*map(repr, odd)], 3)} the name of one class?"
        raise DataError(f"{text} Write names alone, with `;` between several; or name it with --names")
    if separator in (None, ";"):
        return
    lists = [both for row in rows if len(both := {*(row.labels or ()), *(row.absent or ())}) > 1]  # rows that use `;`
    held = {mark for name in set().union(*lists) for mark in _parts(name)}  # there, these marks belong to names
    is_open = separator == "auto" and not lists
    names |= {part for name in names if re.fullmatch(r"\d+( \d+)+", name) for part in name.split()}
    often = Counter((mark, part) for name in names for mark, parts in _parts(name).items() for part in {*parts})
    found = []
    for name in others:
        for mark, parts in _parts(name).items():
            are_names = len(parts) > 1 and names.issuperset(parts)
            may_list = mark in LISTING and (mark not in held or not names.isdisjoint(parts))
            if are_names or may_list or (is_open and SIGN.fullmatch(mark)):
                recurs = any(part in names or often[mark, part] > 1 for part in parts)
                found.append((recurs, mark in LISTING, are_names, len(mark), name, mark))
    if not found:
        return
    recurs, *_, name, mark = max(found, key=lambda one: one[:4])
    text = f"{places[name]}: labels: is {name!r} one class or several? Write `;` between several"
    if separator != "auto":
        raise DataError(f"{text}; or name it with --names")
    ways = f"--separator {typed(mark)} reads several, --separator ';' one"
    raise Question(f"{text}; {ways}", separator=mark if recurs else ";")


def says_nothing(name: str, names: Iterable[str]) -> bool:
    """Whether a name is a word for nothing. 0 and -1 are such words too, unless all names are numbers."""
    return NOTHING.fullmatch(name) is not None or (name in ("0", "-1") and not all(map(NUMBERS.fullmatch, names)))


def may_be_doubted(name: str, names: Collection[str]) -> bool:
    """Whether a class may be asked about again, so that a proposed command has to name it."""
    return name.lower() in SPLIT_NAMES or says_nothing(name, names) or doubt_of(name, names, typed_in=True)


def doubt_of(name: str, names: Collection[str], typed_in: bool = False) -> bool:
    """Whether a name may be something else than a class.

    It has invisible letters, or says of another name that it is not there or doubtful; or a cell holds more than the name; or a
    program joined several names.
    """
    bare = DOUBTED.fullmatch(name)
    is_of_other = bare is not None and bare[1] != name and bare[1].casefold() in {other.casefold() for other in names}
    if is_of_other or any(unicodedata.category(letter) == "Cf" for letter in name):
        return True
    if typed_in:
        return ODD.fullmatch(name) is not None
    return any(len(parts) > 1 and all(part in names for part in parts) for parts in _parts(name).values())


def _places(rows: Iterable[Row]) -> dict[str, str]:
    """The place of each name: the first row that has it."""
    places: dict[str, str] = {}
    for row in rows:
        for name in sorted({*(row.labels or ()), *(row.absent or ())}):
            places.setdefault(name, row.where)
    return places


def _parts(name: str) -> dict[str, list[str]]:
    """The parts of a name by the marks that may separate several names; a mark in front, as in `/m/0cat`, does not."""
    letters = "".join("a" if unicodedata.category(letter)[0] == "M" else letter for letter in name)  # accents are no marks
    marks = [mark for mark in [*SIGN.findall(letters), *WORD.findall(letters)] if not name.startswith(mark)]
    return {mark: [part.strip() for part in name.split(mark) if part.strip()] for mark in marks}
