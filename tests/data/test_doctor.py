"""The examination of converted sets."""

import io

import numpy as np
import pytest
from PIL import Image

from data.raw import photo, raw_set, save, small_set
from dicap.data.convert import convert
from dicap.data.doctor import examine, fingerprints
from dicap.data.sources.base import FileImages, Item, RawSet


def flip_byte(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_sound_set_has_its_counts(tmp_path):
    raw = raw_set(tmp_path / "raw", n_train=30, n_unlabeled=4)
    convert(raw, tmp_path / "set", image_size=24, workers=0)
    findings = examine(tmp_path / "set")
    assert not findings.damage and not findings.duplicates
    assert findings.counts == {"train": 30, "test": 4, "unlabeled": 4}


@pytest.mark.parametrize("place", [200, 5000, -1])
def test_a_flipped_byte_in_the_array_is_found(tmp_path, place):
    folder = small_set(tmp_path)
    flip_byte(folder / "images.npy", place)
    assert examine(folder).damage == [f"{folder / 'images.npy'}: its bytes differ from those that convert wrote"]


def test_a_flipped_byte_in_a_parquet_page_is_found_twice(tmp_path):
    folder = small_set(tmp_path)
    flip_byte(folder / "index.parquet", 60)
    damage = examine(folder).damage
    assert "its bytes differ" in damage[0] and "index.parquet: damaged" in damage[1]


def test_missing_files_are_found(tmp_path):
    folder = small_set(tmp_path)
    assert not examine(folder).damage
    (folder / "images.npy").unlink()
    assert any("images.npy: missing" in line for line in examine(folder).damage)


def with_copies(tmp_path):
    """Test images: a copy of train-001's file, a JPEG of train-002, a mirrored train-003, a darker train-004."""
    raw = raw_set(tmp_path / "raw", n_test=0)
    root = tmp_path / "raw"
    (root / "copy.png").write_bytes((root / "train-001.png").read_bytes())
    photo(2).save(root / "again.jpg", quality=85)
    photo(3).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(root / "mirrored.png")
    Image.fromarray(np.asarray(photo(4)) // 2).save(root / "darker.png")
    save(root / "other.png", 77)
    tests = [Item(name, name, "test", (0,)) for name in ("copy.png", "again.jpg", "mirrored.png", "darker.png", "other.png")]
    items = raw.items + tests
    return RawSet("table", raw.classes, items, FileImages(root, [item.path for item in items]))


def test_duplicates_across_train_and_test_are_found(tmp_path):
    convert(with_copies(tmp_path), tmp_path / "set", image_size=32, workers=0)
    findings = examine(tmp_path / "set")
    assert findings.duplicates == [("copy.png", "train-001"), ("again.jpg", "train-002")]
    assert any("2 test images are training images too" in line for line in findings.warnings)


def test_images_of_one_colour_are_only_duplicates_of_the_same_colour(tmp_path):
    items = []
    for i, (split, level) in enumerate([("train", 10), ("train", 200), ("test", 90), ("test", 200)]):
        Image.new("RGB", (20, 20), (level,) * 3).save(tmp_path / f"{i}.png")
        items.append(Item(str(i), f"{i}.png", split, (0,)))
    raw = RawSet("table", ["c"], items, FileImages(tmp_path, [item.path for item in items]))
    convert(raw, tmp_path / "set", image_size=16, workers=0)
    assert examine(tmp_path / "set").duplicates == [("3", "1")]


def test_fingerprints_survive_re_encoding_and_tell_pictures_apart():
    pictures = [photo(seed, 64, 64) for seed in range(40)]
    again = []
    for picture in pictures:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=80)
        again.append(Image.open(buffer).convert("RGB"))
    a, b = (fingerprints(np.stack([np.asarray(p) for p in group])) for group in (pictures, again))
    assert (a == b).mean() > 0.7 and len(set(a.tolist())) == 40
