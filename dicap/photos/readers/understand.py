"""What a folder of somebody's holds: the reading of its labels, which `init-data` writes down, or a question.

Every column of a table and every file has a role, or is named as one that says nothing about labels, or is asked about, with the
reading that would be chosen and the options that say so. Heads are believed where they are those of known programs.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dicap.data.sources.files import base_of, is_image_name, list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers import coco_file, heads, label_studio, xml_files
from dicap.photos.readers.derived import ask_of_derived
from dicap.photos.readers.folders import of_anything
from dicap.photos.readers.heads import SPLIT_NAMES, plain
from dicap.photos.readers.listing import is_ignored, split_in, words_of
from dicap.photos.readers.names import NOTHING, doubt_of
from dicap.photos.readers.question import Question, listed, typed
from dicap.photos.readers.sheet import MARKS, Sheet, read_sheet, read_sheets
from dicap.photos.readers.table import DOCUMENTED, SINGLE
from dicap.settings import Own
from dicap.settings.catalogue import FORMATS

TABLES = (DOCUMENTED[0], "labels.parquet")  # where one of these is there, no other file is meant
TABULAR, IF_NAMED = (".csv", ".tsv", ".tab", ".parquet"), (".txt", ".xlsx", ".xls", ".ods")
GROUPS = 5  # values of a column at least, or a share of a fifth is no test split
SEVERAL = 3  # columns of 0 and 1 that are believed rather than a column of texts beside them
ROLES = {  # of columns that are asked about
    "open": "is a row with 1 in column {} not labelled?",
    "value": "is the label there where column {} is 1, and known to be absent where it is 0?",
    "group": "do photographs of one value of column {} belong on one side of every split?",
}
WRITE = "write the labels as labels.csv with the columns image, labels, or export them as COCO JSON"


def understand(place: Path, said: Own) -> tuple[Path, Own]:
    """The folder of the data set, and the reading of its labels.

    Args:
        place: the folder, or the file of labels in it.
        said: what the user says of it.

    Raises:
        DataError: nothing readable is there.
        Question: a file or a column has no role that is known.
    """
    root, said = opened(place, said)
    aside = Path(said.unlabeled_root or root).resolve()
    if root.resolve() in aside.parents:  # whose photographs are no label's
        said = said.model_copy(update={"ignore": [*(said.ignore or ()), aside.relative_to(root.resolve()).as_posix()]})
    others = [name for name in list_others(root) if not is_ignored(name, said.ignore) and not is_ours(root / name)]
    kind, files = ("folders", []) if said.format == "folders" else _labels(root, said, others)
    if not said.files:
        _ask_of_files(root, [name for name in others if name not in files and not _is_beside(name, kind)], kind, said, files)
    one_an_image = kind == "voc_xml" and not said.files
    roles: dict[str, object] = {"format": kind, "files": None if one_an_image else files or None}
    if kind == "table":
        roles |= Columns(read_sheets([root / name for name in files]), said).understood()
    return root, said.model_copy(update=roles)


def opened(place: Path, said: Own) -> tuple[Path, Own]:
    """The folder of a data set, and the options with its file of labels where `place` is that. Raises DataError."""
    if not place.exists():
        raise DataError(f"{place}: no such folder or file; set data_root to the folder that holds your images and labels")
    root = base_of(place)
    files = said.files or [place.relative_to(root).as_posix()]
    return root, said.model_copy(update={"files": files}) if place.is_file() else said


def is_ours(path: Path) -> bool:
    """Whether a command or a page of ours wrote a file: answers of a model are no labels, and a list is to be imported."""
    header = set()
    if path.suffix.lower() in TABULAR:
        with suppress(DataError):
            header = {*read_sheet(path).header}
    listed = header and re.search(r"labels-[0-9a-f]{6}.*\.csv$", path.name)  # also `Copy of labels-0a1b2c (1).csv`
    return bool(listed) or any(known <= header for known in heads.OURS)


def _format_of(root: Path, name: str, named: bool) -> str | None:
    """The format of a file of labels; None where it is none. Raises DataError."""
    path, depth = root / name, name.count("/")
    ending = path.suffix.lower()
    if ending == ".xml":
        return {"annotation": "voc_xml", "annotations": "cvat"}.get(xml_files.parse(path).tag)
    if depth > 1 and not named:
        return None
    if ending == ".json":
        return "coco" if coco_file.is_coco(path) else "labelstudio" if depth == 0 and label_studio.is_export(path) else None
    return "table" if ending in TABULAR or (named and ending in IF_NAMED) else None


def _is_beside(name: str, kind: str) -> bool:
    """Whether a file is one that a format has beside its labels."""
    return (kind == "coco" and Path(name).name.startswith(coco_file.OTHERS)) or (
        kind == "voc_xml" and "ImageSets" in Path(name).parts
    )


def _labels(root: Path, said: Own, others: list[str]) -> tuple[str, list[str]]:
    """The format, and its files."""
    for name in said.files or ():
        if not (root / name).is_file():
            raise DataError(f"{root / name}: no such file; name one that is there, or none")
        if is_ours(root / name):
            raise DataError(f"{root / name}: answers of a model, or a list to import (`dicap-stage import-labels`); name labels")
    first = [name for name in TABLES if name in others and said.format in (None, "table")]
    kinds: dict[str, str] = {}
    for name in said.files or first[:1] or others:
        kind = _format_of(root, name, bool(said.files))
        if kind is not None and said.format in (None, kind) and not _is_beside(name, kind):
            kinds[name] = kind
    if not kinds:
        return _without_files(root, said, others), []
    words = {name: _words(root, name, kind) for name, kind in kinds.items()}
    best = min(kinds, key=lambda name: (kinds[name] == "table", len(words[name])))
    kind = kinds[best]
    files = [name for name in kinds if kinds[name] == kind and (said.files or words[name] == words[best])]
    if rest := [name for name in kinds if name not in files]:
        raise Question(
            f"{root}: labels could be those of {first_of(files, 3)} ({kind}) or of {first_of(rest, 3)}; to read several, pass "
            f"--files {typed(listed([*kinds]))}",
            format=kind,
            ignore=rest,
        )
    if not said.files and heads.MODEL.search(files[0].lower()):
        raise Question(f"{root / files[0]}: named as a model's answers; or did somebody give these labels?", files=files)
    return kind, files


def _words(root: Path, name: str, kind: str) -> set[str]:
    """What tells a table or a COCO file from those that are read with it: its words beside splits, or that it names no split."""
    if kind not in ("table", "coco"):
        return set()
    alone = {name} if kind == "table" and split_in(root / name, root) is None else set()
    return {*words_of(root / name, root)} - {*SPLIT_NAMES, *heads.WORDS_OF_FILES} | alone


def _without_files(root: Path, said: Own, others: list[str]) -> str:
    """The format where no file of labels was found."""
    if said.format is not None or said.files:
        what = f"own.format is {said.format}" if said.format else f"{(said.files or [''])[0]} is no file of labels"
        raise DataError(f"{root}: {what}, but no such labels are there; leave the option out, or name their file")
    images = list_images(root, required=False)
    if any("/" in name for name in images):
        return "folders"
    if images and not others:
        raise DataError(f"{root}: holds photographs and no labels yet; choose the first to label: dicap-stage suggest {root}")
    what = "labels" if images else "photographs"
    raise DataError(
        f"{root}: found {first_of(others, 4) or 'nothing'}, and no {what} that are known here: a labels.csv, a COCO or Label "
        "Studio JSON, Pascal VOC or CVAT XML, or a folder for each label"
    )


def _ask_of_files(root: Path, names: list[str], kind: str, said: Own, read: list[str]) -> None:
    """Ask of files that nothing reads, by their endings; and of folders whose names are hardly those of labels."""
    endings: dict[str, list[str]] = {}
    for name in names:
        endings.setdefault(Path(name).suffix.lower() or ".", []).append(name)
    shown = first_of([f"{ending} ({len(files)}, the first {files[0]})" for ending, files in endings.items()], 4)
    unread = f"files that are not read: {shown}; " if names else ""
    ways: dict[str, str] = {}
    if kind == "folders" and said.format is None:
        images = [name for name in list_images(root, required=False) if not is_ignored(name, said.ignore)]
        stems = {part for name in names for part in (Path(name).stem, Path(name).stem.partition(".")[0])}
        if 2 * sum(Path(name).stem in stems for name in images) > len(images):
            raise DataError(f"{root}: {unread}most photographs have one, and labels may be in them: {WRITE}")
        ask_of_derived(root, said, images)
        if strange := of_anything(_tops(images)):
            raise DataError(
                f"{root}: {unread}is {strange!r} a label? Folders of such a name hold photographs of anything: {WRITE}, and look "
                "again; where the folders are the labels, pass --format folders"
            )
        ways = {"format": "folders"}
    if names:
        text = f"{root}: {unread}if labels are in them, {WRITE}" + ("; or are the folders the labels?" if ways else "")
        ignore: list[str] = []
        for ending, files in endings.items():
            of_labels = any(name.lower().endswith(ending) for name in read) if read else ending in FORMATS[kind]
            ignore += files if len(files) == 1 or of_labels else [ending]  # by the ending the file of labels would go too
        raise Question(text, **ways, ignore=ignore)


def ask_of_folders(root: Path, images: list[str], kind: str, classes: Sequence[str] = ()) -> None:
    """Ask of several folders of photographs, of which no more than few `classes` are said, if any. Raises Question."""
    if len(tops := _tops(images)) > 1 and tops.isdisjoint(classes) and not of_anything(tops):
        told = f"only {' and '.join(map(repr, classes))} is said of" if classes else "no row names"
        text = f"{told} the photographs in {first_of(sorted(tops), 4)}; or are these folders labels (--format folders)?"
        raise Question(f"{root}: {text}", format=kind)


def _tops(images: list[str]) -> set[str]:
    """The first folder above each image that names no split; of images below `unlabeled` none."""
    parts_of = [[part.strip() for part in Path(name).parts[:-1]] for name in images]
    named = [parts for parts in parts_of if {part.casefold() for part in parts}.isdisjoint(heads.SPLIT_WORDS["unlabeled"])]
    return {part for parts in named for part in [part for part in parts if part.casefold() not in SPLIT_NAMES][:1]}


class Columns:
    """The roles of a table's columns, found one after the other; what is not understood is asked."""

    def __init__(self, sheet: Sheet, said: Own) -> None:
        self._sheet, self._said = sheet, said
        self._roles: dict[str, Any] = {key: getattr(said, key) for key in (*SINGLE, "classes", "rows")}
        used = {*(said.classes or ()), *(head for key in SINGLE if (head := getattr(said, key)))}
        if lost := sorted(used - {*sheet.header}):
            raise DataError(f"{sheet.path}: column {lost[0]} is missing (found {', '.join(sheet.header) or 'nothing'})")
        self._unused = [*(said.ignore or ())]
        self._texts = {head: sheet.texts(head) for head in sheet.header}
        self._words = {head: {text.casefold() for text in texts} - {""} for head, texts in self._texts.items()}
        self._binary = {head for head in sheet.header if self._is_binary(head)}

    @property
    def _free(self) -> list[str]:
        """The columns without a role that say something."""
        used = {*self._unused, *(self._roles["classes"] or ()), *(self._roles[key] for key in SINGLE)}
        return [head for head in self._sheet.header if head not in used and self._words[head]]

    def understood(self) -> dict[str, Any]:
        """The roles as settings of the section `own`. Raises Question."""
        roles = self._roles
        if roles["image"] is None:
            self._image()
        same = self._texts[str(roles["image"])]
        self._unused += [head for head in self._free if self._texts[head] == same or self._numbers_rows(head)]
        if roles["split"] is None:
            known = {*SPLIT_NAMES}
            named = [head for head in self._called(heads.SPLIT) if self._words[head] & known or plain(head) == heads.SPLIT[0]]
            likely = [head for head in self._free if len(self._words[head]) > 1 and self._words[head] <= known]
            self._choose("split", named, likely)
        if roles["labels"] is None and not roles["classes"]:
            self._labels()
        for key in ("absent", "group"):
            if roles[key] is None and (key == "group" or roles["labels"]):
                self._choose(key, [head for head in self._sheet.header if plain(head) == key and head not in self._unused][:1])
        self._unused += [head for head in self._free if head not in self._binary and heads.USUAL.fullmatch(plain(head))]
        self._ask_of_others()
        rows = {"rows": "label"} if roles["value"] is not None else {}
        return roles | rows | {"ignore": self._unused or None}

    def _called(self, names: Sequence[str]) -> list[str]:
        """The columns with one of these heads, in their order."""
        return sorted((head for head in self._free if plain(head) in names), key=lambda head: names.index(plain(head)))

    def _choose(self, role: str, named: list[str], likely: Sequence[str] = (), way: str = "") -> None:
        """Give a role to the column with a head of it; of several, or of one that only looks so, is asked: or another way?"""
        if len(named) == 1:
            self._roles[role] = named[0]
        elif several := [*(named or likely)]:
            rivals = f", and not {', '.join(named[1:])}" if named else ""
            text = f"is column {self._held(several[0])} that of the {role.removesuffix('s')}s{rivals}?{way}"
            raise self._ask(text, **{role: several[0], "ignore": named[1:]})

    def _ask(self, text: str, **options: str | list[str]) -> Question:
        return Question(f"{self._sheet.path}: {text}", **options)

    def _held(self, head: str) -> str:
        shown = dict.fromkeys(text if len(text) <= 24 else f"{text[:21]}..." for text in self._texts[head])
        return f"{head} ({first_of([text or 'blanks' for text in shown], 4)})"

    def _is_binary(self, head: str) -> bool:
        """Whether at least half of the cells are 0, 1 and the like: of the others the reader says what is wrong with them.

        Not in a column of labels, whose classes go by their numbers.
        """
        if plain(head) in heads.LABEL and self._words[head] - MARKS:
            return False
        filled = [text.casefold() for text in self._texts[head] if text]
        marks = [text for text in filled if text in MARKS]
        return bool(marks) and (len(marks) == len(filled) or 2 * sum(text not in ("y", "n") for text in marks) >= len(filled))

    def _numbers_rows(self, head: str) -> bool:
        """Whether a column without a head numbers the rows, as pandas writes it."""
        texts = self._texts[head]
        nameless = re.fullmatch(r"column \d+|unnamed.*", head.casefold())
        return nameless is not None and len({*texts}) == len(texts) and all(map(str.isdigit, texts))

    def _image(self) -> None:
        """The column that names photographs: of several such heads the one whose cells end as names of files do."""
        likely = [head for head in self._free if 2 * sum(map(is_image_name, self._texts[head])) > len(self._texts[head])]
        named = [head for head in self._called(heads.IMAGE) if head in likely or not likely]
        names = {head: [re.split(r"[\\/]", text)[-1] for text in self._texts[head]] for head in named}
        rivals = [head for head in named if likely and names[head] != names[named[0]]]
        self._choose("image", [*named[:1], *rivals], likely or self._free)
        if self._roles["image"] is None:
            raise DataError(f"{self._sheet.path}: column image is missing (found {', '.join(self._sheet.header) or 'nothing'})")

    def _labels(self) -> None:
        """The column of labels, or those of classes."""
        binary = [head for head in self._free if head in self._binary]
        texts = [head for head in self._free if head not in self._binary]
        speak = [head for head in texts if not heads.GROUP.fullmatch(plain(head))]
        words = [head for head in speak if _looks_like_labels(self._texts[head])]  # perhaps under a head of other programs
        speak = [head for head in speak if head in words or not heads.USUAL.fullmatch(plain(head))]
        words.sort(key=lambda head: (heads.REMARK.fullmatch(plain(head)) is not None, ";" not in "".join(self._texts[head])))
        of_rows = [head for head in binary if any(known.fullmatch(plain(head)) for known in (heads.OF_ROWS, heads.USUAL))]
        of_rows += [head for head in binary if plain(head) in heads.OPEN or NOTHING.fullmatch(head) or doubt_of(head, binary)]
        believed = [head for head in binary if head not in of_rows]
        named = [head for head in self._called(heads.LABEL) if head in texts]
        pairs = [(one, other) for one in words for other in speak if other != one and self._words[one] & self._words[other]]
        if pairs and not named:
            raise DataError(
                f"{self._sheet.path}: columns {', '.join(map(self._held, pairs[0]))} hold the same words: write labels in one "
                "column with `;` between, or 1 and 0 in a column for each class; or name the column: init-data --labels"
            )
        in_folders = any("/" in text for text in self._texts[str(self._roles["image"])])
        way = f"; or are folders the labels? init-data --ignore {typed(f'*{self._sheet.path.name}')}" if in_folders else ""
        self._choose("labels", named, words if len(believed) < SEVERAL else (), way)
        if self._roles["labels"] is not None:
            return
        if not binary:
            raise DataError(
                f"{self._sheet.path}: column labels is missing (found {', '.join(self._sheet.header)}); expected image, labels, "
                f"or a column of 0 and 1 a class; init-data --labels names another{way}"
            )
        if not believed:
            raise self._ask(f"is column {binary[0]} of 0 and 1 a class?", classes=binary[:1])
        self._roles["classes"] = believed

    def _ask_of_others(self) -> None:
        """Ask of the columns that have no role."""
        # The widest groups first, but for those that hardly leave two sides of a split, as of one sex.
        counts = {head: len(self._words[head]) for head in self._free}
        names = {head: plain(head) for head in sorted(counts, key=lambda head: (counts[head] < GROUPS, counts[head]))}
        binary = [head for head in names if head in self._binary]
        likely = {
            "open": [head for head in binary if names[head] in heads.OPEN],
            "value": [head for head in binary if self._roles["labels"] and heads.VALUE.fullmatch(names[head])],
            "group": [head for head in names if head not in binary and counts[head] > 1 and heads.GROUP.fullmatch(names[head])],
        }
        if splits := [head for head in binary if {*names[head].split("_")} & {*SPLIT_NAMES} and head not in likely["open"]]:
            classes = self._roles["classes"]
            way = f"; or it is a class: --classes {typed(listed([*classes, splits[0]]))}" if classes else ""
            raise DataError(
                f"{self._sheet.path}: column {splits[0]} of 0 and 1 may be the split: write a column split (train, val, test) in "
                f"its place; or it says nothing: init-data --ignore {typed(splits[0])}{way}"
            )
        roles = {role: some[0] for role, some in likely.items() if some and self._roles[role] is None}
        texts = [ROLES[role].format(self._held(head)) for role, head in roles.items()]
        left = [head for head in self._free if head not in roles.values()]
        if left:
            texts.append(f"no role is known of {', '.join(map(self._held, left))}: labels, a class, the split, a group?")
        if texts:  # somebody looks at what was taken for a class, too
            classes = self._roles["classes"] if left and not self._said.classes else None
            raise self._ask("; ".join(texts), **roles, ignore=left, classes=classes or [])


def _looks_like_labels(texts: Sequence[str]) -> bool:
    """Whether a column of texts may hold labels: words, of which many stand there again, alone or with others."""
    cells = [text for text in texts if text]
    words = [text for text in cells if not re.fullmatch(r"[-+\d.,:eETZ/\s]*", text)]
    pieces = [piece for text in words for piece in re.split(r"[^\w\s-]+", text) if piece.strip()]
    return 2 * len(words) > len(cells) and len({*words}) > 1 and len({*pieces}) <= max(3, len(pieces) // 2)
