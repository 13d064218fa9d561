"""`fit`: the pipeline's numbers in one call, and nothing left behind."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import tiny

import dicap
from dicap.errors import DataError, SettingsError
from dicap.frozen.features.known import KnownFeatures

FIT = dicap.fit


@pytest.fixture(scope="module", autouse=True)
def warm():
    with tiny.warm_commands():
        yield


@pytest.fixture(scope="module")
def fitted(raw_photos, tmp_path_factory):
    """A model, with its cache and what stood in the photographs' folder before."""
    before = tiny.content(raw_photos)
    cache = tmp_path_factory.mktemp("cache")
    made = dicap.fit(raw_photos, settings=tiny.SMALL, cache=cache)
    assert tiny.content(raw_photos) == before and any((cache / "store").iterdir())
    return made, cache


def test_the_numbers_are_those_of_the_stages(fitted, raw_photos, bare_project, monkeypatch):
    made, _ = fitted
    bare_project.done("init-data", raw_photos)
    bare_project.set(tiny.SMALL)
    bare_project.done("run")
    model = Path("artifacts/finetune/model.safetensors")
    assert made.save(bare_project.folder / "copy" / "m.safetensors").read_bytes() == model.read_bytes()
    expected = json.loads(Path("artifacts/evaluate/details.json").read_text())
    assert made.evaluate()["map"] == expected["map"]
    computed = []
    maps = KnownFeatures.maps
    monkeypatch.setattr(KnownFeatures, "maps", lambda self, images: (maps(self, images), computed.append(self.computed))[0])
    answers = made.predict(raw_photos)  # of photographs that it was fitted on, all features are known
    expected = dicap.predict(model, raw_photos)
    pd.testing.assert_frame_equal(answers, expected, atol=0.0101)  # a bank's are halves; chances are rounded
    assert set(computed) == {0}
    assert "<html" in made.report(bare_project.folder / "page.html").read_text().lower()


def test_labels_may_lie_elsewhere_or_in_memory(fitted, raw_photos, tmp_path):
    made, cache = fitted
    frame = pd.read_csv(raw_photos / "labels.csv", keep_default_na=False)
    photographs = shutil.copytree(raw_photos, tmp_path / "photographs")
    (photographs / "labels.csv").write_text("image,labels\nold.png,wrong\n")
    frame["image"] = [str(photographs / name) for name in frame["image"]]
    (photographs / "loop").symlink_to(".")
    photographs.chmod(0o555)  # as photographs that nobody may change; what is made of it has to go away again
    frame = frame[frame["split"] != "unlabeled"]  # what no row names is found in the folder
    shutil.copytree(made.folder.name, cache / "fit-killed", symlinks=True)  # as a process leaves it that was killed
    (cache / "fit-notes" / "lock").mkdir(parents=True)
    again = dicap.fit(photographs, frame, settings=tiny.SMALL, cache=cache)
    assert not (cache / "fit-killed").exists() and (cache / "fit-notes").exists()
    assert (Path(again.folder.name) / "photographs").stat().st_mode & 0o200
    assert again.model.checksum == made.model.checksum
    assert again.evaluate()["map"] == made.evaluate()["map"]
    again.folder.cleanup()
    made.folder.cleanup()
    assert sorted(path.name for path in cache.iterdir()) == ["fit-notes", "store"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("absent",), DataError, "absent: no such folder"),
        (("empty",), DataError, "empty: found nothing, but no photographs"),
        (("empty", "absent.csv"), DataError, "absent.csv: no such file"),
        (("empty", {"a.png": "cat"}), DataError, "labels: found a dict"),
        (("empty", pd.DataFrame({"photo": ["a.png"]})), DataError, "^the data frame: column labels is missing"),
        (("empty", None, {"calibration": {"bins": 4}}), SettingsError, "calibration: found a dict"),
    ],
)
def test_bad_input_is_one_error(arguments, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    photographs, labels, settings = (*arguments, None, None)[:3]
    with pytest.raises(error, match=words):
        dicap.fit(photographs, labels, settings=settings, cache=tmp_path / "cache")
    assert not list(tmp_path.glob("cache/fit-*"))
    with pytest.raises(DataError, match="lies among the photographs"):
        dicap.fit("empty", cache="empty/cache")


def test_the_notebook_runs(raw_photos, tmp_path, monkeypatch, capsys):
    cells = json.loads((tiny.ROOT / "docs" / "photographs.ipynb").read_text())["cells"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(dicap, "fit", lambda *given, settings=None: FIT(*given, settings=tiny.SMALL | (settings or {})))
    shutil.copytree(raw_photos, "photographs")
    names: dict = {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        exec("".join(cell["source"]), names)
    assert Path("model.safetensors").is_file() and Path("report.html").is_file()
    assert capsys.readouterr().out.count("mAP") == 2
