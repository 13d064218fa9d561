"""Annotations in XML: Pascal VOC (a file for each image) and CVAT for images (one file)."""

from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

from dicap.data.sources.files import list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row, split_of
from dicap.photos.readers.question import Question, typed
from dicap.photos.readers.sheet import FALSE, TRUE, decode
from dicap.settings import Own


def read_voc(root: Path, own: Own) -> Listing:
    """Read Pascal VOC: labels are the names of objects, `difficult` ones too; ImageSets/Main has splits. Raises DataError."""
    paths = [root / name for name in list_others(root) if not is_ignored(name, own.ignore)]
    trees = {path: tree for path in paths if path.suffix.lower() == ".xml" and (tree := parse(path)).tag == "annotation"}
    splits = _image_sets([path for path in paths if path.parts[-3:-1] == ("ImageSets", "Main")], {path.stem for path in trees})
    photographs = {Path(name).stem for name in list_images(root, required=False)}
    rows = []
    for path, tree in trees.items():
        name = tree.findtext("filename", "")
        name = name if name.strip() else path.stem
        windows = PureWindowsPath(name)  # it also splits at slashes
        if windows.stem != path.stem and photographs >= {windows.stem, path.stem}:
            raise DataError(f"{path}: <filename> is {name!r}, and there is a photograph {path.stem!r} too; correct it")
        name = windows.name if windows.root else name  # the folders of a full path are those of another machine
        beside = root.joinpath(*("JPEGImages" if part == "Annotations" else part for part in path.parent.relative_to(root).parts))
        objects = [node for node in tree.iter("object") if node.findtext("deleted", "").strip() != "1"]  # of LabelMe
        labels = frozenset(node.findtext("name", "").strip() for node in objects)
        folders = (beside, path.parent, root / "JPEGImages")
        rows.append(Row(name, labels, splits.get(path.stem), empty=not labels, where=str(path), folders=folders))
    unlisted = sum(path.stem not in splits for path in trees) if splits else 0
    if unlisted == len(trees):
        raise DataError(f"{root}: ImageSets/Main: {min(splits)!r} names no annotation, nor does another line; write names alone")
    notes = [f"annotations that no list of ImageSets/Main names, taken to train: {unlisted}"] if unlisted else []
    return Listing(rows, {"annotations": [path.name for path in [*trees][:3]], "files": len(trees)}, notes)


def _image_sets(paths: Iterable[Path], annotated: set[str]) -> dict[str, str]:
    """The split of each annotation by its name. Raises DataError for a list of some annotations that names no split."""
    splits: dict[str, str] = {}
    for path in sorted(paths, key=lambda path: (path.stem.lower() == "trainval", path)):  # trainval repeats the names of val
        name, lines = path.stem.lower(), {*map(str.strip, decode(path, path.read_bytes()).splitlines())} - {""}
        if name not in SPLIT_NAMES:  # lists of one class have other lines, as `a 1` and `b -1`; `default` of CVAT names all
            if annotated > lines & annotated > set():
                way = f"rename it to train.txt, val.txt or test.txt, or leave it out: init-data --ignore {typed(f'*{path.name}')}"
                raise DataError(f"{path}: names no split; {way}")
            continue
        for line in sorted(lines):
            split = splits.setdefault(line, SPLIT_NAMES[name])
            if split != SPLIT_NAMES[name] and (name, split) != ("trainval", "val"):
                raise DataError(f"{path}: {line!r} is in the list of {split} too; give it one split")
    return splits


def read_cvat(root: Path, own: Own) -> Listing:
    """Read CVAT: the labels come from boxes, shapes, tags and perhaps attributes, the splits from subsets. Raises DataError."""
    rows = []
    for path in (root / name for name in own.files or ()):
        if not (nodes := parse(path).findall("image")):
            raise DataError(f"{path}: names no image; export the task as `CVAT for images`")
        for node in nodes:
            names = []
            for child in node:
                values = {one.get("name", "").strip(): (one.text or "").strip() for one in child.findall("attribute")}
                names += names_of(child.get("label", "").strip(), values, own.attributes, path, tag=child.tag == "tag")
            subset = node.get("subset", "")
            split = split_of("" if subset.lower() == "default" else subset, str(path))
            folders = (path.parent / "images", path.parent, root / "images")
            rows.append(Row(node.get("name", ""), frozenset(names), split, empty=not len(node), where=str(path), folders=folders))
    return Listing(rows, {"annotations": own.files})


def names_of(label: str, values: dict[str, str], attributes: str, path: Path, tag: bool = False) -> list[str]:
    """The classes of a box, a shape or a tag with attributes `values`. If attributes are classes, a tag has only these.

    Raises Question if `attributes` (`own.attributes`) does not say whether attributes are classes; DataError if an attribute that
    is a class is neither true nor false.
    """
    if not values or attributes == "ignore":
        return [label]
    if attributes == "auto":
        text = f"label {label!r} has attributes ({first_of([*values], 4)}): are they classes, or --attributes ignore?"
        raise Question(f"{path}: {text}", attributes="classes")
    if odd := [name for name, value in values.items() if value.casefold() not in ("", *TRUE, *FALSE)]:
        text = f"attribute {odd[0]!r} is {values[odd[0]]!r}, neither true nor false, so it is no class"
        raise DataError(f"{path}: {text}; make it a label, or --attributes ignore")
    return [*[label] * (not tag), *(name for name, value in values.items() if value.casefold() in TRUE)]


def parse(path: Path) -> ElementTree.Element:
    """The root element of a file: `annotation` in Pascal VOC, `annotations` in CVAT. Raises DataError."""
    try:
        text = path.read_bytes()
        if b"<!ENTITY" in text or b"<!DOCTYPE" in text:  # entities can grow without bound; no labelling tool writes them
            raise ValueError("it declares a document type, which annotations do not need")
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, OSError, LookupError, ValueError) as error:  # the last two also for a wrong encoding
        raise DataError(f"{path}: not readable as XML ({error}); export it again") from None
