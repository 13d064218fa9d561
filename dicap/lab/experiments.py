"""Which row of which table a finished experiment belongs to, by its settings only.

An experiment is a dict: `name`, `rev`, `when` (sortable), `settings` (resolved, nested), `metrics` (details.json), `data` (what
tells its converted images and labels from others).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dicap.settings import Settings, flatten
from dicap.settings.catalogue import HEADS, NAMED_WEIGHTS, OWN_HEAD
from dicap.settings.checks import unread
from dicap.settings.methods import METHODS, recommends

_STEPS = ("calibration.target", "thresholds.rule", "contrastive.enabled", "warmup.wcl", "finetune.enabled")
# The ladder of docs/methods.md 3.10: the values of _STEPS at each step.
LADDER = {
    "dcw": ("soft", "none", False, False, False),
    "dcw_hard": ("hard", "none", False, False, False),
    "dth": ("hard", "midrange", False, False, False),
    "urrl": ("hard", "midrange", True, False, False),
    "wcl": ("hard", "midrange", True, True, False),
    "fte": ("hard", "midrange", True, True, True),
}
# What may differ between the runs of one table; all else has to be the same, and of what may differ all that a run reads has to
# be the same in one cell.
_IDENTITY = {"dataset", "data_root", "ratio", "seed", "method", "head", "protocol"}
# By which the recommended rule differs from the others on the same head: (theirs, its own).
_RULE: dict[str, tuple[Any, Any]] = {
    "linear.pseudo_weight": (0.3, "auto"),
    "linear.neighbours": (0, 10),
}
# What that protocol says of a network that is trained by steps; a head that is solved does not know it.
_BY_STEPS = {
    *("weights", "loss.gamma_neg", "loss.clip"),
    *("train.backbone_lr", "train.head_lr", "train.batch_norm"),
}
# Of the budgets of methods with loops of their own.
_LOOPS = {
    *("pclp.prior", "pclp.warmup_epochs", "pclp.epochs", "pclp.batch_labelled"),
    *("drml.features", "drml.rounds", "drml.iterations", "drml.start", "drml.per_round"),
}
# Of a method's budget and of how its head is trained: rows of the main table are told apart by the steps that follow from these.
_BUDGET = _LOOPS | {"warmup.epochs", "warmup.eval_every", "train.epochs", "train.eval_every", "linear.solver"}
_START = {"warmup.passes_on"}  # each method's authors have their own, on each data set (docs/methods.md 2.7)
SOLVED = "solved"  # in place of a number of steps
RECOMMENDED = "dicap_recommended"  # its row beside that of DiCaP's published rule
READINGS = "readings"  # a table whose rows are the cases of a grid
FREE = {
    "main": _IDENTITY | _BUDGET | _START | {"iat.rule"},
    "photographs": _IDENTITY | set(_RULE) | _BY_STEPS | _LOOPS | _START,
    "cost": _IDENTITY | _START | {"warmup.trainable", "train.trainable"},  # D2L trains the whole network everywhere
    "ablation": _IDENTITY | set(_STEPS),
    "weighting": _IDENTITY | set(_STEPS) | {"calibration.policy"},
}


def row_of(kind: str, settings: dict[str, Any]) -> str | None:
    """Row of table `kind` (a key of FREE) that a run belongs to, or None.

    ablation: `baseline` (labelled only), or a key of LADDER. weighting: the policy, at the step with dual thresholds and nothing
    after it. main, cost: see `_method_row`; cost has published heads alone. photographs: the method, or RECOMMENDED; None for a
    DiCaP with neither its rule nor the published one.
    """
    values = dict(flatten(settings))
    method, step, row = values["method"], _step_of(values), _method_row(values)
    theirs, own = (all(values[key] == pair[i] for key, pair in _RULE.items()) for i in (0, 1))
    if recommends(method, values["protocol"]):
        return RECOMMENDED if own and kind == "photographs" else None
    if kind == "ablation":
        return "baseline" if method == "mld" else step if values["calibration.policy"] == "estimated" else None
    if kind == "weighting":
        return values["calibration.policy"] if step == "dth" else None
    if kind == "photographs":
        return method if theirs and row else None
    if kind == "cost":
        return row if row == method else None
    assert kind == "main", kind
    return row


def _method_row(values: dict[str, Any]) -> str | None:
    """The method, with its head where that is not the published one: `cap`, `cap ml_decoder`, `iat_matched`.

    None for steps of the ladder and other weights: they are runs of DiCaP too, but not what the main table means by its name.
    """
    method, head = values["method"], values["head"]
    if method == "dicap" and (_step_of(values) != "fte" or values["calibration.policy"] != "estimated"):
        return None
    rule = values["iat.rule"] if method == "iat" else "fixed"
    name = method if rule == "fixed" else f"{method}_{rule}"
    return name if head == METHODS[method].head else f"{name} {head}"


def case_mark(settings: dict[str, Any]) -> str:
    """The same for settings that differ in seed and ratio alone."""
    return json.dumps(settings | {"seed": 0, "ratio": 1.0}, sort_keys=True)


def row_titles() -> dict[str, str]:
    """Titles of the rows of the main table, in order: a method's published head, then the other one."""
    titles = {}
    for method, title in method_titles().items():
        rules = {"": "", "_matched": ", matched threshold (ours)"} if method == "iat" else {"": ""}
        for key, words in rules.items():
            other = [f"{method}{key} {head}" for head in HEADS if METHODS[method].head not in (head, OWN_HEAD)]
            titles |= dict.fromkeys((f"{method}{key}", *other), title + words)
    return titles


def head_of(row: str) -> str:
    """The head of a row of the main table: linear, ml_decoder, or own."""
    return row.partition(" ")[2] or METHODS[_method_of(row)].head


def labelled_only(row: str) -> bool:
    """Whether a row of the main table uses no unlabelled images."""
    return not METHODS[_method_of(row)].unlabelled


def _method_of(row: str) -> str:
    name = row.partition(" ")[0]
    return name if name in METHODS else name.rpartition("_")[0]  # without its rule


def frame_of(
    experiments: Sequence[dict[str, Any]],
    kind: str,
    reference: dict[str, Any] | None = None,
    cases: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """The runs of table `kind`, a row each; of `readings` those that `cases` names, `case_mark` of their settings -> row.

    Columns: dataset, row, ratio, seed, map, minutes_per_epoch, peak_memory_gb, rev, name; steps (a number, SOLVED, or empty where
    nothing is known); network, in words; which, the network that was scored, and other, the mAP of the other one;
    best_on_test.

    Runs of one data set are comparable if all settings but FREE[kind] agree, and images and labels are the same. Where they are
    not, those that agree with `reference` (the settings of params.yaml) are kept, or else the most numerous ones; of other images
    or labels the latest. Of a cell (data set, row, ratio; in the main table also the number of steps) the runs have to
    agree in the rest of what they read, and are chosen alike. Of several runs of one cell and seed the latest counts.

    Returns the frame and a sentence about every group that was left out.
    """
    rows, notes = [], []
    for experiment in experiments:
        settings, metrics = experiment["settings"], experiment["metrics"]
        row = row_of(kind, settings) if cases is None else cases.get(case_mark(settings))
        if row is None or metrics.get("map") is None:
            continue
        rows.append(
            {
                "dataset": settings["dataset"],
                "row": row,
                "ratio": round(float(settings["ratio"]), 6),  # so that equal ratios are equal
                "seed": int(settings["seed"]),
                "map": float(metrics["map"]),
                "steps": SOLVED if metrics.get("steps", "") is None else metrics.get("steps", ""),
                "which": metrics.get("model", ""),
                "other": metrics.get("map_ema" if metrics.get("model") == "raw" else "map_raw"),
                "best_on_test": metrics.get("best_on_test"),
                "network": _network(settings),
                "minutes_per_epoch": metrics.get("minutes_per_epoch"),
                "peak_memory_gb": metrics.get("peak_memory_gb"),
                "rev": experiment["rev"],
                "name": experiment["name"],
                "when": experiment["when"] or "",
                "rest": _rest(settings, kind) if cases is None else (),
                "data": experiment["data"],
                "read": _read(settings, kind) if cases is None else (),
            }
        )
    if not rows:
        return pd.DataFrame(columns=["dataset", "row", "ratio", "seed", "map"]), notes
    rows.sort(key=lambda row: row["when"])
    wanted = dict(flatten(reference)) if reference else {}
    cell = ["dataset", "row", "ratio", *(["steps"] if kind == "main" else [])]
    for names in (["dataset"], cell):
        rest = "rest" if names == ["dataset"] else "read"
        kept = []
        for place in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
            here = [row for row in rows if tuple(row[name] for name in names) == place]
            groups = Counter(row[rest] for row in here)
            agree = [group for group in groups if reference and all(repr(wanted[key]) == value for key, value in group)]
            most = [group for group in groups if groups[group] == max(groups.values())]
            chosen = (agree or most)[-1]  # the latest of those
            same = [row for row in here if row[rest] == chosen]
            label = " ".join(map(str, place)).strip()
            if not agree and names == ["dataset"] and reference and reference["dataset"] == place[0]:
                keys = sorted(key for key, value in chosen if repr(wanted[key]) != value)
                notes.append(f"{label}: no run has the settings asked for; those shown differ in {', '.join(keys)}.")
            if len(groups) > 1:
                keys = sorted({key for other in groups for key, _ in set(other) ^ set(chosen)})
                listed = ", ".join(keys[:4]) + (", ..." if len(keys) > 4 else "")
                notes.append(f"{label}: left out {_runs(len(here) - len(same))} with other settings ({listed}).")
            last = [row for row in same if row["data"] == same[-1]["data"]]
            if len(last) < len(same):
                notes.append(f"{label}: left out {_runs(len(same) - len(last))} on other images or labels than the latest.")
            kept += last
        rows = sorted(kept, key=lambda row: row["when"])
    frame = pd.DataFrame(rows).drop(columns=["rest", "data", "read"])
    frame = frame.drop_duplicates([*cell, "seed"], keep="last")
    return frame.sort_values(["dataset", "ratio", "row", "seed"], kind="stable").reset_index(drop=True), notes


def method_titles() -> dict[str, str]:
    """Titles of the methods in the paper's order, which is that of METHODS, but for DiCaP, the last."""
    titles = {key: facts.title for key, facts in METHODS.items()}
    ours = titles.pop("dicap")
    return titles | {"dicap": ours}


def _network(settings: dict[str, Any]) -> str:
    """Backbone, weights and size of the images, and whether the backbone was trained."""
    weights = settings["backbone_weights"] if settings["backbone_weights"] in NAMED_WEIGHTS else "own"
    frozen = ", frozen" if settings["train"]["trainable"] == "head" else ""
    return f"{settings['backbone']}, {weights} weights, {settings['image_size']} px{frozen}"


def _step_of(values: dict[str, Any]) -> str | None:
    """The step of LADDER that a run of DiCaP is at; None off the ladder, and for other methods."""
    found = tuple(values[key] for key in _STEPS)
    return next((name for name, step in LADDER.items() if step == found and values["method"] == "dicap"), None)


def _runs(number: int) -> str:
    return f"{number} run{'s' if number > 1 else ''}"


def _rest(settings: dict[str, Any], kind: str) -> tuple[tuple[str, str], ...]:
    values = dict(flatten(settings))
    if values["method"] == "drml" and (values["drml.features"], values["network.normalize"]) == ("pretrained", "auto"):
        values["network.normalize"] = "none"  # as of the other methods where nothing is given (docs/methods.md 4.5)
    return tuple((key, repr(value)) for key, value in sorted(values.items()) if key not in FREE[kind])


def _read(settings: dict[str, Any], kind: str) -> tuple[tuple[str, str], ...]:
    """Of the settings that may differ between the runs of a table, and that no row or column tells, those that a run reads."""
    free = FREE[kind] - (_IDENTITY - {"head"}) - unread(Settings.model_validate(settings)).keys()
    return tuple((key, repr(value)) for key, value in sorted(flatten(settings)) if key in free)
