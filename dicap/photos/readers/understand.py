"""What a folder of somebody's holds: the reading of its labels, which `init-data` writes down, or a question.

Every column of a table and every file has a role, or is named as one that says nothing about labels, or is asked about, with the
reading that would be chosen and the options that say so. Heads are believed where they are those of known programs; which column
names the photographs, the folder tells.
"""

import csv
import io
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dicap.data.sources.files import ENDINGS, base_of, is_image_name, list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers import coco_file, folders, label_studio, xml_files
from dicap.photos.readers.listing import SPLIT_NAMES, Finder, is_ignored, read_json, split_in
from dicap.photos.readers.sheet import MARKS, NO, Sheet, first_rows, plain, read_sheets
from dicap.photos.readers.table import DOCUMENTED, SINGLE
from dicap.settings import Own
from dicap.settings.catalogue import FORMATS

TABLES = (DOCUMENTED[0], "labels.parquet")  # where one of these is there, no other file is meant
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
    r"|exclude[ds]?|include[ds]?|missing|error|rating|grade|adult|seen|quality|difficult|truncated|active|index|confidence|score|weight|class|classes|tags?"
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
SAMPLE = 200  # rows by which it is told what a column holds
REPEATED = 0.1  # share of images on several rows above which a row is one label of an image, not the image
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
            words = " ".join(f"--{key.replace('_', '-')} {shlex.quote(listed(value))}" for key, value in self.options.items())
            raise DataError(f"{where}: {'; '.join(self.texts)} -- as it would be read: init-data {words}")


def listed(value: str | list[str]) -> str:
    """Values as the options of `init-data` take them: a comma between, those that hold one in quotes."""
    if isinstance(value, str):
        return value
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(value)
    return text.getvalue()


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
    if said.format == "folders":
        kind, files, used = "folders", None, set()
    else:
        kind, files, used = _labels(root, said, others, questions)
    if not said.files:
        _ask_of_files([name for name in others if name not in used], kind, root, said, questions)
    if kind == "table" and files is not None:
        said = said.model_copy(update={"format": kind, "files": files})
        sheet = read_sheets([root / name for name in files])
        said = said.model_copy(update=_columns(root, sheet, said, questions))
    if kind == "folders" and said.format is None and not questions.texts:
        names = {name for entry in folders.read(root, said).entries for name in entry.labels or ()}
        if strange := sorted(name for name in names if ANYTHING.fullmatch(name)):
            text = (
                f"is {strange[0]!r} a label? Folders of such a name hold photographs of anything; where the labels are in a file"
            )
            questions.ask(f"{text}, write it as labels.csv with the columns image, labels", format="folders")
    questions.check(root / files[0] if files else root)
    return root, said.model_copy(update={"format": kind, "files": files})


def is_ours(path: Path) -> bool:
    """Whether a command or a page of ours wrote a file: answers of a model are no labels, and a list is to be imported."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        return False
    head = {name for row in first_rows(path, 1) for name in row}
    return bool(re.fullmatch(r"labels-[0-9a-f]{4,}.*\.csv", path.name)) or any(known <= head for known in OURS)


def _labels(root: Path, said: Own, others: list[str], questions: Questions) -> tuple[str, list[str] | None, set[str]]:
    """The format, its files, and the files that so have a role."""
    places = [root / name for name in said.files or others if said.files or "/" not in name or name.count("/") == 1]
    for path in places:
        if said.files and not path.is_file():
            raise DataError(f"{path}: no such file; name one that is there, or none")
        if said.files and is_ours(path):
            raise DataError(f"{path}: answers of a model, or a list to import (`dicap-stage import-labels`); name the labels")
    found: dict[str, list[Path]] = {}
    if first := [root / name for name in TABLES if (root / name).is_file() and name in others and not said.files]:
        found["table"] = first
    else:
        for kind, reader in (("coco", coco_file), ("labelstudio", label_studio), ("voc_xml", xml_files), ("cvat", xml_files)):
            if (said.format or kind) == kind and (
                files := reader.find(root, kind, [root / name for name in said.files or others])
            ):
                found[kind] = files
        if said.format in (None, "table"):
            tables = [path for path in places if path.suffix.lower() in (*FORMATS["table"], ".xlsx", ".xls", ".ods")]
            if not said.files:
                stems = {Path(name).stem for name in list_images(root, required=False)} if tables else set()
                tables = [path for path in tables if _names_images(path, stems)]
            if tables:
                found["table"] = tables
    tables = found.get("table", [])
    if len(tables) > 1 and (first or any(split_in(path, root) is None for path in tables)):
        names = [path.relative_to(root).as_posix() for path in tables]
        questions.ask(f"several tables could be meant ({', '.join(names[:4])})", ignore=names[1:])
        found["table"] = tables[:1]
    if not found:
        return _without_files(root, said), None, set()
    kind = next(iter(found))
    used = {path.relative_to(root).as_posix() for path in [*found[kind], *tables] if path.is_relative_to(root)}
    if len(found) > 1:
        more = [path.relative_to(root).as_posix() for other in [*found][1:] for path in found[other]]
        questions.ask(f"labels could be those of {found[kind][0].name} ({kind}) or of {more[0]}", format=kind, ignore=more[:4])
        used |= {*more}
    if kind == "coco":
        used |= {name for name in others if Path(name).name.startswith(coco_file.OTHERS)}
    if kind == "voc_xml":
        used |= {name for name in others if "ImageSets" in Path(name).parts}
    return (
        kind,
        None if kind == "voc_xml" and not said.files else [path.relative_to(root).as_posix() for path in found[kind]],
        used,
    )


def _without_files(root: Path, said: Own) -> str:
    """The format where no file of labels was found."""
    if said.format not in (None, "folders") or said.files:
        what = f"own.format is {said.format}" if said.format else f"{said.files[0] if said.files else ''} is no file of labels"
        raise DataError(f"{root}: {what}, but no such labels are there; leave the option out, or name their file")
    for name in list_others(root):
        if name.lower().endswith(".json") and not is_ignored(name, said.ignore):
            read_json(root / name)  # it may hold the labels, and be damaged
    if any("/" in name for name in list_images(root, required=False)):
        return "folders"
    if list_images(root, required=False):
        raise DataError(f"{root}: holds photographs and no labels yet; choose the first to label: dicap-stage suggest {root}")
    if others := list_others(root):
        raise DataError(f"{root}: no image files below it, but {others[0]}; known endings are {', '.join(sorted(ENDINGS))}")
    raise DataError(
        f"{root}: holds no labels that are known here: a labels.csv, a COCO or Label Studio JSON, Pascal VOC or CVAT XML, or a "
        "folder for each label"
    )


def _names_images(path: Path, stems: set[str]) -> bool:
    """Whether a file begins as a table of images, perhaps one that is refused: a cell is an image's name, or a head says so."""
    if path.suffix.lower() not in FORMATS["table"]:
        return False
    rows = first_rows(path, 6) or [[]]
    cells = [cell for row in rows for cell in row]
    named = any(plain(cell) in IMAGE for cell in rows[0]) or any(is_image_name(cell) for cell in cells)
    return len(rows[0]) > 1 and (named or any(Path(cell).name in stems for cell in cells if cell.casefold() not in MARKS))


def _ask_of_files(names: list[str], kind: str, root: Path, said: Own, questions: Questions) -> None:
    """Ask of files that nothing reads, by their endings."""
    if said.unlabeled_root:
        aside = Path(said.unlabeled_root).resolve()
        names = [name for name in names if not (root / name).resolve().is_relative_to(aside)]
    endings: dict[str, list[str]] = {}
    for name in names:
        endings.setdefault(Path(name).suffix.lower() or ".", []).append(name)
    if endings:
        shown = [f"{ending} ({len(found)}, the first {found[0]})" for ending, found in endings.items()]
        text = (
            f"files that are not read: {first_of(shown, 4)}; labels in them have to be written as labels.csv with image, labels"
        )
        ways = {}
        if kind == "folders" and said.format is None:
            tops = sorted({name.partition("/")[0] for name in list_images(root, required=False) if "/" in name})
            text, ways = f"{text}; or are the folders {first_of(tops, 3)} the labels?", {"format": "folders"}
        questions.ask(text, **ways, ignore=[found[0] if len(found) == 1 else ending for ending, found in endings.items()])


def _columns(root: Path, sheet: Sheet, said: Own, questions: Questions) -> dict[str, object]:
    """The roles of a table's columns, as settings; what is not understood is asked."""
    roles: dict[str, object] = {key: getattr(said, key) for key in (*SINGLE, "classes")}
    given = {*(said.ignore or ()), *(said.classes or ()), *(head for key in SINGLE if (head := getattr(said, key)))}
    if lost := sorted(given - {*sheet.header} - {*(said.ignore or ())}):
        raise DataError(f"{sheet.path}: column {lost[0]} is missing (found {', '.join(sheet.header) or 'nothing'})")
    free = [head for head in sheet.header if head not in given]
    texts = {head: sheet.texts(sheet.column(head) or 0) for head in sheet.header}
    values = {head: {text.casefold() for text in found} - {""} for head, found in texts.items()}
    unused: list[str] = []

    def take(key: str, head: str) -> None:
        roles[key] = head
        free.remove(head)

    def leave(heads: Iterable[str]) -> list[str]:
        for head in (gone := list(heads)):
            free.remove(head)
        return gone

    if roles["image"] is None:
        take("image", _image(root, sheet, [head for head in free if not (values[head] and values[head] <= MARKS)], questions))
    same = texts[str(roles["image"])]
    unused += leave(head for head in [*free] if texts[head] == same or not values[head] or _is_number_of_row(head, texts[head]))

    if roles["split"] is None:
        _split(free, values, take, leave, questions)
    binary = [
        head
        for head in free
        if values[head] and 2 * sum(text.casefold() in MARKS for text in texts[head] if text) >= sum(map(bool, texts[head]))
    ]
    if roles["labels"] is None and not roles["classes"]:
        rivals = sorted(
            (head for head in free if plain(head) in LABEL and head not in binary), key=lambda h: LABEL.index(plain(h))
        )
        if len(rivals) > 1:
            questions.ask(f"columns {' and '.join(rivals)} could be the labels", labels=rivals[0], ignore=leave(rivals[1:]))
        words = [head for head in free if head not in binary and _looks_like_labels(texts[head])]
        believed = [head for head in binary if not OF_ROWS.fullmatch(plain(head)) and plain(head) not in OPEN]
        words = [head for head in words if not USUAL.fullmatch(plain(head)) and not GROUP.fullmatch(plain(head))]
        if rivals:
            take("labels", rivals[0])
        elif words and len(believed) < SEVERAL:
            questions.ask(f"is column {words[0]} ({_shown(texts[words[0]])}) that of the labels?", labels=words[0])
            take("labels", words[0])
        elif believed:
            roles["classes"] = leave(believed)
        elif binary:
            questions.ask(f"is column {binary[0]} of 0 and 1 a class?", classes=[binary[0]])
            roles["classes"] = leave(binary[:1])
        else:
            raise DataError(
                f"{sheet.path}: column labels is missing (found {', '.join(sheet.header)}); expected image, labels, or a column "
                "of 0 and 1 a class; init-data --labels names another"
            )
    for key in ("absent", "group"):
        head = next((head for head in free if plain(head) == key), None)
        if roles[key] is None and head is not None and (key == "group" or roles["labels"]):
            take(key, head)
    for head in [*free]:
        names = {
            part.strip()
            for text in texts.get(str(roles["labels"]), ())
            for part in text.split(said.separator[:1] if said.separator != "auto" else ";")
        }
        _ask_of_column(head, texts[head], head in binary, names, roles, questions)
    unused += leave(head for head in [*free] if head not in binary and USUAL.fullmatch(plain(head)))
    if roles["classes"]:
        columns = [sheet.column(str(head)) or 0 for head in roles["classes"]]  # type: ignore[attr-defined]
        cells = [[row[c] for c in columns if row[c] is not None or sheet.literal] for row in sheet.rows]  # of the row's own file
        _ask_of_marks([["" if cell is None else str(cell).strip() for cell in row] for row in cells], said, questions)
    if roles["value"] is not None or _is_row_a_label(same, texts.get(str(roles["labels"]))):
        roles["rows"] = said.rows or "label"
    ignored = [*(said.ignore or ()), *(head for head in unused if head not in (said.ignore or ()))]
    return roles | {"ignore": ignored or None}


def _image(root: Path, sheet: Sheet, heads: list[str], questions: Questions) -> str:
    """The column that names photographs of the folder."""
    rows = range(0, len(sheet.rows), max(1, len(sheet.rows) // SAMPLE))
    folder = {row: sheet.places[row][0].parent for row in rows}
    cells = {head: {row: text for row in rows if (text := str(sheet.rows[row][sheet.column(head) or 0] or ""))} for head in heads}
    finders = {head: Finder(root, ((text, (folder[row],)) for row, text in some.items())) for head, some in cells.items()}
    here = {head: [row for row, text in cells[head].items() if finders[head].is_here(text, folder[row])] for head in heads}
    naming = [head for head in heads if here[head] and 2 * len(here[head]) >= len(cells[head])]
    named = sorted((head for head in heads if plain(head) in IMAGE), key=lambda head: IMAGE.index(plain(head)))
    naming = naming or [head for head in named if here[head]][:1]
    if not naming and not named:
        found = ", ".join(sheet.header) or "nothing"
        raise DataError(f"{sheet.path}: column image is missing (found {found}), and no column names photographs below {root}; "
                        "name the columns image, labels and perhaps split")  # fmt: skip
    if not naming:
        head = named[0]
        row, text = next(iter(cells[head].items()), (0, ""))
        if not text.strip():
            return head  # the reader names the line
        finders[head].find(text, folder[row])  # which says where several could be meant
        beside = next(iter(list_images(root, required=False)), None)
        if beside is None or "://" in text or ".." in text.split("/") or text.startswith("/"):
            return head  # the reader says what is wrong with it
        raise DataError(
            f"{sheet.place(row)}: image: {text!r} is not below {root}, nor another that column {head} names; there is {beside}. "
            "Write the names as they are (a spreadsheet takes away leading zeros), or name another column with init-data --image"
        )
    naming.sort(key=lambda head: (-sum(map(is_image_name, cells[head].values())), head not in named))
    first = naming[0]
    if sum(map(is_image_name, cells[first].values())) * 2 > len(cells[first]):  # beside these a number is no name of a file
        naming = [head for head in naming if any(map(is_image_name, cells[head].values()))]
    files = [finders[first].find(text, folder[row]) for row, text in cells[first].items() if row in here[first]]
    for other in naming[1:]:
        if files != [finders[other].find(text, folder[row]) for row, text in cells[other].items() if row in here[other]]:
            questions.ask(f"columns {first} and {other} both name photographs, and not the same", image=first, ignore=[other])
    return first


def _split(free: list[str], values: dict[str, set[str]], take, leave, questions: Questions) -> None:  # type: ignore[no-untyped-def]
    """The column of splits, where there is one."""
    whole = [
        head
        for head in free
        if values[head] and values[head] <= {*SPLIT_NAMES} and (len(values[head]) > 1 or plain(head) in SPLIT)
    ]
    named = [head for head in free if plain(head) in SPLIT and values[head] & {*SPLIT_NAMES}]  # a misspelt one is complained of
    named += [head for head in free if plain(head) == SPLIT[0] and head not in named]
    found = [*named, *(head for head in whole if head not in named)]
    if found:
        if len(found) > 1:
            questions.ask(f"columns {' and '.join(found)} could be the split", split=found[0], ignore=leave(found[1:]))
        elif not named:
            questions.ask(f"column {found[0]} holds splits", split=found[0])
        take("split", found[0])
    for head in [head for head in free if plain(head) in SPLIT]:
        text = f"column {head} ({_shown(sorted(values[head]))}) may say the split; write train, val and test in it for that"
        questions.ask(text, ignore=leave([head]))


def _ask_of_column(
    head: str, texts: list[str], binary: bool, names: set[str], roles: dict[str, object], questions: Questions
) -> None:
    """Ask of a column that has no role; nothing where exports always have it. names: of labels."""
    name, words = plain(head), {text for text in texts if text}
    held = "0 and 1" if binary else _shown(texts)
    if not binary and USUAL.fullmatch(name):
        return
    if name in OPEN and binary:
        questions.ask(f"column {head} of 0 and 1: is a row with 1 not labelled?", open=head)
    elif name.removeprefix("is_") in SPLIT_NAMES and binary:
        questions.ask(
            f"column {head} of 0 and 1 says the split; write a column split of train and test in its place", ignore=[head]
        )
    elif roles["labels"] and roles["value"] is None and VALUE.fullmatch(name) and {word.casefold() for word in words} <= MARKS:
        questions.ask(
            f"column {head} of 0 and 1: is the label there where it is 1, and known to be absent where it is 0?", value=head
        )
        roles["value"] = head
    elif roles["group"] is None and not binary and GROUP.fullmatch(name) and len({*texts}) > 1:
        questions.ask(f"column {head} ({held}): do photographs of one value belong on one side of every split?", group=head)
        roles["group"] = head
    elif not binary and roles["labels"] and (words <= names or re.fullmatch(rf"({'|'.join(LABEL)})[_.]?\d+", name)):
        questions.ask(f"column {head} ({held}) holds labels too: put all of an image into one column, `;` between", ignore=[head])
    else:
        questions.ask(f"column {head} ({held}) has no role that is known", ignore=[head])


def _ask_of_marks(rows: list[list[str]], said: Own, questions: Questions) -> None:
    """Ask what -1 and empty cells of columns of classes say."""
    cells = {cell.casefold() for row in rows for cell in row}
    kinds = "unknown" if cells & {*NO} else "absent"
    if said.minus == "auto" and cells & {"-1", "-1.0"}:
        questions.ask("-1 in the columns of classes: is the class absent, or unknown?", minus=kinds)
    if said.blank == "auto" and any("" in row and any(row) for row in rows):
        questions.ask("empty cells beside filled ones in the columns of classes: is the class absent, or unknown?", blank=kinds)


def _is_row_a_label(images: list[str], labels: list[str] | None) -> bool:
    """Whether images stand on several rows, with a label on each."""
    if labels is None or any(";" in text or text[:1] == "[" for text in labels):
        return False
    found: dict[str, set[str]] = {}
    for image, label in zip(images, labels, strict=True):
        found.setdefault(image, set()).add(label)
    several = sum(len(names) > 1 for names in found.values())
    return several > 1 and several >= REPEATED * len(found)


def _looks_like_labels(texts: list[str]) -> bool:
    """Whether a column of texts may hold labels: words, of which many stand there again, alone or with others."""
    cells = [text for text in texts if text]
    words = [text for text in cells if not re.fullmatch(r"[-+\d.,:eE/\s]*", text)]
    pieces = [piece for text in words for piece in re.split(r"[^\w\s-]+", text) if piece.strip()]
    return 2 * len(words) > len(cells) and len({*pieces}) <= max(3, len(pieces) // 2)


def _is_number_of_row(head: str, texts: list[str]) -> bool:
    """Whether a column without a head numbers the rows, as pandas writes it."""
    if not re.fullmatch(r"column \d+|unnamed.*", head.casefold()):
        return False
    numbers = [int(text) if text.isdigit() else None for text in texts]
    return numbers in ([*range(len(texts))], [*range(1, len(texts) + 1)])


def _shown(texts: Iterable[str]) -> str:
    return first_of([*dict.fromkeys(text if len(text) <= 24 else f"{text[:21]}..." for text in texts if text)], 3)
