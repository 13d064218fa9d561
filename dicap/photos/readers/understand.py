"""From the files of a folder to the reading of its labels, which `init-data` writes down, or to a question.

Every file and every column of a table gets a role, is ignored because an option says so, or becomes a question. A question
proposes a reading and names the options that select it. Column heads that well-known programs write are trusted.
"""

import re
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from dicap.data.sources.files import base_of, is_image_name, list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers import coco_file, heads, label_studio, xml_files
from dicap.photos.readers.finder import Finder, is_ignored
from dicap.photos.readers.folders import of_anything, parted
from dicap.photos.readers.heads import SPLIT_NAMES, SPLIT_WORDS, plain
from dicap.photos.readers.listing import split_in, words_of
from dicap.photos.readers.names import NOTHING, doubt_of
from dicap.photos.readers.question import Question, listed, typed
from dicap.photos.readers.sheet import MARKS, YES, Sheet, read_sheet
from dicap.photos.readers.table import DOCUMENTED, without_role
from dicap.settings import Own
from dicap.settings.catalogue import FORMATS

TABLES = (DOCUMENTED, "labels.parquet")  # if one of these exists, no other file is read
TABULAR, IF_NAMED = (".csv", ".tsv", ".tab", ".parquet"), (".txt", ".xlsx", ".xls", ".ods")
SEVERAL = 3  # from this number on, columns of 0 and 1 are preferred to a column of texts
ROLES = {  # questions about a column, by the proposed role
    "open": "is a row with 1 in column {} not labelled?",
    "value": "is the label there where column {} is 1, and known to be absent where it is 0 (else --ignore)?",
    "group": "do photographs of one value of column {} belong on one side of every split?",
}
# Folders that a program or the operating system makes, and bundles of a program's own files.
OF_PROGRAMS = re.compile(r"[@#$_~].*|.+\.[a-z]{6,}|system volume information|papierkorb|trash", re.IGNORECASE)
WRITE = "write the labels as labels.csv with the columns image, labels, or export them as COCO JSON"


def understand(place: Path, options: Own) -> tuple[Path, Own]:
    """Return the folder of the data set and the reading of its labels.

    Args:
        place: the folder, or the file of labels in it.
        options: settings that the user gave.

    Raises DataError if no readable labels are found; Question if the role of a file or of a column is unclear.
    """
    root, options = opened(place, options)
    unlabeled = Path(options.unlabeled_root or root).resolve()
    if root.resolve() in unlabeled.parents:  # the folder of unlabelled photographs is not the name of a label
        ignore = [*(options.ignore or ()), unlabeled.relative_to(root.resolve()).as_posix()]
        options = options.model_copy(update={"ignore": ignore})
    others = [name for name in list_others(root) if not is_ignored(name, options.ignore) and not is_ours(root / name)]
    kind, files = ("folders", []) if options.format == "folders" else _labels(root, options, others)
    if not options.files:
        unread = [name for name in others if name not in files and not _is_beside(name, kind)]
        _ask_of_files(root, unread, kind, options, files)
    file_per_image = kind == "voc_xml" and not options.files
    own = options.model_copy(update={"format": kind, "files": None if file_per_image else files or None})
    return root, Columns(root, read_sheet(*(root / name for name in files)), own).understood() if kind == "table" else own


def opened(place: Path, options: Own) -> tuple[Path, Own]:
    """Return the folder of a data set and the options; if `place` is a file of labels, the options name it. Raises DataError."""
    if not place.exists():
        raise DataError(f"{place}: no such folder or file; set data_root to the folder that holds your images and labels")
    root = base_of(place)
    files = options.files or [place.relative_to(root).as_posix()]
    return root, options.model_copy(update={"files": files}) if place.is_file() else options


def is_ours(path: Path) -> bool:
    """Whether a command or a page of this program wrote a table: a model's answers, or labels for `import-labels`."""
    header = set()
    if path.suffix.lower() in TABULAR:
        with suppress(DataError):
            header = {*read_sheet(path).header}
    is_download = re.search(r"labels-[0-9a-f]{6}.*\.csv$", path.name)  # also `Copy of labels-0a1b2c (1).csv`
    return bool(header and is_download) or any(known <= header for known in heads.OURS)


def _format_of(root: Path, name: str, named: bool) -> str | None:
    """The format of a file of labels; None for another file. `named`: the user named the file. Raises DataError."""
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
    """Whether a file belongs to a format without holding its labels."""
    path = Path(name)
    of_voc = "ImageSets" in path.parts or path.name == "labelmap.txt"  # CVAT writes labelmap.txt
    return path.name.startswith(coco_file.OTHERS) if kind == "coco" else kind == "voc_xml" and of_voc


def _labels(root: Path, options: Own, others: list[str]) -> tuple[str, list[str]]:
    """Return the format of the labels and the files that hold them."""
    for name in options.files or ():
        if not (root / name).is_file():
            raise DataError(f"{root / name}: no such file; name an existing file of labels, or leave --files out")
        if is_ours(root / name):
            raise DataError(f"{root / name}: answers of a model, or a list to import (`dicap-stage import-labels`); name labels")
    if not options.files:
        tables = [name for name in others if name.lower().endswith(TABULAR) and name.count("/") < 2]
        tails = Finder(root).tails if tables else {}
        named = [name for name in tables if _names_image(tails, root / name)] or [name for name in tables if name in TABLES]
        folders = _label_folders(list_images(root, required=False)) if tables and not named else set()
        if named or (len(folders) > 1 and not of_anything(folders)):
            others = [name for name in others if name in named or name not in tables]  # the other tables become a question
    first = [name for name in TABLES if name in others and options.format in (None, "table")]
    kinds: dict[str, str] = {}
    for name in options.files or first[:1] or others:
        kind = _format_of(root, name, bool(options.files))
        if kind is not None and options.format in (None, kind):
            kinds[name] = kind
    if not kinds:
        return _without_files(root, options, others), []
    words = {name: _words(root, name, kind) for name, kind in kinds.items()}
    best = min(kinds, key=lambda name: (kinds[name] == "table", len(words[name])))
    kind = kinds[best]
    files = [name for name in kinds if kinds[name] == kind and (options.files or words[name] == words[best])]
    if unread := [name for name in kinds if name not in files]:
        text = f"the labels could be in {first_of(files, 3)} ({kind}) or in {first_of(unread, 3)}"
        way = f"to read several, pass --files {typed(listed([*kinds]))}"
        raise Question(f"{root}: {text}; {way}", format=kind, ignore=unread)
    if not options.files and heads.MODEL.search(files[0].lower()):
        raise Question(f"{root / files[0]}: named like a model's answers; or are these labels that a person gave?", files=files)
    return kind, files


def _names_image(tails: Container[str], table: Path) -> bool:
    """Whether a cell of a table names an existing photograph; False for an unreadable table, which is reported later."""
    with suppress(DataError):
        return any(_last(str(cell)) in tails for cell in read_sheet(table).cells.to_numpy().ravel())
    return False


def _last(path: str) -> str:
    """The last part of a path, spelled as in `Finder.tails`."""
    return re.split(r"[\\/]", path.strip())[-1].casefold()


def _words(root: Path, name: str, kind: str) -> set[str]:
    """The words in a file's name that are not a split: tables or COCO files with equal words are read together.

    A table that names no split is read on its own, so its name is one of its words.
    """
    if kind not in ("table", "coco"):
        return set()
    own_name = {name} if kind == "table" and split_in(root / name, root) is None else set()
    return {*words_of(root / name, root)} - {*SPLIT_NAMES, *heads.WORDS_OF_FILES} | own_name


def _without_files(root: Path, options: Own, others: list[str]) -> str:
    """Return the format if no file of labels was found. Raises DataError if it cannot be `folders`."""
    if options.format is not None or options.files:
        what = f"own.format is {options.format}" if options.format else f"{(options.files or [''])[0]} is no file of labels"
        raise DataError(f"{root}: {what}, but no such labels are there; leave the option out, or name their file")
    images = list_images(root, required=False)
    if any("/" in name for name in images):
        return "folders"
    if images and not others:
        raise DataError(f"{root}: holds photographs and no labels yet; choose the first to label: dicap-stage suggest {root}")
    what = "labels" if images else "photographs"
    known = "a labels.csv, a COCO or Label Studio JSON, Pascal VOC or CVAT XML, or a folder for each label"
    raise DataError(f"{root}: found {first_of(others, 4) or 'nothing'}, but no {what} in a known form: {known}")


def _ask_of_files(root: Path, names: list[str], kind: str, options: Own, read: list[str]) -> None:
    """Ask about unread files, grouped by ending, and about folders whose names are unlikely to be labels."""
    endings: dict[str, list[str]] = {}
    for name in names:
        endings.setdefault(Path(name).suffix.lower() or ".", []).append(name)
    shown = first_of([f"{ending} ({len(files)}, the first {files[0]})" for ending, files in endings.items()], 4)
    texts = [f"files that are not read: {shown}"] if names else []
    ignore: list[str] = []
    for ending, files in endings.items():
        of_labels = any(name.lower().endswith(ending) for name in read) if read else ending in FORMATS[kind]
        ignore += files if len(files) == 1 or of_labels else [ending]  # to ignore the ending would drop the file of labels too
    as_folders = kind == "folders" and options.format is None
    if as_folders:
        images = [name for name in list_images(root, required=False) if not is_ignored(name, options.ignore)]
        _ask_of_programs(root, images)
        may_hold_labels = {".xmp"}.union(*FORMATS.values())
        beside = [Path(name).stem for name in names if Path(name).suffix.lower() in may_hold_labels]
        stems = {stem for name in beside for stem in (name, name.partition(".")[0])}
        if 2 * sum(Path(name).stem in stems for name in images) >= len(images):
            way = f"where the folders alone are the labels: --format folders --ignore {typed(listed(ignore))}"
            raise DataError(f"{root}: {texts[0]}; most photographs have one, and labels may be in it: {WRITE}; {way}")
        folders = _label_folders(images)
        is_only = len(folders) == 1 and all("/" in name for name in images)
        if is_only or of_anything(folders):
            reason = "All photographs lie in this folder" if is_only else "The name does not say what the photographs show"
            texts.append(f"is {of_anything(folders) or min(folders)!r} a label? {reason}")
            way = f"{WRITE}, and look again; where the folders are the labels, pass --format folders"
            raise DataError(
                f"{root}: {'; '.join(texts)}: {way}; name folders of splits train, val or test, and leave others out (--ignore)"
            )
    if texts:
        text = f"{root}: {'; '.join(texts)}: if labels are in files, {WRITE}"
        if as_folders:
            raise Question(f"{text}; or are the folders the labels?", format="folders", ignore=ignore)
        raise Question(text, ignore=ignore)


def _ask_of_programs(root: Path, images: list[str]) -> None:
    """Ask about folders that a program or the operating system may have made, if there are others. Raises Question."""
    folders = sorted({part for name in images for part in Path(name).parts[:-1] if OF_PROGRAMS.fullmatch(part)})
    patterns = [way for part in folders for way in (part, f"*/{part}/*") if any(is_ignored(name, [way]) for name in images)]
    if 0 < sum(is_ignored(name, patterns) for name in images) < len(images):
        text = f"did a program or the system make {first_of(folders, 3)}? If all folders are labels, pass --format folders"
        raise Question(f"{root}: {text}", ignore=patterns)


def ask_of_folders(root: Path, images: list[str], kind: str, classes: Sequence[str] = ()) -> None:
    """Ask whether several folders are labels, if the file of labels gives few `classes` or none. Raises Question."""
    if len(folders := _label_folders(images)) > 1 and folders.isdisjoint(classes) and not of_anything(folders):
        known = f"no label but {' and '.join(map(repr, classes))} is given to" if classes else "no row names"
        text = f"{known} the photographs in {first_of(sorted(folders), 4)}; or are these folders labels (--format folders)?"
        raise Question(f"{root}: {text}", format=kind)


def _label_folders(images: list[str]) -> set[str]:
    """The outermost folders that may be labels, without those in `unlabeled`."""
    parts_of, splits = parted(images)
    return {parts[0].strip() for path, parts in parts_of.items() if parts and splits.get(path) != "unlabeled"}


class Column:
    """A column of a table: its head, the head in plain spelling (`heads.plain`), its cells, and the distinct cells."""

    def __init__(self, head: str, texts: list[str]) -> None:
        self.head, self.name, self.texts = head, plain(head), texts
        self.words = {text.casefold() for text in texts} - {""}
        # A spreadsheet or pandas gives such names to columns without a head, and may number the rows in the first column.
        self.is_headless = re.fullmatch(r"column \d+|unnamed.*", head.casefold()) is not None
        self.numbers_rows = self.is_headless and len({*texts}) == len(texts) and all(map(str.isdigit, texts))
        self.names_images = 2 * sum(map(is_image_name, texts)) > len(texts)
        self.lists_numbers = any(" " in text for text in texts) and "".join(texts).replace(" ", "").isdigit()
        self.is_text = 2 * sum(not re.fullmatch(r"[-+\d.,:eETZ/\s]*", text) for text in texts) > len([*filter(None, texts)])
        # At least half of the filled cells are marks as 0 and 1, and the reader reports the others; but in a column of labels all
        # are, since classes may be numbered.
        filled = [text.casefold() for text in texts if text]
        marks = [text for text in filled if text in MARKS]
        clear = [text for text in marks if text not in ("y", "n")]
        is_odd = len(marks) < len(filled) and (self.name in heads.LABEL or 2 * len(clear) < len(filled))
        self.is_binary = bool(marks) and not is_odd

        may_show = self.name.rstrip("s") in ("animal", "subject") and not re.search(r"\d", "".join(texts))  # what, not which one
        self.is_of_group = heads.GROUP.fullmatch(self.name) is not None and not may_show

    def __str__(self) -> str:
        shown = dict.fromkeys(text if len(text) <= 24 else f"{text[:21]}..." for text in self.texts)
        return f"{self.head} ({first_of([text or 'blanks' for text in shown], 4)})"

    @cached_property
    def pieces(self) -> list[str]:
        """The names in the cells, where a cell may hold several."""
        between = r"\s+" if self.lists_numbers else r"[^\w\s-]+"
        return [piece.strip() for text in self.texts for piece in re.split(between, text.casefold()) if piece.strip()]

    @property
    def may_be_labels(self) -> bool:
        """Whether the column holds words or lists of numbers, many of which occur several times."""
        has_repeats = len({*self.pieces}) <= max(3, len(self.pieces) // 2)
        return (self.is_text or self.lists_numbers) and len(self.words) > 1 and has_repeats


class Columns:
    """The roles of a table's columns, found one after the other; an unclear role becomes a question."""

    def __init__(self, root: Path, sheet: Sheet, options: Own) -> None:
        self._tails, self._sheet, self._options, self._own = Finder(root, ignored=options.ignore).tails, sheet, options, options
        self._columns = {head: Column(head, sheet.texts(head)) for head in sheet.header}
        boxes = [one for one in self._columns.values() if heads.BOX.fullmatch(one.name)]
        self._has_boxes = len(boxes) > 1 or any(len(one.name) > 1 for one in boxes)  # y alone is no place in an image

    @property
    def _free(self) -> list[Column]:
        """The columns without a role that have a filled cell."""
        return [self._columns[head] for head in without_role(self._sheet, self._own) if self._columns[head].words]

    def _texts(self, role: str) -> list[str]:
        """The cells of the column with a role."""
        return self._columns[getattr(self._own, role)].texts

    def _add(self, **roles: Any) -> None:
        self._own = self._own.model_copy(update=roles)

    def _leave(self, columns: Iterable[Column]) -> None:
        """Ignore some columns: they say nothing about labels."""
        self._add(ignore=[*(self._own.ignore or ()), *(column.head for column in columns)] or None)

    def understood(self) -> Own:
        """Return the settings with the roles of the columns. Raises DataError, Question."""
        if self._own.image is None:
            self._image()
        self._leave([one for one in self._free if one.texts == self._texts("image") or one.numbers_rows])
        if self._own.split is None:
            named = [one for one in self._called(heads.SPLIT) if one.words & {*SPLIT_NAMES} or one.name == heads.SPLIT[0]]
            self._choose("split", named, [one for one in self._free if len(one.words) > 1 and one.words <= {*SPLIT_NAMES}])
        if self._own.labels is None and not self._own.classes:
            self._labels()
        for key in ("absent", "group"):
            if getattr(self._own, key) is None and (key == "group" or self._own.labels):
                named = [one for one in self._columns.values() if one.name == key and one.head not in (self._own.ignore or ())]
                self._choose(key, named[:1])
        self._leave([one for one in self._free if not one.is_binary and self._is_usual(one)])
        self._ask_of_others()
        return self._own if self._own.rows or self._own.value is None else self._own.model_copy(update={"rows": "label"})

    def _called(self, names: Sequence[str]) -> list[Column]:
        """The columns with one of these heads, in their order."""
        return sorted((one for one in self._free if one.name in names), key=lambda one: names.index(one.name))

    def _choose(self, role: str, named: list[Column], likely: Sequence[Column] = (), way: str = "") -> None:
        """Give a role to the one column `named` for it; ask if there are several, or only columns whose cells look `likely`."""
        if len(named) == 1:
            self._add(**{role: named[0].head})
        elif candidates := [*(named or likely)]:
            others = [one.head for one in named[1:]]
            rivals = f", and not {', '.join(others)}" if named else ""
            text = f"does column {candidates[0]} hold the {role.removesuffix('s')}s{rivals}?{way}"
            raise self._ask(text, **{role: candidates[0].head, "ignore": others})

    def _ask(self, text: str, **answers: str | list[str]) -> Question:
        return Question(f"{self._sheet.path}: {text}", **answers)

    def _image(self) -> None:
        """Find the column that names photographs: among columns with such heads, one whose cells end like names of images."""
        likely = [one for one in self._free if one.names_images]
        named = [one for one in self._called(heads.IMAGE) if one in likely or not likely]
        names = [[*map(_last, one.texts)] for one in named]
        rivals = [one for one, cells in zip(named, names, strict=True) if likely and cells != names[0]]
        self._choose("image", [*named[:1], *rivals], likely or self._free)
        if self._own.image is None:
            raise self._sheet.lacks("image", "init-data --image names another")

    def _labels(self) -> None:
        """Find the column of labels, or the columns of 0 and 1 for the classes."""
        binary = [one for one in self._free if one.is_binary]
        texts = [one for one in self._free if not one.is_binary and not one.names_images]
        classes = [one.head for one in binary if not heads.OF_ROWS.fullmatch(one.name) and not NOTHING.fullmatch(one.head)]
        classes = [head for head in classes if not doubt_of(head, [one.head for one in binary])]
        named = [one for one in self._called(heads.LABEL) if one in texts]
        words = [one for one in texts if one.may_be_labels and not one.is_of_group]
        words = [one for one in words if not self._is_folder(one)] or ([] if classes else words)
        words.sort(key=lambda one: ";" not in "".join(one.texts))
        others = [one for one in texts if one.is_text and (one.is_headless or (not named and not self._is_folder(one)))]
        for one, other in ((one, other) for one in named or words for other in others):
            if one != other and not {*one.pieces}.isdisjoint(other.pieces):
                way = "write labels in one column with `;` between, or 1 and 0 in a column for each class"
                text = f"columns {one}, {other} hold the same words: {way}; or name it: init-data --labels"
                raise DataError(f"{self._sheet.path}: {text}")
        in_folders = any("/" in text for text in self._texts("image"))
        way = f"; or, where folders are the labels, --ignore {typed(f'*{self._sheet.path.name}')}" if in_folders else ""
        self._choose("labels", named, words if len(classes) < SEVERAL else (), way)
        if self._own.labels is not None:
            return
        if not binary:
            head = f" {typed(texts[0].head)}" if len(texts) == 1 else ""
            way = f"write a column of labels or a column of 0 and 1 for each class, or name yours: --labels{head}{way}"
            raise self._sheet.lacks("labels", way)
        if not classes:
            raise self._ask(f"is column {binary[0].head} of 0 and 1 a class?", classes=[binary[0].head])
        self._add(classes=classes)

    def _is_folder(self, column: Column) -> bool:
        """Whether each cell is the folder of the row's photograph, or the end of that folder's path."""
        rows = zip(self._texts("image"), column.texts, strict=True)
        folders = [(text.replace("\\", "/").strip("/.").casefold(), _last(image)) for image, text in rows]
        return all(f"{folder}/{image}" in self._tails for folder, image in folders if folder)

    def _is_usual(self, column: Column) -> bool:
        """Whether a program always exports such a column."""
        return heads.USUAL.fullmatch(column.name) is not None and (self._has_boxes or not heads.VALUE.fullmatch(column.name))

    def _may_be_value(self, column: Column) -> bool:
        """Whether the column may say of a row's label that it is there or not.

        Its head says so, or it has one value for each label of an image, differs between labels, and does not just number them.
        """
        if self._own.labels is None or self._own.rows == "image":
            return False
        if heads.VALUE.fullmatch(column.name) and not self._is_usual(column):
            return "" in column.texts or not column.words <= {*YES}
        images, names = self._texts("image"), self._texts("labels")
        keys = (images, column.texts), (images, names), (images, names, column.texts)
        values, labels, cells = (len({*zip(*key, strict=True)}) for key in keys)
        return not self._has_boxes and len({*images}) < values < cells == labels

    def _ask_of_others(self) -> None:
        """Ask about the columns without a role."""
        images = len({*self._texts("image")})
        free = sorted(self._free, key=lambda one: -len(one.words))  # the smallest groups first: they are the easiest to split
        of_label = [one for one in free if self._may_be_value(one)]
        usual = [one for one in of_label if heads.VALUE.fullmatch(one.name)]
        values = [one for one in of_label if one.is_binary and (one in usual or one.words <= MARKS)]
        groups = [one for one in free if heads.GROUP.fullmatch(one.name)]
        likely = {
            "open": [one for one in free if one.is_binary and one.name in SPLIT_WORDS["unlabeled"]],
            "value": [one for one in values if len(values) == 1 or one in usual],
            "group": [one for one in groups if not one.is_binary and 1 < len(one.words) < images],
        }
        roles = {role: columns[0] for role, columns in likely.items() if columns and getattr(self._own, role) is None}
        texts = [ROLES[role].format(" or ".join(map(str, likely[role]))) for role in roles]
        unassigned = [one for one in self._free if one not in roles.values()]
        unclear = [one for one in of_label if one in unassigned and (one.is_binary or len(one.words) == 2 or one in usual)]
        if unclear:
            text = f"does {unclear[0]} say whether a row's label is there? Then write 1 and 0 there"
            way = f"if each row's label is there: --ignore {typed(unclear[0].head)}"
            raise DataError(f"{self._sheet.path}: {text}; {way}")
        named = {role: column.head for role, column in roles.items()}
        if any(one.may_be_labels for one in unassigned) and not self._options.labels and self._own.labels:
            named["labels"] = self._own.labels
            texts.append(f"the labels are taken from column {self._columns[self._own.labels]}")
        if unassigned:
            texts.append(f"no role is known of {', '.join(map(str, unassigned))}: labels, a class, the split, a group?")
        if texts:  # the user should check the columns taken for classes, too
            shown = (self._own.classes or []) if unassigned and not self._options.classes else []
            raise self._ask("; ".join(texts), **named, ignore=[one.head for one in unassigned], classes=shown)
