"""Annotations in XML: Pascal VOC (a file an image) and CVAT for images (one file)."""

from pathlib import Path
from xml.etree import ElementTree

from dicap.data.sources.files import files_ending
from dicap.errors import DataError
from dicap.photos.readers.listing import SPLIT_NAMES, Entry, Finder, Listing, relative_id
from dicap.photos.readers.sheet import decode


def find(root: Path) -> list[Path]:
    """The XML files of a folder (at any depth), or the file itself."""
    if not root.is_dir():
        return [root] if root.suffix.lower() == ".xml" and root.is_file() else []
    return files_ending(root, (".xml",), ("**/*",))


def read(root: Path, files: list[Path]) -> Listing:
    """An image has the labels of its objects, boxes, shapes and tags; `difficult` objects count.

    Splits are those of ImageSets/Main (train, val, test) or of CVAT's subsets, where there are any.

    Raises:
        DataError: a file is not readable, an annotation could mean two images, or the splits cannot be told.
    """
    base = root if root.is_dir() else root.parent
    finder, entries = Finder(base), []
    lists, subsets = _image_sets(base, {path.stem for path in files}), set()
    for path in files:
        tree = _parse(path)
        if tree.tag == "annotation":
            name = tree.findtext("filename", "")
            name = name if name.strip() else path.with_suffix(".jpg").name
            labels = frozenset((node.findtext("name") or "").strip() for node in tree.iter("object")) - {""}
            file = finder.find(name, path.parent, base / "JPEGImages", path.parent.parent / "JPEGImages")
            namesake = file.with_name(path.stem + file.suffix)
            if file.is_file() and namesake.is_file() and not namesake.samefile(file):
                raise DataError(f"{path}: <filename> is {name!r}, and {namesake.name!r} lies beside it; correct it")
            entries.append(Entry(file, relative_id(file, base), labels, lists.get(path.stem)))
        elif tree.tag == "annotations":
            for node in tree.iter("image"):
                labels = frozenset(child.get("label", "").strip() for child in node) - {""}
                file = finder.find(node.get("name", ""), path.parent, path.parent / "images", base / "images")
                subsets.add(subset := node.get("subset", "").lower())
                entries.append(Entry(file, relative_id(file, base), labels, SPLIT_NAMES.get(subset)))
    if not entries:
        raise DataError(f"{root}: its XML files are neither Pascal VOC's nor CVAT's; export them as one of these")
    notes = finder.notes()
    if lists and (loose := sum(path.stem not in lists for path in files)):
        notes.append(f"annotations that no list of ImageSets/Main names, taken to train: {loose}")
    strange = sorted(subsets - {*SPLIT_NAMES, "", "default"})
    if strange and subsets & {*SPLIT_NAMES}:
        raise DataError(f"{root}: subset: found {strange[0]!r}, allowed are train, val, test, unlabeled")
    if lists and not {path.stem for path in files} & lists.keys():
        raise DataError(
            f"{base}: ImageSets/Main: {min(lists)!r} is no annotation, nor is another line; write names without folder and ending"
        )
    return Listing(root, entries, {"annotations": [path.name for path in files[:3]], "files": len(files)}, notes)


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
