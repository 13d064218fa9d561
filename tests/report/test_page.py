"""The page: complete, self-contained, escaped, the same bytes again; and what it says when parts are missing."""

import base64
import re
import shutil
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from ruamel.yaml import YAML

from dicap.errors import DataError
from dicap.evaluation.evaluate import metrics as metrics_of
from dicap.files.json_files import read_json, write_json
from dicap.metrics.warnings import score_in_words
from dicap.report import evidence, style
from dicap.report.figures import learning
from dicap.report.page import build_report, sections_of

from . import synthetic

ROOT = Path(__file__).parents[2]
FIGURES = {
    *("scores", "losses", "gradients", "curve", "curve_error"),
    *("shares", "weights", "precision", "reliability"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The report of a run with everything in it."""
    folder = tmp_path_factory.mktemp("whole")
    build(folder)
    return folder / "report" / "index.html"


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made, and not written as SVG, which takes most of a report's time."""
    monkeypatch.setattr(style, "to_svg", lambda figure: "<svg/>")


def build(folder: Path, settings: dict | None = None, **options) -> str:
    run = synthetic.write_run(folder / "artifacts", **options)
    page = build_report(run, synthetic.SETTINGS | (settings or {}), synthetic.ENVIRONMENT, folder / "report")
    return page.read_text(encoding="utf-8")


class Page(HTMLParser):
    """Elements that are open at the end, all ids, all attribute values, all text."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_has_every_part_and_every_reference_is_met(whole):
    html = whole.read_text(encoding="utf-8")
    page = Page(html)
    assert not page.open, "every element is closed"
    assert {path.stem for path in (whole.parent / "figures").glob("*.svg")} == FIGURES
    assert set(page.ids) >= FIGURES | {"learning", "calibration", "pseudo_labels", "result", "classes", "settings", "environment"}
    for words in ("83.53", "81.2 – 85.6", "DiCaP", "digits", "5 %", "3e-05", "2.14.1", "ema_decay", "1,120"):
        assert words in page.text
    wanted = set(re.findall(r'href="#([^"]+)"', html))
    assert len(page.ids) == len(set(page.ids)) and len(wanted) > 5 and wanted <= set(page.ids)
    pictures = [value for name, value in page.attributes if name == "src"]
    drawn = {base64.b64decode(str(picture).removeprefix("data:image/svg+xml;base64,")) for picture in pictures}
    assert drawn == {path.read_bytes() for path in (whole.parent / "figures").glob("*.svg")}


def test_nothing_comes_from_outside(whole):
    html = re.sub(r'xmlns(:\w+)?="[^"]*"', "", whole.read_text(encoding="utf-8"))
    assert not re.search(r"https?://|//\w+\.\w", html)
    assert not re.search(r"@import|@font-face|<link|<script\s|<iframe", html)
    assert "default-src &#39;none&#39;; " in html, "tests/pages has the rest of the policy"
    for path in whole.parent.rglob("*.svg"):
        assert not re.search(r"https?:", re.sub(r'xmlns(:\w+)?="[^"]*"', "", path.read_text(encoding="utf-8")))


@pytest.mark.promise("A class with a script as its name stays text in the report", section="Bad input and harm")
def test_class_names_are_escaped(whole):
    html = whole.read_text(encoding="utf-8")
    page = Page(html)
    assert page.tags.count("script") == 1, "the page's own"
    assert synthetic.EVIL in page.text, "the name is shown as it is"
    assert not any(name.startswith("on") for name, _ in page.attributes)
    for path in whole.parent.rglob("*.svg"):
        root = ElementTree.parse(path).getroot()
        assert not [element for element in root.iter() if element.tag.endswith("script")]


def test_the_bytes_are_the_same_again(tmp_path, whole):
    build(tmp_path)
    assert tiny.content(tmp_path / "report") == tiny.content(whole.parent)


@pytest.mark.parametrize(("norm", "share", "acts"), [(0.01, "0.332 %", False), (1.0, "25 %", True)])
def test_the_page_says_which_terms_act_and_what_positives_and_negatives_weigh(tmp_path, norm, share, acts):
    run = synthetic.write_run(tmp_path)
    for stage in ("warmup", "train"):
        pd.read_csv(run / stage / "history.csv").assign(grad_con=norm).to_csv(run / stage / "history.csv", index=False)
    found = evidence.gather(run)
    captions = {drawing.name: drawing.caption for part in sections_of(found, synthetic.SETTINGS) for drawing in part.drawings}
    assert f"the contrastive loss {share}." in captions["gradients"].partition("Main stage: the supervised loss ")[2]
    assert captions["gradients"].count("The contrastive loss has hardly any effect.") == 2 * (not acts)
    assert captions["weights"].endswith("On average a positive weighs 0.75 (standard deviation 0.05), a negative 0.95.")
    (ax,) = learning.gradients(found.history).axes
    drawn = [np.ravel(line.get_ydata()) for line in ax.get_lines() if len(np.ravel(line.get_ydata())) == 6]
    np.testing.assert_allclose(drawn, np.outer(np.array([2, 1, norm]) / (3 + norm), np.ones(6)))


def test_a_method_without_pseudo_labels_says_why(tmp_path, undrawn):
    html = build(tmp_path, {"method": "mld", "dataset": "table"}, pseudo=False)
    assert "MLD learns from the labelled images only: no pseudo-labels are made." in html
    assert {path.stem for path in (tmp_path / "report" / "figures").glob("*.svg")} == {
        "scores", "losses", "gradients", "reliability",
    }  # fmt: skip
    assert "on own images" in html and "on table" not in html, "one's own are not called by the name of their reader"
    assert "or the stage has not run" in build(tmp_path / "dicap", pseudo=False)


def test_without_hidden_labels_there_is_no_optimal_curve(tmp_path):
    html = build(tmp_path, hidden=False)
    figures = {path.stem for path in (tmp_path / "report" / "figures").glob("*.svg")}
    assert figures == FIGURES - {"curve_error", "precision"}
    assert "optimal" not in (tmp_path / "report" / "figures" / "curve.svg").read_text(encoding="utf-8")
    assert "hidden labels" not in html


def test_any_optional_piece_may_be_missing(tmp_path, undrawn):
    """One after the other, until only what evaluate has to write is left."""
    run = synthetic.write_run(tmp_path / "artifacts", epochs=2)
    for pieces in (("train",), ("warmup", "finetune", "evaluate/predictions.parquet")):
        for path in (run / piece for piece in pieces):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        page = build_report(run, synthetic.SETTINGS, {}, tmp_path / "report")
        assert not Page(page.read_text(encoding="utf-8")).open, pieces


def test_a_missing_or_damaged_file_is_one_line_and_the_old_report_stays(tmp_path, undrawn):
    run = synthetic.write_run(tmp_path / "artifacts", epochs=1)
    page = build_report(run, synthetic.SETTINGS, {}, tmp_path / "report")
    before = page.read_bytes()
    for name in ("train/pseudo_labels/epoch-000.parquet", "evaluate/per_class.csv", "evaluate/details.json"):
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[:-20]) if name.startswith("train") else (run / name).unlink()
        with pytest.raises(DataError, match=Path(name).parts[1]) as caught:
            build_report(run, synthetic.SETTINGS, {}, tmp_path / "report")
        assert "\n" not in str(caught.value)
        assert page.read_bytes() == before
        (run / name).write_bytes(content)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifacts", "report"]


@pytest.mark.parametrize("drop", [[], ["epoch"], ["share_pos"]])
@pytest.mark.parametrize("column", ["epoch", "share_pos", "lr"])
@pytest.mark.parametrize("value", [None, "many"])  # None: a header alone
def test_a_history_that_is_no_table_of_its_epochs_is_one_line(tmp_path, drop, column, value):
    run = synthetic.write_run(tmp_path / "artifacts", epochs=1)
    path = run / "train" / "history.csv"
    frame = pd.read_csv(path, dtype=str).assign(**{column: value})
    frame.iloc[: None if value else 0].drop(columns=drop).to_csv(path, index=False)
    with pytest.raises(DataError, match=r"train/history.csv: .*dvc repro"):
        build_report(run, synthetic.SETTINGS, {}, tmp_path / "report")


def test_the_plots_of_dvc_yaml_find_their_columns(whole):
    """The last curve is theirs; DVC cannot read Parquet."""
    plots = [plot for plot in YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["plots"] if isinstance(plot, dict)]
    (plot,) = [one for plot in plots for one in plot.values() if "artifacts/report/curve.csv" in one["y"]]
    frame = pd.read_csv(whole.parent / "curve.csv")
    drawn = {plot["x"], *plot["y"]["artifacts/report/curve.csv"]}
    assert drawn | {"optimal_n"} <= set(frame) and frame["epoch"].unique().tolist() == [5]
    assert frame["r_pos"].between(0, 1).all()


def test_a_score_that_few_test_images_raise_is_nowhere_shown_alone(tmp_path, undrawn):
    """Sixty rare classes at random, forty test images: page, terminal and card give no one value."""
    rng = np.random.default_rng(0)
    found = metrics_of(rng.random((40, 60)), (rng.random((40, 60)) < 0.05).astype(int), testable=True)
    assert found["map"] > found["map_high"]
    ends, words = f"{found['map_low']:.2f} to {found['map_high']:.2f}", score_in_words(found)
    assert words == f"{ends} (95 % interval; {found['map']:.2f} uncorrected for the few test images)"
    run = synthetic.write_run(tmp_path / "artifacts", epochs=1)
    place = run / "evaluate" / "details.json"
    write_json(read_json(place) | found | {"notes": ["copies: 2"]}, place)
    page = build_report(run, synthetic.SETTINGS, synthetic.ENVIRONMENT, tmp_path / "report").read_text(encoding="utf-8")
    assert '<p class="value">–</p>' in page and f"uncorrected {found['map']:.2f}" in page and "no single value is shown" in page
    assert "Of the photographs: copies: 2." in page
    for middle, low, high, begins in (
        (49.0, 48.0, 50.0, "48.95"), (None, None, None, "48.95"), (47.45, 45.0, 49.9, "about 47.5"), (48.0, 0.0, 100.0, "48.95"),
    ):  # fmt: skip
        within = {"map": 48.95, "map_corrected": middle, "map_low": low, "map_high": high}
        assert score_in_words(within).startswith(begins)


def test_a_head_that_was_solved_has_no_curves_of_one_epoch(tmp_path, undrawn):
    run = synthetic.write_run(tmp_path / "artifacts", epochs=1)
    for stage in ("warmup", "train", "finetune"):
        path = run / stage / "history.csv"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    page = build_report(run, synthetic.SETTINGS, {}, tmp_path / "report", ["train.epochs"])
    drawn = {path.stem for path in (tmp_path / "report" / "figures").glob("*.svg")}
    assert drawn == {"curve", "weights", "reliability"}
    html = page.read_text(encoding="utf-8")
    assert 'id="learning"' not in html and 'href="#learning"' not in html and "% are confident positives" in html
    assert "the best epoch has" not in html and "t epoch 1" not in html and "confidence, epoch" not in html
    assert "<dt>batch_size</dt>" in html and "<dt>epochs</dt>" not in html


def test_where_no_label_is_withheld_nothing_is_called_held_out(tmp_path, undrawn):
    held, out_of_fold, without = (
        build(tmp_path / name, changes, epochs=1)
        for name, changes in {"held": {}, "folds": {"protocol": "recommended"}, "asl": {"method": "asl"}}.items()
    )
    assert "labelled, for estimation<" in held and "of the estimation set at each confidence" in held
    assert "for estimation<" not in out_of_fold + without and out_of_fold.count("labelled, trained on<") == 2
    assert "estimation set" not in out_of_fold and "head that never saw its image, at each confidence" in out_of_fold
