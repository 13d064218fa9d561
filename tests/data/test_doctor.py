"""The examination of converted sets."""

from dataclasses import replace

import pytest
import tiny
from PIL import Image

from data.raw import photo, raw_set, save, small_set
from dicap.data.convert import convert
from dicap.data.doctor import examine
from dicap.data.sources.base import FileImages, Item


@pytest.mark.promise(
    "`dicap-stage doctor` names each file of a converted set that is missing or changed", section="Kills, full disks and damage"
)
@pytest.mark.parametrize(("name", "place"), [("images.npy", 200), ("images.npy", -1), ("index.parquet", 60)])
def test_a_flipped_byte_and_a_missing_file_are_found(tmp_path, name, place):
    path = small_set(tmp_path) / name
    tiny.flip(path, place)
    assert examine(path.parent).damage[0] == f"{path}: changed since convert wrote it (its checksum differs)"
    path.unlink()
    assert examine(path.parent).damage[0] == f"{path}: missing"


def test_duplicates_across_train_and_test_are_found(tmp_path):
    """Test images: a copy of train-001's file, train-003 mirrored, and another."""
    raw, root = raw_set(tmp_path / "raw", n_test=0, n_unlabelled=4), tmp_path / "raw"
    (root / "copy.png").write_bytes((root / "train-001.png").read_bytes())
    photo(3).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(root / "mirrored.png")
    save(root / "other.png", 77)
    items = raw.items + [Item(name, name, "test", (0,)) for name in ("copy.png", "mirrored.png", "other.png")]
    images = FileImages(root, [item.path for item in items])
    convert(replace(raw, items=items, images=images), tmp_path / "set", image_size=32, workers=0)
    findings = examine(tmp_path / "set")
    assert not findings.damage and findings.meta["counts"] == {"train": 8, "test": 3, "unlabeled": 4}
    assert findings.duplicates == [("copy.png", "train-001")]
    assert any("1 test images are also training images" in line for line in findings.warnings)
