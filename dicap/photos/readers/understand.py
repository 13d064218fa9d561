"""From the files of a folder to the reading of its labels, which `init-data` writes down, or to a question.

Every file and every column of a table gets a role, is ignored because an option says so, or becomes a question. A question
proposes a reading and names the options that select it. Column heads that well-known programs write are trusted.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dicap.data.sources.files import base_of, is_image_name, list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers import coco_file, heads, label_studio, xml_files
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.folders import of_anything, parted
from dicap.photos.readers.heads import SPLIT_NAMES, SPLIT_WORDS, plain
from dicap.photos.readers.listing import split_in
from dicap.photos.readers.names import NOTHING, doubt_of
from dicap.photos.readers.question import Question, listed, typed
from dicap.photos.readers.sheet import MARKS, Sheet, read_sheet
from dicap.photos.readers.table import DOCUMENTED, without_role
from dicap.settings import Own

TABLES = (DOCUMENTED, "labels.parquet")  # if one of these exists, no other file is read
TABULAR, IF_NAMED = (".csv", ".tsv", ".tab", ".parquet"), (".txt", ".xlsx", ".xls", ".ods")
DOWNLOAD = re.compile(r"labels-[0-9a-f]{6}.*\.csv$")  # of a page, also `Copy of labels-0a1b2c (1).csv`
SEVERAL = 3  # from this number on, columns of 0 and 1 are preferred to a column of texts
ROLES = {  # questions about a column, by the proposed role
    "open": "is a row with 1 in column {} not labelled?",
    "value": "is the label there where column {} is 1, and known to be absent where it is 0 (else --ignore)?",
    "group": "do photographs of one value of column {} belong on one side of every split?",
}
FOLDERS = "; or, where folders are the labels, pass --format folders"
# Options of tables, and those that another format reads, too.
ROLES_OF_COLUMNS = ("image", "labels", "classes", "separator", "minus", "blank", "value", "open", "absent", "split", "group")
READ_BY = {"coco": ("split", "group"), "labelstudio": ("image", "classes", "split", "group")}
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
        _ask_of_files(root, [name for name in others if name not in files and not _is_beside(name, kind)], files, options)
    file_per_image = kind == "voc_xml" and not options.files
    own = options.model_copy(update={"format": kind, "files": None if file_per_image else files or None})
    defaults = Own()
    for key in () if kind == "table" else ROLES_OF_COLUMNS:
        if key not in READ_BY.get(kind, ()) and getattr(own, key) != getattr(defaults, key):
            text = f"--{key.replace('_', '-')} says nothing where the format is {kind}; leave it out, or {WRITE}"
            raise DataError(f"{root}: {text} and what the option names")
    return root, Columns(read_sheet(*(root / name for name in files)), own).understood() if kind == "table" else own


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
        with suppress(DataError):  # an unreadable table is reported later
            header = {*read_sheet(path).header}
    return bool(header and DOWNLOAD.search(path.name)) or any(known <= header for known in heads.OURS)


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
    """Return the format of the labels and the files that hold them: the files of `own.files`, else `labels.csv`, else all.

    Raises DataError if these are of several formats, or if several files that no option names are not those of splits; Question
    if a file is named like a model's answers.
    """
    for name in options.files or ():
        if not (root / name).is_file():
            raise DataError(f"{root / name}: no such file; name an existing file of labels, or leave --files out")
        if is_ours(root / name):
            raise DataError(f"{root / name}: answers of a model, or a list to import (`dicap-stage import-labels`); name labels")
    first = [name for name in TABLES if name in others and options.format in (None, "table")]
    found = {name: _format_of(root, name, bool(options.files)) for name in options.files or first[:1] or others}
    kinds = {name: kind for name, kind in found.items() if kind is not None and options.format in (None, kind)}
    if not kinds:
        return _without_files(root, options, others), []
    kind, files = next(iter(kinds.values())), [*kinds]
    splits = {split_in(root / name, root) for name in files} - {None}
    are_of_splits = kind in ("table", "coco") and len(splits) == len(files)  # other formats take no split from the file's name
    if {*kinds.values()} != {kind} or not (len(files) == 1 or options.files or kind == "voc_xml" or are_of_splits):
        shown = first_of([f"{name} ({kinds[name]})" for name in files], 4)
        raise DataError(f"{root}: the labels could be in {shown}; --files names those to read")
    answers = [name for name in files if heads.MODEL.search(name.lower()) and not options.files]
    if answers:
        raise Question(f"{root / answers[0]}: named like a model's answers; or are these labels that a person gave?", files=files)
    return kind, files


def _without_files(root: Path, options: Own, others: list[str]) -> str:
    """Return the format if no file of labels was found. Raises DataError if it cannot be `folders`."""
    if options.format is not None or options.files:
        what = options.format or first_of(options.files or [], 2)
        raise DataError(f"{root}: {what}: no such labels are there; leave the option out, or name their file")
    images = list_images(root, required=False)
    if any("/" in name for name in images):
        return "folders"
    if images and not others:
        raise DataError(f"{root}: holds photographs and no labels yet; choose the first to label: dicap-stage suggest {root}")
    what = "labels" if images else "photographs"
    known = "a labels.csv, a COCO or Label Studio JSON, Pascal VOC or CVAT XML, or a folder for each label"
    raise DataError(f"{root}: found {first_of(others, 4) or 'nothing'}, but no {what} in a known form: {known}")


def _ask_of_files(root: Path, unread: list[str], files: list[str], options: Own) -> None:
    """Ask about unread files, by their endings. If there are no `files` of labels, the folders are the labels.

    Raises Question; DataError if unread files or the folders' names make it doubtful that they are labels, and no option says so.
    """
    kept = {Path(name).suffix.lower() for name in files}  # to ignore these endings would leave the labels out, too
    endings = {name: Path(name).suffix.lower() or "." for name in unread}
    ignore = [*dict.fromkeys(name if ending in kept else ending for name, ending in endings.items())]
    texts = [f"files that are not read: {first_of(ignore, 4)} (the first: {unread[0]})"] if unread else []
    if not files and options.format is None:
        texts += _doubts_of_folders(root, options)
    elif unread:
        raise Question(f"{root}: {texts[0]}: if labels are in files, {WRITE}", ignore=ignore)
    if texts:  # the options answer questions that came before, too
        more = [*(options.ignore or ()), *ignore]
        way = f"{FOLDERS} --ignore {typed(listed(more))}" if more else FOLDERS
        raise DataError(f"{root}: {'; '.join(texts)}: {WRITE}{way}")


def _doubts_of_folders(root: Path, options: Own) -> list[str]:
    """A line if a folder's name is unlikely to be a label. Raises Question for folders that a program may have made."""
    images = [name for name in list_images(root, required=False) if not is_ignored(name, options.ignore)]
    made = {part for name in images for part in Path(name).parts[:-1] if part[0] in "@#$._~"}
    patterns = [way for part in sorted(made) for way in (part, f"*/{part}/*") if any(is_ignored(name, [way]) for name in images)]
    if 0 < sum(is_ignored(name, patterns) for name in images) < len(images):
        text = f"did a program or the system make {first_of(sorted(made), 3)}? If all folders are labels, pass --format folders"
        raise Question(f"{root}: {text}", ignore=patterns)
    folders = _label_folders(images)
    is_only = len(folders) == 1 and all("/" in name for name in images)
    vague = min(folders) if is_only else of_anything(folders)
    way = "It may not say what its photographs show: name folders of splits train, val or test, or --ignore it"
    return [f"is {vague!r} a label? {way}"] if vague else []


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
    """A column of a table: its head, the head in plain spelling (`heads.plain`), its cells, and the distinct filled cells."""

    def __init__(self, head: str, texts: list[str]) -> None:
        self.head, self.name, self.texts = head, plain(head), texts
        filled = [text.casefold() for text in texts if text]
        self.words = {*filled}
        self.names_images = 2 * sum(map(is_image_name, texts)) > len(texts)
        # Half of the filled cells are marks as 0 and 1, and the reader reports the others. In a column of labels all are, since
        # classes may be numbered.
        marks = sum(text in MARKS for text in filled)
        self.is_binary = 0 < marks == len(filled) or (2 * marks >= len(filled) > 0 and self.name not in heads.LABEL)
        # Programs always export such columns; some number the rows in a column without a head.
        numbers_rows = self.name.startswith(("column_", "unnamed")) and texts == [*map(str, range(len(texts)))]
        self.is_usual = numbers_rows or heads.USUAL.fullmatch(self.name) is not None
        letters = sum(any(map(str.isalpha, text)) for text in filled)
        self.is_text = not self.is_binary and not self.names_images and 2 * letters > len(filled)

    def __str__(self) -> str:
        return f"{self.head} ({first_of([*dict.fromkeys(text[:24] or 'blanks' for text in self.texts)], 4)})"


class Columns:
    """The roles of a table's columns, found one after the other; an unclear role becomes a question."""

    def __init__(self, sheet: Sheet, options: Own) -> None:
        self._sheet, self._own = sheet, options
        self._columns = {head: Column(head, sheet.texts(head)) for head in sheet.header}
        self._has_boxes = any(heads.BOX.fullmatch(one.name) for one in self._columns.values())

    @property
    def _free(self) -> list[Column]:
        """The columns without a role that have a filled cell."""
        return [self._columns[head] for head in without_role(self._sheet, self._own) if self._columns[head].words]

    def _add(self, **roles: Any) -> None:
        self._own = self._own.model_copy(update=roles)

    def _ask(self, text: str, **answers: str | list[str]) -> Question:
        return Question(f"{self._sheet.path}: {text}", **answers)

    def understood(self) -> Own:
        """Return the settings with the roles of the columns. Raises DataError, Question."""
        if self._own.image is None:
            self._image()
        if self._own.split is None:
            named = [one for one in self._free if one.name in heads.SPLIT and (one.name == "split" or one.words & {*SPLIT_NAMES})]
            self._choose("split", named, [one for one in self._free if len(one.words) > 1 and one.words <= {*SPLIT_NAMES}])
        if self._own.labels is None and not self._own.classes:
            self._labels()
        for head in without_role(self._sheet, self._own):  # a documented column has its role although its cells are blank
            key = plain(head)
            if key == "group" or (key == "absent" and self._own.labels):
                self._add(**{key: getattr(self._own, key) or head})
        usual = [one.head for one in self._free if one.is_usual and not one.is_binary]
        self._add(ignore=[*(self._own.ignore or ()), *usual] or None)
        self._ask_of_others()
        return self._own if self._own.rows or self._own.value is None else self._own.model_copy(update={"rows": "label"})

    def _choose(self, role: str, named: list[Column], likely: Sequence[Column] = ()) -> None:
        """Give a role to the one column `named` for it, or ask about the one whose cells look `likely`.

        Raises DataError if there are several: none of them is chosen.
        """
        columns, what = named or likely, role.removesuffix("s")
        if len(columns) > 1:
            classes = "; --classes names columns of 1 and 0" if role == "labels" else ""
            text = f"which of {', '.join(map(str, columns))} holds the {what}s? --{role} names the one that does"
            raise DataError(f"{self._sheet.path}: {text}, --ignore others{classes}; or {WRITE}")
        if named:
            self._add(**{role: named[0].head})
        elif columns:
            way = FOLDERS if role == "labels" and any("/" in text for text in self._columns[self._own.image or ""].texts) else ""
            raise self._ask(f"does column {columns[0]} hold the {what}s (--{role})?{way}", **{role: columns[0].head})

    def _image(self) -> None:
        """Find the column that names photographs: its cells end like names of images, or its head says so if none do."""
        likely = [one for one in self._free if one.names_images]
        self._choose("image", [one for one in likely or self._free if one.name in heads.IMAGE], likely)
        if self._own.image is None:
            raise self._sheet.lacks("image", f"name yours (init-data --image){FOLDERS}")

    def _labels(self) -> None:
        """Find the column of labels, or the columns of 0 and 1 for the classes."""
        binary = [one for one in self._free if one.is_binary]
        known = [one.head for one in binary]
        classes = [one for one in binary if not heads.OF_ROWS.fullmatch(one.name) and not NOTHING.fullmatch(one.head)]
        classes = [one for one in classes if not doubt_of(one.head, known)]
        texts = [one for one in self._free if one.is_text and not heads.GROUP.fullmatch(one.name) and not one.is_usual]
        named = [one for one in self._free if one.name in heads.LABEL and not one.is_binary and not one.names_images]
        self._choose("labels", named, [*texts, *classes] if texts and len(classes) < SEVERAL else [])
        if self._own.labels is not None:
            return
        if not classes and len(binary) == 1:
            raise self._ask(f"is column {binary[0].head} of 0 and 1 a class?", classes=known)
        if not classes:
            way = "write a column of labels or a column of 0 and 1 for each class, or name yours (init-data --labels, --classes)"
            raise self._sheet.lacks("labels", f"{way}{FOLDERS}")
        self._add(classes=[one.head for one in classes])

    def _ask_of_others(self) -> None:
        """Ask about the columns without a role. Raises Question; DataError if one may say that the label of its row is absent."""
        images, free = self._columns[self._own.image or ""].texts, self._free
        may_deny = self._own.labels and self._own.rows != "image" and not self._has_boxes
        likely: dict[str, Column] = {}
        for one in sorted(free, key=lambda one: -len(one.words)):  # the smallest groups first: they are the easiest to split
            values, says_so = len({*one.texts}), heads.VALUE.fullmatch(one.name)
            if one.is_binary and one.name in SPLIT_WORDS["unlabeled"]:
                likely.setdefault("open", one)
            elif not one.is_binary and heads.GROUP.fullmatch(one.name) and 1 < len(one.words) < len({*images}):
                likely.setdefault("group", one)
            elif may_deny and values > 1 and (says_so or (values == 2 and len({*images}) < len(images))):
                if not (says_so and one.is_binary) or self._own.value or "value" in likely:
                    ways = f"Then write 1 and 0 there, with --value {typed(one.head)}; else --ignore {typed(one.head)}"
                    raise DataError(f"{self._sheet.path}: does {one} say whether a row's label is there? {ways}")
                likely["value"] = one
        roles = {role: one for role, one in likely.items() if getattr(self._own, role) is None}
        texts = [ROLES[role].format(one) for role, one in roles.items()]
        answers: dict[str, Any] = {role: one.head for role, one in roles.items()}
        if unassigned := [one for one in free if one not in roles.values()]:
            texts.append(f"no role is known of {', '.join(map(str, unassigned))}: labels, a class, the split, a group?")
            answers |= {"labels": self._own.labels, "classes": self._own.classes}  # the user should check these, too
            answers["ignore"] = [one.head for one in unassigned]
        if texts:
            raise self._ask("; ".join(texts), **answers)
