"""What `init-data` says of a folder before anything is trained on it."""

import csv

import pytest
import tiny

from dicap.data.survey import survey
from dicap.settings import Own

OPTIONS = Own()


@pytest.fixture
def photographs(tmp_path):
    """Three labelled training images with a class each of twelve, one of them twice in other capitals; one test image."""
    tiny.photographs(tmp_path, {"train": 3, "test": 1})
    names = sorted(path.name for path in tmp_path.rglob("*.png"))
    labels = dict.fromkeys(names, "")
    train = [name for name in names if "train" in name]
    labels[train[0]] = ";".join(f"class {i:02d}" for i in range(10))
    labels[train[1]], labels[train[2]] = "Cat;dog", "cat"
    labels[next(name for name in names if "test" in name)] = "class 00"
    with open(tmp_path / "labels.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "split", "labels"])
        for path in sorted(tmp_path.rglob("*.png")):
            split = "test" if "test" in path.name else "train"
            writer.writerow([path.relative_to(tmp_path).as_posix(), split, labels[path.name]])
    return tmp_path


def test_it_counts_and_names_what_may_go_wrong(photographs):
    found, _ = survey(photographs, OPTIONS)
    assert found.counts["train"] == 3 and found.counts["test"] == 1 and found.counts["unlabeled"] == 0
    assert ("class 00", 1, 1) in found.classes and ("dog", 1, 0) in found.classes and len(found.classes) == 13
    said = "\n".join(found.problems)
    assert "classes with fewer than 10 labelled training images (13): " in said and said.count(" and 5 more") == 1
    assert "classes without a test image, of whose score nothing can be said (12): " in said and said.count(" and 4 more") == 1
    assert found.ratio[0] == 0.5 and "no image is unlabelled" in found.ratio[1]
    assert "only 3 labelled training images" in said
    assert "classes that look alike or differ in capitals only: 'Cat' and 'cat'" in said
