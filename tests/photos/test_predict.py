"""Prediction of folders: agreement with evaluation's scores, streaming, unreadable files."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

import dicap
from dicap.data.sources.files import list_images
from dicap.errors import DataError, SettingsError
from dicap.evaluation.answers import Answers
from dicap.photos import predict as module
from dicap.photos.pages.gallery import CODES, read_predictions
from dicap.photos.predict import predict, predict_to_file

BAD = {"broken.jpg", "empty.png", "page.jpg"}


@pytest.fixture(scope="module")
def model(model_file):
    return dicap.load_model(str(model_file))  # as a person types it


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
