"""Annotations in XML: Pascal VOC (a file an image) and CVAT for images (one file)."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

from dicap.data.sources.files import list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row, is_ignored
from dicap.photos.readers.question import Question
from dicap.photos.readers.sheet import FALSE, TRUE, YES, decode
from dicap.settings import Own


def read_voc(root: Path, own: Own) -> Listing:
    """An image has the labels of its objects; `difficult` ones count. Splits are those of ImageSets/Main. Raises DataError."""
    names = [name for name in list_others(root) if name.lower().endswith(".xml") and not is_ignored(name, own.ignore)]
    trees = {path: tree for path in map(root.joinpath, names) if (tree := parse(path)).tag == "annotation"}
    lists, rows = _image_sets(root, {path.stem for path in trees}, own.ignore), []
    counts = Counter(Path(name).name for name in list_images(root, required=False))
    photographs = {Path(name).stem for name in counts}
    for path, tree in trees.items():
        name = tree.findtext("filename", "")
        name = name if name.strip() else path.with_suffix(".jpg").name
        meant = PureWindowsPath(name)  # with slashes, too
        if meant.root and counts[meant.name] == 1 and not Path(name).is_file():  # a folder of another machine
            name = meant.name
        stem = Path(name.replace("\\", "/")).stem
        if stem != path.stem and photographs >= {stem, path.stem}:
            raise DataError(f"{path}: <filename> is {name!r}, and there is a photograph {path.stem!r} too; correct it")
        beside = root.joinpath(*("JPEGImages" if part == "Annotations" else part for part in path.parent.relative_to(root).parts))
        folders = (beside, path.parent, root / "JPEGImages", path.parent.parent / "JPEGImages")
        objects = [node for node in tree.iter("object") if node.findtext("deleted", "").strip() not in YES]  # of LabelMe
        labels = _named(((node.findtext("name") or "").strip() for node in objects), path)
        rows.append(Row(name, labels, lists.get(path.stem), empty=not labels, where=str(path), folders=folders))
    notes = []
    loose = sum(path.stem not in lists for path in trees) if lists else 0
    if loose == len(trees):
        raise DataError(f"{root}: ImageSets/Main: {min(lists)!r} is no annotation, nor is another line; write names alone")
    if loose:
        notes.append(f"annotations that no list of ImageSets/Main names, taken to train: {loose}")
    return Listing(rows, {"annotations": [path.name for path in [*trees][:3]], "files": len(trees)}, notes)


def read_cvat(root: Path, own: Own) -> Listing:
    """An image has the labels of its boxes, shapes, tags and perhaps attributes. Splits are the subsets. Raises DataError."""
    rows, subsets = [], set()
    for path in (root / name for name in own.files or ()):
        tree = parse(path)
        for node in tree.findall("image"):
            names = []
            for child in node:
                said = {one.get("name", "").strip(): (one.text or "").strip() for one in child.findall("attribute")}
                names += names_of(child.get("label", "").strip(), said, own.attributes, path, tag=child.tag == "tag")
            subsets.add(subset := node.get("subset", "").lower())
            split, folders = SPLIT_NAMES.get(subset), (path.parent / "images", path.parent, root / "images")
            name, labels = node.get("name", ""), _named(names, path)
            rows.append(Row(name, labels, split, empty=not len(node), where=str(path), folders=folders))
    strange = sorted(subsets - {*SPLIT_NAMES, "", "default"})
    if strange and subsets & {*SPLIT_NAMES}:
        raise DataError(f"{root}: subset: found {strange[0]!r}, allowed are train, val, test, unlabeled")
    return Listing(rows, {"annotations": own.files})


def _named(names: Iterable[str], path: Path) -> frozenset[str]:
    """The labels of an image. Raises DataError if something in it has no name: it may be any class."""
    labels = frozenset(names)
    if "" in labels:
        raise DataError(f"{path}: an object or a tag has no name; write its class, or take it out")
    return labels


def names_of(label: str, said: dict[str, str], attributes: str, path: Path, tag: bool = False) -> list[str]:
    """The names that a tag, box or shape with attributes says; a tag whose attributes are classes says these alone.

    Raises Question where it is not said whether attributes are classes.
    """
    if not said or attributes == "ignore":
        return [label]
    if attributes == "auto":
        text = f"label {label!r} has attributes ({first_of([*said], 4)}): are they classes, or --attributes ignore?"
        raise Question(f"{path}: {text}", attributes="classes")
    told = {name: value for name, value in said.items() if value.casefold() not in ("", "__undefined__", *FALSE)}
    names = [name if value.casefold() in TRUE else f"{name} {value}" for name, value in told.items()]
    return names if tag else [label, *names]


def parse(path: Path) -> ElementTree.Element:
    """The root of a file: `annotation` of Pascal VOC, `annotations` of CVAT. Raises DataError."""
    try:
        text = path.read_bytes()
        harmful = b"<!ENTITY" in text or b"<!DOCTYPE" in text  # entities can grow without bound; no such tool writes them
        tree = ElementTree.fromstring(b"<none/>" if harmful else text)
    except (ElementTree.ParseError, OSError, LookupError, ValueError) as error:  # the last two: of its encoding
        raise DataError(f"{path}: not readable as XML ({error}); export it again") from None
    if harmful:
        raise DataError(f"{path}: declares a document type, which annotations have no need of; export it again")
    return tree


def _image_sets(base: Path, annotated: set[str], ignore: Iterable[str] | None) -> dict[str, str]:
    """The split of each annotation by its name; a list of all says none. Raises DataError where one is in two or in none."""
    splits: dict[str, str] = {}
    others: dict[Path, set[str]] = {}
    names = (path.relative_to(base).as_posix() for path in base.rglob("ImageSets/Main/*") if path.suffix.lower() == ".txt")
    files = [base / name for name in names if not is_ignored(name, ignore)]
    for path in sorted(files, key=lambda path: (path.stem.lower() == "trainval", path)):  # which repeats the names of val
        name, lines = path.stem.lower(), {*map(str.strip, decode(path).splitlines())} - {""}
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
