"""The report of a run: one self-contained HTML page, with its figures as SVG files and its curve as a CSV file next to it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dicap.files.atomic import replacing_folder
from dicap.files.json_files import write_json
from dicap.metrics import ledger
from dicap.metrics.operating_point import gap
from dicap.metrics.warnings import headline
from dicap.pages.html import address, render
from dicap.report import evidence, style
from dicap.report.evidence import Evidence
from dicap.report.figures import calibration, learning
from dicap.settings import flatten
from dicap.settings.catalogue import OWN
from dicap.settings.methods import METHODS, holds_out

STAGE_NAMES = {"warmup": "Warm-up", "train": "Main stage", "finetune": "Fine-tuning"}
SHARES = {"share_pos": "positive", "share_neg": "negative", "share_uncertain": "uncertain"}
ERROR = {"curve_error": "mean absolute error"}
PRECISION = {"precision_pos": "positive labels", "precision_neg": "negative labels"}


@dataclass(frozen=True)
class Drawing:
    """A figure of the page. `name` is the name of its file."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Section:
    """A section of the page. `note` is the explanation to show if there are no drawings."""

    name: str
    title: str
    drawings: list[Drawing]
    note: str


def build_report(
    artifacts: Path,
    settings: dict[str, Any],
    environment: dict[str, str],
    out: Path,
    unread: Collection[str] = (),
) -> Path:
    """Write index.html, figures/*.svg, curve.csv and settings.json to `out` from the artifacts of a run; return the page's path.

    Args:
        artifacts: folder with evaluate/ (required) and warmup/, train/, finetune/ (optional).
        settings: the resolved settings, nested as in params.yaml.
        out: a folder that is replaced as a whole; it is unchanged if anything fails.
        unread: settings that do not affect this run, by dotted key; the page leaves them out.

    The bytes depend only on the arguments: no date, no machine, no random ids.
    Raises DataError for a missing or damaged file.
    """
    run = evidence.gather(artifacts)
    with replacing_folder(Path(out)) as folder:
        (folder / "figures").mkdir()
        if len(run.weights):  # for dvc plots, which cannot read Parquet
            columns = ["epoch", "left", "right", "r_pos", "optimal_r_pos", "n_pos", "n_neg", "optimal_n"]
            curve = run.weights.reindex(columns=columns)
            curve.to_csv(folder / "curve.csv", index=False, float_format="%.6g", lineterminator="\n")
        sections = []
        with style.house_style():
            for section in sections_of(run, settings):
                drawn = []
                for drawing in section.drawings:
                    svg = style.to_svg(drawing.draw())
                    (folder / "figures" / f"{drawing.name}.svg").write_text(svg, encoding="utf-8")
                    drawn.append((drawing, address(svg.encode(), "image/svg+xml")))
                sections.append((section, drawn))
        html = render(
            "page.html",
            styles=["base.css", "figures.css", "page.css"],
            scripts=["tables.js", "enlarge.js"],
            style_attributes=True,  # those of the bars
            title=METHODS[settings["method"]].title,
            dataset="own images" if settings["dataset"] == OWN else settings["dataset"],
            metrics=defaultdict(lambda: None, run.metrics),
            headline=headline(run.metrics),
            stages=STAGE_NAMES,
            has_epochs=run.has_epochs,
            roles=run.roles,
            held_out=holds_out(settings["method"], settings["protocol"]),
            settings=settings,
            sections=sections,
            classes=class_rows(run),
            groups=setting_groups(settings, unread),
            environment=environment,
        )
        (folder / "index.html").write_text(html, encoding="utf-8")
        write_json(settings, folder / "settings.json")
    return Path(out) / "index.html"


def sections_of(run: Evidence, settings: dict[str, Any]) -> list[Section]:
    """The sections of the page in reading order, each with its drawings, or with the reason why there are none."""
    facts = METHODS[settings["method"]]
    none = "This run has none: {}" + f" by {facts.title}, or the stage has not run."
    if not facts.unlabelled:
        none = f"{facts.title} learns from the labelled images only: {{}}."
    no_rates = none.format("no correctness rates are estimated")
    parts = [
        Section(
            "learning", "Learning", [*_learning(run)], "No stage of this run wrote a history.csv, so there is nothing to draw."
        ),
        Section("calibration", "Correctness of confidences", [*_calibration(run, settings)], no_rates),
        Section("pseudo_labels", "Pseudo-labels", [*_pseudo_labels(run)], none.format("no pseudo-labels are made")),
        Section("result", "Test images", [*_result(run)], "There is no predictions.parquet to draw."),
    ]
    return parts if run.history.empty or run.has_epochs else parts[1:]  # a solved head has no curves over epochs


def class_rows(run: Evidence) -> list[dict[str, Any]]:
    """One row per class for the table, highest AP first: AP, support, precision and recall of yes, the last thresholds."""
    frame = run.per_class.sort_values(["ap", "class"], ascending=[False, True], kind="stable")
    bands: dict[Any, Any] = {}
    if len(run.thresholds):
        bands = run.thresholds.set_index("class")[["tau_neg", "tau_pos", "crossed"]].to_dict("index")
    rows = []
    for row in frame.to_dict("records"):
        band = bands.get(row["class"], {})
        untested = {} if row["n_pos"] else {"ap": None}  # an AP of 0 would look like a test result
        rows.append({str(key): None if pd.isna(value) else value for key, value in (row | band | untested).items()})
    return rows


def setting_groups(settings: dict[str, Any], unread: Collection[str] = ()) -> dict[str, dict[str, str]]:
    """Settings as {section: {key: value}}; the top-level keys come first, under `experiment`."""
    groups: dict[str, dict[str, str]] = {"experiment": {}}
    for key, value in flatten(settings):
        section, _, name = key.rpartition(".")
        if not section or key not in unread:
            groups.setdefault(section or "experiment", {})[name] = value if isinstance(value, str) else json.dumps(value)
    return groups


def _learning(run: Evidence) -> Iterator[Drawing]:
    history = run.history
    if history[["map_raw", "map_ema"]].notna().any(axis=None):
        caption = "Mean average precision on the test images after each epoch; no epoch is selected by it."
        yield Drawing("scores", "mAP by epoch", caption, lambda: learning.scores(history))
    losses = history[["loss", "loss_sup", "loss_pseudo", "loss_con"]]
    if (losses.fillna(0) > 0).any(axis=None):
        caption = "Mean training loss of each epoch and its parts, on a logarithmic scale."
        yield Drawing("losses", "Losses by epoch", caption, lambda: learning.losses(history))
    if history[[f"grad_{term}" for term in ledger.TERMS]].notna().any(axis=None):
        caption = "Norm of each term's gradient on the first batch of each epoch, as a share of their sum; dotted, 1 %. "
        caption += " ".join(_gradient_shares(run))
        yield Drawing("gradients", "Gradient shares", caption, lambda: learning.gradients(history))


def _gradient_shares(run: Evidence) -> Iterator[str]:
    """Sentences per stage: the mean gradient shares of its loss terms, and the terms with hardly any effect."""
    for stage, name in STAGE_NAMES.items():
        rows: list[Any] = run.of_stage(stage).to_dict("records")
        shares = pd.DataFrame(map(ledger.shares, rows)).mean()
        if len(shares):
            parts = [f"{ledger.TERMS[str(term)]} {ledger.percent(share)}" for term, share in shares.items()]
            yield f"{name}: {', '.join(parts)}."
            idle = shares.index[shares < ledger.HARDLY]
            yield from (f"{ledger.TERMS[str(term)].capitalize()} has hardly any effect." for term in idle)


def _calibration(run: Evidence, settings: dict[str, Any]) -> Iterator[Drawing]:
    weights = run.weights
    if weights.empty:
        return
    epoch, entries = int(weights["epoch"].iloc[0]), int((weights["n_pos"] + weights["n_neg"]).sum())
    held_out = holds_out(settings["method"], settings["protocol"])
    source = " of the estimation set" if held_out else ", each scored by a head that never saw its image,"
    caption = f"Share of positives among {entries:,} labelled entries{source} at each confidence"
    caption += f", epoch {epoch}" if run.has_epochs else ""
    caption += "; dashed: on the unlabelled images by their hidden labels" if run.has_truth else ""
    caption += "; bins without entries have no dot."
    yield Drawing("curve", "Estimated correctness", caption, lambda: calibration.correctness(weights))
    history = run.of_stage("train")
    if len(history) > 1 and history["curve_error"].notna().any():
        caption = "Mean absolute difference between the estimated and the optimal curve, weighted by the entries in each bin."
        yield Drawing("curve_error", "Error of the estimate", caption, lambda: learning.by_epoch(history, ERROR, "error"))


def _pseudo_labels(run: Evidence) -> Iterator[Drawing]:
    weights, history = run.weight_histogram, run.of_stage("train").dropna(subset="share_pos")
    if weights.empty:
        return
    if len(history) > 1:
        caption = "Shares of positive, negative and uncertain entries (image, class) of the unlabelled images per epoch."
        yield Drawing(
            "shares", "Confident and uncertain", caption, lambda: learning.by_epoch(history, SHARES, "share of entries")
        )
    last = history.iloc[-1]
    caption = f"At epoch {last['epoch']:.0f}; of the" if run.has_epochs else "Of the"
    caption += f" entries (image, class) of the unlabelled images {last['share_pos']:.1%} are "
    caption += f"confident positives, {last['share_neg']:.1%} confident negatives and {last['share_uncertain']:.1%} uncertain."
    if history["weight_pos"].notna().any():
        mean, sd, negative = last[["weight_pos", "weight_pos_sd", "weight_neg"]]
        caption += f" On average a positive weighs {mean:.2f} (standard deviation {sd:.2f}), a negative {negative:.2f}."
    yield Drawing("weights", "Weights", caption, lambda: calibration.weights(weights))
    if len(history) > 1 and history[[*PRECISION]].notna().any(axis=None):
        caption = "Share of confident entries with a right pseudo-label, by hidden labels."
        yield Drawing("precision", "Precision by epoch", caption, lambda: learning.by_epoch(history, PRECISION, "share right"))


def _result(run: Evidence) -> Iterator[Drawing]:
    bins, tenths = pd.DataFrame(run.reliability), pd.DataFrame(run.metrics.get("chance_tenths") or [])
    if not bins.empty:
        error = gap(run.reliability)
        caption = f"How often the final scores are right on the test images; expected calibration error {error:.3f}."
        yield Drawing("reliability", "Reliability of the scores", caption, lambda: calibration.reliability(bins))
    if not tenths.empty:  # of a model with a correctness curve
        caption = "Share of right decisions by the chance that the model states"
        caption += f": {run.metrics['decided']:.0%} of the test entries are decided;"
        caption += _right_shares(run.metrics)
        axes = ("stated chance of being right", "share right")
        yield Drawing("chance", "Chance of being right", caption, lambda: calibration.reliability(tenths, *axes))


def _right_shares(metrics: dict[str, Any]) -> str:
    """The shares of right yes and right no in words, and of the best constant answer for comparison."""
    if metrics.get("yes_right") is None:
        return f" no decision is a yes; always saying no is right in {metrics['constant_right']:.1%} of the entries."
    return (
        f" {metrics['yes_right']:.1%} of the yes and {metrics['no_right'] or 0:.1%} of the no are right; "
        f"always saying {metrics['constant']} is right in {metrics['constant_right']:.1%} of the entries."
    )
