"""Finished runs as JSON, a file a run, and the table of such files (docs/results.md). No benchmark: nothing is timed.

    python benchmarks/runs.py write FOLDER NAME_s1=PROJECT ...     NAME_s1.json of each project (params.yaml and artifacts/)
    python benchmarks/runs.py table FOLDER [--minus est]           by NAME: mAP by seed, raw and EMA, and paired differences
    python benchmarks/runs.py curves FOLDER NAME=LABEL ... --out F.svg   mAP by optimiser step: each seed thin, their mean bold
    python benchmarks/runs.py methods FOLDER NAME=LABEL ... --out F.svg  mAP with intervals; the first one's curve and weights

A file has the values that params.yaml sets, the commit, the optimiser steps and the curve of test mAP of each stage, the ledger
(the rows of history.csv with weights and gradients, the thresholds as means over the classes), and what the last main epoch
knew of positives: the estimated and the true share in each bin of confidence, and a histogram of their weights.
"""

import argparse
import json
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pandas as pd
from common import paired

from dicap.files import artifacts as files
from dicap.files.tables import read_parquet
from dicap.report.evidence import histogram_of_record
from dicap.settings import flatten, read_yaml

STAGES = ("warmup", "train", "finetune")
COLUMNS = (
    *("epoch", "steps", "grad_sup", "grad_pseudo", "grad_con", "weight_pos", "weight_pos_sd", "weight_neg"),
    *("share_pos", "share_neg", "share_uncertain", "precision_pos", "precision_neg", "tau_pos", "tau_neg", "map_raw", "map_ema"),
)
NAME = re.compile(r"(.+)_s(\d+)")


def ledger(artifacts: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows of COLUMNS by stage, without what a row has not; beside the main stage's those in which something was measured."""
    rows_of = {}
    for stage in (stage for stage in STAGES if (artifacts / stage / "history.csv").exists()):
        history = pd.read_csv(artifacts / stage / "history.csv")
        for epoch in files.epochs(artifacts / stage, "thresholds"):
            table = read_parquet(files.epoch_file(artifacts / stage, "thresholds", epoch)).to_pandas()
            history.loc[history["epoch"] == epoch, ["tau_pos", "tau_neg"]] = table[["tau_pos", "tau_neg"]].mean().to_numpy()
        rows = [{str(k): v for k, v in row.items() if v == v} for row in history.reindex(columns=[*COLUMNS]).to_dict("records")]
        rows_of[stage] = [row for row in rows if stage == "train" or "grad_sup" in row or "map_raw" in row]
    return rows_of


def last_bins(artifacts: Path) -> dict[str, list[float]]:
    """Of the last main epoch, by bin of confidence: entries counted on D_est, estimated and true share of positives.

    By twentieth of weight: the pseudo-positives. Empty for a method without weights.
    """
    if not (epochs := files.epochs(artifacts / "train", "weights")):
        return {}
    bins = read_parquet(files.epoch_file(artifacts / "train", "weights", epochs[-1])).to_pandas()
    weights, _ = histogram_of_record(files.epoch_file(artifacts / "train", "pseudo_labels", epochs[-1]))
    shares = {"estimated": bins["r_pos"], "true": bins["optimal_r_pos"]}
    counts = {"counted": bins["n_pos"] + bins["n_neg"], "weights_pos": weights.loc[weights["label"] == 1, "n"]}
    return {name: [round(float(v), 5) for v in column] for name, column in (shares | counts).items()}


def finished(name: str, project: Path, commit: str | None = None) -> dict[str, Any]:
    """What the file of a run holds. `commit`: of its code, where the project is no repository."""
    artifacts = project / "artifacts"
    rows = ledger(artifacts)
    curve = {
        stage: [[row["epoch"] + 1, row["map_raw"], row["map_ema"]] for row in part if "map_raw" in row]
        for stage, part in rows.items()
    }
    steps = {stage: int(pd.read_csv(artifacts / stage / "history.csv")["steps"].sum()) for stage in rows}
    values = flatten(read_yaml(project / "params.yaml"))
    return {
        "name": name,
        "seed": int(NAME.fullmatch(name)[2]),  # type: ignore[index]  # argparse has looked
        "commit": commit or subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=project, text=True).strip(),
        # Without the folder of the photographs, which is a machine's.
        "settings": [f"{k}={v}" for k, v in values if v not in (None, "data/none") and k != "data_root"],
        "steps": {stage: count for stage, count in steps.items() if count},
        "end": {stage: {"raw": part[-1][1], "ema": part[-1][2]} for stage, part in curve.items() if part},
        "curve": curve,
        "ledger": rows,
        "bins": last_bins(artifacts),
    }


def table(folder: Path, minus: str | None = None) -> str:
    """Markdown: a row for every name, with the mAP of its last stage by seed; differences from the row `minus`."""
    ends: dict[str, dict[int, dict[str, float]]] = {}
    for run in runs_of(folder, "*"):
        match = NAME.fullmatch(run["name"])
        if match and run["end"]:
            ends.setdefault(match[1], {})[int(match[2])] = [*run["end"].values()][-1] | {"steps": sum(run["steps"].values())}
    lines = ["| | steps | raw by seed | raw | EMA | minus " + (minus or "-") + " |", "| --- | ---: | --- | ---: | ---: | ---: |"]
    for name, by_seed in ends.items():
        frame = pd.DataFrame.from_dict(by_seed, orient="index").sort_index()
        shared = frame.index.intersection([*ends.get(minus or "", {})])
        others = [ends[minus or ""][seed]["raw"] for seed in shared]
        gain = paired([*frame.loc[shared, "raw"]], others, 2) if others and name != minus else {}
        raws = ", ".join(f"{seed}: {row.raw:.1f}" for seed, row in frame.iterrows())
        difference = f"{gain['mean']:+.2f} ± {gain['half']:.2f} ({len(shared)} seeds)" if gain else ""
        lines.append(
            f"| {name} | {frame['steps'].iloc[0]:.0f} | {raws} | {frame['raw'].mean():.2f} ± {frame['raw'].std():.2f} | "
            f"{frame['ema'].mean():.2f} | {difference} |"
        )
    return "\n".join(lines)


def runs_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """The runs of a name, by seed: files of a folder, or the cells of one file, as a day on a GPU writes them."""
    if folder.is_file():
        return [run for key, run in json.loads(folder.read_text())["cells"].items() if fnmatch(key, f"{name}_s*")]
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}_s*.json"))]


def points(run: dict[str, Any]) -> tuple[list[int], list[float]]:
    """Optimiser steps taken before each evaluation of the raw network, and its mAP in percent."""
    steps, scores, before = [], [], 0
    for stage, taken in run["steps"].items():
        evaluations = run["curve"][stage]
        for epoch, raw, _ in evaluations:
            steps.append(before + round(taken * epoch / evaluations[-1][0]))
            scores.append(raw)
        before += taken
    return steps, scores


def curves(folder: Path, rows: list[str], out: Path) -> None:
    """Draw a thin line for each seed and, in bold, the mean over seeds at the steps where all of them were scored."""
    from dicap.report import style

    with style.house_style():
        figure = style.canvas()
        ax = figure.subplots()
        for row, look in zip(rows, style.LINES, strict=False):
            name, _, label = row.partition("=")
            runs = runs_of(folder, name)
            seeds = pd.DataFrame({run["seed"]: pd.Series(*reversed(points(run))) for run in runs})
            for seed in seeds:
                ax.plot(seeds[seed].dropna(), color=look["color"], linewidth=0.6, alpha=0.4)
            ax.plot(seeds.dropna().mean(axis=1), **look, label=f"{label or name}, {len(runs)} seeds")
        ax.set_xlabel("optimiser steps")
        ax.set_ylabel("test mAP of the raw network, %")
        figure.legend(loc="outside upper left", ncols=2)
        style.save(figure, out)


def methods(folder: Path, rows: list[str], out: Path) -> None:
    """Draw mAP of the raw network by method, and of the first method what the last main epoch knew of positives.

    Left, seeds as dots and 95 % intervals of means (Student's t); then the estimated and the true share of positives by
    confidence and the histogram of their weights, means over seeds. A weight is read off the curve: the two share an axis.
    """
    from dicap.report import style

    named = {name: label for name, _, label in (row.partition("=") for row in rows)}
    runs = {name: runs_of(folder, name) for name in named}
    bins = pd.concat(pd.DataFrame(run["bins"]) for run in runs[next(iter(runs))]).groupby(level=0).mean()
    with style.house_style():
        figure = style.canvas(width=2 * style.WIDTH)
        left, middle, right = figure.subplots(1, 3, width_ratios=[5, 4, 1.2])
        for place, part in enumerate(runs.values()):
            scores = [[*run["end"].values()][-1]["raw"] for run in part]
            left.plot(scores, [place] * len(scores), "o", color=style.SKY, alpha=0.7)
            mean = paired(scores, [0.0] * len(scores))
            left.errorbar(mean["mean"], place, xerr=mean["half"], fmt="D", color=style.BLUE, capsize=3)
        left.set_yticks(range(len(runs)), [f"{named[name] or name}, {len(runs[name])} seeds" for name in runs])
        left.margins(y=0.15)
        left.invert_yaxis()
        left.set_xlabel("test mAP, %: seeds, mean and 95 % interval")
        centres = (bins.index + 0.5) / len(bins)
        for column, look in zip(("true", "estimated"), style.LINES, strict=False):
            middle.plot(centres, bins[column], **look, label=f"{column} share of positives")
        middle.set_xlabel("confidence of the network")
        middle.set_ylim(-0.02, 1.02)
        middle.legend(loc="upper left")
        share = bins["weights_pos"] / bins["weights_pos"].sum()
        right.barh(centres, share, height=0.86 / len(bins), color=style.BLUE, alpha=0.5)
        right.sharey(middle)
        right.set_ylabel("weight of a pseudo-positive")
        right.set_xlabel("their share")
        style.save(figure, out)


def named(text: str) -> tuple[str, Path]:
    """NAME_sSEED=PROJECT, taken apart."""
    name, _, project = text.partition("=")
    if not NAME.fullmatch(name) or not (Path(project) / "params.yaml").is_file():
        raise SystemExit(f"found {text!r}, expected NAME_s1=PROJECT, a folder with params.yaml and artifacts/")
    return name, Path(project)


def main() -> None:
    """Write files, or print their table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "table", "curves", "methods"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", nargs="*", metavar="NAME_s1=PROJECT or NAME=LABEL")
    parser.add_argument("--minus", metavar="NAME", help="differences from this row")
    parser.add_argument("--out", type=Path, default=Path("curves.svg"), help="the figure (default: %(default)s)")
    parser.add_argument("--commit", help="of the code, where the projects are no repositories")
    arguments = parser.parse_args()
    if arguments.what == "table":
        print(table(arguments.folder, arguments.minus))
        return
    if draw := {"curves": curves, "methods": methods}.get(arguments.what):
        draw(arguments.folder, arguments.runs, arguments.out)
        return
    projects = [named(text) for text in arguments.runs]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, project in projects:
        text = json.dumps(finished(name, project, arguments.commit), indent=1)
        (arguments.folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
