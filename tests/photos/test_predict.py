"""Prediction of folders, files, arrays and open images: agreement with evaluation's scores, streaming, unreadable files."""

import csv
import shutil
from threading import get_ident

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from PIL import Image

import dicap
from dicap.data.sources.files import list_images
from dicap.errors import DataError, SettingsError
from dicap.evaluation.answers import Answers
from dicap.photos import predict as module
from dicap.photos.folder import Photograph, read_ahead
from dicap.photos.pages.gallery import CODES, read_predictions
from dicap.photos.predict import predict, predict_to_file
from dicap.photos.readers.imported import read_added

BAD = {"broken.jpg", "empty.png", "page.jpg"}


def test_the_images_of_a_folder_are_found_at_every_depth_once(photos, tmp_path):
    found = list_images(photos)
    assert len(found) == 15 and found == sorted(found)
    assert {path.split("/")[0] for path in found} == {"deep", "other", *BAD}
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(photos / "deep")
    (tmp_path / "a" / "again").symlink_to(photos / "deep")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    assert len(list_images(tmp_path / "a")) == 7
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("nothing to see")
    with pytest.raises(DataError, match="no image files"):
        list_images(tmp_path / "b")


def test_a_row_holds_the_decision_and_its_chance(model, photos):
    frame = predict(model, photos)
    assert list(frame) == ["image", "class", "probability", "decision", "chance", "chance_low", "chance_high"]
    assert len(frame) == 12 * len(tiny.COLOURS)
    assert dict(frame.attrs["unreadable"]).keys() == BAD
    answer, chance = Answers.of(model.evidence).decide(frame["probability"].to_numpy().reshape(12, -1))
    assert frame["decision"].tolist() == [{1: "yes", 0: "no", -1: "unsure"}[one] for one in answer.ravel().tolist()]
    assert np.allclose(frame["chance"], chance.ravel(), atol=6e-3, equal_nan=True), "rounded to the digits it deserves"
    decided = frame[answer.ravel() >= 0]
    assert (decided["chance_low"] <= decided["chance"]).all() and (decided["chance"] <= decided["chance_high"]).all()
    assert decided["chance_low"].min() >= 0 and decided["chance_high"].max() <= 1
    assert (decided["chance_high"] - decided["chance_low"] > 0.05).all()  # few labelled images stand behind it
    assert len(decided) > 0 and (decided["chance"] >= 0.5).all()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_every_format_says_the_same(model, photos, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(module, "PART", 4)
    monkeypatch.setattr(module, "CPU_BATCH", 3)
    out = tmp_path / f"p.{kind}"
    outcome = predict_to_file(model, photos, out)
    assert outcome.images == 12 and {path for path, _ in outcome.unreadable} == BAD
    frame = predict(model, photos)
    found = pd.read_parquet(out) if kind == "parquet" else pd.read_csv(out)
    assert found[["image", "class", "decision"]].equals(frame[["image", "class", "decision"]].astype(found["image"].dtype))
    for name in ("probability", "chance"):
        assert np.allclose(found[name].astype(float), frame[name].astype(float), atol=1e-5, equal_nan=True)
    images, scores, decided, _ = read_predictions(out, len(tiny.COLOURS))  # as the gallery does
    assert images == frame["image"].tolist()[:: len(tiny.COLOURS)]
    assert np.allclose(scores.ravel(), frame["probability"], atol=1e-5)
    assert decided.ravel().tolist() == frame["decision"].map(CODES).tolist()
    listed = pd.read_csv(tmp_path / "p.unreadable.csv")
    assert set(listed["image"]) == BAD and listed["reason"].notna().all()
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == [f"p.{kind}", "p.unreadable.csv"]


def test_a_batch_that_does_not_fit_is_halved(model, photos, monkeypatch):
    expected, sizes = predict(model, photos), []
    plain = model.method.scores

    def narrow(network, images):
        sizes.append(len(images))
        if len(images) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return plain(network, images)

    monkeypatch.setattr(model.method, "scores", narrow)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    found = predict(model, photos)
    assert max(sizes) > 3 >= sizes[-1]
    assert np.allclose(found["probability"], expected["probability"], atol=1e-6)


def test_refusals_name_what_to_do(model, photos, tmp_path):
    with pytest.raises(SettingsError, match=r"\.parquet or \.csv"):
        predict_to_file(model, photos, tmp_path / "p.txt")
    (tmp_path / "only.jpg").write_text("<html>")
    with pytest.raises(DataError, match=r"only\.jpg: not an image"):
        predict_to_file(model, tmp_path, tmp_path / "p.csv")
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["only.jpg"], "nothing half is left"
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = dicap.train


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
