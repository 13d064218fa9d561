"""What is said of an image where no class is named: none of the classes, nothing at all, or a word that may be a class."""

import re
from collections.abc import Iterable
from dataclasses import replace

from dicap.errors import DataError
from dicap.photos.readers.listing import Listing, Row
from dicap.settings import Own

# Words for it, in some languages; some are classes somewhere: NA is North America, and sodium. `-` is none of the classes.
NOTHING = re.compile(
    r"(?!-$)[-–—_.…?/\"']+|<?n/?a>?|#n/a|n\.a\.?|nan|nil|null|void|none( of (these|them|the above))?|nothing|empty|blank"
    r"|missing|tbd|_*background_*|no[ _-]?(label|class|tag|object|finding|annotation)(s|es)?|to[ _-]?(do|sort|label)"
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
WRAPPED = re.compile(r"[\[{].*|[^\[{]*[\]}]|(['\"]).*\1")  # what is left of a list in another way of writing
DOUBTED = re.compile(r"(?:[!~¬?-]|(?:no|not|non|without|kein|keine)[ _-])\s*(.+)|(.+?)\s*\?+", re.IGNORECASE)


def with_words(listing: Listing, own: Own) -> Listing:
    """The rows with what `own.words` says of names that are hardly those of classes.

    Raises:
        DataError: it is not said, or such a word stands beside a name.
    """
    names = {name for row in listing.rows if row.split != "unlabeled" for name in row.labels or ()}
    nothing = {name for name in names if says_nothing(name, names) and not (listing.literal and MISSING.fullmatch(name))}
    odd, what = nothing, "an empty cell, or does it say that there is none?"
    table = own.format in (None, "table")
    if doubted := {name for name in names - nothing if is_doubted(name, names)}:
        odd, what = (
            doubted,
            "the word that another class is not there, or is doubtful? Write that into a column absent, or nothing;",
        )
    elif table and (more := names - nothing):
        if all(map(CODED.fullmatch, more)):
            odd, what = more, "0 and 1 of several? Write a column for each class, headed by its name;"
        elif scored := {*filter(SCORED.search, more)}:
            odd, what = scored, "one and its score or count? Leave the numbers out;"
        elif wrapped := {*filter(WRAPPED.fullmatch, more)}:
            odd, what = wrapped, "a name within marks? Leave the marks out;"
    if not odd or own.words == "class" or (own.format == "table" and own.classes):  # columns that were chosen
        return listing
    if odd != nothing or own.words == "auto":
        row, name = next((row, name) for row in listing.rows for name in sorted(row.labels or ()) if name in odd)
        way = "own.words class (init-data --words class) reads it as a class"
        ways = ", empty (--words empty) as an empty cell, none (--words none) as none of the classes" if odd == nothing else ""
        raise DataError(f"{row.where}: labels: is {name} a class, or {what} {way}{ways}")
    rows = []
    for row in listing.rows:
        if words := nothing & (row.labels or frozenset()):
            if words != row.labels:
                raise DataError(f"{row.where}: labels: {min(words)!r} says none (own.words) and is no name among others")
            empty = own.words == "empty"
            row = replace(row, labels=None if empty and not (table and row.split) else frozenset(), empty=empty)
        rows.append(row)
    return replace(listing, rows=rows)


def says_nothing(name: str, names: Iterable[str]) -> bool:
    """Whether a name is a word for nothing: among words also 0 and -1, which among numbers are classes."""
    return NOTHING.fullmatch(name) is not None or (name in ("0", "-1") and not all(map(NUMBER.fullmatch, names)))


def is_doubted(name: str, names: Iterable[str]) -> bool:
    """Whether a name is another one with a mark or word that it is not there, or doubtful: `!dog`, `no dog`, `dog?`."""
    bare = DOUBTED.fullmatch(name)
    return bare is not None and (bare[1] or bare[2]).casefold() in {other.casefold() for other in names}


def with_empty(listing: Listing, empty: str) -> Listing:
    """The rows with what an image means of which nothing is said: none of the classes, or that nobody looked at it.

    Nobody did where none of the classes is said of other images, and in a split or a file in which no image has a label.

    Raises:
        DataError: most of the images are so, or all of a split are said to show none, and it is not said what it means.
    """
    labelled = [row for row in listing.rows if row.labels is not None and row.split != "unlabeled"]
    said = [row for row in labelled if row.absent is None]
    parts: dict[str, list[Row]] = {}
    for row in said:
        for part in {row.split or row.where, row.where}:
            parts.setdefault(part, []).append(row)
    idle = [rows for rows in parts.values() if len(rows) > 1 and not any(row.labels for row in rows)]
    left = {id(row) for rows in idle for row in rows} if any(row.labels for row in labelled) else set()
    none = [row for row in said if not (row.empty or row.labels)]
    bare = [row for row in said if row.empty and id(row) not in left]
    told = len(said) < len(labelled) or any(id(row) not in left for row in none)
    asked = [row for row in none if id(row) in left] or ([] if told or len(bare) == len(said) else bare)
    if empty == "auto" and asked and (asked != bare or 2 * len(bare) > len(said) - len(left)):
        raise DataError(
            f"{asked[0].where}: nothing is said of {len(asked)} of {len(said)} images (the first: {asked[0].image}): none of the "
            "classes, or not labelled? Set own.empty to none or to unlabeled (init-data --empty)"
        )
    gone = (
        {id(row) for row in said if id(row) in left or (row.empty and (told or empty == "unlabeled"))} if empty != "none" else {}
    )
    rows = [
        replace(row, labels=None, split=row.split or "unlabeled", empty=False) if id(row) in gone else row for row in listing.rows
    ]
    kept = sum(row.empty for row in rows if row.labels is not None)
    notes = [
        f"images of which nothing is said, taken to {meaning}: {count} (own.empty: {other} reads them otherwise)"
        for count, meaning, other in ((len(gone), "be not labelled", "none"), (kept, "show none of the classes", "unlabeled"))
        if count
    ]
    return replace(listing, rows=rows, notes=[*listing.notes, *notes])
