"""What people have on their disks is read as they mean it, or refused in one line: never as something else."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dicap.data.sources.base import Rejected, read_rgb
from dicap.data.sources.own.read import read
from dicap.errors import DataError
from dicap.settings import Own


def image(path, shade=120):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), (shade,) * 3).save(path)


def labels_of(root, **options):
    """{image: its labels}, of the images that are there."""
    own = Own(**({"test_share": 0.2} | options))
    raw = read(root, own)
    found = zip(raw.items, raw.images.paths, strict=True)
    return {
        item.id: None if item.labels is None else {raw.classes[c] for c in item.labels} for item, path in found if path.is_file()
    }


def table(root, text, names=()):
    for i, name in enumerate(names):
        image(root / name, i)
    (root / "labels.csv").parent.mkdir(parents=True, exist_ok=True)
    (root / "labels.csv").write_text(text, encoding="utf-8")
    return root


def test_a_missing_image_is_no_other_folders_image_of_the_same_name(tmp_path):
    rows = "".join(f"{kind}/{i:03}.png,{kind}\n" for kind in ("cat", "dog") for i in range(4))
    assert labels_of(table(tmp_path / "a", f"image,labels\n{rows}", [f"dog/{i:03}.png" for i in range(4)])) == {
        f"dog/{i:03}.png": {"dog"} for i in range(4)
    }
    content = {
        "images": [{"id": 1, "file_name": "cam1/009.png"}, {"id": 2, "file_name": "cam2/001.png"}],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        "annotations": [{"image_id": 1, "category_id": 1}, {"image_id": 2, "category_id": 2}],
    }
    for name in ("cam2/009.png", "cam2/001.png"):
        image(tmp_path / "b" / name)
    (tmp_path / "b" / "all.json").write_text(json.dumps(content), encoding="utf-8-sig")
    assert labels_of(tmp_path / "b", test_share=0.5) == {"cam2/001.png": {"dog"}}
    for entry, name in zip(content["images"], ["cam3/001.png", "trip/7.png"], strict=True):
        entry["file_name"] = name
    image(tmp_path / "b" / "7.png")
    (tmp_path / "b" / "all.json").write_text(json.dumps(content))
    raw = read(tmp_path / "b", Own(test_share=0.5))
    assert "images found under another name: 1 (trip/7.png is 7.png)" in raw.notes


@pytest.mark.parametrize("name", ["salt;pepper", "-", "a\nb"])
def test_a_class_that_no_table_can_hold_is_refused(tmp_path, name):
    for folder in (name, "cat"):
        for i in range(3):
            image(tmp_path / folder / f"{folder[:1]}{i}.png", i)
    with pytest.raises(DataError, match="rename it"):
        labels_of(tmp_path)


def test_folders_in_composed_and_decomposed_form_are_one_class(tmp_path):
    for folder in ("Ka\u0308uzchen", "cat"):
        for i in range(3):
            image(tmp_path / folder / f"{folder[:1]}{i}.png", i)
    assert set.union(*labels_of(tmp_path).values()) == {"Käuzchen", "cat"}


def test_a_table_with_heads_of_its_own_is_found_by_what_its_cells_name(tmp_path):
    root = tmp_path / "a"
    for i in range(6):
        image(root / "fotos" / f"{i}.png", i)
    rows = "".join(f"{i}.png;;{'rot' if i % 2 else 'blau'}\n" for i in range(6))
    (root / "Labels.csv").write_text(f"Bild;Split;Schlagwörter\n{rows}", encoding="utf-8")
    assert labels_of(root) == {f"fotos/{i}.png": {"rot" if i % 2 else "blau"} for i in range(6)}


def test_a_second_column_of_labels_is_not_passed_over(tmp_path):
    root = table(tmp_path, "image,label,label_2\na.png,cat,dog\nb.png,dog,\n", ["a.png", "b.png"])
    with pytest.raises(DataError, match="column label_2 holds more labels"):
        labels_of(root)


def test_none_of_the_classes_and_a_class_is_a_contradiction(tmp_path):
    names = [f"{i}.png" for i in range(6)]
    rows = "".join(f"{name},{label}\n" for name in names for label in ("cat", "dog"))
    with pytest.raises(DataError, match=r"line 14: image: '0\.png' has labels on another row"):
        labels_of(table(tmp_path, f"image,label\n{rows}0.png,-\n", names))


def test_a_comma_is_asked_about_where_other_cells_have_a_semicolon(tmp_path):
    rows = 'a.png,cat;dog\nb.png,"cat,dog"\nc.png,cat\n'
    with pytest.raises(DataError, match="is 'cat,dog' one class or several"):
        labels_of(table(tmp_path, f"image,labels\n{rows}", ["a.png", "b.png", "c.png"]))


def test_what_programs_write_for_an_empty_cell_is_no_class(tmp_path):
    names = [f"{i}.png" for i in range(7)]
    values = ["cat", "dog", "cat;dog", "dog", "cat", None, None]
    for folder, missing in (("a", "NaN"), ("b", "None"), ("c", "<NA>"), ("e", "NA"), ("f", "#N/A")):
        rows = "".join(f"{name},{value or missing}\n" for name, value in zip(names, values, strict=True))
        assert labels_of(table(tmp_path / folder, f"image,labels\n{rows}", names))["5.png"] is None
    for name in names:
        image(tmp_path / "d" / name)
    columns = {"image": pa.array(names, pa.string()), "labels": pa.array(values, pa.string())}
    pq.write_table(pa.table(columns), tmp_path / "d" / "labels.parquet")
    assert labels_of(tmp_path / "d")["6.png"] is None


def test_lists_of_splits_hold_names_with_blanks(tmp_path):
    for i in range(4):
        image(tmp_path / "JPEGImages" / f"my cat {i}.png", i)
        (tmp_path / "Annotations").mkdir(exist_ok=True)
        label = "cat" if i % 2 else "dog"
        (tmp_path / "Annotations" / f"my cat {i}.xml").write_text(
            f"<annotation><filename>my cat {i}.png</filename><object><name>{label}</name></object></annotation>"
        )
    (tmp_path / ".idea").mkdir()
    (tmp_path / ".idea" / "workspace.xml").write_text("<project/>")
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("my cat 0\r\nmy cat 1\r\n")
    (tmp_path / "ImageSets" / "Main" / "test.txt").write_text("my cat 2\r\nmy cat 3\r\n")
    raw = read(tmp_path, Own())
    assert [item.split for item in sorted(raw.items, key=lambda item: item.id)] == ["train", "train", "test", "test"]


VOC = "<annotation><filename>{}.png</filename><object><name>{}</name></object></annotation>"


@pytest.mark.parametrize(
    ("lists", "refused"),
    [
        ({"train.txt": "0.png\n1.png\n", "test.txt": "2.png\n3.png\n"}, "'0.png' is no annotation, nor is another line"),
        ({"train.txt": "0 -1\n1  1\n", "test.txt": "2  1\n3 -1\n"}, "'0 -1' is no annotation"),
        ({"train.txt": "0\n1\n2\n", "test.txt": "2\n3\n"}, "'2' is in the list of test too; give it one split"),
        ({"trainval.txt": "0\n1\n2\n", "test.txt": "2\n3\n"}, "'2' is in the lists of trainval and of test"),
        ({"trn.txt": "0\n1\n", "tst.txt": "2\n3\n"}, "trn.txt: names no split"),
        ({"train.txt": "0\n1\n".encode("utf-16"), "TEST.TXT": "2\n3\n", "cat_test.txt": "2\n", "class.txt": "cat\ndog\n"}, ""),
    ],
)
def test_lists_of_splits_say_the_split_or_are_refused(tmp_path, lists, refused):
    for i in range(4):
        image(tmp_path / "JPEGImages" / f"{i}.png", i)
        (tmp_path / "JPEGImages" / f"{i}.xml").write_text(VOC.format(i, "cat" if i % 2 else "dog"))
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    for name, text in lists.items():
        (tmp_path / "ImageSets" / "Main" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    own = Own(test_share=0.5)
    if refused:
        with pytest.raises(DataError, match=refused):
            read(tmp_path, own)
    else:
        raw = read(tmp_path, own)
        assert [item.split for item in sorted(raw.items, key=lambda item: item.id)] == ["train", "train", "test", "test"]


def test_an_annotation_that_kept_the_name_of_another_photograph_is_refused(tmp_path):
    for i in range(3):
        image(tmp_path / f"{i}.png", i)
        (tmp_path / f"{i}.xml").write_text(VOC.format(max(i, 1), "cat"))
    with pytest.raises(DataError, match="<filename> is '1\\.png'"):
        labels_of(tmp_path)


def test_a_subset_of_cvat_that_is_misspelt_is_refused(tmp_path):
    nodes = ""
    for i, subset in enumerate(["Train", "Train", "tset"]):
        image(tmp_path / f"{i}.png", i)
        nodes += f'<image name="{i}.png" subset="{subset}"><tag label="cat"/></image>'
    (tmp_path / "annotations.xml").write_text(f"<annotations>{nodes}</annotations>")
    with pytest.raises(DataError, match="subset: found 'tset'"):
        labels_of(tmp_path)


@pytest.mark.parametrize("what", ["images", "categories"])
def test_two_of_one_id_share_no_labels(tmp_path, what):
    content = {
        "images": [{"id": i, "file_name": f"{i}.png"} for i in range(3)],
        "categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}],
        "annotations": [{"image_id": 0, "category_id": 0}],
    }
    for entry in content[what]:
        entry["id"] = 0
    for i in range(3):
        image(tmp_path / f"{i}.png", i)
    (tmp_path / "all.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"{what}: {len(content[what])} have the id 0"):
        labels_of(tmp_path)


def test_blanks_around_a_folder_s_name_are_no_part_of_the_class(tmp_path):
    for i, folder in enumerate(["cat ", "cat", " dog", "dog"]):
        image(tmp_path / folder / f"{i}.png", i)
        image(tmp_path / folder / f"{i + 4}.png", i + 4)
    assert sorted(set().union(*labels_of(tmp_path).values())) == ["cat", "dog"]
    content = {"images": [{"id": 0, "file_name": "cat/1.png"}], "categories": [{"id": 0, "name": " "}]}
    (tmp_path / "all.json").write_text(json.dumps(content | {"annotations": [{"image_id": 0, "category_id": 0}]}))
    with pytest.raises(DataError, match="class '': no name"):
        labels_of(tmp_path)


@pytest.mark.parametrize("head", ["subset", "Set", "phase", "usage"])
def test_a_column_of_splits_is_used_whatever_its_head_or_refused(tmp_path, head):
    names = [f"{i}.png" for i in range(6)]
    splits = ["train", "train", "train", "train", "test", "test"]
    rows = "".join(
        f"{name},{split},{'cat' if i % 2 else 'dog'}\n" for i, (name, split) in enumerate(zip(names, splits, strict=True))
    )
    root = table(tmp_path / "a", f"image,{head},labels\n{rows}", names)
    own = Own(test_share=0.5)
    if head == "usage":
        with pytest.raises(DataError, match="column usage holds splits; name it `split`"):
            read(root, own)
    else:
        assert [item.split for item in read(root, own).items] == splits
        with pytest.raises(DataError, match="split: found 'tset', allowed are"):
            labels_of(table(tmp_path / "b", f"image,{head},labels\n{rows.replace('test', 'tset')}", names))


@pytest.mark.parametrize("mark", ["/", " + ", "&", " "])
def test_names_between_which_something_else_stands_are_asked_about(tmp_path, mark):
    rows = f"a.png,cat\nb.png,dog\nc.png,cat{mark}dog\n"
    root = table(tmp_path, f"image,labels\n{rows}", ["a.png", "b.png", "c.png"])
    with pytest.raises(DataError, match="one class or several"):
        labels_of(root)
    assert labels_of(root, separator=mark.strip() or mark)["c.png"] == {"cat", "dog"}


@pytest.mark.parametrize("head", ["secondary", "label.1", "also"])
def test_labels_in_another_column_are_refused_and_what_is_passed_over_is_said(tmp_path, head):
    rows = "a.png,cat,dog,1\nb.png,dog,,2\nc.png,cat,,3\n"
    root = table(tmp_path, f"image,label,{head},note\n{rows}", ["a.png", "b.png", "c.png"])
    with pytest.raises(DataError, match=f"column {head} holds more labels"):
        labels_of(root)
    own = Own(test_share=0.3)
    notes = read(table(tmp_path, f"image,label,camera,note\n{rows.replace(',dog,1', ',old,1')}"), own).notes
    assert "labels.csv: columns that were passed over: camera, note" in notes


def test_a_hash_in_a_name_that_was_not_escaped_is_no_end_of_it(tmp_path):
    tasks = [
        {"data": {"image": f"photos/{name}"}, "annotations": [{"result": [{"value": {"choices": ["cat"]}}]}]}
        for name in ("a#1.png", "b?.png", "c.png")
    ]
    for i, name in enumerate(["a.png", "a#1.png", "b.png", "b?.png", "c.png", "2.png"]):
        image(tmp_path / "photos" / name, i)
    tasks.append({"data": {"image": "photos/DSC_0001-2.png"}, "annotations": [{"result": [{"value": {"choices": ["dog"]}}]}]})
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    assert {Path(name).name for name in labels_of(tmp_path)} == {"a#1.png", "b?.png", "c.png"}


def test_a_text_beside_the_answer_is_no_label(tmp_path):
    """Label Studio's JSON-MIN does not say which of two texts was chosen and which is a fact of the photograph."""
    tasks = [{"id": i, "image": f"{i}.png", "choice": ("cat", "dog")[i % 2], "camera": "phone"} for i in range(4)]
    for i in range(4):
        image(tmp_path / f"{i}.png", i)
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    with pytest.raises(DataError, match="which of camera, choice is the answer"):
        labels_of(tmp_path)


def test_a_copy_among_the_unlabelled_takes_no_label_and_no_test_image_away(tmp_path):
    for i, name in enumerate(["train/zebra/1.png", "train/cat/2.png", "val/zebra/a.png", "val/cat/b.png"]):
        image(tmp_path / name, i)
    (tmp_path / "unlabeled").mkdir()
    (tmp_path / "unlabeled" / "a.png").write_bytes((tmp_path / "val" / "zebra" / "a.png").read_bytes())
    raw = read(tmp_path, Own())
    found = {Path(item.id).name: (item.split, item.labels) for item in raw.items}
    assert found["a.png"] == ("test", (raw.classes.index("zebra"),)) and len(found) == len(raw.items) == 4


def test_a_name_that_is_not_utf_8_can_be_written(tmp_path):
    for i in range(4):
        image(tmp_path / ("cat" if i % 2 else "dog") / f"{i}.png", i)
    (tmp_path / "cat" / "1.png").rename(tmp_path / "cat" / b"\xe9t\xe9.png".decode("utf-8", "surrogateescape"))
    assert labels_of(tmp_path)["cat/\\xe9t\\xe9.png"] == {"cat"}


@pytest.mark.parametrize("ending", ["png", "tif", "pgm"])
def test_grey_of_16_bits_is_grey(tmp_path, ending):
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(tmp_path / f"x.{ending}")
    np.testing.assert_allclose(np.asarray(read_rgb(tmp_path / f"x.{ending}"))[..., 0], ramp / 257, atol=1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_grey_tiff_is_turned_upright(tmp_path, kind, orientation):
    ramp = np.arange(24, dtype=np.uint8).reshape(4, 6)
    turned = [ramp, ramp[:, ::-1], ramp[::-1, ::-1], ramp[::-1], ramp.T, np.rot90(ramp, -1), ramp[::-1, ::-1].T, np.rot90(ramp)]
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(ramp.astype(kind) * (257 if kind == np.uint16 else 1)).save(tmp_path / "x.tif", exif=exif)
    np.testing.assert_array_equal(np.asarray(read_rgb(tmp_path / "x.tif", upright=True))[..., 0], turned[orientation - 1])


def test_float_grey_is_rejected_and_what_is_transparent_is_white(tmp_path):
    Image.fromarray(np.random.default_rng(0).random((4, 4)).astype(np.float32)).save(tmp_path / "x.tif")
    with pytest.raises(Rejected, match="floats"):
        read_rgb(tmp_path / "x.tif")
    Image.fromarray(np.full((4, 4), 200, np.int32)).save(tmp_path / "y.tif")  # black, white, or in between?
    with pytest.raises(Rejected, match="32 bits"):
        read_rgb(tmp_path / "y.tif")
    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).save(tmp_path / "x.png")
    assert np.asarray(read_rgb(tmp_path / "x.png")).min() == 255
    Image.new("LA", (2, 2), (0, 255)).save(tmp_path / "y.png")
    assert np.asarray(read_rgb(tmp_path / "y.png")).max() == 0
