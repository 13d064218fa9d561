"""Pictures derived from photographs, such as masks and thumbnails: their names repeat the names of the photographs."""

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

FEW = 3  # in a folder of fewer pictures, equal names may be chance
LETTER = re.compile(r"[^\W\d_]")
MARK = re.compile(r"[\s_.@~-]")  # between a name and a word


def ask_of_derived(root: Path, own: Own, images: Iterable[str], named: Collection[str] = ()) -> None:
    """Ask about pictures whose names repeat others: with a word more, in a folder of their own, or with another ending.

    Args:
        own: settings; `own.derived` may say that the pictures are photographs.
        images: photographs below the root without labels of their own: their folders are their labels, or they have no label.
        named: photographs with labels of their own.

    Raises Question, which proposes to ignore the pictures by a pattern or a folder, or to read them as photographs.
    """
    images = list(images) if own.derived == "auto" else []
    way = "--derived photographs reads them as photographs of their own"
    if patterns := _with_a_word(images, {*images, *named}) or _repeated(root, images, named):
        text = f"are {first_of([*patterns], 3)} masks, thumbnails or copies? Their names are those of other photographs"
        raise Question(f"{root}: {text} (the first: {next(iter(patterns.values()))[0]}); {way}", ignore=[*patterns])
    paths = sorted(map(Path, {*images, *named}))
    of_name: dict[Path, set[Path]] = {}  # by the path without its ending
    for path in paths:
        of_name.setdefault(path.with_suffix(""), set()).add(path)
    if twins := {path for same in of_name.values() if len(same) > 1 and not {*map(str, same)} <= {*named} for path in same}:
        text = f"are {first_of(sorted(map(str, twins)), 2)} one photograph in several files, or a photograph and its mask?"
        kept = {path.suffix for path in paths if path not in twins or str(path) in named}
        if endings := {path.suffix for path in twins} - kept:
            raise Question(f"{root}: {text} {way}, on one side of every split", ignore=[f"*{max(endings)}"])
        raise Question(f"{root}: {text} --ignore leaves one out", derived="photographs")
    if folders := [] if named else _with_endings_of_their_own(paths):
        text = f"do {' and '.join(folders)} hold different photographs, numbered alike, or is one folder made from another?"
        raise Question(f"{root}: {text} --ignore {' or --ignore '.join(folders)} leaves one out", derived="photographs")


def _with_endings_of_their_own(paths: list[Path]) -> list[str]:
    """Folders whose files have equal names, but another ending in each folder."""
    endings: dict[str, dict[str, str]] = {}
    for path in paths:
        endings.setdefault(path.parent.name, {})[path.stem] = path.suffix
    for names in endings.values():
        alike = [one for one in endings if names.keys() <= endings[one].keys()]
        kinds = [{*endings[one].values()} for one in alike]
        if len(names) >= FEW and len(alike) > 1 and sum(map(len, kinds)) == len(set().union(*kinds)):
            return alike
    return []


def _words(name: str, ending: str = "") -> dict[str, str]:
    """The parts that a name begins or ends with, up to a mark, the longest first; each with a pattern of the rest of the name."""
    marks = [*MARK.finditer(name)]
    words = {name[mark.end() :]: f"*{name[: mark.end()]}*" for mark in marks}
    words |= {name[: mark.start()]: f"*{name[mark.start() :]}{ending}" for mark in reversed(marks)}
    return {part: re.sub("[0-9]+", "*", word) for part, word in words.items() if part}


def _with_a_word(images: Iterable[str], others: Iterable[str]) -> dict[str, list[str]]:
    """Images whose name is the name of another image in the folder with a word before or after it, by pattern of the word."""
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
    """Folders, by pattern, in which every picture has the name of a photograph elsewhere, or a name that begins so.

    Elsewhere means: above the folder, or in a folder with the same name but for a word that several folders add. If a picture has
    exactly one such photograph, other folders count too: folders of photographs with labels of their own, or folders that lack
    some of the names, since complete folders may merely be numbered alike.
    """
    within: dict[str, list[Path]] = {}
    by_stem: dict[str, list[Path]] = {}
    for path in map(Path, images):
        for part in {part for part in path.parts[:-1] if not {*words_of(Path(part), Path())} <= {*SPLIT_NAMES, *IMAGE}}:
            within.setdefault(part, []).append(path)
    for path in map(Path, {*named, *images}):
        by_stem.setdefault(path.stem, []).append(path)
    places = {Path(name).parent for name in named}
    labelled = {part for place in places for part in place.parts}
    stems = {part: {path.stem for path in paths} for part, paths in within.items()}
    less = {part: {one: word for one, word in _words(part).items() if one in {*within} | labelled} for part in within}
    often = Counter(word for words in less.values() for word in words.values())
    folders: dict[str, list[str]] = {}
    for part in sorted({*within} - labelled, key=lambda part: (-len(within[part]), part)):
        paths, names = within[part], [path.as_posix() for path in within[part]]
        if len(paths) < FEW or any(not {*names}.isdisjoint(pictures) for pictures in folders.values()):
            continue
        larger = {one for one in within if stems[one] >= stems[part]}
        instead = ["", *(one for one, word in less[part].items() if often[word] > 1)]
        pairs = []
        for path in paths:
            begun = [path.stem, *(path.stem[: mark.start()] for mark in reversed([*MARK.finditer(path.stem)]))]
            outside = ([one for one in by_stem.get(stem, ()) if part not in one.parts] for stem in begun)
            others = next(filter(None, outside), [])
            place = path.parts.index(part)
            around = {*path.parents, *(Path(*path.parts[:place], one, *path.parts[place + 1 : -1]) for one in instead)}
            apart = [one for one in others if (one.parent in places if named else larger.isdisjoint(one.parts))]
            near = [one for one in others if one.parent in around] or (apart if len(apart) == 1 else [])
            pairs += [(path, one) for one in near[:1]]
        # A link to a photograph, or a copy of it, gives the photograph several labels.
        same = (checksums([root / path, root / one]) for path, one in pairs)
        if len(pairs) == len(paths) and not any(mark is not None and mark == other for mark, other in same):
            folders[part if all(path.parts[0] == part for path in paths) else f"*/{part}/*"] = names
    return folders
