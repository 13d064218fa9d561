"""What the result of a stage depends on beside its input files: settings, and code. The tables of this project.

`dicap-stage resolve` writes it down for DVC, and the state of an interrupted stage is named by it. Tests run every stage and
compare: what it imports and what it reads must be here.
"""

from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from dicap.data.sources import MODULES
from dicap.plugins import PLUGINS
from dicap.provenance.source_code import ROOT, Choice, closure, digests
from dicap.settings import Settings
from dicap.settings.methods import METHODS, MethodSections, unread_sections
from dicap.training.loops.table import named

_NETWORK = ("dataset", "ratio", "seed", "method", "backbone", "backbone_weights", "head", "image_size", "network")
_COMMON = (*_NETWORK, "weights", "augment", "loss", "features", "linear")
_METHODS = tuple(MethodSections.model_fields)  # the sections of single methods

# The settings that a stage's result depends on: sections, or single keys of one. A protocol is a name for values, and these are
# compared.
STAGE_SETTINGS = {
    "convert": ("dataset", "data_root", "image_size", "convert", "own", "features.views"),
    # Not method, ratio or seed: one bank serves them all. Of a section only what alters the features.
    "features": (
        *("dataset", "image_size", "backbone", "backbone_weights", "network.normalize", "network.stride", "network.tokens"),
        *("augment.cutout", "augment.flip", "features", "warmup.trainable", "train.trainable"),
    ),
    "split": ("dataset", "ratio", "seed", "split"),
    # calibration.source and folds: whether and how labelled images are cross-fitted
    "warmup": (*_COMMON, "optimiser", "warmup", "calibration.source", "calibration.folds", "contrastive", "drml", "pclp", "bbam"),
    "pseudo_label": (*_COMMON, "calibration", "thresholds", "contrastive", "train.trainable", "train.batch_norm", *_METHODS),
    "train": (*_COMMON, "optimiser", "calibration", "thresholds", "contrastive", "train", *_METHODS),
    # thresholds: the model carries them
    "finetune": (*_COMMON, "optimiser", "calibration.source", "thresholds", "finetune", "train.trainable"),
    "evaluate": ("dataset", "method", "seed", "train.trainable"),
    "report": tuple(Settings.model_fields),  # it shows them
}

# Code that alters no result, and why. What only these import is left out with them.
NEUTRAL = {
    "dicap": "the version",
    "stages": "empty",
    "dicap.errors": "what is said when a run fails",
    "dicap.plugins": "names functions; the module of one that is asked for is compared",
    "dicap.machine.processes": "how many cores there are, when a process ends, and what memory it keeps",
    "dicap.machine.progress": "bars on stderr",
    "dicap.settings": "reads and checks settings; their values are compared",
    "dicap.settings.schema": "as dicap.settings",
    "dicap.settings.resolve": "as dicap.settings",
    "dicap.settings.checks": "as dicap.settings",
    "dicap.settings.catalogue": "names and facts",
    "dicap.settings.fields": "as dicap.settings",
    "dicap.settings.methods": "names and facts; a method's own module is compared",
    "dicap.provenance.dependencies": "this table",
    "dicap.provenance.source_code": "reads code, for this table",
    "dicap.provenance.external": "looks at data and weights, which are compared",
    "dicap.machine.runtime": "choices of a machine, which retrain nothing",
    **dict.fromkeys(
        (f"dicap.files.{name}" for name in ("artifacts", "atomic", "checksum", "json_files", "npy", "tables", "written")),
        "formats of files; readers follow the schema, not the module",
    ),
    "dicap.files.content_store": "finds again what was computed, or nothing",
    "dicap.files.locks": "who waits for whom",
    "dicap.machine.cost": "says how long it took",
    "dicap.training.loops.table": "names loops; the module of the one that runs is compared",
    "stages.support.common": "options of the command line",
    "stages.support.parent": "ends a process whose parent is gone",
    "stages.support.environment": "names versions",
    "stages.support.terminal": "what is printed at the end",
}

# Packages that import one of their modules by a setting: the setting, and the module of each of its values.
REGISTRIES: dict[str, tuple[str, dict[str, str]]] = {
    "dicap.methods": ("method", {name: f"dicap.methods.{name}" for name in METHODS}),
    "dicap.data.sources": ("dataset", MODULES),
}


def code(stage: str, settings: Settings, root: Path = ROOT) -> dict[str, str]:
    """{module or file: sha256} of the code whose change alters the stage's result under these settings."""
    return digests(modules(stage, settings, root), root)


def modules(stage: str, settings: Settings, root: Path = ROOT) -> set[str]:
    """The modules that `code` stands for: all that the stage's command and its loop import but for the tables above."""
    choices = {
        package: Choice(frozenset(names.values()), names[getattr(settings, key)]) for package, (key, names) in REGISTRIES.items()
    }
    starts = [f"stages.commands.{stage}"]
    if loop := named(stage, settings):
        starts.append(loop.partition(":")[0])
    starts += [PLUGINS[name].partition(":")[0] for name in _plugins(stage, settings)]
    return set().union(*(closure(start, set(NEUTRAL), choices, root) for start in starts))


def _plugins(stage: str, settings: Settings) -> list[str]:
    """What a stage asks `dicap.plugins` for, and its result depends on."""
    if stage == "features":
        return ["computing features"] if settings.needs_features else []
    if stage not in ("warmup", "pseudo_label", "train", "finetune"):
        return []
    names = []
    if settings.trainable(stage) == "head" or settings.unfreezes:
        names.append("features of a frozen backbone")
    if settings.calibration.estimator == "class_score" and stage in ("pseudo_label", "train"):
        names.append("curve per class")
    return names


def relevant(settings: Settings, stage: str) -> dict[str, Any]:
    """The part of the settings that a stage's result depends on: whole sections, and single keys by dotted name.

    Of the sections of single methods those that the chosen one reads; the report's are all, for they are read back as the run's.
    """
    values = settings.model_dump(mode="json")
    others = [] if stage == "report" else unread_sections(settings.method)
    chosen: dict[str, Any] = {key: reduce(getitem, key.split("."), values) for key in STAGE_SETTINGS[stage] if key not in others}
    if stage == "convert":  # whether there are any is all: test images have none
        chosen["features.views"] = settings.features.views > 0
    if stage == "warmup" and settings.warmup.over == "unlabelled":  # its steps are as large as the main stage's
        chosen |= {f"train.{key}": values["train"][key] for key in ("batch_size", "batch_labelled")}
    if stage == "features":  # which stage needs them is no matter, and an empty bank is the same for all
        needed = "head" in (chosen.pop("warmup.trainable"), chosen.pop("train.trainable"))
        return chosen if needed else {}
    return chosen
