"""What people have on their disks is read as they mean it, or refused in one line: never as something else."""

import numpy as np
import pytest
from PIL import Image

from dicap.data.sources import base
from dicap.data.sources.base import Rejected, read_rgb
from dicap.data.sources.files import list_others
from dicap.files.written import replacing_own
from dicap.photos.survey import survey
from dicap.settings import Own
from photos.awkward import HEIC, coco, labels_of, looked_at, picture, pictures, refused, write


def test_a_missing_image_is_no_other_folders_image_of_the_same_name(tmp_path):
    pictures(tmp_path, ["cam2/009.png", "cam2/001.png"])
    coco(tmp_path, "all.json", names={"cam1/009.png": {"cat"}, "cam2/001.png": {"dog"}}, keep=False)
    found = labels_of(looked_at(tmp_path, test_share=0.5))
    there = {name: pets for name, pets in found.items() if (tmp_path / name).is_file()}
    assert there == {"cam2/001.png": {"dog"}, "cam2/009.png": None}
    picture(tmp_path / "7.png")
    coco(tmp_path, "all.json", names={"cam3/001.png": {"cat"}, "trip/7.png": {"dog"}}, keep=False)
    raw = looked_at(tmp_path, test_share=0.5)
    assert "images found under another name: 1 (trip/7.png is 7.png)" in raw.notes


def test_labels_of_train_are_not_given_to_test_photographs_of_the_same_names(tmp_path):
    pictures(tmp_path, [f"test/{i}.png" for i in range(4)])
    write(tmp_path, [["image", "labels"], *([f"{i}.png", "cat"] for i in range(4))], "train.csv")
    refused(tmp_path, r"'0\.png' of split train is missing, and test/0\.png is of split test")


def test_columns_say_what_they_say_of_imported_classes_of_no_class_and_in_one_of_two_tables(tmp_path):
    pictures(tmp_path, [f"{i}.png" for i in range(12)])
    rows = [[f"{i}.png", i % 2, 1 - i % 2, int(i == 1), 0] for i in range(12)]
    write(tmp_path, [["image", "cat", "dog", "lynx", "gnu"], *rows[:8]], "train.csv")
    write(tmp_path, [["image", "dog", "cat"], *(row[:3] for row in rows[8:])], "test.csv")
    (tmp_path / "added").write_text("image,labels\n1.png,lynx;cat\n")
    raw = looked_at(tmp_path, added=str(tmp_path / "added"), new_classes=["lynx"], files=["train.csv", "test.csv"])
    assert [item.absent for item in raw.items] == [None] * 8 + [(1,), (0,)] * 2, "a column of 0 and 1 looked for lynx"
    lacking = "columns that one of the tables lacks, so the classes are unknown there: lynx, gnu"
    assert {lacking, "columns without a 1, so they are no classes: gnu"} <= {*raw.notes}


def test_a_class_with_a_word_more_is_not_left_out_and_folders_have_no_groups(tmp_path):
    pictures(tmp_path, names := [f"{pet}/{i}.png" for pet in ("car", "car_red", "owl") for i in range(6)])
    refused(tmp_path, "--derived photographs takes them for photographs", {})
    refused(tmp_path, "--group says nothing where the format is folders", group="patient")
    assert labels_of(looked_at(tmp_path, derived="photographs")) == {name: {name.partition("/")[0]} for name in names}


VOC = "<annotation><filename>{0}.png</filename><object><name>{1}</name></object></annotation>"


def test_a_table_of_ones_own_where_a_command_wrote_one_is_seen(tmp_path):
    with replacing_own(tmp_path / "labels.csv") as temporary:
        temporary.write_text("image,class,probability,decision\n")
    assert list_others(tmp_path) == []
    (tmp_path / "labels.csv").unlink()
    (tmp_path / "labels.csv").write_text("image,labels\na.png,cat\n")
    assert list_others(tmp_path) == ["labels.csv"]


@pytest.mark.parametrize("encoding", ["gbk", "shift_jis", "nonsense"])
def test_an_encoding_that_is_not_read_is_one_line(tmp_path, encoding):
    (tmp_path / "a.xml").write_bytes(f'<?xml version="1.0" encoding="{encoding}"?><annotation/>'.encode())
    refused(tmp_path, "not readable as XML")


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"train.txt": "my 0.png\nmy 1.png\n", "test.txt": "my 2.png\n"}, "'my 0.png' names no annotation"),
        ({"train.txt": "my 0 -1\nmy 1  1\n", "test.txt": "my 2  1\n"}, "'my 0 -1' names no annotation"),
        ({"train.txt": "my 0\nmy 1\nmy 2\n", "test.txt": "my 2\nmy 3\n"}, "'my 2' is in the list of test too; give it one split"),
        ({"trainval.txt": "my 0\nmy 2\n", "test.txt": "my 2\n"}, "'my 2' is in the list of test too"),
        ({"trn.txt": "my 0\nmy 1\n", "tst.txt": "my 2\nmy 3\n"}, "trn.txt: names no split"),
        ({"train.txt": "my 0\nmy 1\n", "holdout.txt": "my 2\nmy 3\n"}, "holdout.txt: names no split"),
        ({"train.txt": "my 0\r\nmy 1\r\n", "TEST.TXT": "my 2\nmy 3\n", "cat_test.txt": "my 2  1\nmy 3 -1\n"}, ""),
        ({"train.txt": "my 0\nmy 1\n", "test.txt": "my 2\nmy 3\n", "default.txt": "my 0\nmy 1\nmy 2\nmy 3\n"}, ""),
    ],
)
def test_lists_of_splits_say_the_split_or_are_refused(tmp_path, lists, words):
    for i in range(4):
        picture(tmp_path / "JPEGImages" / f"my {i}.png", i)
        (tmp_path / "JPEGImages" / f"my {i}.xml").write_text(VOC.format(f"my {i}", "cat" if i % 2 else "dog"))
    (tmp_path / ".idea").mkdir()
    (tmp_path / ".idea" / "workspace.xml").write_text("<project/>")
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    for name, text in lists.items():
        (tmp_path / "ImageSets" / "Main" / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    if words:
        refused(tmp_path, words, test_share=0.5)
    else:
        items = sorted(looked_at(tmp_path, test_share=0.5).items, key=lambda item: item.id)
        assert [item.split for item in items] == ["train", "train", "test", "test"]


@pytest.mark.parametrize("ending", ["png", "tif", "pgm"])
def test_grey_of_16_bits_is_grey(tmp_path, ending):
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(tmp_path / f"x.{ending}")
    np.testing.assert_allclose(np.asarray(read_rgb(tmp_path / f"x.{ending}"))[..., 0], ramp / 257, atol=1)
    Image.fromarray(65535 - ramp).save(tmp_path / "x.tif", tiffinfo={262: 0})  # white is zero
    np.testing.assert_allclose(np.asarray(read_rgb(tmp_path / "x.tif", upright=True))[..., 0], ramp / 257, atol=1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_grey_tiff_is_turned_upright(tmp_path, kind, orientation):
    ramp = np.arange(24, dtype=np.uint8).reshape(4, 6)
    turned = [ramp, ramp[:, ::-1], ramp[::-1, ::-1], ramp[::-1], ramp.T, np.rot90(ramp, -1), ramp[::-1, ::-1].T, np.rot90(ramp)]
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(ramp.astype(kind) * (257 if kind == np.uint16 else 1)).save(tmp_path / "x.tif", exif=exif)
    np.testing.assert_array_equal(np.asarray(read_rgb(tmp_path / "x.tif", upright=True))[..., 0], turned[orientation - 1])


@pytest.mark.parametrize("upright", [False, True])
def test_grey_of_unknown_range_is_rejected_and_what_is_transparent_is_white(tmp_path, upright):
    for kind, words in ((np.float32, "floats"), (np.int32, "32 bits"), (np.uint16, "below 256")):
        Image.fromarray(np.full((4, 4), 200, kind)).save(tmp_path / "x.tif")  # black, white, or in between?
        with pytest.raises(Rejected, match=words):
            read_rgb(tmp_path / "x.tif", upright=upright)
    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).save(tmp_path / "x.png")
    assert np.asarray(read_rgb(tmp_path / "x.png")).min() == 255
    Image.new("LA", (2, 2), (0, 255)).save(tmp_path / "y.png")
    assert np.asarray(read_rgb(tmp_path / "y.png")).max() == 0


def test_a_telephones_photograph_says_which_package_it_needs(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(HEIC)
    monkeypatch.setattr(base, "_know_heic", lambda: False)
    with pytest.raises(Rejected, match=r"HEIC, which needs one more package: pip install 'dicap\[heic\]'"):
        read_rgb(tmp_path / "a.jpg")
    (tmp_path / "dog").mkdir()
    for name in ("dog/a.heic", "dog/b.HEIC"):
        (tmp_path / name).write_bytes(HEIC + name.encode())
    found, _ = survey(tmp_path, Own(format="folders"))
    assert len(found.unreadable) == 3 and any("pip install 'dicap[heic]'" in problem for problem in found.problems)
