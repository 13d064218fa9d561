"""Annotations in XML: Pascal VOC (a file an image) and CVAT for images (one file)."""

from pathlib import Path
from xml.etree import ElementTree

from dicap.data.sources.own.listing import SPLIT_NAMES, Entry, Finder, Listing, relative_id
from dicap.errors import DataError


def find(root: Path) -> list[Path]:
    """The XML files of a folder (at any depth), or the file itself."""
    if not root.is_dir():
        return [root] if root.suffix.lower() == ".xml" and root.is_file() else []
    found = sorted(root.rglob("*.xml"))
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts)]


def read(root: Path, files: list[Path]) -> Listing:
    """An image has the labels of its objects, boxes, shapes and tags; `difficult` objects count.

    Splits are those of ImageSets/Main (train, val, test) or of CVAT's subsets, where there are any.
    """
    base = root if root.is_dir() else root.parent
    finder, entries, kind = Finder(base), [], "voc_xml"
    lists = _image_sets(base)
    for path in files:
        tree = _parse(path)
        if tree.tag == "annotation":
            name = (tree.findtext("filename") or path.with_suffix(".jpg").name).strip()
            labels = frozenset((node.findtext("name") or "").strip() for node in tree.iter("object")) - {""}
            file = finder.find(name, path.parent, base / "JPEGImages", path.parent.parent / "JPEGImages")
            entries.append(Entry(file, relative_id(file, base), labels, lists.get(path.stem)))
        elif tree.tag == "annotations":
            kind = "cvat"
            for node in tree.iter("image"):
                labels = frozenset(child.get("label", "").strip() for child in node) - {""}
                file = finder.find(node.get("name", ""), base / "images")
                split = SPLIT_NAMES.get(node.get("subset", "").lower())
                entries.append(Entry(file, relative_id(file, base), labels, split))
    if not entries:
        raise DataError(f"{root}: its XML files are neither Pascal VOC's nor CVAT's; export them as one of these")
    return Listing(kind, entries, {"annotations": [path.name for path in files[:3]], "files": len(files)})


def _parse(path: Path) -> ElementTree.Element:
    try:
        text = path.read_bytes()
        if b"<!ENTITY" in text or b"<!DOCTYPE" in text:  # entities can grow without bound; no such tool writes them
            raise DataError(f"{path}: declares a document type, which annotations have no need of; export it again")
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, OSError) as error:
        raise DataError(f"{path}: not readable as XML ({error}); export it again") from None


def _image_sets(base: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(base.rglob("ImageSets/Main/*.txt")):
        if path.stem in SPLIT_NAMES:  # others are lists of one class
            for line in filter(None, map(str.strip, path.read_text(encoding="utf-8-sig").splitlines())):
                found[line] = SPLIT_NAMES[path.stem] if path.stem != "trainval" else found.get(line, "train")
    return found
