"""Animals with Attributes 2: 85 attributes, 40 training and 10 test species (docs/methods.md 2.1)."""

from pathlib import Path

from dicap.data.sources.base import Item, RawSet, require, set_of_files, words_of
from dicap.errors import DataError

PUBLISHED = "Animals_with_Attributes2 archive of cvml.ista.ac.at/AwA2"


def read(dataset: str, root: Path) -> RawSet:
    """Read the species lists, the attribute matrix and the folders of images.

    Every image has the attributes of its species. Species are in the order of trainclasses.txt and testclasses.txt; images are
    sorted by name (the published listing is unsorted, so its split cannot be reproduced).

    Args:
        root: Animals_with_Attributes2, or its parent folder.

    Raises:
        DataError: a file or a species' folder is missing, or the lists contradict each other.
    """
    base = root / "Animals_with_Attributes2"
    base = base if base.is_dir() else root
    species = numbered(require(base / "classes.txt", "species", PUBLISHED))
    attributes = numbered(require(base / "predicates.txt", "attributes", PUBLISHED))
    matrix = _matrix(require(base / "predicate-matrix-binary.txt", "attributes of the species", PUBLISHED), len(attributes))
    if len(matrix) != len(species):
        raise DataError(f"{base / 'predicate-matrix-binary.txt'}: {len(matrix)} rows, classes.txt names {len(species)} species")
    items = []
    for split in ("train", "test"):
        path = require(base / f"{split}classes.txt", f"species of the {split} split", PUBLISHED)
        for name in path.read_text(encoding="utf-8").split():
            if name not in species:
                raise DataError(f"{path}: species {name!r} is not in classes.txt; use the lists of one archive")
            folder = require(base / "JPEGImages" / name, "images of a species", PUBLISHED)
            labels = matrix[species.index(name)]
            prefix = folder.relative_to(root).as_posix()
            files = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
            items += [Item(Path(file).stem, f"{prefix}/{file}", split, labels) for file in files]
    source = {"matrix": "predicate-matrix-binary.txt", "split": "trainclasses.txt / testclasses.txt"}
    return set_of_files(dataset, root, attributes, items, source)


def numbered(path: Path) -> list[str]:
    """The names in lines `number name`. Raises DataError unless the numbers are 1, 2, 3 ..."""
    rows = words_of(path, lambda words, row: len(words) == 2 and words[0] == str(row), "its number, from 1, and a name")
    return [name for _, name in rows]


def _matrix(path: Path, width: int) -> list[tuple[int, ...]]:
    """Column indices of the ones in each row."""
    rows = words_of(path, lambda words, _: len(words) == width and {*words} <= {"0", "1"}, f"{width} zeros and ones")
    return [tuple(i for i, word in enumerate(words) if word == "1") for words in rows]
