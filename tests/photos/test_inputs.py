"""What `predict` takes: files, folders, arrays and open images; and one row for each image."""

import csv
import shutil
from threading import get_ident

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import dicap
from dicap.errors import DataError
from dicap.photos.folder import Photograph, read_ahead
from dicap.photos.predict import predict, predict_to_file
from dicap.photos.readers.read import read_added


@pytest.fixture(scope="module")
def model(model_file):
    return dicap.load_model(model_file.parent)  # a folder stands for the model in it


@pytest.fixture
def shots(photos, monkeypatch):
    monkeypatch.chdir(photos)
    return sorted(path.as_posix() for path in photos.glob("deep/*.png"))


def probabilities(frame):
    return frame["probability"].to_numpy()


def test_files_and_a_folder_say_the_same(model, shots, photos):
    folder = predict(model, photos / "deep")
    several = predict(model, shots)
    np.testing.assert_array_equal(probabilities(folder), probabilities(several))
    assert list(several["image"].unique()) == shots and list(folder["image"].unique()) == [path.split("/")[-1] for path in shots]
    assert len(predict(model, ["deep"])) == len(folder)
    one = predict(model, shots[0])
    np.testing.assert_allclose(probabilities(one), probabilities(folder)[: len(one)], atol=1e-6)


def test_open_images_and_arrays_say_what_the_file_says(model, shots, monkeypatch):
    expected = probabilities(predict(model, shots[:2]))
    opened = [Image.open(path) for path in shots[:2]]
    pixels = [np.asarray(image.convert("RGB")) for image in opened]
    for images in (opened, pixels, np.stack(pixels)):
        frame = predict(model, images)
        np.testing.assert_allclose(probabilities(frame), expected, atol=1e-6)
        assert list(frame["image"].unique()) == ["0", "1"]
    with Image.open(shots[0]) as image:  # meant twice: two threads that decode it would disturb each other
        threads, load = [], image.load
        monkeypatch.setattr(image, "load", lambda: (threads.append(get_ident()), load())[1])
        assert len(next(read_ahead([Photograph("0", image)] * 9, 32, 9, workers=8))[1]) == 9 and threads[0] == get_ident()
    assert len(predict(model, pixels[0][..., 0])) == 3  # grey


def test_an_open_image_stands_upright(model, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 40, 3), np.uint8)).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as image:
        np.testing.assert_array_equal(probabilities(predict(model, image)), probabilities(predict(model, tmp_path / "a.png")))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("https://example.org/a.jpg", "an address; download the image"),
        ("nowhere.jpg", "no such file or folder; name an image"),
        ([], "no image is named"),
        (["nowhere.jpg"], "nowhere.jpg: missing"),
        (np.zeros((8, 8, 3)), "found float64 of shape"),
        (np.zeros((3, 8, 8), np.uint8), r"found uint8 of shape \(3, 8, 8\), .* of shape \(H, W, 3\)"),
        ([3], "found int, expected a path"),
        (None, "found NoneType, expected a path"),
        ("", "an empty name"),
        (np.zeros((0, 8, 3), np.uint8), r"found uint8 of shape \(0, 8, 3\)"),
    ],
)
def test_what_is_no_image_is_one_line(model, shots, images, message):
    with pytest.raises(DataError, match=message) as caught:
        predict(model, images)
    assert "\n" not in str(caught.value)


def test_every_name_comes_back(model, shots, tmp_path, monkeypatch):
    """From a folder; out of a CSV file as Python reads it."""
    names = ["#1.png", "=1+1.png", "a,b.png", "a\u2028b.png", "a\x0bb.png", 'a"b.png', "NA.png", "a\nb.png", "a\rb.png"]
    monkeypatch.chdir(tmp_path)
    for name in names:
        shutil.copy(shots[0], name)
    written = [name.replace("\r", "\\r") for name in names]
    predict_to_file(model, tmp_path, tmp_path / "p.csv", per_image=True)
    with open("p.csv", newline="", encoding="utf-8") as file:
        assert sorted(row["image"] for row in csv.DictReader(file)) == sorted(written)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_one_row_for_each_image(model, photos, tmp_path, kind):
    out = tmp_path / f"p.{kind}"
    predict_to_file(model, photos, out, per_image=True)
    frame = (pd.read_csv(out, keep_default_na=False) if kind == "csv" else pd.read_parquet(out)).set_index("image")
    entries = predict(model, photos)
    with pytest.raises(DataError, match="answers of a model"):
        read_added(out, model.classes)
    frame.drop(columns="unsure").reset_index().to_csv(corrected := tmp_path / "corrected.csv", index=False)
    read_as_labels = {image: given.whole(model.classes) for image, given in read_added(corrected, model.classes).items()}
    assert len(frame) == 12 and list(frame) == ["labels", "unsure", "absent"]
    for image, rows in entries.groupby("image"):
        yes, unsure = (";".join(rows["class"][rows["decision"] == word]) for word in ("yes", "unsure"))
        assert frame.loc[image, "unsure"] == unsure
        assert frame.loc[image, "labels"] == (yes or ("" if unsure else "-"))
        if (given := read_as_labels.get(image)) is not None:
            assert set(given.labels) == set(filter(None, yes.split(";"))), "a yes, and no other, is a label"
            assert set(given.absent) == set(rows["class"][rows["decision"] == "no"]), "what is unsure stays unknown"
    assert len(read_as_labels) == (frame["unsure"].str.split(";").str.len() < len(model.classes)).sum() > 6
    pd.testing.assert_frame_equal(predict(model, photos, per_image=True).set_index("image"), frame, check_dtype=False)
