"""Annotations in XML: Pascal VOC (a file for each image) and CVAT for images (one file)."""

from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

from dicap.data.sources.files import list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row
from dicap.photos.readers.question import Question
from dicap.photos.readers.sheet import FALSE, TRUE, YES, decode
from dicap.settings import Own


def read_voc(root: Path, own: Own) -> Listing:
    """Read Pascal VOC: labels are the names of objects, `difficult` ones too; ImageSets/Main has splits. Raises DataError."""
    names = [name for name in list_others(root) if name.lower().endswith(".xml") and not is_ignored(name, own.ignore)]
    trees = {path: tree for path in map(root.joinpath, names) if (tree := parse(path)).tag == "annotation"}
    lists, rows = _image_sets(root, {path.stem for path in trees}, own.ignore), []
    photographs = {Path(name).stem for name in list_images(root, required=False)}
    for path, tree in trees.items():
        name = tree.findtext("filename", "")
        name = name if name.strip() else path.with_suffix(".jpg").name
        windows = PureWindowsPath(name)  # it also splits at slashes
        if windows.root and not Path(name).is_file():  # a folder of another machine
            name = windows.name
        stem = Path(name.replace("\\", "/")).stem
        if stem != path.stem and photographs >= {stem, path.stem}:
            raise DataError(f"{path}: <filename> is {name!r}, and there is a photograph {path.stem!r} too; correct it")
        beside = root.joinpath(*("JPEGImages" if part == "Annotations" else part for part in path.parent.relative_to(root).parts))
        folders = (beside, path.parent, root / "JPEGImages", path.parent.parent / "JPEGImages")
        objects = [node for node in tree.iter("object") if node.findtext("deleted", "").strip() not in YES]  # of LabelMe
        labels = frozenset((node.findtext("name") or "").strip() for node in objects)
        rows.append(Row(name, labels, lists.get(path.stem), empty=not labels, where=str(path), folders=folders))
    unlisted = sum(path.stem not in lists for path in trees) if lists else 0
    if unlisted == len(trees):
        raise DataError(f"{root}: ImageSets/Main: {min(lists)!r} names no annotation, nor does another line; write names alone")
    notes = [f"annotations that no list of ImageSets/Main names, taken to train: {unlisted}"] if unlisted else []
    return Listing(rows, {"annotations": [path.name for path in [*trees][:3]], "files": len(trees)}, notes)


def read_cvat(root: Path, own: Own) -> Listing:
    """Read CVAT: the labels come from boxes, shapes, tags and perhaps attributes, the splits from subsets. Raises DataError."""
    rows, subsets = [], set()
    for path in (root / name for name in own.files or ()):
        tree = parse(path)
        for node in tree.findall("image"):
            names = []
            for child in node:
                values = {one.get("name", "").strip(): (one.text or "").strip() for one in child.findall("attribute")}
                names += names_of(child.get("label", "").strip(), values, own.attributes, path, tag=child.tag == "tag")
            subsets.add(subset := node.get("subset", "").lower())
            split, folders = SPLIT_NAMES.get(subset), (path.parent / "images", path.parent, root / "images")
            rows.append(Row(node.get("name", ""), frozenset(names), split, empty=not len(node), where=str(path), folders=folders))
    unknown = sorted(subsets - {*SPLIT_NAMES, "", "default"})
    if unknown and subsets & {*SPLIT_NAMES}:
        raise DataError(f"{root}: subset: found {unknown[0]!r}, allowed are train, val, test, unlabeled")
    return Listing(rows, {"annotations": own.files})


def names_of(label: str, values: dict[str, str], attributes: str, path: Path, tag: bool = False) -> list[str]:
    """The classes of a box, a shape or a tag with attributes `values`. If attributes are classes, a tag has only these.

    Raises Question if `attributes` (`own.attributes`) does not say whether attributes are classes.
    """
    if not values or attributes == "ignore":
        return [label]
    if attributes == "auto":
        text = f"label {label!r} has attributes ({first_of([*values], 4)}): are they classes, or --attributes ignore?"
        raise Question(f"{path}: {text}", attributes="classes")
    present = {name: value for name, value in values.items() if value.casefold() not in ("", "__undefined__", *FALSE)}
    names = [name if value.casefold() in TRUE else f"{name} {value}" for name, value in present.items()]
    return names if tag else [label, *names]


def parse(path: Path) -> ElementTree.Element:
    """The root element of a file: `annotation` in Pascal VOC, `annotations` in CVAT. Raises DataError."""
    try:
        text = path.read_bytes()
        if b"<!ENTITY" in text or b"<!DOCTYPE" in text:  # entities can grow without bound; no labelling tool writes them
            raise ValueError("it declares a document type, which annotations do not need")
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, OSError, LookupError, ValueError) as error:  # the last two also for a wrong encoding
        raise DataError(f"{path}: not readable as XML ({error}); export it again") from None


def _image_sets(base: Path, annotated: set[str], ignore: Iterable[str] | None) -> dict[str, str]:
    """The split of each annotation by its name. A list of all annotations names no split. Raises DataError for other lists."""
    splits: dict[str, str] = {}
    others: dict[Path, set[str]] = {}
    names = (path.relative_to(base).as_posix() for path in base.rglob("ImageSets/Main/*") if path.suffix.lower() == ".txt")
    files = [base / name for name in names if not is_ignored(name, ignore)]
    for path in sorted(files, key=lambda path: (path.stem.lower() == "trainval", path)):  # trainval repeats the names of val
        name, lines = path.stem.lower(), {*map(str.strip, decode(path, path.read_bytes()).splitlines())} - {""}
        if name not in SPLIT_NAMES:
            others[path] = lines & annotated
            continue
        for line in sorted(lines):
            split = splits.setdefault(line, SPLIT_NAMES[name])
            if split != SPLIT_NAMES[name] and (name, split) != ("trainval", "val"):
                raise DataError(f"{path}: {line!r} is in the list of {split} too; give it one split")
    if lost := [path for path, lines in others.items() if lines - splits.keys() and lines != annotated]:
        way = "rename it to train.txt, val.txt or test.txt, or leave the lists out (init-data --ignore ImageSets)"
        raise DataError(f"{lost[0]}: names no split; {way}")
    return splits
