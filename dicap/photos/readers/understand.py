"""What a folder of somebody's holds: the reading of its labels, which `init-data` writes down, or a question.

Every column of a table and every file has a role, or is named as one that says nothing about labels, or is asked about, with the
reading that would be chosen and the options that say so. Heads are believed where they are those of known programs.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dicap.data.sources.files import base_of, is_image_name, list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers import coco_file, label_studio, xml_files
from dicap.photos.readers.listing import SPLIT_NAMES, as_read, is_ignored, listed, split_in, typed, words_of
from dicap.photos.readers.nothing import NOTHING, is_doubted
from dicap.photos.readers.sheet import MARKS, MINUS, NO, Sheet, plain, read_sheet, read_sheets
from dicap.photos.readers.table import DOCUMENTED, SINGLE
from dicap.settings import Own

TABLES = (DOCUMENTED[0], "labels.parquet")  # where one of these is there, no other file is meant
TABULAR, IF_NAMED = (".csv", ".tsv", ".tab", ".parquet"), (".txt", ".xlsx", ".xls", ".ods")
IMAGE = (
    *("image", "images", "file_name", "filename", "file", "image_path", "filepath", "file_path", "path", "image_name"),
    *("image_file", "img", "photo", "photograph", "picture", "image_id", "imageid", "id"),
)
LABEL = ("labels", "label", "tags", "tag", "classes", "class", "categories", "category", "keywords", "class_name", "label_name")
SPLIT = ("split", "set", "subset", "partition", "data_split", "phase")
VALUE = re.compile(r"(is_)?(confidence|value|present|presence|positive|verified|truth|score|answer)")
GROUP = re.compile(r".*(patient|subject|person|scene|session|burst|sequence|video|series|study|group|source|site|case|animal).*")
# Columns that exports of well-known programs always have: ids, sizes, places in the image, paths.
USUAL = re.compile(
    r"id|(image|annotation|label|category|class|object|task)_?id|(image|img|file|box)?_?(width|height|size|area)|[xywh]"
    r"|[xy]_?(min|max|[12])|bbox|boxes|polygon|segmentation|iscrowd|depth|channels|url|uri|path|(image|file)_path|md5|sha1|sha256"
    r"|checksum|index"
)
# Columns of 0 and 1 that speak of a row, not of a picture.
OF_ROWS = re.compile(
    r"(is|has|was|in|use|to)_.+|(k_?)?fold_?\d*|cv|flag(ged)?|label(s|led)?|annotated|(re)?checked|reviewed|verified|validated|done"
    r"|(in)?valid|train(ing)?|test(ing)?|val|validation|hold_?out|public|private|augmented|duplicate[ds]?|copy|used?|keep|skip(ped)?"
    r"|exclude[ds]?|include[ds]?|missing|error|rating|grade|adult|seen|quality|difficult|truncated|active|confidence|score|weight"
    r"|class|classes|tags?"
)
OPEN = ("unlabeled", "unlabelled", "not_labeled", "not_labelled")
# Names of folders that hold photographs of anything.
ANYTHING = re.compile(
    r"(train|test|val|valid|validation|raw|all|new|old|my)?[\s_-]*(images?|imgs?|photo(graph)?s?|pictures?|pics|masks?|labels?"
    r"|annotations?|data|dataset|jpegimages|files|media|uploads?|frames?|set|folder|dcim|camera|export)(\s*\(?\d*\)?)?"
    r"|(19|20)\d\d([\s_-]?\d\d){0,2}|\d{3}[a-z_]{5}",
    re.IGNORECASE,
)
# Heads of tables that commands write: none of them is what somebody said of the images.
OURS = (
    {"image", "class", "probability", "decision"},
    {"image", "labels", "unsure", "absent"},
    {"image", "labels", "model_says"},
    {"image", "labels", "surprise"},
)
# Words in names of files of labels that tell none from another.
WORDS_OF_FILES = (*LABEL, "annotation", "annotations", "instances", "image", "images", "info", "coco", "data", "list", "set", "")
SEVERAL = 3  # columns of 0 and 1 that are believed rather than a column of texts beside them


@dataclass
class Questions:
    """What is asked, and the options that say the reading that would be chosen."""

    texts: list[str] = field(default_factory=list)
    options: dict[str, str | list[str]] = field(default_factory=dict)

    def ask(self, text: str, **options: str | list[str]) -> None:
        """Ask in words; a list goes to those that an option has already, of a single value the first one stays."""
        self.texts.append(text)
        for key, value in options.items():
            old = self.options.setdefault(key, [] if isinstance(value, list) else value)
            if isinstance(old, list):
                old += [one for one in value if one not in old]

    def check(self, where: Path) -> None:
        """Raise DataError with all that was asked, if anything was."""
        if self.texts:
            raise DataError(f"{where}: {'; '.join(self.texts)}{as_read(self.options)}")


def understand(place: Path, said: Own) -> tuple[Path, Own]:
    """The folder of the data set, and the reading of its labels.

    Args:
        place: the folder, or the file of labels in it.
        said: what the user says of it.

    Raises:
        DataError: nothing readable is there, or there is a question.
    """
    if not place.exists():
        raise DataError(f"{place}: no such folder or file; set data_root to the folder that holds your images and labels")
    root = base_of(place)
    if place.is_file():
        said = said.model_copy(update={"files": [place.relative_to(root).as_posix()]})
    questions = Questions()
    others = [name for name in list_others(root) if not is_ignored(name, said.ignore) and not is_ours(root / name)]
    kind, files = ("folders", []) if said.format == "folders" else _labels(root, said, others, questions)
    if not said.files:
        asked = [*files, *questions.options.get("ignore", ())]
        _ask_of_files(root, [name for name in others if name not in asked and not _is_beside(name, kind)], kind, said, questions)
    roles: dict[str, object] = {"format": kind, "files": files or None}
    if kind == "voc_xml" and not said.files:
        roles["files"] = None  # a file an image
    if kind == "table":
        sheet = read_sheets([root / name for name in files])
        if sheet.cells.empty:
            raise DataError(f"{sheet.path}: no rows; list the images, one a row")
        roles |= Columns(root, sheet, said, questions).understood()
    questions.check(root / files[0] if files else root)
    return root, said.model_copy(update=roles)


def is_ours(path: Path) -> bool:
    """Whether a command or a page of ours wrote a file: answers of a model are no labels, and a list is to be imported."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        return False
    try:
        header = {*read_sheet(path).header}
    except DataError:
        return False
    return bool(re.fullmatch(r"labels-[0-9a-f]{4,}.*\.csv", path.name)) or any(known <= header for known in OURS)


def _format_of(path: Path, depth: int, named: bool) -> str | None:
    """The format of a file of labels, `depth` folders below that of the set; None where it is none. Raises DataError."""
    ending = path.suffix.lower()
    if ending == ".xml":
        return {"annotation": "voc_xml", "annotations": "cvat"}.get(xml_files.tag(path))
    if depth > 1 and not named:
        return None
    if ending == ".json":
        return "coco" if coco_file.is_coco(path) else "labelstudio" if depth == 0 and label_studio.is_export(path) else None
    return "table" if ending in TABULAR or (named and ending in IF_NAMED) else None


def _is_beside(name: str, kind: str) -> bool:
    """Whether a file is one that a format has beside its labels."""
    others = kind == "coco" and Path(name).name.startswith(coco_file.OTHERS)
    return others or (kind == "voc_xml" and "ImageSets" in Path(name).parts)


def _labels(root: Path, said: Own, others: list[str], questions: Questions) -> tuple[str, list[str]]:
    """The format, and its files."""
    for name in said.files or ():
        if not (root / name).is_file():
            raise DataError(f"{root / name}: no such file; name one that is there, or none")
        if is_ours(root / name):
            raise DataError(f"{root / name}: answers of a model, or a list to import (`dicap-stage import-labels`); name labels")
    found: dict[str, list[str]] = {}
    first = [name for name in TABLES if name in others and not said.files]
    for name in said.files or first or others:
        kind = _format_of(root / name, name.count("/"), bool(said.files))
        if kind is not None and said.format in (None, kind) and not _is_beside(name, kind):
            found.setdefault(kind, []).append(name)
    tables = found.pop("table", [])
    if len(tables) > 1:  # those of splits belong together
        meant = [name for name in tables if not first and split_in(root / name, root) is not None] or tables[:1]
        if others := [name for name in tables if name not in meant]:
            questions.ask(f"several tables could be meant ({first_of(tables, 4)})", ignore=others)
        tables = meant
    if tables:  # the last of the formats
        found["table"] = tables
    for of in {"table", "coco"} & found.keys():
        found[of] = found[of] if said.files else _alike(root, found[of], questions)
    if not found:
        return _without_files(root, said, others), []
    kind = next(iter(found))
    if len(found) > 1:
        more = [name for other in [*found][1:] for name in found[other]]
        questions.ask(f"labels could be those of {found[kind][0]} ({kind}) or of {more[0]}", format=kind, ignore=more)
    return kind, found[kind]


def _alike(root: Path, names: list[str], questions: Questions) -> list[str]:
    """The files whose names differ by splits and numbers alone; of others, as `train_pseudo.csv`, is asked."""
    words = {name: {*words_of(root / name, root)} - {*SPLIT_NAMES, *WORDS_OF_FILES} for name in names}
    least = min(words.values(), key=len)
    alike = [name for name in names if words[name] == least]
    if others := [name for name in names if name not in alike]:
        way = f"--files {typed(listed(names))}"
        questions.ask(f"{others[0]} is named otherwise than {alike[0]}; where it holds labels too, pass {way}", ignore=others)
    return alike


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


def _ask_of_files(root: Path, names: list[str], kind: str, said: Own, questions: Questions) -> None:
    """Ask of files that nothing reads, by their endings; and of folders whose names are hardly those of labels."""
    if said.unlabeled_root:
        aside = Path(said.unlabeled_root).resolve()
        names = [name for name in names if not (root / name).resolve().is_relative_to(aside)]
    endings: dict[str, list[str]] = {}
    for name in names:
        endings.setdefault(Path(name).suffix.lower() or ".", []).append(name)
    shown = first_of([f"{ending} ({len(found)}, the first {found[0]})" for ending, found in endings.items()], 4)
    unread = f"files that are not read: {shown}; " if names else ""
    write = "write the labels as labels.csv with the columns image, labels, or export them as COCO JSON"
    ways: dict[str, str] = {}
    if kind == "folders" and said.format is None:
        images = list_images(root, required=False)
        stems = {part for name in names for part in (Path(name).stem, Path(name).stem.partition(".")[0])}
        if 2 * sum(Path(name).stem in stems for name in images) > len(images):
            raise DataError(f"{root}: {unread}most photographs have one, and labels may be in them: {write}")
        tops = {name.partition("/")[0] for name in images if "/" in name} - {*SPLIT_NAMES}
        if strange := sorted(filter(ANYTHING.fullmatch, tops)):
            raise DataError(
                f"{root}: {unread}is {strange[0]!r} a label? Folders of such a name hold photographs of anything: {write}, and "
                "look again; where the folders are the labels, pass --format folders"
            )
        ways = {"format": "folders"}
    if names:
        text = f"{unread}if labels are in them, {write}" + ("; or are the folders the labels?" if ways else "")
        questions.ask(text, **ways, ignore=[found[0] if len(found) == 1 else ending for ending, found in endings.items()])


class Columns:
    """The roles of a table's columns, found one after the other; what is not understood is asked."""

    def __init__(self, root: Path, sheet: Sheet, said: Own, questions: Questions) -> None:
        self._root, self._sheet, self._said, self._questions = root, sheet, said, questions
        self._roles: dict[str, object] = {key: getattr(said, key) for key in (*SINGLE, "classes", "rows")}
        used = {*(said.classes or ()), *(head for key in SINGLE if (head := getattr(said, key)))}
        if lost := sorted(used - {*sheet.header}):
            raise DataError(f"{sheet.path}: column {lost[0]} is missing (found {', '.join(sheet.header) or 'nothing'})")
        self._free = [head for head in sheet.header if head not in used | {*(said.ignore or ())}]
        self._texts = {head: sheet.texts(head) for head in sheet.header}
        self._words = {head: {text.casefold() for text in texts} - {""} for head, texts in self._texts.items()}
        self._binary = [head for head in sheet.header if self._is_binary(head)]

    def understood(self) -> dict[str, object]:
        """The roles as settings of the section `own`."""
        if self._roles["image"] is None:
            self._take("image", self._image())
        same = self._texts[str(self._roles["image"])]
        idle = [head for head in self._free if self._texts[head] == same or not self._words[head] or self._is_number_of_row(head)]
        self._leave(idle)
        if self._roles["split"] is None:
            self._split()
        if self._roles["labels"] is None and not self._roles["classes"]:
            self._labels()
        for key in ("absent", "group"):
            head = next((head for head in self._free if plain(head) == key), None)
            if self._roles[key] is None and head is not None and (key == "group" or self._roles["labels"]):
                self._take(key, head)
        idle += [head for head in self._free if head not in self._binary and USUAL.fullmatch(plain(head))]
        for head in self._leave(self._free):
            if head not in idle:
                self._ask_of(head)
        if self._roles["classes"]:
            self._ask_of_marks()
        if self._roles["value"] is not None:
            self._roles["rows"] = "label"
        ignored = [*(self._said.ignore or ()), *idle]
        return self._roles | {"ignore": list(dict.fromkeys(ignored)) or None}

    def _take(self, key: str, head: str) -> None:
        self._roles[key] = head
        self._leave([head])

    def _leave(self, heads: Iterable[str]) -> list[str]:
        """Take columns out of those that have no role yet."""
        gone = list(heads)
        self._free = [head for head in self._free if head not in gone]
        return gone

    def _is_binary(self, head: str) -> bool:
        """Whether at least half of the cells are 0, 1 and the like: of the others the reader says what is wrong with them."""
        filled = [text.casefold() for text in self._texts[head] if text]
        marks = [text for text in filled if text in MARKS]
        return bool(marks) and (len(marks) == len(filled) or 2 * sum(text not in ("y", "n") for text in marks) >= len(filled))

    def _image(self) -> str:
        """The column that names photographs, by its head; of several the one whose cells end as names of files do."""

        def is_named(head: str) -> bool:
            return 2 * sum(map(is_image_name, self._texts[head])) > len(self._texts[head])

        named = sorted((head for head in self._free if plain(head) in IMAGE), key=lambda head: IMAGE.index(plain(head)))
        likely = sorted(named or self._free, key=lambda head: not is_named(head))
        if not likely:
            raise DataError(f"{self._sheet.path}: column image is missing (found {', '.join(self._sheet.header) or 'nothing'})")
        if not named:
            self._questions.ask(f"is column {likely[0]} ({_shown(self._texts[likely[0]])}) that of the images?", image=likely[0])
        names = {head: [re.split(r"[\\/]", text)[-1] for text in self._texts[head]] for head in likely}
        for other in filter(is_named, named):
            if names[other] != names[likely[0]]:
                text = f"columns {likely[0]} and {other} both name images, and not the same"
                self._questions.ask(text, image=likely[0], ignore=self._leave([other]))
        return likely[0]

    def _split(self) -> None:
        """The column of splits, where there is one; a misspelt one is complained of by the reader."""
        words = {*SPLIT_NAMES}
        named = [head for head in self._free if plain(head) in SPLIT and (self._words[head] & words or plain(head) == SPLIT[0])]
        found = named or [head for head in self._free if len(self._words[head]) > 1 and self._words[head] <= words]
        if len(found) > 1 or (found and not named):
            self._questions.ask(f"column {' and '.join(found)} holds splits", split=found[0], ignore=self._leave(found[1:]))
        if found:
            self._take("split", found[0])

    def _labels(self) -> None:
        """The column of labels, or those of classes."""
        binary = [head for head in self._free if head in self._binary]
        texts = [head for head in self._free if head not in self._binary]
        rivals = sorted((head for head in texts if plain(head) in LABEL), key=lambda head: LABEL.index(plain(head)))
        if len(rivals) > 1:
            text = f"columns {' and '.join(rivals)} could be the labels"
            self._questions.ask(text, labels=rivals[0], ignore=self._leave(rivals[1:]))
        speak = [head for head in texts if not USUAL.fullmatch(plain(head)) and not GROUP.fullmatch(plain(head))]
        pairs = Counter(frozenset(self._words[head]) for head in speak if len(self._words[head]) == 2)
        alike = [head for head in speak if pairs[frozenset(self._words[head])] > 1]
        if alike and not rivals:
            raise DataError(
                f"{self._sheet.path}: columns {first_of(alike, 4)} hold the same two values ({_shown(self._texts[alike[0]])}); "
                "write 1 and 0 for them where each is a class, else name the column of labels (init-data --labels)"
            )
        words = [head for head in speak if _looks_like_labels(self._texts[head])]
        words += [head for head in binary if plain(head) in LABEL and self._words[head] - MARKS]  # classes by their numbers
        believed = [head for head in binary if not any(known.fullmatch(plain(head)) for known in (OF_ROWS, USUAL))]
        believed = [head for head in believed if plain(head) not in OPEN and not NOTHING.fullmatch(head)]
        believed = [head for head in believed if not is_doubted(head, believed)]
        if rivals:
            self._take("labels", rivals[0])
        elif words and len(believed) < SEVERAL:
            self._questions.ask(f"is column {words[0]} ({_shown(self._texts[words[0]])}) that of the labels?", labels=words[0])
            self._take("labels", words[0])
        elif believed:
            self._roles["classes"] = self._leave(believed)
        elif binary:
            self._questions.ask(f"is column {binary[0]} of 0 and 1 a class?", classes=binary[:1])
            self._roles["classes"] = self._leave(binary[:1])
        else:
            raise DataError(
                f"{self._sheet.path}: column labels is missing (found {', '.join(self._sheet.header)}); expected image, labels, "
                "or a column of 0 and 1 a class; init-data --labels names another"
            )

    def _ask_of(self, head: str) -> None:
        """Ask of a column that has no role."""
        name, texts, ask, roles = plain(head), self._texts[head], self._questions.ask, self._roles
        binary, words = head in self._binary, {*texts} - {""}
        mark = self._said.separator if self._said.separator != "auto" else ";"
        names = {part.strip() for text in self._texts.get(str(roles["labels"]), ()) for part in text.split(mark)}
        held = f"column {head} ({'0 and 1' if binary else _shown(texts)})"
        if name in OPEN and binary:
            ask(f"{held}: is a row with 1 not labelled?", open=head)
        elif name in SPLIT or (name.removeprefix("is_") in SPLIT_NAMES and binary):
            ask(f"{held} may say the split; write a column split of train, val and test for that", ignore=[head])
        elif roles["labels"] and roles["value"] is None and VALUE.fullmatch(name) and self._words[head] <= MARKS:
            ask(f"{held}: is the label there where it is 1, and known to be absent where it is 0?", value=head)
            roles["value"] = head
        elif roles["group"] is None and not binary and GROUP.fullmatch(name) and len(words) > 1:
            ask(f"{held}: do photographs of one value belong on one side of every split?", group=head)
            roles["group"] = head
        elif not binary and roles["labels"] and (words <= names or re.fullmatch(rf"({'|'.join(LABEL)})[_.]?\d+", name)):
            raise DataError(
                f"{self._sheet.path}: {held} holds labels too; put all of an image into one column, `;` between, or leave it "
                f"out (init-data --ignore {typed(head)})"
            )
        else:  # somebody looks at what was taken for a class, too
            classes = {} if self._said.classes or not roles["classes"] else {"classes": [*roles["classes"]]}  # type: ignore[misc]
            ask(f"{held} has no role that is known", **classes, ignore=[head])

    def _ask_of_marks(self) -> None:
        """Ask what -1 and empty cells of columns of classes say; not of cells whose own file has no such column."""
        columns = [self._sheet.cells[head] for head in self._roles["classes"]]  # type: ignore[attr-defined]
        rows = [[cell for cell in cells if cell is not None or self._sheet.literal] for cells in zip(*columns, strict=True)]
        texts = [["" if cell is None else str(cell).strip().casefold() for cell in row] for row in rows]
        words = {text for row in texts for text in row}
        kind = "unknown" if words & {*NO} else "absent"
        if self._said.minus == "auto" and words & {*MINUS}:
            self._questions.ask("-1 in the columns of classes: is the class absent, or unknown?", minus=kind)
        if self._said.blank == "auto" and any("" in row and any(row) for row in texts):
            text = "empty cells beside filled ones in the columns of classes: is the class absent, or unknown?"
            self._questions.ask(text, blank=kind)

    def _is_number_of_row(self, head: str) -> bool:
        """Whether a column without a head numbers the rows, as pandas writes it."""
        texts = self._texts[head]
        nameless = re.fullmatch(r"column \d+|unnamed.*", head.casefold())
        return nameless is not None and len({*texts}) == len(texts) and all(map(str.isdigit, texts))


def _looks_like_labels(texts: list[str]) -> bool:
    """Whether a column of texts may hold labels: words, of which many stand there again, alone or with others."""
    cells = [text for text in texts if text]
    words = [text for text in cells if not re.fullmatch(r"[-+\d.,:eE/\s]*", text)]
    pieces = [piece for text in words for piece in re.split(r"[^\w\s-]+", text) if piece.strip()]
    return 2 * len(words) > len(cells) and len({*pieces}) <= max(3, len(pieces) // 2)


def _shown(texts: Iterable[str]) -> str:
    return first_of([*dict.fromkeys(text if len(text) <= 24 else f"{text[:21]}..." for text in texts if text)], 3)
