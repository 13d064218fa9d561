"""Annotations in XML: Pascal VOC (a file an image) and CVAT for images (one file)."""

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from dicap.data.sources.files import list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers.listing import SPLIT_NAMES, Entry, Finder, Listing, is_ignored, relative_id, with_empty
from dicap.photos.readers.sheet import decode
from dicap.settings import Own


def find(root: Path, kind: str, paths: Iterable[Path]) -> list[Path]:
    """Those of the files that are of a kind: `voc_xml` or `cvat`."""
    tag = {"voc_xml": "annotation", "cvat": "annotations"}[kind]
    return [path for path in paths if path.suffix.lower() == ".xml" and _parse(path).tag == tag]


def read(root: Path, own: Own) -> Listing:
    """Read Pascal VOC's files, or CVAT's. Raises DataError."""
    if own.format == "cvat":
        return with_empty(_read_cvat(root, own), own.empty)
    return with_empty(_read_voc(root, own.ignore), own.empty)


def _read_voc(root: Path, ignore: list[str] | None) -> Listing:
    """An image has the labels of its objects; `difficult` ones count. Splits are those of ImageSets/Main (train, val, test)."""
    names = [name for name in list_others(root) if name.lower().endswith(".xml") and not is_ignored(name, ignore)]
    trees = {path: tree for path in map(root.joinpath, names) if (tree := _parse(path)).tag == "annotation"}
    if not trees:
        raise DataError(f"{root}: own.format is voc_xml, but no such file is there; run `dicap-stage init-data` again")
    lists, wanted = _image_sets(root, {path.stem for path in trees}), {}
    for path, tree in trees.items():
        name = tree.findtext("filename", "")
        name = name if name.strip() else path.with_suffix(".jpg").name
        wanted[path] = name, (path.parent, root / "JPEGImages", path.parent.parent / "JPEGImages")
    finder, entries = Finder(root, wanted.values()), []
    for path, (name, places) in wanted.items():
        labels = frozenset((node.findtext("name") or "").strip() for node in trees[path].iter("object")) - {""}
        file = finder.find(name, *places)
        namesake = file.with_name(path.stem + file.suffix)
        if file.is_file() and namesake.is_file() and not namesake.samefile(file):
            raise DataError(f"{path}: <filename> is {name!r}, and {namesake.name!r} lies beside it; correct it")
        entries.append(Entry(file, relative_id(file, root), labels, lists.get(path.stem)))
    notes = finder.notes()
    if lists and (loose := sum(path.stem not in lists for path in trees)):
        notes.append(f"annotations that no list of ImageSets/Main names, taken to train: {loose}")
    if lists and not {path.stem for path in trees} & lists.keys():
        raise DataError(
            f"{root}: ImageSets/Main: {min(lists)!r} is no annotation, nor is another line; write names without folder and ending"
        )
    return Listing(root, entries, {"annotations": [path.name for path in [*trees][:3]], "files": len(trees)}, notes)


def _read_cvat(root: Path, own: Own) -> Listing:
    """An image has the labels of its boxes, shapes and tags, and perhaps their attributes. Splits are the subsets, if any."""
    nodes = [(root / name, node) for name in own.files or () for node in _images(_parse(root / name), root / name)]
    wanted = [(node.get("name", ""), (path.parent, path.parent / "images", root / "images")) for path, node in nodes]
    finder, entries, subsets = Finder(root, wanted), [], set()
    for (name, places), (path, node) in zip(wanted, nodes, strict=True):
        labels = {name for child in node for name in _names(child, own.attributes, path)} - {""}
        file = finder.find(name, *places)
        subsets.add(subset := node.get("subset", "").lower())
        entries.append(Entry(file, relative_id(file, root), frozenset(labels), SPLIT_NAMES.get(subset)))
    strange = sorted(subsets - {*SPLIT_NAMES, "", "default"})
    if strange and subsets & {*SPLIT_NAMES}:
        raise DataError(f"{root}: subset: found {strange[0]!r}, allowed are train, val, test, unlabeled")
    return Listing(root, entries, {"annotations": own.files}, finder.notes())


def _images(tree: ElementTree.Element, path: Path) -> list[ElementTree.Element]:
    found = tree.findall("image")
    if not found:
        kind = "is CVAT for video" if tree.find("track") is not None else "names no image"
        raise DataError(f"{path}: {kind}; export it as CVAT for images")
    return found


def _names(node: ElementTree.Element, attributes: str, path: Path) -> list[str]:
    """The names that a tag, box or shape says; a tag whose attributes are classes says these alone."""
    label = node.get("label", "").strip()
    said = {one.get("name", "").strip(): (one.text or "").strip() for one in node.findall("attribute")}
    if not said or attributes == "ignore":
        return [label]
    if attributes == "auto":
        raise DataError(
            f"{path}: label {label!r} has attributes ({first_of([*said], 4)}): are they classes? Set own.attributes to classes "
            "or ignore (init-data --attributes)"
        )
    names = [name if value == "true" else f"{name} {value}" for name, value in said.items() if value not in ("false", "")]
    return names if node.tag == "tag" else [label, *names]


def _parse(path: Path) -> ElementTree.Element:
    try:
        text = path.read_bytes()
        if b"<!ENTITY" in text or b"<!DOCTYPE" in text:  # entities can grow without bound; no such tool writes them
            raise DataError(f"{path}: declares a document type, which annotations have no need of; export it again")
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, OSError) as error:
        raise DataError(f"{path}: not readable as XML ({error}); export it again") from None


def _image_sets(base: Path, annotated: set[str]) -> dict[str, str]:
    """The split of each annotation by its name. Raises DataError where one is in two, or no list names a split."""
    found: dict[str, str] = {}
    both: set[str] = set()
    others: list[Path] = []
    for path in sorted(base.rglob("ImageSets/Main/*")):
        if path.suffix.lower() != ".txt":
            continue
        name, lines = path.stem.lower(), set(filter(None, map(str.strip, decode(path)[0].splitlines())))
        if name == "trainval":
            both = lines
        elif name not in SPLIT_NAMES:
            others += [path] if lines & annotated else []
        elif twice := sorted(line for line in lines if found.get(line, SPLIT_NAMES[name]) != SPLIT_NAMES[name]):
            raise DataError(f"{path}: {twice[0]!r} is in the list of {found[twice[0]]} too; give it one split")
        else:
            found |= dict.fromkeys(lines, SPLIT_NAMES[name])
    if twice := sorted(line for line in both if found.get(line) == "test"):
        raise DataError(f"{base}: ImageSets/Main: {twice[0]!r} is in the lists of trainval and of test; give it one split")
    if others and not found and not both:
        raise DataError(f"{others[0]}: names no split; rename it to train.txt, val.txt or test.txt")
    return dict.fromkeys(both, "train") | found
