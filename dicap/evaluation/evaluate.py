"""Evaluates a model on the test images: metrics, tables, predictions and the model card (docs/methods.md 2.9)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dicap.errors import DataError
from dicap.evaluation.answers import Answers
from dicap.evaluation.model_card import model_card
from dicap.files.artifacts import CHOICE, COST, cost_file, write_predictions
from dicap.files.atomic import replacing, replacing_folder
from dicap.files.json_files import read_json, write_json
from dicap.files.tables import read_csv
from dicap.files.written import replacing_own_folder
from dicap.metrics.operating_point import at_threshold, gap, of_answers, reliability
from dicap.metrics.ranking import average_precision, can_be_tested, map_interval, mean_average_precision
from dicap.metrics.warnings import of_results
from dicap.models import SavedModel, load_model
from dicap.settings import Settings
from dicap.settings.catalogue import OWN
from dicap.training.experiment import Experiment
from dicap.training.hidden import HiddenLabelReader

STAGES = ("warmup", "train", "finetune")  # the stages that publish a model
# The metrics for comparing experiments, in the order of metrics.json; details.json contains them too.
COMPARED = ("map", "map_low", "map_high", "f1", "decided", "decided_right", "chance_gap", "steps")


def score(experiment: Experiment, model: SavedModel) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, C) float32 of the test images by the model's own method, and their true labels (n, C), -1 if unknown."""
    rows = experiment.roles.test
    network, title = experiment.place(model.network), f"evaluate {model.stage} ({model.which})"
    scores = replace(experiment, method=model.method).predict(network, rows, desc=title)
    return scores.cpu().numpy(), HiddenLabelReader(experiment.folder).labels(rows)[0].numpy()


def metrics(scores: np.ndarray, labels: np.ndarray, *, testable: bool = False) -> dict[str, Any]:
    """mAP in percent with its 95 % interval, and the number of classes without a positive test image, over known entries.

    By the published rule a class without positives has AP 0 and stays in the mean. With `testable`, for own images, the mean
    leaves out the classes that cannot be tested, and `classes_left_out` counts them. `unknown_entries` counts entries of labels
    (n, C) that are -1, if there are any.
    """
    can_test, unknown = can_be_tested(labels), int((labels < 0).sum())
    left_out = int((~can_test).sum()) if testable and can_test.any() else 0
    counted = can_test if left_out else slice(None)
    corrected, low, high = map_interval(scores[:, counted], labels[:, counted])
    return {
        "map": mean_average_precision(scores, labels, testable=testable),
        "map_corrected": _number(corrected),
        "map_low": _number(low),
        "map_high": _number(high),
        "n_test": len(scores),
        "n_classes": scores.shape[1],
        "classes_without_positives": int((~(labels > 0).any(0)).sum()),
        "classes_left_out": left_out,
    } | ({"unknown_entries": unknown} if unknown else {})


def decided(scores: np.ndarray, labels: np.ndarray, answers: Answers) -> dict[str, Any]:
    """The share of decided entries, the share of right decisions among them, and the calibration of the stated chance.

    `chance_tenths` has a row for every tenth of the stated chance (`operating_point.reliability`), `chance_gap` is their `gap`.
    Without a correctness curve the list is empty and the gap None. `dicap.metrics.operating_point.of_answers` adds its keys.
    """
    answer, chance = answers.decide(scores)
    known = labels >= 0
    chance = np.where(known, chance, np.nan)
    right = answer == labels
    tenths = reliability(chance, right)
    return {
        "decided": float((answer[known] >= 0).mean()) if known.any() else None,
        "decided_right": float(right[known & (answer >= 0)].mean()) if (known & (answer >= 0)).any() else None,
        "chance_gap": gap(tenths),
        "chance_tenths": tenths,
    } | of_answers(answer, labels)


def by_class(classes: Sequence[str], scores: np.ndarray, labels: np.ndarray, answers: Answers) -> pd.DataFrame:
    """Metrics of each class on the test images.

    Returns:
        DataFrame with class, n_pos, ap, chance (the AP of random scores: the share of positives), precision and recall of yes.
    """
    known = np.maximum(1, (labels >= 0).sum(0))
    positives = (labels > 0).sum(0)
    table = {"class": list(classes), "n_pos": positives, "ap": average_precision(scores, labels), "chance": positives / known}
    answer = answers.decide(scores)[0]
    shares = pd.DataFrame([of_answers(answer[:, [c]], labels[:, [c]]) for c in range(len(classes))])
    return pd.DataFrame(table).assign(precision=shares["yes_right"].astype(float), recall=shares["yes_recall"].astype(float))


def evaluate(
    experiment: Experiment,
    model_path: Path,
    out: Path,
    environment: dict[str, str] | None = None,
    *,
    own: bool = False,
) -> dict[str, Any]:
    """Evaluate a model and its counterpart; write metrics.json, details.json, per_class.csv, predictions.parquet, MODEL_CARD.md.

    Args:
        model_path: model.safetensors or its folder, which may also hold the counterpart, model_raw or model_ema.safetensors. In a
            stage's folder, histories and costs are read from the folders of the other stages.
        out: a folder that is replaced as a whole; with `own` only if an earlier call with `own` wrote all its content.

    Returns:
        The content of details.json.

    Raises:
        DataError: the model is missing or damaged, or was trained on other classes or another image size.
    """
    s = experiment.settings
    load = partial(load_model, device=experiment.runtime.device, stored=experiment.stored_backbone)
    model_path = model_path / "model.safetensors" if model_path.is_dir() else model_path
    folder = model_path.absolute().parent
    artifacts = folder.parent if folder.name in STAGES else folder / "nowhere"
    model = load(model_path)
    _check_fits(model, model_path, experiment)
    scores, labels = score(experiment, model)
    paths = (folder / f"model_{which}.safetensors" for which in ("raw", "ema") if model_path.name == "model.safetensors")
    counterparts = [other for other in map(load, filter(Path.exists, paths)) if other.settings == model.settings]
    others = {other.which: score(experiment, other)[0] for other in counterparts if other.which != model.which}
    testable = s.dataset == OWN
    result = metrics(scores, labels, testable=testable)
    result |= {
        "dataset": s.dataset,
        "method": model.settings.method,  # the model's settings may differ from the pipeline's
        "ratio": model.settings.ratio,
        "seed": model.settings.seed,
        "model": model.which,
        "stage": model.stage,
    }
    answers, images = Answers.of(model.evidence), model.evidence.measured
    result |= decided(scores, labels, answers)
    result[f"map_{model.which}"] = result["map"]
    for which, other in others.items():
        result[f"map_{which}"] = mean_average_precision(other, labels, testable=testable)
    result |= at_threshold(scores, labels, answers.f1_threshold()) | {"threshold_images": images}
    positives = (labels > 0).sum(0).tolist()
    result["warnings"] = list(of_results(result, len(experiment.roles.labelled), images, positives))
    result |= {"notes": notes} if (notes := experiment.store.meta["notes"]) else {}  # on near-duplicates and other assumptions
    result |= _from_histories(artifacts, model.settings) | _from_costs(artifacts)
    if model.stage != "warmup" and (path := artifacts / "train" / CHOICE).exists():
        result |= {key: value for key, value in read_json(path).items() if key == "unlabelled"}

    table = by_class(experiment.store.classes, scores, labels, answers)
    y_labelled = experiment.labels.of(experiment.roles.labelled)
    n_labelled = (y_labelled > 0).sum(0).numpy()
    table.insert(2, "n_train_labelled", n_labelled)
    if unknown := int((y_labelled < 0).sum()):
        result["unknown_labelled"] = unknown
    r = experiment.roles
    result["roles"] = roles = {"sup": len(r.sup), "est": len(r.est), "unlabeled": len(r.unlabelled), "test": len(r.test)}
    classes = [
        (name, int(n_labelled[c]), positives[c], 100 * float(table["ap"][c])) for c, name in enumerate(experiment.store.classes)
    ]
    card = model_card(model, result, experiment.store.meta, roles, classes, environment or {})
    with (replacing_own_folder if own else replacing_folder)(out) as new:
        (new / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        write_json(result, new / "details.json")
        write_json({key: result[key] for key in COMPARED if key in result}, new / "metrics.json")
        with replacing(new / "per_class.csv") as path:
            table.to_csv(path, index=False, float_format="%.6f", lineterminator="\n")
        ids, answer = experiment.store.ids[experiment.roles.test], answers.decide(scores)[0]
        write_predictions(ids, scores, answer, labels, new / "predictions.parquet")
    return result


def _check_fits(model: SavedModel, path: Path, experiment: Experiment) -> None:
    store = experiment.store
    if model.classes != store.classes:
        raise DataError(
            f"{path}: trained on {len(model.classes)} classes ({', '.join(model.classes[:3])} ...), "
            f"not the {len(store.classes)} of {store.folder} ({', '.join(store.classes[:3])} ...); choose another model"
        )
    if model.settings.image_size != store.image_size:
        raise DataError(
            f"{path}: trained on images of {model.settings.image_size} px, but {store.folder} was converted at "
            f"{store.image_size} px; set image_size and convert again"
        )


def _from_histories(artifacts: Path, settings: Settings) -> dict[str, Any]:
    """Numbers from the histories of the stages: steps, last mAP, the paper's best-on-test number, error of the curve.

    `map_warmup` and `map_train` belong to the network that the stage published. `settings`: the model's settings.
    """
    frames = {stage: _csv(artifacts / stage / "history.csv") for stage in STAGES}
    out: dict[str, Any] = _steps(frames)

    def last(stage: str, *columns: str) -> float | None:
        for column in columns:
            if len(values := frames[stage].get(column, pd.Series(dtype=float)).dropna()):
                return float(values.iloc[-1])
        return None

    for stage in ("warmup", "train"):
        out[f"map_{stage}"] = last(stage, f"map_{settings.publishes(stage)}", "map_raw")
    out |= {name: last("train", name) for name in ("curve_error", "excess_log_loss")}
    # The published protocol reports the best epoch on the test set, over both models (docs/methods.md 2.9). This is biased
    # upwards, so its name says best_on_test, and nothing is selected by it.
    best = [
        (float(value), stage, int(epoch), name.removeprefix("map_"))
        for stage, frame in frames.items()
        for name in ("map_raw", "map_ema")
        if name in frame
        for epoch, value in frame[["epoch", name]].dropna().to_numpy()
    ]
    if best:
        value, stage, epoch, which = max(best)
        out |= {"best_on_test": value, "best_on_test_stage": stage, "best_on_test_epoch": epoch, "best_on_test_model": which}
    return out


def _steps(frames: dict[str, pd.DataFrame]) -> dict[str, int | None]:
    """Numbers of training steps: `steps_<stage>` of warmup, train and finetune, and their sum `steps`.

    0 for a stage that the method does not have. None for a stage that was solved instead of trained by steps; then the sum is
    None too. {} if a history is missing.
    """
    if any(not len(frame.columns) for frame in frames.values()):
        return {}
    counts: dict[str, int | None] = {}
    for stage, frame in frames.items():
        steps = frame.get("steps", pd.Series(index=frame.index, dtype=float))
        counts[f"steps_{stage}"] = None if steps.isna().any() else int(steps.sum())
    known = [value for value in counts.values() if value is not None]
    return counts | {"steps": sum(known) if len(known) == len(counts) else None}


def _from_costs(artifacts: Path) -> dict[str, Any]:
    """Mean minutes of a main epoch (with threshold and weight updates, without evaluation on test images), and peak memory.

    `peak_memory_gb` (GiB) is memory of the GPU, `peak_resident_gb` main memory of the process; None if not measured.
    """
    frame = _csv(cost_file(artifacts, "train")).reindex(columns=list(COST))
    minutes = frame["minutes"] - frame["minutes_evaluation"]
    values = {"minutes_per_epoch": minutes.mean()} | {name: frame[name].max() for name in ("peak_memory_gb", "peak_resident_gb")}
    return {name: _number(float(value)) for name, value in values.items()}


def _csv(path: Path) -> pd.DataFrame:
    return read_csv(path, "epoch") if path.exists() else pd.DataFrame()


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value
