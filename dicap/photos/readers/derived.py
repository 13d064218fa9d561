"""Pictures derived from photographs, such as masks and thumbnails: their names repeat the names of the photographs."""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from dicap.errors import DataError, first_of
from dicap.photos.readers.copies import checksums
from dicap.photos.readers.heads import IMAGE, SPLIT_NAMES
from dicap.photos.readers.listing import words_of
from dicap.photos.readers.question import Question
from dicap.settings import Own

FEW = 3  # in a folder of fewer pictures, equal names may be chance
LETTER = re.compile(r"[^\W\d_]")
MARK = re.compile(r"[\s_.@~-]")  # between a name and a word


def ask_of_derived(root: Path, own: Own, images: Iterable[str], named: Collection[str] = ()) -> None:
    """Ask about pictures whose names repeat others: with a word more, in a folder of their own, or with another ending.

    Args:
        own: settings; `own.derived` may say that the pictures are photographs.
        images: photographs below the root without labels of their own: their folders are their labels, or they have no label.
        named: photographs with labels of their own.

    Raises Question, which proposes to ignore the pictures by a pattern or a folder, or to read them as photographs; DataError if
    all folders may be made from one another.
    """
    if own.derived != "auto":
        return
    free, known = [*map(Path, images)], {*map(Path, named)}
    paths = sorted({*free} | known)
    of_name: dict[Path, list[Path]] = {}  # by the path without its ending
    for path in paths:
        of_name.setdefault(path.with_suffix(""), []).append(path)
    way = "--derived photographs reads them as photographs of their own"
    by_word = _with_a_word(free, of_name)
    patterns, alike = (by_word, []) if by_word else _repeated(root, free, known)
    if patterns:
        text = f"are {first_of([*patterns], 3)} masks, thumbnails or copies? Their names are those of other photographs"
        raise Question(f"{root}: {text} (the first: {next(iter(patterns.values()))}); {way}", ignore=[*patterns])
    if twins := {path for same in of_name.values() if len(same) > 1 and not {*same} <= known for path in same}:
        text = f"are {first_of(sorted(map(str, twins)), 2)} one photograph in several files, or a photograph and its mask?"
        if endings := {path.suffix for path in twins} - {path.suffix for path in paths if path in known or path not in twins}:
            raise Question(f"{root}: {text} {way}, on one side of every split", ignore=[f"*{max(endings)}"])
        raise Question(f"{root}: {text} --ignore leaves one out", derived="photographs")
    if alike:
        text = f"{root}: do {' and '.join(alike)} hold different photographs, numbered alike, or is one folder made from another?"
        if all(path.parts[0] in alike for path in paths):
            way = "Then no folder is a label: write labels.csv with the columns image, labels; or else --derived photographs"
            raise DataError(f"{text} {way}")
        raise Question(f"{text} --ignore {' or --ignore '.join(alike)} leaves one out", derived="photographs")


def _words(name: str, ending: str = "") -> dict[str, str]:
    """The parts that a name ends or begins with, up to a mark, the longest first; each with a pattern of the rest of the name."""
    marks = [*MARK.finditer(name)]
    words = {name[mark.end() :]: f"*{name[: mark.end()]}*" for mark in marks}
    words |= {name[: mark.start()]: f"*{name[mark.start() :]}{ending}" for mark in reversed(marks)}
    return {part: re.sub("[0-9]+", "*", word) for part, word in words.items() if part}


def _with_a_word(images: Collection[Path], names: Container[Path]) -> dict[str, Path]:
    """Patterns of words that an image's name has before or after another's in the folder; each with the first such image.

    A number is such a word if it is added to several names, once to each, as in `a.jpg`, `a (1).jpg`, `b.jpg`, `b (1).jpg`.
    """
    pairs: dict[str, dict[Path, Path]] = {}  # by pattern, the images and the names in theirs
    for path in images:
        words = {word: base for part, word in _words(path.stem, path.suffix).items() if (base := path.parent / part) in names}
        for word in [word for word in words if LETTER.search(Path(word).stem)][:1] or words:
            pairs.setdefault(word, {})[path] = words[word]
    matching = {word: sum(fnmatchcase(path.name, word) for path in images) for word in pairs}
    once = {word for word, count in matching.items() if FEW <= count == len({*pairs[word].values()})}
    return {word: next(iter(pairs[word])) for word in pairs if word in once or LETTER.search(Path(word).stem)}


def _repeated(root: Path, images: Iterable[Path], known: Collection[Path]) -> tuple[dict[str, Path], list[str]]:
    """Patterns of folders in which every picture repeats the name of a photograph elsewhere, each with its first picture.

    A picture repeats a name if its own is the same or begins so. Elsewhere means: above the folder, or in a folder with the same
    name but for a word that several folders add; or, if only one photograph has the name, in a folder of photographs with labels
    of their own, or in one that lacks some of the names, since complete folders may merely be numbered alike. Complete folders
    without common endings are returned, too, unless photographs have labels of their own.
    """
    within: dict[str, list[Path]] = {}
    by_stem: dict[str, list[Path]] = {}
    for path in images:
        for part in {part for part in path.parts[:-1] if not {*words_of(Path(part), Path())} <= {*SPLIT_NAMES, *IMAGE}}:
            within.setdefault(part, []).append(path)
    for path in {*known, *images}:
        by_stem.setdefault(path.stem, []).append(path)
    labelled = {part for path in known for part in path.parts[:-1]}
    words = {part: _words(part) for part in within}
    often = Counter(word for some in words.values() for one, word in some.items() if one in within or one in labelled)
    stems = {part: {path.stem for path in paths} for part, paths in within.items() if part not in labelled}
    folders: dict[str, Path] = {}
    alike: list[str] = []
    left_out: set[Path] = set()
    for part in sorted(stems, key=lambda part: (-len(within[part]), part)):
        paths = within[part]
        if len(paths) < FEW or not left_out.isdisjoint(paths):
            continue
        complete = sorted(one for one in stems if stems[one] >= stems[part] and one not in {*paths[0].parts} - {part})
        instead = [one for one, word in words[part].items() if often[word] > 1]
        pairs = []
        for path in paths:
            begun = [path.stem, *filter(path.stem.startswith, _words(path.stem))]
            outside = ([one for one in by_stem.get(stem, ()) if part not in one.parts] for stem in begun)
            others = next(filter(None, outside), [])
            apart = [one for one in others if {*complete}.isdisjoint(one.parts)]
            near = [one for one in others if {*one.parent.parts} <= {*path.parts, *instead}] or apart * (len(apart) == 1)
            pairs += [(root / path, root / one) for one in near[:1]]
        kinds = [{path.suffix for path in within[one]} for one in complete]
        # A link to a photograph, or a copy of it, gives the photograph several labels.
        if len(pairs) == len(paths) and not any(mark and mark == other for mark, other in map(checksums, pairs)):
            folders[part if all(path.parts[0] == part for path in paths) else f"*/{part}/*"] = paths[0]
            left_out.update(paths)
        elif not known and len(complete) > 1 and sum(map(len, kinds)) == len(set().union(*kinds)):
            alike = alike or complete
    return folders, alike
