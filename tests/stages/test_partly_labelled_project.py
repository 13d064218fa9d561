"""From a table with a column `absent` to scores: every command on images that are labelled in part."""

import csv
import json

import pandas as pd
import pytest

from dicap.files.tables import matrix, read_parquet
from dicap.metrics.ranking import average_precision


def test_from_the_table_to_the_page_and_new_labels(partial_project, tmp_path):
    project = partial_project
    out = project.done("init-data", tmp_path / "photos", "--dry-run")
    assert "absent: column absent" in out and "labelled in part: of" in out and "(absent: " in out
    for stage in ("convert", "split", "warmup", "pseudo-label", "train", "finetune", "evaluate", "report"):
        project.done(stage)
    unknown = json.loads((project.folder / "data/converted/meta.json").read_text())["unknown"]
    assert unknown["train"] and unknown["test"]
    assert f"{unknown['train']} of train and {unknown['test']} of test" in project.done("doctor", "data/converted")

    found = json.loads((project.folder / "artifacts/evaluate/details.json").read_text())
    predictions = read_parquet(project.folder / "artifacts/evaluate/predictions.parquet", ["score", "label"])
    scores, labels = (matrix(predictions[name]) for name in ("score", "label"))
    assert found["unknown_entries"] == unknown["test"] == (labels < 0).sum()
    assert 0 < found["unknown_labelled"] < unknown["train"], "at ratio 0.5"
    assert found["yes"] + found["no"] + found["unsure"] == (labels >= 0).sum()
    table = pd.read_csv(project.folder / "artifacts/evaluate/per_class.csv")
    assert table["ap"].to_numpy() == pytest.approx(average_precision(scores, labels), abs=1e-6)
    assert table["n_pos"].tolist() == (labels == 1).sum(0).tolist()
    for path in ("artifacts/evaluate/MODEL_CARD.md", "artifacts/report/index.html"):
        assert f"Of {found['unknown_labelled']} entries" in (project.folder / path).read_text()

    rows = list(csv.DictReader((tmp_path / "photos/labels.csv").open()))
    row = next(row for row in rows if row["labels"] and row["absent"] not in ("", "-"))
    project.done("review", "--count", "3")
    assert "absent" in (project.folder / "review/review.csv").read_text().splitlines()[0]
    assert '"unknown"' in (project.folder / "review/index.html").read_text(), "what is unknown is no answer of the page"

    new = project.folder / "new.csv"
    new.write_text(
        f"image,labels,absent\nunlabeled-000.png,red,blue\nunlabeled-001.png,green,*\n{row['image']},,{row['labels']}\n"
    )
    out = project.done("import-labels", new)
    assert "+ not " in out
    (added,) = (project.folder / "labels").iterdir()
    assert added.read_text().splitlines()[:1] == ["image,labels,absent,was,photo"]
    project.done("convert")
    rows = {row["id"]: row for row in pd.read_parquet("data/converted/index.parquet").to_dict("records")}
    assert [*rows["unlabeled-000.png"]["labels"]] == [2] and [*rows["unlabeled-000.png"]["absent"]] == [0]
