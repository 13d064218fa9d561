"""VOC, COCO, AWA2 and NUS-WIDE against slow independent readings of their lists."""

import json
from collections import defaultdict

import numpy as np
import pytest

from data.archives import awa2
from data.raw import save, shared
from dicap.data.convert import convert
from dicap.data.sources import read_raw
from dicap.data.sources.benchmarks.nuswide import CONCEPTS
from dicap.data.sources.benchmarks.voc import CLASSES
from dicap.errors import DataError


def matrix(raw, split):
    items = [item for item in raw.items if item.split == split]
    labels = np.zeros((len(items), len(raw.classes)), int)
    for row, item in enumerate(items):
        labels[row, list(item.labels)] = 1
    return [item.id for item in items], labels


# ---- VOC


def voc_folder(root, ends="\n"):
    """Five images a phase; a flag 0, an image without any 1, and a difficult-only one."""
    base, flagged = root / "VOCdevkit/VOC2012", ({0: 1, 19: 1}, {3: 1}, {3: 0, 4: 1}, {}, {7: 0})  # the others have -1
    (base / "ImageSets/Main").mkdir(parents=True)
    for number, phase in enumerate(("train", "val")):
        images = [f"2008_{number}0000{i}" for i in (3, 1, 2, 5, 4)]
        for c, name in enumerate(CLASSES):
            lines = [f"{image} {flags.get(c, -1):2d}{ends}" for image, flags in zip(images, flagged, strict=True)]
            (base / f"ImageSets/Main/{name}_{phase}.txt").write_bytes("".join(lines).encode())
        for i, image in enumerate(images):
            save(base / "JPEGImages" / f"{image}.jpg", 10 * number + i)
    return root


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_voc2012_flags_and_order(tmp_path, ends):
    raw = read_raw("voc2012", voc_folder(tmp_path, ends=ends))
    ids, labels = matrix(raw, "train")
    assert ids == ["2008_000001", "2008_000002", "2008_000003"]  # sorted; only a flag of 1 lets an image in
    assert [np.flatnonzero(row).tolist() for row in labels] == [[3], [4], [0, 19]]  # difficult (0) is negative
    assert raw.items[0].path == "VOCdevkit/VOC2012/JPEGImages/2008_000001.jpg"
    meta = convert(raw, tmp_path / "set", image_size=16, workers=0)
    assert meta["counts"] == {"train": 3, "test": 3, "unlabeled": 0} and not meta["rejected"]


@pytest.mark.parametrize("inner", ["VOCdevkit", "VOCdevkit/VOC2012"])
def test_voc_folders_may_be_given_at_any_level(tmp_path, inner):
    voc_folder(tmp_path)
    raw = read_raw("voc2012", tmp_path / inner)
    assert len(raw.items) == 6 and (tmp_path / inner / raw.items[0].path).exists()


def test_voc2007_lists_give_5011_and_4952_rows_equal_to_a_slow_reading(tmp_path):
    lists = shared("voc2007_imagesets") / "Main"
    base = tmp_path / "VOCdevkit/VOC2007"
    (base / "JPEGImages").mkdir(parents=True)
    (base / "ImageSets").mkdir()
    (base / "ImageSets/Main").symlink_to(lists)
    raw = read_raw("voc2007", tmp_path)
    for split, phase, count in (("train", "trainval", 5011), ("test", "test", 4952)):
        slow = defaultdict(dict)
        for path in lists.glob(f"*_{phase}.txt"):
            for line in path.read_bytes().decode().replace("\r\n", "\n").strip("\n").split("\n"):
                image, flag = line[:6], line[6:].strip()
                slow[image][path.name[: -len(f"_{phase}.txt")]] = flag == "1"
        ids, labels = matrix(raw, split)
        assert ids == sorted(image for image in slow if any(slow[image].values())) and len(ids) == count
        assert labels.tolist() == [[slow[image][name] for name in sorted(slow[image])] for image in ids]


# ---- COCO


def coco_folder(root):
    """Ids whose order as strings differs, images without annotations, crowds, categories with gaps in their ids."""
    categories = [{"id": 3, "name": "car"}, {"id": 1, "name": "person"}, {"id": 90, "name": "toothbrush"}]
    (root / "annotations").mkdir(parents=True)
    for phase, ids in (("train", [9, 10, 100, 2, 33]), ("val", [7, 71, 8])):
        names = {i: f"COCO_{phase}2014_{i:012d}.jpg" for i in ids}
        shown = [(i, 1) for i in ids if i != 33] + [(ids[0], 90), (ids[0], 1)] + [(10, 3)] * (phase == "train")
        annotations = [{"image_id": i, "category_id": kind, "iscrowd": int(kind == 90)} for i, kind in shown]
        images = [{"id": i, "file_name": name} for i, name in names.items()]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations" / f"instances_{phase}2014.json").write_text(json.dumps(content))
        for i, name in names.items():
            save(root / f"{phase}2014" / name, i)
    return root


def test_coco_rules(tmp_path):
    raw = read_raw("coco2014", coco_folder(tmp_path))
    assert raw.classes == ["car", "person", "toothbrush"]  # the order of the file
    train = [item for item in raw.items if item.split == "train"]
    assert [int(item.id[-12:]) for item in train] == [10, 100, 2, 9]  # sorted as strings; 33 has no annotation
    assert [item.labels for item in train] == [(0, 1), (1,), (1,), (1, 2)]  # crowds count
    assert [int(item.id[-12:]) for item in raw.items if item.split == "test"] == [7, 71, 8]
    assert train[0].path == "train2014/COCO_train2014_000000000010.jpg"
    assert convert(raw, tmp_path / "set", image_size=16, workers=0)["counts"] == {"train": 4, "test": 3, "unlabeled": 0}


def test_coco_images_may_lie_below_images(tmp_path):
    coco_folder(tmp_path)
    (tmp_path / "images").mkdir()
    (tmp_path / "train2014").rename(tmp_path / "images/train2014")
    assert read_raw("coco2014", tmp_path).items[0].path.startswith("images/train2014/")


# ---- NUS-WIDE


def test_nuswide_has_81_concepts_in_alphabetical_order():
    assert len(CONCEPTS) == 81 and sorted(CONCEPTS) == CONCEPTS


# ---- what is missing or contradicts itself


def coco_json(root):
    return root / "annotations/instances_train2014.json"


def without_an_image(root):
    content = json.loads(coco_json(root).read_text())
    coco_json(root).write_text(json.dumps(content | {"images": content["images"][1:]}))


COW, AWA2 = "VOCdevkit/VOC2012/ImageSets/Main/cow_val.txt", "Animals_with_Attributes2"
MADE = {"voc2012": voc_folder, "coco2014": coco_folder, "awa2": lambda root: awa2(root, (40, 10)), "nuswide": lambda root: None}


@pytest.mark.parametrize(
    ("dataset", "damage", "message"),
    [
        ("voc2012", lambda r: (r / COW).unlink(), r"cow_val.txt: no such file .*host.robots.ox.ac.uk"),
        ("voc2012", lambda r: (r / COW).write_text("a  1\n\nb yes\n"), r"cow_val.txt: line 3: found 'b yes', expected an"),
        ("coco2014", lambda r: coco_json(r).unlink(), r"instances_train2014.json: no such file .*cocodataset.org"),
        ("coco2014", lambda r: (r / "train2014").rename(r / "x"), r"train2014: no such folder"),
        ("coco2014", without_an_image, "an entry refers to 9, which the file does not have"),
        ("coco2014", lambda r: coco_json(r).write_text("{"), "not readable as JSON"),
        ("awa2", lambda r: (r / AWA2 / "testclasses.txt").write_text("unicorn\n"), r"species 'unicorn' is not in classes.txt"),
        ("awa2", lambda r: (r / AWA2 / "trainclasses.txt").unlink(), r"trainclasses.txt: no such file .*species of the .*AwA2"),
        ("awa2", lambda r: (r / AWA2 / "predicates.txt").write_text("2 big\n"), r"line 1: found '2 big', expected its number"),
        ("nuswide", lambda r: None, r"formatted_train_images.npy: no such file .*data_root must hold .*Cole et al"),
    ],
)  # fmt: skip
def test_what_is_missing_or_contradicts_itself_is_named(tmp_path, dataset, damage, message):
    MADE[dataset](tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        read_raw(dataset, tmp_path)
