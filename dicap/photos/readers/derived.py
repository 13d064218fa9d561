"""Pictures made of photographs, as masks and thumbnails: known by their names, which repeat those of the photographs."""

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from dicap.errors import first_of
from dicap.photos.readers.copies import checksums
from dicap.photos.readers.heads import IMAGE
from dicap.photos.readers.listing import split_in
from dicap.photos.readers.question import Question
from dicap.settings import Own

FEW = 3  # pictures of a folder that may bear such names by chance
WORD = re.compile(r"[^\W\d_]{2,}")


def ask_of_derived(root: Path, own: Own, images: Iterable[str], named: Collection[str] = ()) -> None:
    """Ask of pictures by the names of others and a word more, and of folders by whose names others hold photographs.

    Args:
        own: which may say that they are photographs (`own.derived`).
        images: photographs without labels of their own, below the root: their folders are their labels, or they have none.
        named: those that have labels of their own.

    Raises:
        Question: with the pattern of their names, or their folder, as one to be left out.
    """
    images = list(images) if own.derived == "auto" else []
    if patterns := _with_a_word(images, {*images, *named}) or _repeated(root, images, named):
        first = next(iter(patterns.values()))[0]
        raise Question(
            f"{root}: are {first_of([*patterns], 3)} masks, thumbnails or copies? Their names are those of other photographs "
            f"(the first: {first}); --derived photographs reads them as photographs of their own",
            ignore=[*patterns],
        )


def _before(stem: str) -> dict[str, str]:
    """The names that a name begins with, up to a mark, the longest first; and what is written after each, as a pattern."""
    cuts = [match.start() for match in re.finditer(r"(?<=.)[\s_.-]", stem)]
    return {stem[:cut]: f"*{re.sub('[0-9]+', '*', stem[cut:])}" for cut in reversed(cuts)}


def _after(stem: str) -> dict[str, str]:
    """The names that a name ends with, the longest first; and what is written before each, as a pattern."""
    cuts = [match.end() for match in re.finditer(r"[\s_.-](?=.)", stem)]
    return {stem[cut:]: f"*{re.sub('[0-9]+', '*', stem[:cut])}*" for cut in cuts}


def _with_a_word(images: Iterable[str], others: Iterable[str]) -> dict[str, list[str]]:
    """Images whose name is that of another one of the folder and a word before or after it, by patterns of the words."""
    stems = {os.path.splitext(name)[0] for name in others}
    patterns: dict[str, list[str]] = {}
    for name in images:
        folder, slash, last = name.rpartition("/")
        stem, ending = os.path.splitext(last)
        marks = _after(stem) | {part: pattern + ending for part, pattern in _before(stem).items()}
        marked = [
            mark for part, mark in marks.items() if WORD.search(os.path.splitext(mark)[0]) and folder + slash + part in stems
        ]
        for pattern in marked[:1]:
            patterns.setdefault(pattern, []).append(name)
    return patterns


def _repeated(root: Path, images: list[str], named: Collection[str]) -> dict[str, list[str]]:
    """Folders of which each name is that of one photograph elsewhere, or has it within.

    Elsewhere is in several folders, above it, in one whose name is within the folder's, or where photographs have labels of
    their own: two folders side by side may both be numbered.
    """
    within: dict[str, list[str]] = {}
    for name in images:
        for part in {part for part in Path(name).parts[:-1] if split_in(Path(part, "_"), Path()) is None}:
            within.setdefault(part, []).append(name)
    of_photographs = {part for name in named for part in Path(name).parts[:-1]}
    by_stem: dict[str, list[str]] = {}
    for name in {*named, *images}:
        by_stem.setdefault(Path(name).stem, []).append(name)
    folders: dict[str, list[str]] = {}
    derived: set[str] = set()
    for part, names in sorted(within.items(), key=lambda pair: (pair[0].casefold() in IMAGE, pair[0])):
        pairs = [(name, other) for name in names for other in _of_name(name, part, by_stem)]
        others = {other for _, other in pairs}
        one_each = FEW <= len(names) == len(pairs) == len({name for name, _ in pairs})
        apart = (
            bool(named)
            or len({Path(other).parent for other in others}) > 1
            or all(Path(other).parent in Path(name).parents or Path(other).parent.name in _before(part) for name, other in pairs)
        )
        if one_each and apart and part not in of_photographs and derived.isdisjoint({*names} | others):
            # A link to another one, or its copy, is a photograph with several labels.
            marks = (checksums([root / one, root / other]) for one, other in pairs)
            if any(one is not None and one == other for one, other in marks):
                continue
            folders[part if all(name.startswith(f"{part}/") for name in names) else f"*/{part}/*"] = names
            derived |= {*names}
    return folders


def _of_name(name: str, part: str, by_stem: dict[str, list[str]]) -> list[str]:
    """The photographs outside a folder whose name a picture has, else those whose name is the longest in it."""
    stem = Path(name).stem
    outside = ([other for other in by_stem.get(one, ()) if part not in Path(other).parts] for one in (stem, *_before(stem)))
    return next(filter(None, outside), [])
