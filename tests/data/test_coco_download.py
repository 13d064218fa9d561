"""COCO in the layout in which it is downloaded, made up and of real photographs; HEIC with and without its package."""

import json
import shutil
from collections import Counter

import pytest
from PIL import Image

from data.awkward import HEIC, linked, picture
from data.raw import shared
from dicap.data.sources import base
from dicap.data.sources.base import Rejected
from dicap.data.sources.own import read as own
from dicap.data.survey import survey
from dicap.settings import Own

OPTIONS = Own()


def test_real_photographs_keep_the_labels_of_their_instances(tmp_path):
    """The official layout, with keypoints and captions beside the instances and a linked folder of images."""
    source = shared("coco_tiny")
    shutil.copytree(source / "annotations", tmp_path / "annotations")
    (tmp_path / "val2017").symlink_to(source / "val2017")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "train2017").symlink_to(source / "train2017")
    truth = {}
    for phase in ("train", "val"):
        content = json.loads((source / f"annotations/instances_{phase}2017.json").read_text())
        people = {key: content[key] for key in ("images", "categories")} | {"annotations": content["annotations"][:3]}
        (tmp_path / f"annotations/person_keypoints_{phase}2017.json").write_text(json.dumps(people))
        captions = [{"image_id": image["id"], "caption": "a photograph"} for image in content["images"]]
        (tmp_path / f"annotations/captions_{phase}2017.json").write_text(
            json.dumps({"images": content["images"], "annotations": captions})
        )
        names = {entry["id"]: entry["name"] for entry in content["categories"]}
        files = {entry["id"]: entry["file_name"] for entry in content["images"]}
        for entry in content["annotations"]:
            truth.setdefault(files[entry["image_id"]], set()).add(names[entry["category_id"]])
    raw = own.read(tmp_path, OPTIONS)
    assert Counter(item.split for item in raw.items) == {"train": 80, "test": 80}
    for i, item in enumerate(raw.items):
        assert {raw.classes[c] for c in item.labels or ()} == truth[item.path.rpartition("/")[2]]
        assert i % 20 or raw.images.read(i).size[0] > 100
    found, _ = survey(tmp_path / "annotations" / "instances_train2017.json", OPTIONS)
    assert sum(found.counts.values()) == 80 and found.counts["test"] > 10 and not found.missing and not found.unreadable


def test_a_linked_folder_is_followed_and_a_link_in_it_that_leads_elsewhere_is_not(tmp_path):
    linked(tmp_path / "set")
    secret = picture(tmp_path / "secret.png", 3)
    inside = tmp_path / "set-elsewhere" / "b.png"
    inside.unlink()
    inside.symlink_to(secret)
    raw = own.read(tmp_path / "set", OPTIONS.model_copy(update={"test_share": 0.3}))
    for i, item in enumerate(raw.items):
        if item.path.endswith("b.png"):
            with pytest.raises(Rejected, match="out of the data set's folder"):
                raw.images.read(i)
        else:
            assert raw.images.read(i).size == (10, 8)


def test_a_telephones_photograph_says_which_package_it_needs(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(HEIC)
    monkeypatch.setattr(base, "_know_heic", lambda: False)
    with pytest.raises(Rejected, match=r"HEIC, which needs one more package: pip install 'dicap\[heic\]'"):
        base.read_rgb(tmp_path / "a.jpg")
    (tmp_path / "dog").mkdir()
    for name in ("dog/a.heic", "dog/b.HEIC"):
        (tmp_path / name).write_bytes(HEIC)
    found, _ = survey(tmp_path, OPTIONS)
    assert len(found.unreadable) == 3 and any("pip install 'dicap[heic]'" in problem for problem in found.problems)


def test_a_telephones_photograph_is_read_where_the_package_is(tmp_path):
    pi_heif = pytest.importorskip("pi_heif", reason="the extra `heic` is not installed: pip install 'dicap[heic]'")
    assert base._know_heic() and hasattr(pi_heif, "register_heif_opener")
    assert ".HEIC" in {ending.upper() for ending in Image.registered_extensions()}
