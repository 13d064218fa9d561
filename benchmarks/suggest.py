"""Does labelling by `suggest` beat random choice of the same number? On digits, the project's own pipeline, several seeds.

For each seed: train on a small labelled set; choose `--count` unlabelled scenes, once by `suggest` and once at random; give
them their hidden labels; train again from the start on the larger set; compare the test mAP of the two.
Chosen scenes join D_sup and D_est in the proportion of the split.

    python benchmarks/suggest.py --out benchmarks/results/suggest.json
    python benchmarks/suggest.py --smoke      to see that it runs
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from dicap.data.convert import convert
from dicap.data.format import read_index
from dicap.data.sources import read_raw
from dicap.data.sources.benchmarks import digits
from dicap.data.split import split_roles
from dicap.evaluation.evaluate import metrics, score
from dicap.files import artifacts
from dicap.files.json_files import write_json
from dicap.machine.runtime import Runtime
from dicap.models import load_model, load_weights
from dicap.randomness import permutation
from dicap.settings import Settings, load_settings
from dicap.training.experiment import Experiment
from dicap.training.hidden import HiddenLabelReader
from dicap.training.inputs import Images
from dicap.training.loops.warmup import initial_network
from dicap.training.run import run_stage
from dicap.use.suggest import suggest

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "suggest.json"
STAGES = ("warmup", "train", "finetune")
TOY = {"warmup": {"epochs": 1, "eval_every": 1}, "train": {"epochs": 1, "cycle_epochs": 0}, "finetune": {"epochs": 1}}


def main() -> None:
    """Run and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--ratio", type=float, default=0.025, help="share labelled before (0.025: 100 of 4000 scenes)")
    parser.add_argument("--count", type=int, default=100, help="scenes labelled in the second round")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument(
        "--smoke", action="store_true", help="one epoch per stage, one seed, few scenes; no result is overwritten"
    )
    options = parser.parse_args()
    if options.smoke:
        digits.TRAIN, digits.TEST = 300, 60
        options.ratio, options.count = 0.1, 10
    with tempfile.TemporaryDirectory() as scratch:
        rows = [compare(Path(scratch), seed, options) for seed in (options.seeds[:1] if options.smoke else options.seeds)]
    difference = [row["suggest"] - row["random"] for row in rows]
    found = {
        "what": "mAP on the test scenes of digits after labelling more, chosen by suggest or at random",
        "labelled_before": rows[0]["labelled_before"],
        "labelled_more": options.count,
        "runs": rows,
        "mean_difference": float(np.mean(difference)),
        "standard_deviation": float(np.std(difference, ddof=1)) if len(difference) > 1 else None,
        "suggest_better": int(sum(d > 0 for d in difference)),
    }
    print(json.dumps(found, indent=2))
    if not options.smoke or options.out != RESULT:
        write_json(found, options.out)


def compare(scratch: Path, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The three trainings of one seed."""
    settings = settings_of(scratch, seed, options)
    folder = scratch / "digits"
    if not folder.exists():
        convert(read_raw("digits", None), folder, image_size=settings.image_size, workers=0)
    table = read_index(folder, ["id", "split", "labels"])
    index = table.select(["id", "split"]).to_pandas()
    index["labelled"] = table["labels"].is_valid().to_numpy()
    before = split_roles(index, settings.ratio, seed, settings.split.est_fraction)
    experiment, model, first = train(scratch / "before", folder, before, settings)
    unlabelled = experiment.roles.unlabeled
    chosen = [
        found.row
        for found in suggest(load_model(model), Images(experiment.store, 0, 0.0), unlabelled, options.count, experiment.runtime)
    ]
    drawn = unlabelled[permutation(seed, "suggest", 0, len(unlabelled), "random")[: len(chosen)]]
    row: dict[str, Any] = {
        "seed": seed,
        "before": first,
        "labelled_before": len(experiment.roles.labelled),
        "chosen": len(chosen),
    }
    for name, rows in (("suggest", np.array(chosen)), ("random", drawn)):
        _, _, row[name] = train(scratch / name, folder, labelled_more(before, rows, seed, settings), settings)
        labels = HiddenLabelReader(experiment.folder, len(experiment.store.classes)).labels(rows)[0].numpy()
        row[f"{name}_positives"] = dict(zip(experiment.store.classes, labels.sum(0).tolist(), strict=True))
    print(f"seed {seed}: before {first:.2f}, suggest {row['suggest']:.2f}, random {row['random']:.2f}", flush=True)
    return row


def settings_of(scratch: Path, seed: int, options: argparse.Namespace) -> Settings:
    """The settings of digits, with the benchmark's seed and ratio."""
    yaml = YAML(typ="safe", pure=True)
    values = yaml.load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    values |= {"dataset": "digits", "data_root": None, "seed": seed, "ratio": options.ratio, "method": "dicap"}
    if options.smoke:
        values |= {name: values[name] | changes for name, changes in TOY.items()}
    path = scratch / "params.yaml"
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(values, file)
    return load_settings(path, ROOT / "configs")


def labelled_more(before: pd.DataFrame, rows: np.ndarray, seed: int, settings: Settings) -> pd.DataFrame:
    """The split with these rows labelled, in a drawn order: D_est gets its share of them."""
    after = before.copy()
    order = rows[permutation(seed, "suggest", 0, len(rows), "roles")]
    n_sup = int((1 - settings.split.est_fraction) * len(order))
    after.loc[order[:n_sup], "role"] = "sup"
    after.loc[order[n_sup:], "role"] = "est"
    return after


def train(place: Path, folder: Path, roles: pd.DataFrame, settings: Settings) -> tuple[Experiment, Path, float]:
    """All stages from the start; the experiment, the last model, and its test mAP in percent."""
    shutil.rmtree(place, ignore_errors=True)
    split = place / "split.parquet"
    artifacts.write_split(roles["id"].tolist(), roles["role"].tolist(), split)
    experiment = Experiment.open(settings, Runtime.choose(), folder, split)
    model: Path | None = None
    for stage in STAGES:

        def network(model: Path | None = model):
            if model is None:
                return initial_network(experiment)
            made = experiment.method.build_network(pretrained=False)
            load_weights(made, model)
            return made

        inputs = [split] if model is None else [split, model]
        run_stage(
            stage,
            experiment,
            network,
            inputs=inputs,
            root=place,
            out=place / stage,
            fresh=True,
            log=lambda lines: None,
        )
        model = place / stage / "model.safetensors"
    assert model is not None
    scores, labels = score(experiment, load_model(model))
    return experiment, model, metrics(scores, labels)["map"]


if __name__ == "__main__":
    main()
