"""Own photographs in every format people have: the same twelve images, the same labels; and the options around them."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dicap.data.convert import convert
from dicap.data.labels import labelled_mask, read_labels
from dicap.data.sources import read_raw
from dicap.data.sources.base import Rejected
from dicap.data.sources.own import read as own
from dicap.data.split import split_roles
from dicap.errors import DataError
from dicap.settings import Own

LABELS = {
    f"{i:02d}.png": labels
    for i, labels in enumerate(
        [{"cat"}, {"dog"}, {"cat", "dog"}, set(), {"owl"}, {"cat"}, {"dog", "owl"}, {"cat"}, set(), {"dog"}]
    )
}
OPEN = ["10.png", "11.png"]  # without labels


def options(**changes):
    return Own(**({"test_share": 0.3} | changes))


def picture(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 10, 3)).astype(np.uint8)).save(path)


def pictures(folder, names=(*LABELS, *OPEN)):
    for i, name in enumerate(names):
        picture(folder / name, i)


def coco(root):
    pictures(root / "images")
    names = ["background", "cat", "dog", "owl"]
    images = [{"id": i, "file_name": name} for i, name in enumerate(LABELS)]
    annotations = [
        {"id": 0, "image_id": i, "category_id": names.index(label)} for i, name in enumerate(LABELS) for label in LABELS[name]
    ]
    content = {"images": images, "annotations": annotations, "categories": [{"id": i, "name": n} for i, n in enumerate(names)]}
    (root / "result.json").write_text(json.dumps(content))
    return root / "images"


def label_studio(root):
    pictures(root / "upload")
    tasks = []
    for i, name in enumerate([*LABELS, *OPEN]):
        shutil.move(root / "upload" / name, root / "upload" / name)
        address = f"/data/upload/1/abcdef12-{name}" if i % 2 else f"/data/local-files/?d=upload%2F{name}"
        result = [{"value": {"choices": sorted(LABELS.get(name, ()))[:1]}, "type": "choices"}]
        result += [{"value": {"rectanglelabels": [x], "x": 1}} for x in sorted(LABELS.get(name, ()))[1:]]
        done = [] if name in OPEN else [{"result": [{"value": {"choices": ["wrong"]}}]}, {"result": result}]
        tasks.append({"id": i, "data": {"image": address}, "annotations": [*done, {"was_cancelled": True, "result": []}]})
    (root / "export.json").write_text(json.dumps(tasks))
    return root / "upload"


def label_studio_min(root):
    pictures(root)
    tasks = []
    for i, name in enumerate(LABELS):
        labels = sorted(LABELS[name])
        task = {"id": i, "image": f"/data/upload/abcdef12-{name}", "annotator": 1, "annotation_id": i}
        tasks.append(task | ({"choice": labels[0] if len(labels) == 1 else {"choices": labels}} if labels else {}))
    (root / "export.json").write_text(json.dumps(tasks))
    return root


def voc_xml(root):
    pictures(root / "JPEGImages")
    (root / "Annotations").mkdir()
    for name, labels in LABELS.items():
        objects = "".join(f"<object><name>{label}</name><part><name>head</name></part></object>" for label in labels)
        text = f"<annotation><filename>{name}</filename>{objects}</annotation>"
        (root / "Annotations" / name.replace(".png", ".xml")).write_text(text)
    return root / "JPEGImages"


def cvat(root):
    pictures(root / "images")
    shapes = [f'<box label="{x}" xtl="1"/><tag label="{x}"/>' for x in ("cat", "dog", "owl")]
    lines = [
        f'<image id="{i}" name="{name}">{"".join(s for s in shapes if any(x in s for x in LABELS[name]))}</image>'
        for i, name in enumerate(LABELS)
    ]
    (root / "annotations.xml").write_text(f"<annotations><version>1.1</version>{''.join(lines)}</annotations>")
    return root / "images"


def folder_tree(root):
    """Each image in the folders of its labels: as a file, a symbolic link, a hard link or a copy."""
    for i, (name, labels) in enumerate(LABELS.items()):
        first = None
        for k, label in enumerate(sorted(labels)):
            place = root / label / name
            if first is None:
                picture(place, i)
                first = place
            else:
                place.parent.mkdir(exist_ok=True)
                [lambda a, b: b.symlink_to(a), os.link, shutil.copy][(i + k) % 3](first, place)
    return root


FORMATS = {
    "coco": coco,
    "labelstudio": label_studio,
    "min": label_studio_min,
    "voc_xml": voc_xml,
    "cvat": cvat,
    "folders": folder_tree,
}


def by_image(raw):
    return {
        item.id.split("/")[-1]: None if item.labels is None else {raw.classes[label] for label in item.labels}
        for item in raw.items
    }


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_labels(name, tmp_path):
    root = tmp_path / "raw"
    root.mkdir()
    FORMATS[name](root)
    raw = read_raw("table", root, options())
    assert raw.classes == ["cat", "dog", "owl"]
    expected = {
        image: labels for image, labels in LABELS.items() if labels or name != "folders"
    }  # a tree has no place for "none"
    if name == "labelstudio":
        expected |= dict.fromkeys(OPEN)
    assert by_image(raw) == expected
    assert raw.source["format"] in own.FORMATS
    meta = convert(raw, tmp_path / "set", image_size=16, workers=0)
    assert not meta["rejected"] and meta["counts"]["test"] == round(0.3 * sum(labels is not None for labels in expected.values()))
    assert labelled_mask(tmp_path / "set").sum() == sum(labels is not None for labels in expected.values())


def test_the_images_of_a_second_folder_are_unlabelled_and_counted_once(tmp_path):
    root = tmp_path / "raw"
    root.mkdir()
    images = coco(root)
    raw = read_raw("table", root, options(unlabeled_root=str(images)))  # the same folder: its open images
    assert [item.id for item in raw.items if item.labels is None] == [f"images/{name}" for name in OPEN]
    more = tmp_path / "more"
    pictures(more / "deep", ["x.png"])
    picture(more / "images" / "00.png", 99)  # another image under a name that is taken
    (more / "link.png").symlink_to(images / "01.png")
    raw = read_raw("table", root, options(unlabeled_root=str(more)))
    assert [item.id for item in raw.items if item.labels is None] == ["more/deep/x.png", "more/images/00.png"]
    meta = convert(raw, tmp_path / "set", image_size=16, workers=0)
    assert meta["counts"] == {"train": 7, "test": 3, "unlabeled": 2} and not meta["rejected"]
    (more / "deep" / "x.png").rename(more / b"\xe9t\xe9.png".decode("utf-8", "surrogateescape"))
    raw = read_raw("table", root, options(unlabeled_root=str(more)))
    convert(raw, tmp_path / "set", image_size=16, workers=0)
    assert [item.id for item in raw.items if item.labels is None] == ["more/images/00.png", "more/\\xe9t\\xe9.png"]


def test_labels_given_later_make_training_images(tmp_path):
    root = tmp_path / "raw"
    root.mkdir()
    images = coco(root)
    added = tmp_path / "added.csv"
    added.write_text("image,labels\n10.png,cat; fox\n11.png,-\n")
    raw = read_raw("table", root, options(added=str(added)))  # of images that were removed since
    assert any("not in the data set any more: 2 (the first: 10.png)" in note for note in raw.notes)
    added.write_text(f"image,labels,other\n{next(iter(read_ids(root)))},cat;fox,1\n")
    raw = read_raw("table", root, options(added=str(added), unlabeled_root=str(images)))
    assert raw.classes == ["cat", "dog", "fox", "owl"]
    assert by_image(raw)["00.png"] == {"cat", "fox"} and by_image(raw)["06.png"] == {"dog", "owl"}


def test_images_of_the_second_folder_can_be_given_labels(tmp_path):
    root, more = tmp_path / "raw", tmp_path / "more"
    root.mkdir()
    coco(root)
    pictures(more, ["x.png", "y.png"])
    added = tmp_path / "added.csv"
    added.write_text("image,labels\nmore/x.png,cat\n")
    raw = read_raw("table", root, options(added=str(added), unlabeled_root=str(more)))
    splits = {item.id: item.split for item in raw.items}
    assert splits["more/x.png"] != "unlabeled" and splits["more/y.png"] == "unlabeled"
    assert by_image(raw)["x.png"] == {"cat"}


def read_ids(root):
    return [item.id for item in read_raw("table", root, options()).items]


def test_added_labels_tell_nothing_from_none(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("image,labels\na,x;y\nb,-\nc,\n")
    assert own.read_added(path) == {"a": own.Given(["x", "y"]), "b": own.Given([])}
    path.write_text("image\na\n")
    with pytest.raises(DataError, match="column labels is missing"):
        own.read_added(path)


def test_the_splits_that_a_format_names_are_kept(tmp_path):
    for split, names in {"train": list(LABELS)[:6], "valid": list(LABELS)[6:8], "test": list(LABELS)[8:]}.items():
        pictures(tmp_path / split, names)
        images = [{"id": name, "file_name": name} for name in names]
        annotations = [{"image_id": name, "category_id": 1 + len(label)} for name in names for label in LABELS[name]]
        content = {"images": images, "annotations": annotations, "categories": [{"id": 4, "name": "pet"}]}
        (tmp_path / split / "_annotations.coco.json").write_text(json.dumps(content))
    raw = read_raw("table", tmp_path, options(test_share=0.0))
    assert [item.split for item in raw.items] == ["test"] * 2 + ["train"] * 8
    shutil.rmtree(tmp_path / "test")
    raw = read_raw("table", tmp_path, options(test_share=0.0))
    assert {item.id for item in raw.items if item.split == "test"} == {f"valid/{name}" for name in list(LABELS)[6:8]}


def test_a_missing_test_split_is_one_line_with_the_remedy(tmp_path):
    coco(tmp_path)
    with pytest.raises(DataError, match=r"no image of split test; set own\.test_share"):
        read_raw("table", tmp_path, options(test_share=0.0))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xml", "<annotation><object>", "not readable as XML"),
        ("a.xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><annotation/>", "document type"),
        ("a.xml", "<html/>", "neither Pascal VOC's nor CVAT's"),
        ("a.json", '{"images": [{"id": 1}], "categories": []}', "refers to 'file_name'"),
        ("a.json", '{"images": [], "categories": []}', "none of 0 images has a label"),
        ("a.json", "[]", "holds no labels that are known here"),
    ],
)
def test_damaged_annotations_are_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_raw("table", tmp_path, options())
    assert "\n" not in str(caught.value)


def test_a_folder_without_anything_says_what_is_known(tmp_path):
    picture(tmp_path / "a.png", 0)
    with pytest.raises(DataError, match=r"labels\.csv, a COCO or Label Studio JSON"):
        read_raw("table", tmp_path, options())
    with pytest.raises(DataError, match=r"own\.format is coco"):
        read_raw("table", tmp_path, options(format="coco"))


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


@given(seed=st.integers(0, 999), more=st.integers(0, 30))
@settings(max_examples=25)
def test_a_list_that_is_sorted_or_grows_keeps_its_splits(tmp_path_factory, seed, more):
    """Of k images more at most k others change sides, in the drawn test split and at each border of the roles."""
    rng, root = np.random.default_rng(seed), tmp_path_factory.mktemp("list")
    shown = rng.random((120 + more, 5)) < [0.5, 0.4, 0.2, 0.1, 0.05]
    shown[:2, :] = True
    names = [f"{number}.png" for number in rng.permutation(10_000)[: len(shown)]]

    def roles(rows):
        lines = [f"{names[row]},train,{';'.join(np.array(list('abcde'))[shown[row]]) or '-'}" for row in rows]
        (root / "labels.csv").write_text("\n".join(["image,split,labels", *lines]))
        items = own.read(root, options(test_share=0.2)).items
        index = pd.DataFrame({"id": [item.id for item in items], "split": [item.split for item in items], "labelled": True})
        found = split_roles(index, 0.5, 1, 0.2, by_id=True)
        return dict(zip(found["id"], found["role"], strict=True))

    first = roles(range(120))
    assert roles(rng.permutation(120)) == first == roles(np.argsort(shown[:120].sum(1), kind="stable"))
    grown = roles(rng.permutation(len(shown)))
    for side in (("test",), ("sup", "est"), ("sup",)):
        assert sum((first[name] in side) != (grown[name] in side) for name in first) <= 2 * more
    assert abs(sum(role == "test" for role in grown.values()) - 0.2 * len(shown)) <= 1


def test_converted_labels_are_those_of_the_annotations(tmp_path):
    root = tmp_path / "raw"
    root.mkdir()
    voc_xml(root)
    raw = read_raw("table", root, options())
    convert(raw, tmp_path / "set", image_size=16, workers=0)
    matrix = read_labels(tmp_path / "set", np.arange(len(LABELS)))
    expected = [[name in LABELS[item.id.split("/")[-1]] for name in raw.classes] for item in raw.items]
    assert (matrix == np.array(expected)).all()


def listed(root):
    """A labels.csv of the twelve."""
    lines = [f"{name},train,{';'.join(sorted(labels))}" for name, labels in LABELS.items()]
    (root / "labels.csv").write_text("\n".join(["image,split,labels", *lines]) + "\n")


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "folders"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_two_names_of_one_file_are_one_image_or_refused(tmp_path, name, link):
    """07.png becomes a name of 00.png, whose labels are the same, and of 01.png, whose are others."""
    root = tmp_path / "raw"
    root.mkdir()
    images = FORMATS[name](root)
    before = by_image(read_raw("table", root, options()))
    for other, labels in (("00.png", {"cat"}), ("01.png", {"dog"})):
        (images / "07.png").unlink()
        link(images / other, images / "07.png")
        if labels == LABELS["07.png"]:
            found = read_raw("table", root, options())
            assert by_image(found) == {image: before[image] for image in before if image != "07.png"}
            assert any("counted once: 1" in note for note in found.notes)
        else:
            with pytest.raises(DataError, match=r"07\.png' is the same file as '.*01\.png', with other labels"):
                read_raw("table", root, options())


def test_one_file_in_train_and_in_test_is_refused(tmp_path):
    pictures(tmp_path, ["a.png", "b.png", "c.png"])
    (tmp_path / "d.png").symlink_to("a.png")
    (tmp_path / "labels.csv").write_text("image,split,labels\na.png,train,cat\nb.png,train,dog\nc.png,test,dog\nd.png,test,cat\n")
    with pytest.raises(DataError, match=r"'d\.png' is the same file as 'a\.png'"):
        read_raw("table", tmp_path, options(test_share=0.0))


def test_own_photographs_stand_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # taken with the camera on its side
    pictures(tmp_path)
    Image.new("RGB", (40, 20), "red").save(tmp_path / "00.png", exif=exif)
    listed(tmp_path)
    raw = own.read(tmp_path, options())
    (place,) = [i for i, item in enumerate(raw.items) if item.path == "00.png"]
    assert raw.images.read(place).size == (20, 40)


def test_a_link_out_of_the_folder_is_refused_where_a_table_names_it_and_meant_where_folders_are_the_labels(tmp_path):
    root = tmp_path / "root"
    pictures(root)
    listed(root)
    picture(tmp_path / "elsewhere.png", 5)
    (root / "00.png").unlink()
    (root / "00.png").symlink_to(tmp_path / "elsewhere.png")
    raw = own.read(root, options())
    (place,) = [i for i, item in enumerate(raw.items) if item.path == "00.png"]
    with pytest.raises(Rejected, match="out of the data set's folder"):
        raw.images.read(place)
    tree = tmp_path / "tree"
    for name in ("cat", "dog"):
        pictures(tree / name, [f"{name}{i}.png" for i in range(4)])
    (tree / "cat" / "link.png").symlink_to(tmp_path / "elsewhere.png")
    raw = own.read(tree, options())
    assert all(raw.images.read(i).size == (10, 8) for i in range(len(raw.items))) and len(raw.items) == 9
