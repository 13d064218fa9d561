"""NUS-WIDE, 81 concepts: the lists of Cole et al. (docs/methods.md 2.1)."""

from pathlib import Path

from dicap.data.sources.base import RawSet, require
from dicap.data.sources.benchmarks.formatted import read_formatted

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
PUBLISHED = "formatted_{train,val}_{images,labels}.npy of Cole et al. (single-positive-multi-label), Flickr/ of the NUS-WIDE lab"


def read(dataset: str, root: Path) -> RawSet:
    """Read the four npy files. Raises DataError if a file is missing or malformed.

    Args:
        root: folder with the lists and `Flickr/`.
    """
    require(root / "formatted_train_images.npy", "list of images", PUBLISHED)
    return read_formatted(dataset, root, root)
