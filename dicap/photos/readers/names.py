"""Names that are unlikely to be classes: words for nothing, several names in one, a name with a doubt or a number."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from dicap.errors import DataError, first_of
from dicap.photos.readers.listing import Listing
from dicap.photos.readers.question import Question, listed, typed
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
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
CODED = re.compile(r"\W*[01](\W*[01])*\W*")  # 0 and 1, or a list of them
IN_CELLS = {  # what people write beside a name or instead of a name
    re.compile(r"^(true|false|yes|no)$", re.IGNORECASE): "the tick of another column",
    re.compile(  # `cat:0.9`, `cat (2)`, `2x cat`
        r"([:=@/(\[|\s_-]\s*(0?[.,]\d+|1[.,]0+|\d+([.,]\d+)?\s*%)|[:=@(\[]\s*\d+)\s*[)\]]?$|^\d+\s*[x×*]\s"
    ): "a class and its score or count",
    re.compile(r"^['\"`«»“-‟‘-‛‹›「-』\[{]|['\"`«»“-‟‘-‛‹›「-』\]}]$|^\(.*\)$"): "a name in quotes or brackets",
}
DOUBTED = re.compile(  # `no cat`, `2 cat`, `cat?`, `maybe cat`, `cat (maybe)`
    r"(?:[!~¬?-]|(?:no|not|non|without|kein|keine|maybe|perhaps|probably|possibl[ey])[ _-]|\d+ (?=[^\W\d]))\s*(.+)"
    r"|(.+?)\s*(?:\?+|[ _-]?\(?(?:maybe|unsure|uncertain|doubtful)\)?)",
    re.IGNORECASE,
)
BETWEEN = re.compile(r"[,，、|]|</?\w+ ?/?>")  # marks that usually separate names; tags as `<br>`
# Tags, and marks other than those that usually belong to a name.
SIGNS = re.compile(r"</?\w+ ?/?>|(?:[-_]*(?!</?\w+ ?/?>)[^\w .'’()-][-_]*)+")
WORDS = re.compile(r" (?:and|or|und|et|y|[-_.]+) |_+|-+|[ .'’()]")  # separators, if the parts also occur as whole names


def with_words(listing: Listing, own: Own, looking: bool = False) -> Listing:
    """Apply `own.words` to words for nothing.

    Args:
        looking: whether names beside `own.names` may be new classes.

    Raises DataError if a word for nothing stands beside a name; Question if such a word, or another name that is unlikely to be a
    class, is neither settled by the options nor among `own.names`.
    """
    if own.classes and own.format == "table":  # the user has seen the heads
        return listing
    labelled = [row for row in listing.rows if row.split != "unlabeled"]
    places: dict[str, str] = {}
    for row in labelled:
        for name in sorted((row.labels or frozenset()) | (row.absent or frozenset())):
            places.setdefault(name, row.where)
    certain = own.names or []
    nothing = {name: where for name, where in places.items() if name not in certain and says_nothing(name, places)}
    if nothing and own.words == "auto":
        first, where = next(iter(nothing.items()))
        ways = "--words none reads it as none of the classes, --words empty as an empty cell, --names as a class"
        shown = sorted(name for name in nothing if any(name in (row.labels or ()) for row in labelled))
        text = f"{where}: labels: is {first} a class, or does it say nothing? {ways}"
        raise Question(text, **({"names": shown} if shown else {"words": "none"}))
    if looking or own.names is None:
        others = {name: where for name, where in places.items() if name not in nothing}
        ask_of_names(others, certain, own.format == "table", listing.separated, own.separator == "auto")
    if not nothing or own.words == "class":
        return listing
    rows = []
    for row in listing.rows:
        if words := nothing.keys() & (row.labels or ()):
            if words != row.labels:
                text = f"{min(words)!r} means none (own.words) but stands beside names; take it out"
                raise DataError(f"{row.where}: labels: {text}")
            empty = own.words == "empty"
            row = replace(row, labels=None if empty else frozenset(), empty=empty and own.format == "table")
        rows.append(row)
    return replace(listing, rows=rows)


def ask_of_names(
    places: Mapping[str, str], certain: Collection[str], typed_in: bool, separated: str | None, free: bool = True
) -> None:
    """Ask about names that may be something else than the name of one class.

    Args:
        places: place of each name.
        certain: names that are known to be classes.
        typed_in: whether people typed the names into cells; False: a program wrote them.
        separated: the cells in which `;` separates names, joined; None: each name stands alone.
        free: whether another mark than `;` may separate names, since no option names the separator.

    Raises DataError if names hold numbers or quotes, or if another mark separates them than the option says; Question with the
    names, or with the mark that may separate several names.
    """
    names = {*places}
    others = [name for name in places if name not in certain]
    if doubts := {name: doubt for name in others if (doubt := doubt_of(name, names, typed_in))}:
        first, *more = doubts
        shown = first_of([typed(first), *map(typed, sorted(more))], 3)
        text = f"{places[first]}: labels: is {shown} a class, or {doubts[first]}?"
        if doubts[first] in IN_CELLS.values():
            way = f"it is a class (--names {typed(listed(sorted(doubts)))})"
            raise DataError(f"{text} Write names alone, with `;` between several; or {way}")
        raise Question(f"{text} Correct it, or name it as a class", names=sorted(doubts))
    if typed_in and others and all(map(CODED.fullmatch, names)):
        text = "lists of 0 and 1 are not read; write a column of 0 and 1 for each class, with the class as its head"
        raise DataError(f"{places[others[0]]}: labels: {text}")
    if separated is None:
        return
    held = "".join([separated, *certain])  # a comma or a similar mark in these cells belongs to a name
    is_open = free and not separated
    pairs = [(name, mark) for name in others for mark in _marks(name)]
    shares = {mark: Counter(part for name in names for part in {*_parts(name, mark)}) for _, mark in pairs}

    def certainty(name: str, mark: str) -> int:
        """2: the mark separates names; 1: it may, since a part is a name too or occurs in other names; 0: it does not."""
        parts, is_word = _parts(name, mark), WORDS.fullmatch(mark) is not None
        are_names, recur = [part in names for part in parts], [False]
        if is_open and (not is_word or mark[0] == " "):  # names often share a part before or after another mark
            recur = [shares[mark][part] > 1 or (mark == " " and part.isdigit()) for part in parts]
        is_split = len(parts) > 1 and (all(are_names) or all(recur))
        if is_split or (BETWEEN.fullmatch(mark) and (mark not in held or any(are_names))):
            return 2
        may_separate = any(are_names) and is_open if is_word else any(are_names + recur)
        return int(may_separate and len(parts) > 1 and not name.startswith(mark))  # `/m/0cat` is one name

    # A mark that seldom occurs in names comes first: beside `cat, dog` or `cat - dog` even `great tit` is one name.
    ranks = {pair: (certainty(*pair), WORDS.fullmatch(pair[1]) is None, len(pair[1])) for pair in pairs}
    name, mark = max(pairs, key=lambda pair: ranks[pair], default=("", ""))
    sure, is_sign, _ = ranks.get((name, mark), (0, False, 0))
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    if sure == 2 and not free:
        way = f"write `;` everywhere, or name it (--names {typed(listed([name]))})"
        raise DataError(f"{places[name]}: labels: {shown!r} holds names separated by another mark; {way}")
    if sure and free:
        ways = f"--separator {typed(mark)} reads several, --separator ';' one"
        text = f"{places[name]}: labels: is {shown!r} one class or several? Write `;` between several; {ways}"
        raise Question(text, separator=mark if sure == 2 or (is_sign and not separated) else ";")


def says_nothing(name: str, names: Iterable[str]) -> bool:
    """Whether a name is a word for nothing. 0 and -1 are such words too, unless all names are numbers."""
    return NOTHING.fullmatch(name) is not None or (name in ("0", "-1") and not all(map(NUMBER.fullmatch, names)))


def doubt_of(name: str, names: Collection[str], typed_in: bool = False) -> str:
    """What a name may be instead of a class, in words; empty if nothing suggests so."""
    bare = DOUBTED.fullmatch(name)
    if bare is not None and (bare[1] or bare[2]).casefold() in {other.casefold() for other in names}:
        return "another class and its count" if name[0].isdigit() else "the word that another class is not there, or is doubtful"
    if any(unicodedata.category(letter) == "Cf" for letter in name):
        return "a name with invisible letters"
    if typed_in:
        return next((why for pattern, why in IN_CELLS.items() if pattern.search(name)), "")
    splittings = (_parts(name, mark) for mark in _marks(name))
    return "several" if any(len(parts) > 1 and all(part in names for part in parts) for parts in splittings) else ""


def _marks(name: str) -> list[str]:
    """The marks that may separate names in a text: tags, signs such as `->`, and words with their blanks, the longest first."""
    letters = "".join("a" if unicodedata.category(letter)[0] == "M" else letter for letter in name)  # accents are no signs
    signs = [sign.strip() or sign for sign in SIGNS.findall(letters)]
    words = sorted(WORDS.findall(name), key=len, reverse=True)
    return [*dict.fromkeys([*(sign[0] if BETWEEN.fullmatch(sign[0]) else sign for sign in signs), *words])]


def _parts(name: str, mark: str) -> list[str]:
    return [part.strip() for part in name.split(mark) if part.strip()]
