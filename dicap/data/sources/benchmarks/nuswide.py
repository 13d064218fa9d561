"""NUS-WIDE, 81 concepts: the lists of Cole et al. (published tables), or the official ones (docs/methods.md 2.1.3)."""

from pathlib import Path

from dicap.data.sources.base import FileImages, Item, RawSet, listing_error, require
from dicap.data.sources.benchmarks.formatted import read_formatted
from dicap.errors import DataError

CONCEPTS = [
    *("airport", "animal", "beach", "bear", "birds", "boats", "book", "bridge", "buildings", "cars", "castle", "cat"),
    *("cityscape", "clouds", "computer", "coral", "cow", "dancing", "dog", "earthquake", "elk", "fire", "fish"),
    *("flags", "flowers", "food", "fox", "frost", "garden", "glacier", "grass", "harbor", "horses", "house", "lake"),
    *("leaf", "map", "military", "moon", "mountain", "nighttime", "ocean", "person", "plane", "plants", "police"),
    *("protest", "railroad", "rainbow", "reflection", "road", "rocks", "running", "sand", "sign", "sky", "snow"),
    *("soccer", "sports", "statue", "street", "sun", "sunset", "surf", "swimmers", "tattoo", "temple", "tiger"),
    *("tower", "town", "toy", "train", "tree", "valley", "vehicle", "water", "waterfall", "wedding", "whales"),
    *("window", "zebra"),
]
PUBLISHED = (
    "formatted_{train,val}_{images,labels}.npy of Cole et al. (single-positive-multi-label) and Flickr/ of the NUS-WIDE lab, "
    "or the lab's ImageList/ and Groundtruth/TrainTestLabels/"
)


def read(dataset: str, root: Path) -> RawSet:
    """Read the four npy files if they are there, else the official lists.

    Args:
        dataset: nuswide.
        root: folder that holds the lists and `Flickr/`.

    Raises:
        DataError: neither is complete, or a file is not what it should be.
    """
    if (root / "formatted_train_images.npy").exists():
        return read_formatted(dataset, root, root)
    if not (root / "Groundtruth/TrainTestLabels").is_dir():
        raise DataError(f"{root / 'formatted_train_images.npy'}: no such file; data_root must hold {PUBLISHED}")
    return _read_official(dataset, root)


def _read_official(dataset: str, root: Path) -> RawSet:
    """`ImageList/{Train,Test}Imagelist.txt` and a column of zeros and ones for every concept."""
    items = []
    for split, phase in (("train", "Train"), ("test", "Test")):
        path = require(root / "ImageList" / f"{phase}Imagelist.txt", "list of images", PUBLISHED)
        names = [line.strip().replace("\\", "/") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        labels: list[list[int]] = [[] for _ in names]
        for number, concept in enumerate(CONCEPTS):
            column = require(root / "Groundtruth/TrainTestLabels" / f"Labels_{concept}_{phase}.txt", "a concept", PUBLISHED)
            for row in _ones(column, len(names), path.name):
                labels[row].append(number)
        for name, ones in zip(names, labels, strict=True):
            items.append(Item(name.rsplit(".", 1)[0], f"Flickr/{name}", split, tuple(ones)))
    return RawSet(
        dataset,
        list(CONCEPTS),
        items,
        FileImages(root, [item.path for item in items]),
        source={"lists": "official train/test"},
        notes=["official split: not comparable with the published tables, which use the lists of Cole et al."],
    )


def _ones(path: Path, n: int, images: str) -> list[int]:
    """Rows that hold a 1."""
    words = path.read_text(encoding="utf-8").split()
    for number, word in enumerate(words, 1):
        if word not in ("0", "1"):
            raise listing_error(path, number, word, "0 or 1")
    if len(words) != n:
        raise DataError(f"{path}: {len(words)} lines, {images} lists {n} images; use the lists of one archive")
    return [row for row, word in enumerate(words) if word == "1"]
