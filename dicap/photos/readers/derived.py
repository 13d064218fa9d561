"""Pictures derived from photographs, such as masks and thumbnails: their names repeat the names of the photographs."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from dicap.errors import DataError, first_of
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.heads import IMAGE, SPLIT_NAMES
from dicap.photos.readers.listing import words_of
from dicap.photos.readers.question import Question
from dicap.settings import Own

FEW = 3  # of fewer pictures, equal names may be chance
LETTER = re.compile(r"[^\W\d_]")
MARK = re.compile(r"[\s_.@~/-]")  # between a name and a word


def ask_of_derived(root: Path, own: Own, images: Iterable[str], named: Collection[str] = ()) -> None:
    """Ask about pictures whose names repeat others: with a word more, in a folder of their own, or with another ending.

    Args:
        own: settings; `own.derived` may say that the pictures are photographs.
        images: photographs below the root without labels of their own: their folders are their labels, or they have no label.
        named: photographs with labels of their own.

    Raises Question, which proposes to ignore a pattern or a folder; DataError if no single one leaves out all such pictures.
    """
    free, known = {*map(Path, images)}, {*map(Path, named)}
    if own.derived == "photographs" or not (found := _beside(free, known) | _in_folders(free, known)):
        return
    ways = []
    for way, _ in Counter(found.values()).most_common(2):
        ignored = {path for path in free | known if is_ignored(path.as_posix(), [way])}
        rest = free - ignored
        if ignored and ignored <= found.keys() and not _beside(rest, known) | _in_folders(rest, known):
            ways.append(way)
    text = f"{root}: are {first_of(sorted(map(str, found)), 3)} masks, thumbnails or copies? They have the names of others"
    text += "; --derived photographs takes them for photographs"
    if len(ways) == 1 and (known or ("*" in ways[0] and "/" not in ways[0])):  # a folder may be a class: `car_red`
        raise Question(text, ignore=ways)
    raise DataError(f"{text}, --ignore leaves a folder or a pattern out; if no folder is a label, write labels.csv")


def _beside(free: set[Path], known: set[Path]) -> dict[Path, str]:
    """Pictures that have the name of another in their folder but for the ending, a word or a number, each with a pattern of that.

    A number counts if it is added once to each of several names, as in `a.jpg`, `a (1).jpg`, `b.jpg`, `b (1).jpg`.
    """
    names = Counter(path.with_suffix("") for path in free | known)
    found = {path: f"*{path.suffix}" for path in sorted(free) if names[path.with_suffix("")] > 1}
    numbered: dict[Path, tuple[Path, str]] = {}
    for path in sorted(free):
        longer = [(path.parent / base, way) for base, way in _shorter(path.stem) if path.parent / base in names]
        if words := [way for _, way in longer if LETTER.search(way)]:
            found[path] = words[0]
        elif longer:
            numbered[path] = longer[0]
    if len({name for name, _ in numbered.values()}) == len(numbered) >= FEW:
        found |= {path: way for path, (_, way) in numbered.items()}
    return found


def _in_folders(free: set[Path], known: set[Path]) -> dict[Path, str]:
    """Pictures of folders in which each has the name of one elsewhere, or of others with other endings, each with its folder.

    A folder of labels that has all these names, too, does not count: they may merely be numbered alike. But the folder above
    counts, and `cat` counts for `cat_masks` and `masks/cat`.
    """
    within: dict[str, list[Path]] = {}
    of_name: dict[str, set[str]] = {}  # the folders by stem and by name of file
    for path in sorted(free | known):
        folder = "/".join(part for part in path.parts[:-1] if not {*words_of(Path(part), Path())} <= {*SPLIT_NAMES, *IMAGE})
        within.setdefault(folder, []).append(path)
        for name in (path.stem, path.name):
            of_name.setdefault(name, set()).add(folder)
    labelled = {folder for folder, paths in within.items() if not free.issuperset(paths)}
    found = {}
    for folder, paths in within.items():
        if not folder or folder in labelled or len(paths) < FEW:
            continue
        names = {path: [path.stem, *(base for base, _ in _shorter(path.stem))] for path in paths}
        elsewhere = [{folder}.union(*(of_name.get(name, ()) for name in some)) - {folder} for some in names.values()]
        complete = set.intersection(*elsewhere) - labelled
        alike = {place for place in complete if not {*MARK.split(place)} - {""} < {*MARK.split(folder)}}
        other_endings = (of_name.get(name + path.suffix, set()) <= {folder} for path, some in names.items() for name in some)
        if all(len(some - alike) == 1 for some in elsewhere) or (all(elsewhere) and all(other_endings)):
            way = folder if all(path.is_relative_to(folder) for path in paths) else f"*/{folder}/*"
            found |= dict.fromkeys(paths, way)
    return found


def _shorter(name: str) -> list[tuple[str, str]]:
    """The names that a name begins or ends with, up to a mark, the longest first; each with a pattern of the rest of the name."""
    marks = [*MARK.finditer(name)]
    parts = [(name[: mark.start()], f"*{name[mark.start() :]}.*") for mark in reversed(marks)]
    parts += [(name[mark.end() :], f"*{name[: mark.end()]}*") for mark in marks]
    return [(base, re.sub("[0-9]+", "*", way)) for base, way in parts if base]
