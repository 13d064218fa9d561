"""Experiments side by side: what sets a run apart, the order, and a page that is whole and harmless."""

import re

import numpy as np
import pandas as pd

from dicap.report.comparison import _scores, build_comparison, rows_of
from dicap.report.figures import comparison
from dicap.report.style import house_style

from .synthetic import EVIL
from .test_page import Page


def experiment(rev: str, score: float | None, *, name: str = "", epochs: int = 6, **settings) -> dict:
    values = {"dataset": "digits", "method": "dicap", "ratio": 0.05, "seed": 1, "data_root": None, "head": "ml_decoder"}
    return {
        "name": name or rev,
        "rev": rev * 5,
        "when": "2026-01-01",
        "data": "0123456789",
        "settings": values | settings | {"train": {"epochs": epochs}},
        "metrics": {
            "map": score,
            "map_low": None if score is None else score - 1,
            "map_high": None if score is None else score + 1,
        },
    }


RUNS = [
    experiment("aaaa", 50.0),
    experiment("bbbb", 60.0, method="mld"),
    experiment("cccc", 55.0, epochs=9),
    experiment("dddd", None, seed=2),
]


def test_rows_are_sorted_and_name_what_differs_from_the_commonest():
    rows = rows_of(RUNS)
    assert [row["rev"][:4] for row in rows] == ["bbbb", "cccc", "aaaa", "dddd"]
    assert [row["different"] for row in rows] == [[], ["train.epochs: 9"], [], []]
    assert rows[0]["title"] == "MLD" and (rows[0]["low"], rows[0]["high"]) == (59.0, 61.0)


def test_the_page_has_every_run_in_its_group_and_links_to_its_report(tmp_path):
    others = [experiment("eeee", 70.0, ratio=0.1), experiment("ffff", 71.0, dataset="table", name=EVIL)]
    path = build_comparison([*others, *RUNS], tmp_path / "index.html", {RUNS[0]["rev"]: "aaaa.html"})
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert not page.open and page.tags.count("section") == 3 and page.tags.count("tr") == 6 + 3
    assert page.tags.count("figure") == 3, "scores of three groups"
    assert ("href", "aaaa.html") in page.attributes
    assert page.tags.count("script") == 1 and EVIL in page.text
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", html))


def test_the_same_bytes_again(tmp_path):
    one, two = (build_comparison(RUNS, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert one == two


def test_scores_are_drawn_for_every_run_best_on_top():
    frame = pd.DataFrame({"label": ["low", "high", "high"], "seed": [1, 1, 2], "map": [10.0, 80.0, 90.0]})
    with house_style():
        (ax,) = comparison.finals(frame).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["low", "high"]
    assert np.asarray(ax.collections[0].get_offsets()).tolist() == [[10.0, 0.0], [80.0, 1.0], [90.0, 1.0]]


def test_a_line_holds_runs_that_differ_by_the_seed_alone(monkeypatch):
    """Head, folder, and more settings than a label has room for are told apart too."""
    drawn = []
    monkeypatch.setattr(comparison, "finals", drawn.append)
    runs = [experiment(f"a{k}", 50.0 + k, seed=k) for k in range(3)]
    runs += [experiment("b1", 60.0, head="linear"), experiment("b2", 61.0, data_root="x")]
    runs += [experiment(f"c{k}", 70.0 + k, epochs=9, backbone="b", image_size=64, weights=str(k % 2)) for k in range(3)]
    runs += [experiment("d1", 80.0) | {"data": "other"}]
    runs = [run | {"settings": {"backbone": "a", "image_size": 32, "weights": "-"} | run["settings"]} for run in runs]
    _scores(rows_of(runs))
    groups = sorted(sorted(part["map"]) for _, part in drawn[0].groupby("label"))
    assert groups == [[50.0, 51.0, 52.0], [60.0], [61.0], [70.0, 72.0], [71.0], [80.0]]
