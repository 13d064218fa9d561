"""Experiments side by side on one self-contained page, each with a link to its own report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from dicap.files.written import replacing_own
from dicap.report import style
from dicap.report.experiments import method_titles
from dicap.report.figures import comparison
from dicap.report.page import render_page, written
from dicap.settings import flatten

CAPTION = "Final mAP on the test images; a dot for each seed, a bar at their mean."
# Shown in columns and headings of their own.
IDENTITY = ("dataset", "method", "ratio", "seed")


def build_comparison(
    experiments: Sequence[dict[str, Any]],
    out: Path,
    reports: Mapping[str, str] | None = None,
) -> Path:
    """Write the page that compares finished experiments to the file `out`; return `out`.

    Args:
        experiments: as `report.experiments` describes them; `rev` identifies one.
        reports: rev -> address of the experiment's own page, relative to `out`.
    """
    reports = reports or {}
    groups = []
    with style.house_style():
        for number, ((dataset, ratio), members) in enumerate(_groups(experiments).items()):
            rows = rows_of(members)
            figure = _scores(rows)
            label = f"Scores. {CAPTION}"
            drawn = "" if figure is None else Markup(style.inline(style.to_svg(figure), f"finals-{number}", label))
            for row in rows:
                row["report"] = reports.get(row["rev"])
            groups.append({"dataset": dataset, "ratio": ratio, "rows": rows, "drawn": drawn, "id": f"group-{number}"})
    html = render_page("comparison.html", groups=groups, total=len(experiments), caption=CAPTION)
    with replacing_own(out) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return out


def rows_of(experiments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per experiment of one data set and ratio, best first: names, scores, and what distinguishes it.

    `different` lists the settings that differ from the commonest value among `experiments`, as `key: value`; of other images or
    labels the checksum's first letters.
    """
    flat = {item["rev"]: dict(flatten(item["settings"])) | {"data/converted": item["data"][:7]} for item in experiments}
    keys = [key for key in next(iter(flat.values())) if key not in IDENTITY]
    usual = {key: Counter(repr(values.get(key)) for values in flat.values()).most_common(1)[0][0] for key in keys}
    titles, rows = method_titles(), []
    for item in experiments:
        settings, metrics, values = item["settings"], item["metrics"], flat[item["rev"]]
        different = [f"{key}: {written(values.get(key))}" for key in keys if repr(values.get(key)) != usual[key]]
        rows.append(
            {
                "rev": item["rev"],
                "name": item["name"],
                "method": settings["method"],
                "title": titles.get(settings["method"], settings["method"]),
                "seed": settings["seed"],
                "map": metrics.get("map"),
                "low": metrics.get("map_low"),
                "high": metrics.get("map_high"),
                "warmup": metrics.get("map_warmup"),
                "train": metrics.get("map_train"),
                "curve_error": metrics.get("curve_error"),
                "minutes": metrics.get("minutes_per_epoch"),
                "different": different,
            }
        )
    return sorted(rows, key=lambda row: (-(row["map"] if row["map"] is not None else -1), row["name"]))


def _groups(experiments: Sequence[dict[str, Any]]) -> dict[tuple[str, float], list[dict[str, Any]]]:
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for item in sorted(experiments, key=lambda item: (item["settings"]["dataset"], item["settings"]["ratio"])):
        groups.setdefault((item["settings"]["dataset"], float(item["settings"]["ratio"])), []).append(item)
    return groups


def _scores(rows: Sequence[dict[str, Any]]) -> Figure | None:
    """The scores of a group, a line for all that differ by nothing but the seed; None where there are none."""
    labels: dict[tuple[str, ...], str] = {}
    for row in rows:
        what = (row["title"], *row["different"])
        short = ", ".join(what[:3]) + (f", {len(what) - 3} more" if len(what) > 3 else "")
        same = sum(label.partition(" #")[0] == short for key, label in labels.items() if key != what)
        labels.setdefault(what, f"{short} #{same + 1}" if same else short)
    scored = [
        {"label": labels[row["title"], *row["different"]], "seed": row["seed"], "map": row["map"]}
        for row in rows
        if row["map"] is not None
    ]
    return comparison.finals(pd.DataFrame(scored)) if scored else None
