"""What the stages will take: they run on some of the images, two epochs each, and what grows is counted on.

The first epoch of a process, which starts all that computes, is no measure of the others.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dicap.data import format as files
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.files.artifacts import cost_file
from dicap.files.content_store import ABSENT
from dicap.frozen.features.accelerated import engines
from dicap.frozen.features.compute import needed_features, store_of
from dicap.frozen.features.recipe import Recipe, pretrained_network
from dicap.machine.runtime import Runtime
from dicap.provenance.dependencies import code
from dicap.provenance.source_code import ROOT
from dicap.settings import Settings
from stages.support.common import ARTIFACTS, DATA, known_results, placed, project_root
from stages.support.parent import STARTED_BY

SAMPLE, LEAST, LABELLED = 256, 32, 10  # images in all, of a split, and labelled ones: less than two make no D_sup and D_est
EPOCHS = 2
STAGES = ("split", "features", "warmup", "pseudo-label", "train", "finetune", "evaluate")
STEPS = ["minutes_data", "minutes_step", "minutes_refresh"]  # of an epoch


def forecast(settings: Settings, folder: Path) -> dict[str, float]:
    """Minutes of each stage on a converted set, here and now, and of `all`; features that were computed before take none.

    Raises DataError where a stage fails on some of the images.
    """
    store, settings, minutes = Store.open(folder), placed(settings), {}
    values = settings.model_dump(mode="json")
    epochs = {stage: values[stage]["epochs"] for stage in ("warmup", "train", "finetune")}
    values |= {stage: values[stage] | {"epochs": EPOCHS} for stage in epochs}
    states = project_root() / ".dicap" / "state"  # of those nobody goes on with, which are removed, a kill leaves another
    states.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=states) as scratch:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # the folder goes, and the stage ends
        counts = _sample(store, Path(scratch, DATA))
        grown, labelled = store.n / sum(counts.values()), int(settings.ratio * store.meta["counts"]["train"])
        values["ratio"] = min(1.0, max(settings.ratio, (min(labelled, LABELLED) + 0.5) / counts["train"]))
        Path(scratch, "params.yaml").write_text(json.dumps(values), encoding="utf-8")
        for stage in STAGES:
            begin = time.perf_counter()
            said = _run(stage, Path(scratch))
            minutes[stage] = (time.perf_counter() - begin) / 60
            if rate := said.get("images a second"):
                unknown = _unknown(settings, store, Store.open(Path(scratch, DATA)))
                minutes[stage] = minutes[stage] + (unknown - said["images"]) / rate / 60 if unknown else 0.0
            if stage in epochs and settings.solves(stage):
                minutes[stage] += _solution(store, stage)
            elif stage in epochs and len(cost := pd.read_csv(cost_file(Path(scratch, ARTIFACTS), stage))):
                minutes[stage] += (epochs[stage] * grown - len(cost)) * float(cost[STEPS].sum(axis=1).iloc[-1])
                evaluations = -(-epochs[stage] // values[stage].get("eval_every", epochs[stage]))
                minutes[stage] += (evaluations * grown - 1) * float(cost["minutes_evaluation"].iloc[-1])
    return {stage: round(value, 2) for stage, value in (minutes | {"all": sum(minutes.values())}).items()}


def _sample(store: Store, folder: Path) -> dict[str, int]:
    """Write a converted set of some of the images, of each split its share; returns their numbers."""
    table, rng = files.read_index(store.folder), np.random.default_rng(0)
    split, chosen = np.array(table["split"].to_pylist()), {}
    for name in files.SPLITS:
        rows = np.flatnonzero(split == name)
        chosen[name] = rng.permutation(rows)[: max(LEAST, round(SAMPLE * len(rows) / store.n))]
    rows = np.sort(np.concatenate(list(chosen.values())))
    folder.mkdir(parents=True)
    np.save(folder / files.ARRAY, store.pixels(rows))
    files.write_index(folder / files.INDEX, table.take(rows), partial=files.is_partial(store.meta))
    counts = {name: len(part) for name, part in chosen.items()}
    files.write_meta(folder, store.meta | {"counts": counts})
    return counts


def _run(stage: str, folder: Path) -> dict[str, Any]:
    """Run a stage in a project; what it says."""
    kept = {key: value for key, value in os.environ.items() if key not in ("DVC_ROOT", "DVC_STAGE", "DICAP_PROJECT")}
    kept[STARTED_BY] = str(os.getpid())
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "stages.cli", "--json", stage], cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DataError(f"{stage}, on some of the images: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def _unknown(settings: Settings, store: Store, sample: Store) -> float:
    """What nobody has computed yet, in images of as many views as a sample's: a few strong views are of most of it."""
    chosen, keys = Runtime.choose(), store.digests()
    recipe = Recipe.of(settings, store, pretrained_network(settings))
    sort = [str(chosen.amp or torch.float32).removeprefix("torch."), chosen.device.type]
    made_by = [{"engine": [*each, *sort], "code": code("features", settings)} for each in engines()]
    stores = [[store_of(known_results("features"), recipe, view, by) for view in recipe.files] for by in made_by]
    needed, some = (needed_features(recipe, *each) for each in ((store, keys), (sample, sample.digests())))
    found = [np.stack([each.find(keys) != ABSENT for each in views], 1) for views in stores]  # (N, V) bool, of each engine
    return min(float((needed & ~each).sum()) for each in found) / some.sum(1).mean()


def _solution(store: Store, stage: str, passes: int = 40, heads: int = 6, components: int = 256, features: int = 1280) -> float:
    """Minutes of a solution: so many passes of all rows by all heads at most, and in the main stage all pairs of rows."""
    n, counts = store.n, store.meta["counts"]
    n, pairs = (counts["train"], 0) if stage == "warmup" else (n - counts["test"], n * n)
    a, b = np.ones((1024, features), np.float32), np.ones((features, heads * len(store.classes)), np.float32)
    begin = time.perf_counter()
    _ = a @ b
    rate = 2 * len(a) * b.size / (time.perf_counter() - begin)
    return (4 * passes * n * b.size + 2 * pairs * components) / rate / 60
