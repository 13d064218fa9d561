"""Pictures made of photographs, as masks and thumbnails: known by their names, which repeat those of the photographs."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from dicap.errors import first_of
from dicap.photos.readers.copies import checksums
from dicap.photos.readers.heads import IMAGE, SPLIT_NAMES
from dicap.photos.readers.listing import words_of
from dicap.photos.readers.question import Question
from dicap.settings import Own

DRAWN = ".tiff.bmp.pgm.png.gif"  # endings of what programs draw, the likelier last
FEW = 3  # pictures of a folder that may bear such names by chance
LETTER = re.compile(r"[^\W\d_]")
MARK = re.compile(r"[\s_.@~-]")  # between a name and a word


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


def _words(name: str, ending: str = "") -> dict[str, str]:
    """The names that a name ends or begins with, up to a mark, the longest first; and what is beside each, as a pattern."""
    marks = [*MARK.finditer(name)]
    words = {name[mark.end() :]: f"*{name[: mark.end()]}*" for mark in marks}
    words |= {name[: mark.start()]: f"*{name[mark.start() :]}{ending}" for mark in reversed(marks)}
    return {part: re.sub("[0-9]+", "*", word) for part, word in words.items() if part}


def _with_a_word(images: Iterable[str], others: Iterable[str]) -> dict[str, list[str]]:
    """Images whose name is that of another one of the folder and a word before or after it, by patterns of the words."""
    stems = {os.path.splitext(name)[0] for name in others}
    patterns: dict[str, list[str]] = {}
    for name in images:
        folder, slash, last = name.rpartition("/")
        for part, word in _words(*os.path.splitext(last)).items():
            if folder + slash + part in stems and LETTER.search(os.path.splitext(word)[0]):
                patterns.setdefault(word, []).append(name)
                break
    return patterns


def _repeated(root: Path, images: list[str], named: Collection[str]) -> dict[str, list[str]]:
    """Folders of which each name is that of a photograph elsewhere, or has it within.

    Elsewhere is above it, in folders by whose names and the same word several are named, or in one by the endings of photographs;
    else where photographs have labels of their own, or in several folders, each of which has others of the names: two folders
    side by side may both be numbered.
    """
    within: dict[str, list[str]] = {}
    for name in images:
        for part in {part for part in Path(name).parts[:-1] if not {*words_of(Path(part), Path())} <= {*SPLIT_NAMES, *IMAGE}}:
            within.setdefault(part, []).append(name)
    stems = {part: {Path(name).stem for name in names} for part, names in within.items()}
    of_photographs, places = {part for name in named for part in Path(name).parts[:-1]}, {Path(name).parent for name in named}
    kinds = {part: {DRAWN.find(Path(name).suffix.lower()) for name in names} for part, names in within.items()}
    # The folders by whose name and a word each is named.
    less = {part: {one: word for one, word in _words(part).items() if one in {*within} | of_photographs} for part in within}
    often = Counter(word for words in less.values() for word in words.values())
    by_stem: dict[str, list[Path]] = {}
    for name in {*named, *images}:
        by_stem.setdefault(Path(name).stem, []).append(Path(name))
    folders: dict[str, list[str]] = {}
    derived: set[str] = set()
    for part, names in sorted(within.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        if len(names) < FEW or part in of_photographs or not derived.isdisjoint(names):
            continue
        others = {name: _of_name(Path(name), part, by_stem) for name in names}
        whole = [one for one in within if stems[part] <= stems[one] and derived.isdisjoint(within[one])]
        of = [one for one in whole if min(kinds[part]) > max(kinds[one])]
        instead = ["", *(one for one, word in less[part].items() if often[word] > 1), *(of if len(of) == 1 else ())]
        around = {name: _around(Path(name), part, instead) for name in names}
        near = {name: [one for one in some if one.parent in around[name]] for name, some in others.items()}
        if not all(near.values()):
            larger = {one for one in within if stems[one] >= stems[part]}
            every = {one.parent for some in others.values() for one in some}
            apart = every & places if named else {place for place in every if larger.isdisjoint(place.parts)}
            near = {name: [one for one in some if one.parent in apart] for name, some in others.items()}
            if any(len(some) > 1 for some in near.values()) or not (named or len(apart) > 1):
                continue
        # A link to another one, or its copy, is a photograph with several labels.
        pairs = (checksums([root / name, root / one]) for name, some in near.items() for one in some)
        if all(near.values()) and not any(mark is not None and mark == other for mark, other in pairs):
            folders[part if all(name.startswith(f"{part}/") for name in names) else f"*/{part}/*"] = names
            derived |= {*names}
    return folders


def _of_name(name: Path, part: str, by_stem: dict[str, list[Path]]) -> list[Path]:
    """The photographs outside a folder whose name a picture has, else those whose name is the longest that it begins with."""
    begun = [name.stem, *(name.stem[: mark.start()] for mark in reversed([*MARK.finditer(name.stem)]))]
    outside = ([one for one in by_stem.get(stem, ()) if part not in one.parts] for stem in begun)
    return next(filter(None, outside), [])


def _around(name: Path, part: str, instead: list[str]) -> set[Path]:
    """Folders of photographs that a picture may be made of: above it, or with another part of its path instead of one."""
    place = name.parts.index(part)
    return {*name.parents} | {Path(*name.parts[:place], one, *name.parts[place + 1 : -1]) for one in instead}
