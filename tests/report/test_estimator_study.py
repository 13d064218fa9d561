"""The study of estimators on made-up scores whose optimal curve is known, and on the files of a run."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from dicap.data import format as sets
from dicap.errors import DataError
from dicap.files import artifacts as files
from dicap.report import estimator_study as study
from dicap.report.figures.estimators import study as draw
from dicap.report.style import house_style


def scores(images: int = 400, classes: int = 4):
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 2.0, (images, classes))
    y = rng.random(p.shape) < p**1.5
    return torch.from_numpy(p), torch.from_numpy(y.astype(np.int8))


def test_a_row_for_each_size_draw_and_estimator_the_same_again():
    p, y = scores()
    rows, again = (list(study.study(p, y, y[:50], [10, 40], 3, np.random.default_rng(0))) for _ in range(2))
    assert rows == again and len(rows) == 2 * 3 * len(study.estimates())
    assert {(row["size"], row["draw"]) for row in rows} == {(size, k) for size in (10, 40) for k in range(3)}
    assert all(np.isfinite([row["error"], row["excess"]]).all() and row["error"] >= 0 for row in rows)


def test_more_images_estimate_better_and_the_oracle_itself_has_no_excess():
    p, y = scores(3000)
    table = study.summary(pd.DataFrame(study.study(p, y, y[:50], [10, 500], 6, np.random.default_rng(0))))
    for _, part in table.groupby("estimator"):
        assert part["error"].iloc[1] < part["error"].iloc[0]
    binned = table[(table["estimator"] == "bins, centre anchor, empty filled") & (table["size"] == 500)]
    assert abs(float(binned["excess"].iloc[0])) < 0.01, "bins of many entries are the optimal curve"


def test_the_summary_is_mean_and_interval_by_hand():
    rows = pd.DataFrame({"estimator": "a", "size": 5, "error": [0.1, 0.3], "excess": [0.0, 0.002]})
    table = study.summary(rows)
    assert table["error"].tolist() == pytest.approx([0.2])
    assert table["error_half"].tolist() == pytest.approx([1.96 * np.sqrt(0.02) / np.sqrt(2)])
    assert study.to_markdown(table).splitlines()[-1] == "| a | 0.2000 ± 0.1960, 1.0 ± 2.0 |"


def test_every_estimator_is_a_line_of_the_figure():
    p, y = scores()
    table = study.summary(pd.DataFrame(study.study(p, y, y[:50], [10, 40], 2, np.random.default_rng(0))))
    with house_style():
        axes = draw(table).axes
    assert [[line.get_label() for line in ax.lines][: len(study.estimates())] for ax in axes] == [list(study.estimates())] * 2


def write(folder, splits: list[str]):
    """A run and a set of six images: one labelled, `splits` of the others, whose scores are stored."""
    ids = [f"i{k}" for k in range(1 + len(splits))]
    labels = [[0], *([k % 2] if split == "train" else None for k, split in enumerate(splits))]
    (folder / "data").mkdir()
    columns = {"id": ids, "path": ids, "width": [1] * len(ids), "height": [1] * len(ids), "split": ["train", *splits]}
    sets.write_index(folder / "data" / sets.INDEX, [pa.table(columns | {"labels": labels}, schema=sets.INDEX_SCHEMA)])
    meta = dict.fromkeys(sets.META_KEYS) | {"schema": sets.SCHEMA, "classes": ["a", "b"]}
    files.write_json(meta, folder / "data" / sets.META)
    files.write_split(ids, ["sup", *["unlabeled"] * len(splits)], folder / "run" / "split" / "split.parquet")
    p = np.linspace(0, 1, 2 * len(splits)).reshape(-1, 2)
    files.write_pseudo_labels(
        np.array(ids[1:]), p, (p > 0.5).astype(np.int8), p, files.epoch_file(folder / "run" / "pseudo_label", "pseudo_labels", 0)
    )
    return folder / "run", folder / "data"


def test_scores_are_read_with_their_hidden_labels_and_truly_unlabelled_images_left_out(tmp_path):
    p, y, y_labelled = study.read_scores(*write(tmp_path, ["train", "unlabeled", "train"]))
    assert y.tolist() == [[1, 0], [1, 0]] and y_labelled.tolist() == [[1, 0]]
    assert p.numpy() == pytest.approx(np.array([[0.0, 0.2], [0.8, 1.0]]), abs=1e-3)


def test_without_hidden_labels_or_scores_one_line_says_so(tmp_path):
    run, data = write(tmp_path, ["unlabeled", "unlabeled"])
    with pytest.raises(DataError, match="no unlabelled image has a hidden label"):
        study.read_scores(run, data)
    with pytest.raises(DataError, match="makes no pseudo-labels"):
        study.read_scores(tmp_path / "elsewhere", data)
