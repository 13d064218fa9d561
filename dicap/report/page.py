"""One self-contained HTML page about a run, its figures as SVG files and its numbers as CSV files in the same folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dicap.files.atomic import replacing_folder
from dicap.files.json_files import write_json
from dicap.metrics import ledger
from dicap.metrics.warnings import headline
from dicap.pages.html import render
from dicap.pages.pictures import address
from dicap.report import evidence, style
from dicap.report.evidence import Evidence
from dicap.report.figures import calibration, learning, pseudo_labels
from dicap.settings import flatten
from dicap.settings.catalogue import OWN
from dicap.settings.methods import METHODS, holds_out

STAGE_NAMES = {"warmup": "Warm-up", "train": "Main stage", "finetune": "Fine-tuning"}
ROLES = {  # symbol, its index, what the images are for
    "sup": ("D", "sup", "labelled, trained on"),
    "est": ("D", "est", "labelled, for estimation"),  # of a method that holds it out; see `roles_of`
    "unlabeled": ("D", "u", "unlabelled"),
    "test": ("test", "", "for the score above"),
}


@dataclass(frozen=True)
class Drawing:
    """A figure of the page. `name` is its file's name."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Section:
    """A part of the page: drawings, or `note`, the sentence that says why there are none."""

    name: str
    title: str
    drawings: list[Drawing] = field(default_factory=list)
    note: str = ""


def build_report(
    artifacts: Path,
    settings: dict[str, Any],
    environment: dict[str, str],
    out: Path,
    unread: Collection[str] = (),
) -> Path:
    """Write index.html, figures/*.svg, curve.csv and settings.json to `out` from the artifacts of a run; return the page's path.

    Args:
        artifacts: folder with warmup/, train/, finetune/, evaluate/; evaluate/ is
            required, the rest is drawn where it is there.
        settings: the resolved settings, nested as in params.yaml.
        environment: what the run ran on (versions, device), shown as it is.
        out: a folder that is replaced as a whole, or left as it was if anything fails.
        unread: settings that concern other methods and stages, by dotted key; the page leaves them out.

    The bytes depend only on the arguments: no date, no machine, no random ids.
    Raises DataError naming the file that is missing or damaged.
    """
    run = evidence.gather(artifacts)
    with replacing_folder(Path(out)) as folder:
        (folder / "figures").mkdir()
        if len(run.weights):  # for dvc plots, which cannot read Parquet
            columns = ["epoch", "left", "right", "r_pos", "optimal_r_pos", "n_pos", "n_neg", "optimal_n"]
            last = _last(run.weights).reindex(columns=columns)
            last.to_csv(folder / "curve.csv", index=False, float_format="%.6g", lineterminator="\n")
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
            summary=summary(run, settings),
            sections=sections,
            classes=class_rows(run),
            settings=setting_groups(settings, unread),
            environment=environment,
        )
        (folder / "index.html").write_text(html, encoding="utf-8")
        write_json(settings, folder / "settings.json")
    return Path(out) / "index.html"


def sections_of(run: Evidence, settings: dict[str, Any]) -> Iterator[Section]:
    """The page's parts in reading order, each with its drawings or with the reason for having none."""
    if run.history.empty or run.has_epochs:  # a head that was solved has no way there to draw
        yield _learning(run)
    yield _calibration(run, settings)
    yield _pseudo_labels(run, settings)
    yield _result(run)


def summary(run: Evidence, settings: dict[str, Any]) -> dict[str, Any]:
    """What the top of the page says: names, the score with its interval, the sizes of the parts."""
    metrics = run.metrics
    low, high = metrics.get("map_low"), metrics.get("map_high")
    total, of = sum(run.roles.values()), roles_of(settings)
    labelled = sum(run.roles.get(role, 0) for role in ("sup", "est"))
    return {
        "title": METHODS[settings["method"]].title,
        "dataset": "own images" if settings["dataset"] == OWN else settings["dataset"],
        "warnings": list(metrics.get("warnings", [])),
        "ratio": labelled / max(1, total - run.roles.get("test", 0)) if total else settings["ratio"],
        **{key: settings[key] for key in ("seed", "backbone", "head", "image_size")},
        "map": metrics.get("map"),
        "headline": headline(metrics),
        "low": low,
        "high": high,
        "n_classes": metrics.get("n_classes"),
        "remarks": list(_remarks(metrics, run.has_epochs)),
        "roles": [(role, of[role], n, round(100 * n / total, 3)) for role, n in run.roles.items() if n],
    }


def roles_of(settings: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """ROLES, with what D_est is for in this run: it may be trained on like D_sup."""
    return ROLES if _holds_out(settings) else ROLES | {"est": (*ROLES["est"][:2], ROLES["sup"][2])}


def _holds_out(settings: dict[str, Any]) -> bool:
    """Whether D_est was kept from training to count on; not where all labelled images are scored out of fold."""
    return holds_out(settings["method"], settings["protocol"])


def class_rows(run: Evidence) -> list[dict[str, Any]]:
    """One row per class for the table, best first: average precision, support, what a yes is worth, the last thresholds."""
    frame = run.per_class.sort_values(["ap", "class"], ascending=[False, True], kind="stable")
    last = _last(run.thresholds)
    bands = {} if last.empty else last.set_index("class")[["tau_neg", "tau_pos", "crossed"]].to_dict("index")
    rows = []
    for row in frame.to_dict("records"):
        band = bands.get(row["class"], {})
        untested = {} if row["n_pos"] else {"ap": None}  # an AP of 0 would say that it was tested
        rows.append({str(key): None if pd.isna(value) else value for key, value in (row | band | untested).items()})
    return rows


def setting_groups(settings: dict[str, Any], unread: Collection[str] = ()) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings as (section, [(key, value)]); the top-level keys come first, under `experiment`."""
    groups: dict[str, list[tuple[str, str]]] = {"experiment": []}
    for key, value in flatten(settings):
        section, _, name = key.rpartition(".")
        if not section or key not in unread:
            groups.setdefault(section or "experiment", []).append((name, value if isinstance(value, str) else json.dumps(value)))
    return list(groups.items())


def _remarks(metrics: dict[str, Any], has_epochs: bool = True) -> Iterator[str]:
    """Sentences under the score: how it was taken, and the other numbers that readers ask for."""
    if metrics.get("n_test") is not None:
        yield f"Scored on {metrics['n_test']:,} test images by the final model;"
        yield "the interval is for the mAP that endlessly many such images would give, not for another training."
        about, is_corrected = headline(metrics)
        if about is None:
            yield "Few positive images a class raise mAP by more than the interval's half width, so no single value is shown."
        elif is_corrected:
            yield "Few positive images a class raise mAP; the value shown is corrected for that."
    if "steps" in metrics:
        steps = {name.lower(): metrics[f"steps_{stage}"] for stage, name in STAGE_NAMES.items()}
        parts = [f"{name} {'solved' if count is None else f'{count:,}'}" for name, count in steps.items() if count != 0]
        yield f"Optimiser steps: {', '.join(parts)}."
    if metrics.get("unknown_entries"):
        yield f"Of {metrics['unknown_entries']:,} entries (image, class) of the test images nothing is known: they count nowhere."
    if metrics.get("unknown_labelled"):
        yield f"Of {metrics['unknown_labelled']:,} entries of the labelled images nothing is known: they were not learnt."
    if "unlabelled" in metrics:
        yield f"Unlabelled photographs {metrics['unlabelled']}."
    before = {"warm-up": metrics.get("map_warmup"), "main stage": metrics.get("map_train")}
    if reached := [f"{value:.2f} after the {stage}" for stage, value in before.items() if value is not None]:
        yield f"mAP was {' and '.join(reached)}."
    if metrics.get("map_raw") is not None and metrics.get("map_ema") is not None:
        yield f"Raw network {metrics['map_raw']:.2f}, EMA network {metrics['map_ema']:.2f}."
    if has_epochs and metrics.get("best_on_test") is not None:
        stage, epoch, model = (metrics[f"best_on_test_{what}"] for what in ("stage", "epoch", "model"))
        best = f"{metrics['best_on_test']:.2f} ({STAGE_NAMES[stage].lower()}, epoch {epoch}, {model} network)"
        yield f"Chosen by the test images themselves, as some papers do, the best epoch has {best}."
    if metrics.get("curve_error") is not None:
        yield f"How often a confidence is right was estimated to within {metrics['curve_error']:.3f} of the truth on average."
    empty = metrics.get("classes_without_positives")
    if empty:
        rule = "left out of the mean" if metrics.get("classes_left_out") else "counted as 0, the published rule"
        yield f"{empty} {'class has' if empty == 1 else 'classes have'} no positive test image: {rule}."


def _learning(run: Evidence) -> Section:
    history, drawings = run.history, []
    if history[["map_raw", "map_ema"]].notna().any(axis=None):
        caption = "Mean average precision on the test images after each epoch; it selects nothing."
        drawings.append(Drawing("scores", "mAP by epoch", caption, lambda: learning.scores(history)))
    losses = history[["loss", "loss_sup", "loss_pseudo", "loss_con"]]
    if (losses.fillna(0) > 0).any(axis=None):
        caption = "Mean training loss of each epoch and its parts, on a logarithmic scale."
        drawings.append(Drawing("losses", "Losses by epoch", caption, lambda: learning.losses(history)))
    if history[[f"grad_{term}" for term in ledger.TERMS]].notna().any(axis=None):
        caption = "Norm of each term's gradient on the first batch of each epoch, as a share of their sum; dotted, 1 %. "
        caption += " ".join(_what_acts(run))
        drawings.append(Drawing("gradients", "What acts", caption, lambda: learning.gradients(history)))
    note = "" if drawings else "No stage of this run wrote a history.csv, so there is nothing to draw."
    return Section("learning", "Learning", drawings, note)


def _what_acts(run: Evidence) -> Iterator[str]:
    """A sentence a stage: the mean shares of its terms, and which of them hardly act."""
    for stage, name in STAGE_NAMES.items():
        rows: list[Any] = run.of_stage(stage).to_dict("records")
        shares = pd.DataFrame(map(ledger.shares, rows)).mean()
        if len(shares):
            parts = [f"{ledger.TERMS[str(term)]} {ledger.percent(share)}" for term, share in shares.items()]
            yield f"{name}: {', '.join(parts)}."
            yield from (f"{ledger.TERMS[str(term)].capitalize()} hardly acts." for term in shares.index[shares < ledger.HARDLY])


def _calibration(run: Evidence, settings: dict[str, Any]) -> Section:
    title, weights = "Correctness of confidences", run.weights
    if weights.empty:
        return Section("calibration", title, note=_why_none(settings, "no correctness rates are estimated"))
    last = _last(weights)
    epoch = int(last["epoch"].iloc[0])
    entries = int((last["n_pos"] + last["n_neg"]).sum())
    counted = " of the estimation set" if _holds_out(settings) else ", each scored by a head that never saw its image,"
    caption = f"Share of positives among {entries:,} labelled entries{counted} at each confidence"
    caption += f", epoch {epoch}" if run.has_epochs else ""
    caption += "; dashed, the same on the unlabelled images by their hidden labels" if run.has_truth else ""
    caption += "; larger dots have more entries, an open dot has none."
    drawings = [Drawing("curve", "Estimated correctness", caption, lambda: calibration.correctness(last))]
    history, columns = run.of_stage("train"), {"curve_error": "mean absolute error"}
    if len(history) > 1 and history["curve_error"].notna().any():
        caption = "Mean absolute difference between the estimated and the optimal curve, weighted by the entries in each bin."
        drawings.append(
            Drawing("curve_error", "Error of the estimate", caption, lambda: pseudo_labels.by_epoch(history, columns, "error"))
        )
    return Section("calibration", title, drawings)


def _pseudo_labels(run: Evidence, settings: dict[str, Any]) -> Section:
    title = "Pseudo-labels"
    if run.weight_histogram.empty:
        return Section("pseudo_labels", title, note=_why_none(settings, "no pseudo-labels are made"))
    weights, history, drawings = run.weight_histogram, run.of_stage("train").dropna(subset="share_pos"), []
    if len(history) > 1:
        caption = "How the entries (image, class) of the unlabelled images divide at each epoch."
        drawings.append(Drawing("shares", "Confident and uncertain", caption, lambda: pseudo_labels.shares(history)))
    last = history.iloc[-1]
    caption = f"At epoch {last['epoch']:.0f}; of the" if run.has_epochs else "Of the"
    caption += f" entries (image, class) of the unlabelled images {last['share_pos']:.1%} are "
    caption += f"confident positives, {last['share_neg']:.1%} confident negatives and {last['share_uncertain']:.1%} uncertain."
    if history["weight_pos"].notna().any():
        mean, sd, negative = last[["weight_pos", "weight_pos_sd", "weight_neg"]]
        caption += f" On average a positive weighs {mean:.2f} (standard deviation {sd:.2f}), a negative {negative:.2f}."
    drawings.append(Drawing("weights", "Weights", caption, lambda: pseudo_labels.weight_bars(weights)))
    columns = {"precision_pos": "positive labels", "precision_neg": "negative labels"}
    if len(history) > 1 and history[[*columns]].notna().any(axis=None):
        caption = "Share of confident entries whose pseudo-label is the hidden true label."
        drawings.append(
            Drawing("precision", "Precision by epoch", caption, lambda: pseudo_labels.by_epoch(history, columns, "share right"))
        )
    return Section("pseudo_labels", title, drawings)


def _result(run: Evidence) -> Section:
    drawings, bins = [], run.reliability
    if not bins.empty:
        error = evidence.calibration_error(bins)
        caption = f"How often the final scores are right on the test images; expected calibration error {error:.3f}."
        drawings.append(Drawing("reliability", "Reliability of the scores", caption, lambda: calibration.reliability(bins)))
    tenths = pd.DataFrame(run.metrics.get("chance_tenths") or [])  # none of a model without a correctness curve
    chances = tenths.rename(columns={"chance": "confidence", "share": "frequency"})
    if not chances.empty:
        caption = "How often a decision is right, by the chance that the model states for it"
        caption += f": {run.metrics['decided']:.0%} of the test entries are decided,"
        caption += _worth(run.metrics)
        axes = ("stated chance of being right", "share right")
        drawings.append(Drawing("chance", "Chance of being right", caption, lambda: calibration.reliability(chances, *axes)))
    return Section("result", "Test images", drawings, "" if drawings else "There is no predictions.parquet to draw.")


def _worth(metrics: dict[str, Any]) -> str:
    """What the decisions are worth, each kind apart, beside a constant answer."""
    if metrics.get("yes_right") is None:
        return f" none of them a yes; always saying no is right in {metrics['constant_right']:.1%} of the entries."
    return (
        f" {metrics['yes_right']:.1%} of the yes and {metrics['no_right'] or 0:.1%} of the no rightly; "
        f"always saying {metrics['constant']} is right in {metrics['constant_right']:.1%} of the entries."
    )


def _why_none(settings: dict[str, Any], what: str) -> str:
    facts = METHODS[settings["method"]]
    if not facts.unlabelled:
        return f"{facts.title} learns from the labelled images only: {what}."
    return f"This run has none: {what} by {facts.title}, or the stage has not run."


def _last(frame: pd.DataFrame) -> pd.DataFrame:
    return frame if frame.empty else frame[frame["epoch"] == frame["epoch"].max()].reset_index(drop=True)
