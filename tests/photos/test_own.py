"""Options around own photographs: second folders, labels given later, test splits, links."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.data.convert import convert
from dicap.data.sources.base import Rejected
from dicap.errors import DataError
from dicap.photos.readers import read as own
from dicap.photos.survey import survey
from dicap.settings import Own
from photos.awkward import coco, labels_of, linked, looked_at, picture, pictures, refused

LABELS = {
    f"{i:02d}.png": labels
    for i, labels in enumerate(
        [{"cat"}, {"dog"}, {"cat", "dog"}, set(), {"owl"}, {"cat"}, {"dog", "owl"}, {"cat"}, set(), {"dog"}]
    )
}
OPEN = ["10.png", "11.png"]  # without labels


@pytest.fixture
def root(tmp_path):
    """A folder with the twelve in images/ and a labels.csv of those that are labelled."""
    pictures(tmp_path / "raw" / "images", (*LABELS, *OPEN))
    lines = [f"images/{name},train,{';'.join(sorted(labels))}" for name, labels in LABELS.items()]
    (tmp_path / "raw" / "labels.csv").write_text("\n".join(["image,split,labels", *lines]) + "\n")
    return tmp_path / "raw"


def by_image(raw):
    return {image.split("/")[-1]: labels for image, labels in labels_of(raw).items()}


def test_the_documented_table_reads_alike_with_and_without_init_data(root):
    _, reading, raw = own.look(root, Own(test_share=0.3))
    labelled = [item for item in raw.items if item.labels is not None]
    for said in (reading, Own(test_share=0.3), reading.model_copy(update={"files": None})):
        assert [item for item in own.read(root, said).items if item.labels is not None] == labelled
    text = (root / "labels.csv").read_text()
    (root / "labels.csv").write_text(text.replace("image", "filename", 1))
    assert own.look(root, Own(test_share=0.3))[2].items == raw.items
    with pytest.raises(DataError, match=r"column filename has no role; does it say nothing"):
        own.read(root, Own(test_share=0.3))


def test_the_images_of_a_second_folder_are_unlabelled_and_counted_once(root, tmp_path):
    raw = looked_at(root, unlabeled_root=str(root / "images"))  # the same folder: its open images
    assert [item.id for item in raw.items if item.labels is None] == [f"images/{name}" for name in OPEN]
    more = tmp_path / "more"
    pictures(more / "deep", ["x.png"])
    picture(more / "images" / "00.png", 99)  # another image under a name that is taken
    (more / "link.png").symlink_to(root / "images" / "01.png")
    (more / b"\xe9t\xe9.png".decode("utf-8", "surrogateescape")).write_bytes((more / "deep" / "x.png").read_bytes())
    raw = looked_at(root, unlabeled_root=str(more))
    found = [item.id for item in raw.items if item.labels is None]
    assert found == ["more/deep/x.png", "more/images/00.png", "more/\\xe9t\\xe9.png"]
    meta = convert(raw, tmp_path / "set", image_size=16, workers=0)
    assert meta["counts"] == {"train": 7, "test": 3, "unlabeled": 3} and not meta["rejected"]
    refused(root, r"'images/00\.png' is the name of an image of the data set too", unlabeled_root=str(more / "images"))


def test_labels_given_later_make_training_images(root, tmp_path):
    added = tmp_path / "added.csv"
    added.write_text("image,labels\n10.png,cat; fox\n11.png,-\n")
    raw = looked_at(root, added=str(added))  # of images that were removed since
    assert any("not in the data set any more: 2 (the first: 10.png)" in note for note in raw.notes)
    added.write_text("image,labels,surprise\nimages/00.png,cat;fox,1\nmore/x.png,cat,\n")
    pictures(tmp_path / "more", ["x.png", "y.png"])
    raw = looked_at(root, added=str(added), unlabeled_root=str(tmp_path / "more"))
    assert raw.classes == ["cat", "dog", "fox", "owl"]
    assert by_image(raw) == LABELS | {"00.png": {"cat", "fox"}, "x.png": {"cat"}, "y.png": None}
    assert {item.id: item.split for item in raw.items}["more/x.png"] == "train"


def test_the_splits_that_a_format_names_are_kept(tmp_path):
    for split, names in {"train": list(LABELS)[:6], "valid": list(LABELS)[6:8], "test": list(LABELS)[8:]}.items():
        coco(tmp_path, f"{split}/_annotations.coco.json", split, {name: LABELS[name] for name in names}, id_of=str)
    raw = looked_at(tmp_path, test_share=0.0)
    assert [item.split for item in raw.items] == ["test"] * 2 + ["train"] * 8
    shutil.rmtree(tmp_path / "test")
    raw = looked_at(tmp_path, test_share=0.0)
    assert {item.id for item in raw.items if item.split == "test"} == {f"valid/{name}" for name in list(LABELS)[6:8]}


def test_the_stratified_split_keeps_rare_classes_on_both_sides():
    rng = np.random.default_rng(3)
    rates = np.array([0.5, 0.2, 0.05, 0.01, 0.004])
    labels = rng.random((500, 5)) < rates
    labels[:, 4] = False
    labels[[17, 300], 4] = True  # two images of one class
    test = own.stratified(labels, 0.2)
    assert abs(test.sum() - 100) <= 3
    for c in range(5):
        n = labels[:, c].sum()
        assert 1 <= labels[test, c].sum() < n
        assert abs(labels[test, c].sum() - 0.2 * n) <= max(1, 0.04 * n)
    assert (own.stratified(labels, 0.2) == test).all()


@pytest.mark.promise(
    "Own data keeps its test split and D_est if its list is reordered; if k images are added, at most 2 k others move",
    section="Your files and labels",
)
@given(seed=st.integers(0, 999), more=st.integers(0, 30))
@settings(max_examples=8)
def test_a_list_that_is_sorted_or_grows_keeps_its_splits(tmp_path_factory, seed, more):
    """Of k images more at most k others change sides, in the drawn test split and at each border of the roles."""
    rng, root = np.random.default_rng(seed), tmp_path_factory.mktemp("list")
    shown = rng.random((120 + more, 5)) < [0.5, 0.4, 0.2, 0.1, 0.05]
    shown[:2, :] = True
    names = [f"{number}.png" for number in rng.permutation(10_000)[: len(shown)]]

    def roles(rows):
        lines = [f"{names[row]},train,{';'.join(np.array(list('abcde'))[shown[row]]) or '-'}" for row in rows]
        (root / "labels.csv").write_text("\n".join(["image,split,labels", *lines]))
        items = looked_at(root, test_share=0.2).items
        index = pd.DataFrame({"id": [item.id for item in items], "split": [item.split for item in items]})
        found = tiny.roles_of(index, 0.5, 1, 0.2, by_id=True)
        return dict(zip(index["id"], found, strict=True))

    first = roles(range(120))
    assert roles(rng.permutation(120)) == first == roles(np.argsort(shown[:120].sum(1), kind="stable"))
    grown = roles(rng.permutation(len(shown)))
    for side in (("test",), ("sup", "est"), ("sup",)):
        assert sum((first[name] in side) != (grown[name] in side) for name in first) <= 2 * more
    assert abs(sum(role == "test" for role in grown.values()) - 0.2 * len(shown)) <= 1


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_two_names_of_one_file_are_one_image_or_refused(root, link):
    """07.png becomes a name of 00.png, whose labels are the same, and of 01.png, whose are others."""
    images, before = root / "images", by_image(looked_at(root))
    (images / "07.png").unlink()
    link(images / "00.png", images / "07.png")
    found = looked_at(root)
    assert by_image(found) == {image: before[image] for image in before if image != "07.png"}
    assert any("counted once" in note for note in found.notes)
    (images / "07.png").unlink()
    link(images / "01.png", images / "07.png")
    refused(root, r"07\.png' is that of .*01\.png'\) too, with other labels")


def test_a_folder_may_be_named_from_where_one_is(root, monkeypatch):
    monkeypatch.chdir(root.parent)
    raw = looked_at(root.relative_to(root.parent), unlabeled_root="raw/images")
    assert all(raw.images.read(i).size == (10, 8) for i in range(len(raw.items))) and len(raw.items) == 12


def test_a_link_out_of_the_folder_is_refused_where_a_table_names_it_and_meant_where_folders_are_the_labels(root, tmp_path):
    picture(tmp_path / "elsewhere.png", 5)
    (root / "images" / "00.png").unlink()
    (root / "images" / "00.png").symlink_to(tmp_path / "elsewhere.png")
    raw = looked_at(root)
    with pytest.raises(Rejected, match="out of the data set's folder"):
        raw.images.read([item.id for item in raw.items].index("images/00.png"))
    for name in ("cat", "dog"):
        pictures(tmp_path / "tree" / name, [f"{name}{i}.png" for i in range(4)])
    (tmp_path / "tree" / "cat" / "link.png").symlink_to(tmp_path / "elsewhere.png")
    raw = looked_at(tmp_path / "tree")
    assert all(raw.images.read(i).size == (10, 8) for i in range(len(raw.items))) and len(raw.items) == 9


def test_a_linked_folder_is_followed_and_a_link_in_it_that_leads_elsewhere_is_not(tmp_path):
    linked(tmp_path / "set")
    secret = picture(tmp_path / "secret.png", 3)
    inside = tmp_path / "set-elsewhere" / "b.png"
    inside.unlink()
    inside.symlink_to(secret)
    raw = looked_at(tmp_path / "set")
    for i, item in enumerate(raw.items):
        if item.path.endswith("b.png"):
            with pytest.raises(Rejected, match="out of the data set's folder"):
                raw.images.read(i)
        else:
            assert raw.images.read(i).size == (10, 8)


def test_init_data_counts_and_names_what_may_go_wrong(tmp_path):
    tiny.photographs(tmp_path, {"train": 3, "test": 1})
    rows = ["train-000.png,train," + ";".join(f"class {i:02d}" for i in range(10)), "train-001.png,train,Cat;dog"]
    rows += ["train-002.png,train,cat", "test-000.png,test,class 00"]
    (tmp_path / "labels.csv").write_text("\n".join(["image,split,labels", *rows]))
    found, _ = survey(tmp_path, Own())
    assert found.counts["train"] == 3 and found.counts["test"] == 1 and found.counts["unlabeled"] == 0
    assert ("class 00", 1, 1) in found.classes and ("dog", 1, 0) in found.classes and len(found.classes) == 13
    said = "\n".join(found.problems)
    assert "classes with fewer than 10 labelled training images (13): " in said and said.count(" and 5 more") == 1
    assert "classes without a test image, which get no score (12): " in said and said.count(" and 4 more") == 1
    assert found.ratio[0] == 0.5 and "no image is unlabelled" in found.ratio[1]
    assert "only 3 labelled training images" in said
    assert "classes that look alike or differ in capitals only: 'Cat' and 'cat'" in said
