"""Annotations in XML: Pascal VOC (a file an image) and CVAT for images (one file)."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from dicap.data.sources.files import list_images, list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row, is_ignored
from dicap.photos.readers.question import Question
from dicap.photos.readers.sheet import FALSE, TRUE, YES, decode
from dicap.settings import Own


def tag(path: Path) -> str:
    """What a file is: `annotation` of Pascal VOC, `annotations` of CVAT. Raises DataError."""
    return _parse(path).tag


def read(root: Path, own: Own) -> Listing:
    """Read Pascal VOC's files, or CVAT's. Raises DataError."""
    return _read_cvat(root, own) if own.format == "cvat" else _read_voc(root, own)


def _read_voc(root: Path, own: Own) -> Listing:
    """An image has the labels of its objects; `difficult` ones count. Splits are those of ImageSets/Main (train, val, test)."""
    names = [name for name in list_others(root) if name.lower().endswith(".xml") and not is_ignored(name, own.ignore)]
    trees = {path: tree for path in map(root.joinpath, names) if (tree := _parse(path)).tag == "annotation"}
    if not trees:
        raise DataError(f"{root}: own.format is voc_xml, but no such file is there; run `dicap-stage init-data` again")
    lists, rows = _image_sets(root, {path.stem for path in trees}), []
    if lists and (twice := [stem for stem, count in Counter(path.stem for path in trees).items() if count > 1]):
        raise DataError(f"{root}: ImageSets/Main: {twice[0]!r} is the name of several annotations; give each a name of its own")
    photographs = {Path(name).stem for name in list_images(root, required=False)}
    for path, tree in trees.items():
        name = tree.findtext("filename", "")
        name = name if name.strip() else path.with_suffix(".jpg").name
        stem = Path(name.replace("\\", "/")).stem
        if stem != path.stem and photographs >= {stem, path.stem}:
            raise DataError(f"{path}: <filename> is {name!r}, and there is a photograph {path.stem!r} too; correct it")
        beside = root.joinpath(*("JPEGImages" if part == "Annotations" else part for part in path.parent.relative_to(root).parts))
        folders = (beside, path.parent, root / "JPEGImages", path.parent.parent / "JPEGImages")
        objects = [node for node in tree.iter("object") if node.findtext("deleted", "").strip() not in YES]  # of LabelMe
        labels = _named(((node.findtext("name") or "").strip() for node in objects), path)
        rows.append(Row(name, labels, lists.get(path.stem), empty=not labels, where=str(path), folders=folders))
    notes = []
    if lists and (loose := sum(path.stem not in lists for path in trees)):
        notes.append(f"annotations that no list of ImageSets/Main names, taken to train: {loose}")
    if lists and not {path.stem for path in trees} & lists.keys():
        raise DataError(
            f"{root}: ImageSets/Main: {min(lists)!r} is no annotation, nor is another line; write names without folder and ending"
        )
    source = {"annotations": [path.name for path in [*trees][:3]], "files": len(trees)}
    return Listing(rows, source, notes)


def _read_cvat(root: Path, own: Own) -> Listing:
    """An image has the labels of its boxes, shapes and tags, and perhaps their attributes. Splits are the subsets, if any."""
    nodes = [(root / name, node) for name in own.files or () for node in _images(_parse(root / name), root / name)]
    rows, subsets = [], set()
    for path, node in nodes:
        labels = _named((name for child in node for name in _names(child, own.attributes, path)), path)
        subsets.add(subset := node.get("subset", "").lower())
        folders = (path.parent / "images", path.parent, root / "images")
        split = SPLIT_NAMES.get(subset)
        rows.append(Row(node.get("name", ""), labels, split, empty=not len(node), where=str(path), folders=folders))
    strange = sorted(subsets - {*SPLIT_NAMES, "", "default"})
    if strange and subsets & {*SPLIT_NAMES}:
        raise DataError(f"{root}: subset: found {strange[0]!r}, allowed are train, val, test, unlabeled")
    return Listing(rows, {"annotations": own.files})


def _images(tree: ElementTree.Element, path: Path) -> list[ElementTree.Element]:
    images = tree.findall("image")
    if not images:
        kind = "is CVAT for video" if tree.find("track") is not None else "names no image"
        raise DataError(f"{path}: {kind}; export it as CVAT for images")
    return images


def _names(node: ElementTree.Element, attributes: str, path: Path) -> list[str]:
    said = {one.get("name", "").strip(): (one.text or "").strip() for one in node.findall("attribute")}
    return names_of(node.get("label", "").strip(), said, attributes, path, tag=node.tag == "tag")


def _named(names: Iterable[str], path: Path) -> frozenset[str]:
    """The labels of an image. Raises DataError if something in it has no name: it may be any class."""
    labels = frozenset(names)
    if "" in labels:
        raise DataError(f"{path}: an object or a tag has no name; write its class, or take it out")
    return labels


def names_of(label: str, said: dict[str, str], attributes: str, path: Path, tag: bool = False) -> list[str]:
    """The names that a tag, box or shape with attributes says; a tag whose attributes are classes says these alone.

    Raises:
        Question: whether the attributes are classes.
    """
    if not said or attributes == "ignore":
        return [label]
    if attributes == "auto":
        shown = first_of([*said], 4)
        raise Question(
            f"{path}: label {label!r} has attributes ({shown}): are they classes, or --attributes ignore?", attributes="classes"
        )
    told = {name: value for name, value in said.items() if value.casefold() not in ("", "__undefined__", *FALSE)}
    names = [name if value.casefold() in TRUE else f"{name} {value}" for name, value in told.items()]
    return names if tag else [label, *names]


def _parse(path: Path) -> ElementTree.Element:
    try:
        text = path.read_bytes()
        if b"<!ENTITY" in text or b"<!DOCTYPE" in text:  # entities can grow without bound; no such tool writes them
            raise DataError(f"{path}: declares a document type, which annotations have no need of; export it again")
        return ElementTree.fromstring(text)
    except DataError:
        raise
    except (ElementTree.ParseError, OSError, LookupError, ValueError) as error:  # the last two: of its encoding
        raise DataError(f"{path}: not readable as XML ({error}); export it again") from None


def _image_sets(base: Path, annotated: set[str]) -> dict[str, str]:
    """The split of each annotation by its name. Raises DataError where one is in two, or no list names a split."""
    splits: dict[str, str] = {}
    both: set[str] = set()
    others: list[Path] = []
    for path in sorted(base.rglob("ImageSets/Main/*")):
        if path.suffix.lower() != ".txt":
            continue
        name, lines = path.stem.lower(), set(filter(None, map(str.strip, decode(path).splitlines())))
        if name == "trainval":
            both = lines
        elif name not in SPLIT_NAMES:
            others += [path] if lines & annotated else []
        elif twice := sorted(line for line in lines if splits.get(line, SPLIT_NAMES[name]) != SPLIT_NAMES[name]):
            raise DataError(f"{path}: {twice[0]!r} is in the list of {splits[twice[0]]} too; give it one split")
        else:
            splits |= dict.fromkeys(lines, SPLIT_NAMES[name])
    if twice := sorted(line for line in both if splits.get(line) == "test"):
        raise DataError(f"{base}: ImageSets/Main: {twice[0]!r} is in the lists of trainval and of test; give it one split")
    if others and not splits and not both:
        raise DataError(f"{others[0]}: names no split; rename it to train.txt, val.txt or test.txt")
    return dict.fromkeys(both, "train") | splits
