"""Names that are hardly those of classes: words for nothing, several in one, one with a doubt or a number; and no name."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from dicap.errors import DataError, first_of
from dicap.photos.readers.listing import Listing
from dicap.photos.readers.question import Question, typed
from dicap.settings import Own

# Words for it, in some languages; some are classes somewhere: NA is North America, and sodium. `-` is none of the classes.
NOTHING = re.compile(
    r"(?!-$)[-–—_.…?/\"']+|<?n/?a>?|#n/a|n\.a\.?|nan|nil|null|void|none( of (these|them|the above))?|nothing|empty|blank"
    r"|missing|tbd|skip(ped)?|ignored?|excluded?"
    r"|_*background_*|no[ _-]?(label|class|tag|object|finding|annotation)(s|es)?|to[ _-]?(do|sort|label)"
    r"|(un|not[ _-]?)(known|defined|labell?ed|specified|sorted|sure)|kein[es]?|nichts|unbekannt|aucune?|rien|inconnue?|ningun[oa]"
    r"|nada|nessun[oa]|niente|nenhuma?|geen|niets|onbekend|ingen|brak|нет|无|無|没有|未知|なし|不明|없음",
    re.IGNORECASE,
)
MISSING = re.compile(r"<?n/?a>?|#n/a|nan|nil|null|none", re.IGNORECASE)  # what programs write for a missing value
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
CODED = re.compile(r"\W*[01](\W*[01])*\W*|true|false|yes|no", re.IGNORECASE)  # 0 and 1, or a list of them
SCORED = re.compile(  # of a model, or a count: `cat:0.9`, `cat (2)`, `2x cat`
    r"([:=@/(\[|\s_-]\s*(0?[.,]\d+|1[.,]0+|\d+([.,]\d+)?\s*%)|[:=@(\[]\s*\d+)\s*[)\]]?$|^\d+\s*[x×*]\s"
)
WRAPPED = re.compile(r"^['\"\[{]|['\"\]}]$|^\(.*\)$")  # what is left of a list in another way of writing
DOUBTED = re.compile(  # `no cat`, `cat?`, `maybe cat`, `cat (maybe)`
    r"(?:[!~¬?-]|(?:no|not|non|without|kein|keine|maybe|perhaps|probably|possibl[ey])[ _-])\s*(.+)"
    r"|(.+?)\s*(?:\?+|[ _-]?\(?(?:maybe|unsure|uncertain|doubtful)\)?)",
    re.IGNORECASE,
)
WITHIN = " _-.'’()"  # marks that belong to a name more often than they separate
BETWEEN = ",，、|"  # marks that separate more often than they belong to a name
WORDS = r" (?:and|or|und|et|y|[-_.]+) |_+|-+|[ .'’()]"  # what may separate names that stand alone too


def with_words(listing: Listing, own: Own, looking: bool = False) -> Listing:
    """The rows with what `own.words` says of words for nothing.

    Args:
        looking: whether `own.names` are but those that are certain, and others may be new.

    Raises:
        DataError: such a word stands beside a name.
        Question: such a word, or another name that is hardly one of a class, is neither settled by the options nor among
            `own.names`.
    """
    if own.classes and own.format == "table":  # columns that were chosen
        return listing
    told = [row for row in listing.rows if row.split != "unlabeled"]
    present = {name for row in told for name in row.labels or ()}
    places: dict[str, str] = {}
    for row in told:
        for name in sorted((row.labels or frozenset()) | (row.absent or frozenset())):
            places.setdefault(name, row.where)
    certain, names = {*(own.names or ())}, {*places}
    nothing = {name for name in names - certain if says_nothing(name, names)}
    if listing.literal:
        nothing = {name for name in nothing if not MISSING.fullmatch(name)}
    if nothing and own.words == "auto":
        first = next(name for name in places if name in nothing)
        ways = "--words none reads it as none of the classes, --words empty as an empty cell, --names as a class"
        shown = sorted(nothing & present)  # of the others no image is one
        text = f"{places[first]}: labels: is {first} a class, or does it say nothing? {ways}"
        raise Question(text, **({"names": shown} if shown else {"words": "none"}))
    if looking or own.names is None:
        others = {name: where for name, where in places.items() if name not in nothing}
        ask_of_names(others, certain, own.format == "table", listing.separated, own.separator == "auto")
    if not nothing or own.words == "class":
        return listing
    rows = []
    for row in listing.rows:
        if words := nothing & (row.labels or frozenset()):
            if words != row.labels:
                raise DataError(f"{row.where}: labels: {min(words)!r} says none (own.words) and is no name among others")
            empty = own.words == "empty"
            row = replace(row, labels=None if empty else frozenset(), empty=empty and own.format == "table")
        rows.append(row)
    return replace(listing, rows=rows)


def ask_of_names(
    places: Mapping[str, str], certain: Collection[str], typed_in: bool, separated: str | None, free: bool = True
) -> None:
    """Ask of names that may be something else than the name of one class.

    Args:
        places: where each name stands.
        certain: names that are no question.
        typed_in: whether somebody typed them into cells, as into no list of a program.
        separated: the cells in which `;` separates names, joined; None: names stand alone, and nothing separates them.
        free: whether nothing is said of what separates names beside `;`.

    Raises:
        DataError: names are combinations of others, with several marks between or with numbers.
        Question: with the names, or the mark that may separate several.
    """
    names = {*places}
    parts = Counter(part for name in names for part in _bare(name))
    made = {name for name in names if typed_in and _bare(name) != {name} and all(parts[part] > 1 for part in _bare(name))}
    odd = {name: why for name in names - {*certain} if (why := doubt_of(name, names, typed_in))}
    if odd:
        first = next(name for name in places if name in odd)
        shown = first_of([typed(first), *map(typed, sorted(odd.keys() - {first}))], 3)
        if len(made & odd.keys()) > 1:
            raise DataError(f"{places[first]}: labels: {shown}: each is {odd[first]}; write the names alone, with `;` between")
        text = f"{places[first]}: labels: is {shown} a class, or {odd[first]}? Correct it, or name it as a class"
        raise Question(text, names=sorted(odd))
    if separated is None:
        return
    pieces = Counter(piece for name in names for piece in {*name.split()})
    repeated = names if separated else names | {piece for piece, count in pieces.items() if count > 1}
    held = "".join([separated, *certain])  # cells in which a comma and its like belong to names

    def separates(mark: str, name: str) -> bool:
        """Whether a mark stands between names that stand alone too, or is one that names hardly hold.

        Beside cells in which `;` separates, such a mark belongs to the name unless a part of the name is a name.
        """
        parts = _parts(name, mark)
        if _has_names(name, mark, names):
            return True
        if re.fullmatch(WORDS, mark):  # of ` - ` and its blanks the whole is the first
            return mark[0] == " " and all(word in repeated for word in _parts(name, " "))
        within = (mark in name.strip(mark) and not mark == "/" == name[0]) or mark in BETWEEN  # `/m/0cat` is one
        return within and (not separated or (mark in BETWEEN and mark not in held) or not names.isdisjoint(parts))

    others = [name for name in places if name not in certain]
    marks = {name: mark for name in others for mark in reversed(_marks(name)) if separates(mark, name)}  # the first of each
    if marks:
        # A mark that names hardly hold comes first: beside `cat, dog` or `cat - dog` even `great tit` is one name.
        name, mark = min(marks.items(), key=lambda pair: (re.fullmatch(WORDS, pair[1]) is not None, -len(pair[1])))
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        if not free and (name in made or _has_names(name, mark, names)):
            raise DataError(f"{places[name]}: labels: {shown!r} holds names with another mark between; write `;` everywhere")
        way = f"--separator {typed(mark)} reads several, --separator ';' one" if free else "or name it as a class"
        text = f"{places[name]}: labels: is {shown!r} one class or several? Write `;` between several; {way}"
        one = separated and mark not in BETWEEN and not _has_names(name, mark, names)  # as `=1+1`, where `1` is a class too
        raise Question(text, **{"separator": ";" if one else mark} if free else {"names": [name]})


def says_nothing(name: str, names: Iterable[str]) -> bool:
    """Whether a name is a word for nothing: among words also 0 and -1, which among numbers are classes."""
    return NOTHING.fullmatch(name) is not None or (name in ("0", "-1") and not all(map(NUMBER.fullmatch, names)))


def doubt_of(name: str, names: Collection[str], typed_in: bool = False) -> str:
    """What a name may be in place of that of a class; empty where nothing speaks against it."""
    bare = DOUBTED.fullmatch(name)
    if bare is not None and (bare[1] or bare[2]).casefold() in {other.casefold() for other in names}:
        return "the word that another class is not there, or is doubtful"
    if any(unicodedata.category(letter) == "Cf" for letter in name):
        return "a name with letters that cannot be seen"
    if not typed_in and any(_has_names(name, mark, names) for mark in _marks(name)):
        return "several"
    if typed_in and CODED.fullmatch(name) and all(map(CODED.fullmatch, names)):
        return "0 and 1 of several, which need a column each, headed by the class"
    if typed_in and re.fullmatch(r"true|false|yes|no", name, re.IGNORECASE):
        return "the tick of another column"
    if typed_in and SCORED.search(name):
        return "one and its score or count"
    return "a name within marks" if typed_in and WRAPPED.search(name) else ""


def _marks(name: str) -> list[str]:
    """The whole marks that may separate names in one: signs, as `->`, and then words with their blanks, the longest first."""

    def is_sign(letter: str) -> bool:
        return letter not in WITHIN and unicodedata.category(letter)[0] not in "LNM"

    runs = "".join(letter if is_sign(letter) or letter in "-_" else "\0" for letter in name).split("\0")
    signs = [run.strip() or run for run in runs if any(map(is_sign, run))]
    words = sorted(re.findall(WORDS, name), key=len, reverse=True)
    return [*dict.fromkeys(sign[0] if {*sign} <= {*BETWEEN} else sign for sign in signs), *dict.fromkeys(words)]


def _bare(name: str) -> set[str]:
    """The names in one, without scores, quotes and brackets."""
    return {SCORED.sub("", part).strip(" '\"()[]{}") for part in re.split(r"[^\w\s'\"()\[\]{}.:=@%-]+", name)} - {""}


def _parts(name: str, mark: str) -> list[str]:
    return [part.strip() for part in name.split(mark) if part.strip()]


def _has_names(name: str, mark: str, names: Collection[str]) -> bool:
    """Whether a mark separates several names that stand alone too."""
    return len(parts := _parts(name, mark)) > 1 and all(part in names for part in parts)
