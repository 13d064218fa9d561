"""Settings that are fine alone and make no sense together: contradictions, which are refused, and warnings."""

from typing import Any

from dicap.settings.batch_sizes import labelled_batch, pclp_batch
from dicap.settings.catalogue import BUNDLED
from dicap.settings.fields import ORIGINS
from dicap.settings.methods import METHODS, unread_sections
from dicap.settings.schema import Settings


def contradictions(s: Settings, origins: dict[str, str]) -> list[str]:
    """One line for every pair of settings that contradict each other. `origins`: where each value came from, by dotted key."""
    stage = _first_by_steps_on_features(s)
    rules = [  # what is wrong, the key, what is said after its value
        (
            s.calibration.target == "soft" and s.thresholds.rule != "none",
            "calibration.target",
            "which leaves no uncertain entries; set thresholds.rule to none",
        ),
        (
            labelled_batch(s.train.batch_labelled, s.ratio, s.train.batch_size) >= s.train.batch_size,
            "train.batch_labelled",
            f"expected less than train.batch_size ({s.train.batch_size})",
        ),
        (
            0 < s.train.cycle_epochs < s.train.epochs,
            "train.cycle_epochs",
            f"expected 0 or at least train.epochs ({s.train.epochs})",
        ),
        (
            s.network.decoder_dim % s.network.decoder_heads > 0,
            "network.decoder_dim",
            f"expected a multiple of network.decoder_heads ({s.network.decoder_heads})",
        ),
        (
            s.warmup.trainable == "all" and s.train.trainable == "head",
            "train.trainable",
            "but warmup.trainable is 'all', which changes the backbone whose features would be used; set both to head",
        ),
        (
            s.method == "dicap" and s.calibration.source == "cross_fit" and not s.solves("warmup"),
            "calibration.source",
            "which needs head linear, linear.solver convex and warmup.trainable head",
        ),
        (
            s.method == "pclp" and s.pclp.prior == "scm" and s.warmup.trainable == "head",
            "pclp.prior",
            "whose generator makes images, with warmup.trainable head; set pclp.prior to none",
        ),
        (
            s.method == "d2l" and "head" in (s.warmup.trainable, s.train.trainable),
            "warmup.trainable",
            "but d2l looks at tiles of the images themselves, not at features; set warmup.trainable and train.trainable to all",
        ),
        (
            not s.features.views and stage is not None,
            "features.views",
            f"but {stage} trains the head by steps on strong views; set it to 1 or more",
        ),
    ]
    if s.method == "pclp":
        batch, labelled = pclp_batch(s.pclp.batch_size, s.pclp.batch_labelled, s.train.batch_size, s.train.batch_labelled)
        key = "train.batch_labelled" if s.pclp.batch_labelled == "auto" else "pclp.batch_labelled"
        rules.append((labelled >= batch, key, f"expected less than the {batch} images of a step of pclp"))
    problems = [f"{origins[key]}: {key}: found {_value(s, key)!r}, {rest}" for is_wrong, key, rest in rules if is_wrong]
    if s.dataset not in BUNDLED and not s.data_root:
        problems.append(
            f"params.yaml: data_root: found null, expected the folder of the raw data set; "
            f"for example `dvc exp run -S dataset={s.dataset} -S data_root=/path/to/{s.dataset}`"
        )
    return problems


def warnings(s: Settings, origins: dict[str, str]) -> list[str]:
    """One line for every setting that is valid but suspicious. `origins` as above."""
    typed: dict[tuple[str, str], list[str]] = {}
    for key, why in unread(s).items():
        if not origins[key].startswith(("configs/", *ORIGINS.values())):
            typed.setdefault((origins[key], why), []).append(f"{key} {_value(s, key)!r}")
    lines = [
        f"{origin}: {', '.join(found)}: found, but nothing reads {'it' if len(found) == 1 else 'them'} here: {why}; "
        f"leave {'it' if len(found) == 1 else 'them'} empty"
        for (origin, why), found in typed.items()
    ]
    key = "warmup" if s.warmup.trainable == "head" else "train"
    if s.backbone_weights == "random" and "head" in (s.warmup.trainable, s.train.trainable):
        lines.append(
            f"{origins['backbone_weights']}: backbone_weights: found 'random' with {key}.trainable head "
            f"({origins[f'{key}.trainable']}): the head learns from a backbone that nothing has trained; set backbone_weights to "
            "those of a pretrained backbone, or warmup.trainable and train.trainable to all"
        )
    return lines


def unread(s: Settings) -> dict[str, str]:
    """The settings that change no result beside the others, by dotted key, and why."""
    keys_unread: dict[str, str] = {}
    for name in unread_sections(s.method):
        keys_unread |= dict.fromkeys(_keys(s, name), f"the method is {s.method}")
    if s.method == "dicap":
        if s.thresholds.rule != "quota":
            keys_unread |= dict.fromkeys(_keys(s, "cap"), f"thresholds.rule is {s.thresholds.rule}")
        keys_unread |= _unread_of_calibration(s)
    else:
        steps = {"calibration.teacher", "calibration.view", "calibration.bins"}
        steps = steps if METHODS[s.method].unlabelled else set()
        keys = [key for section in ("calibration", "thresholds", "contrastive", "finetune") for key in _keys(s, section)]
        keys_unread |= {key: f"the method is {s.method}" for key in keys if key not in steps}
    if s.method == "dicap" and s.calibration.source == "cross_fit":
        why = "with calibration.source cross_fit no label is held out to fine-tune on"
        keys_unread |= dict.fromkeys(_keys(s, "finetune"), why)
    solved = {stage for stage in ("warmup", "train") if s.trains(stage) and s.solves(stage)}
    if not s.trains("train"):
        keys_unread |= dict.fromkeys(_keys(s, "train"), f"{s.method} has no main stage")
    if "train" not in solved and not s.unfreezes:
        keys_unread |= dict.fromkeys(("linear.neighbours", "linear.pseudo_weight"), "no main stage is solved")
    if not solved:
        keys_unread["linear.C"] = "no head is solved"
    if s.train.trainable == "head":
        keys_unread |= dict.fromkeys(("train.head_lr", "train.backbone_lr"), "the head alone is trained, at optimiser.lr")
    elif s.method == "bbam" and s.bbam.lr != "auto":
        keys_unread |= dict.fromkeys(("train.head_lr", "train.backbone_lr"), "bbam.lr is the rate of the whole network")
    if all(stage in solved for stage in ("warmup", "train") if s.trains(stage)):
        keys = [*_keys(s, "warmup"), *_keys(s, "train"), *_keys(s, "contrastive")]
        keys += ["calibration.teacher", "calibration.view"]
        if not s.trains("finetune"):
            keys += [*_keys(s, "optimiser"), *_keys(s, "loss"), "augment.cutout", "augment.cutout_warmup"]
        kept = {"warmup.trainable", "train.trainable"}
        keys_unread |= {key: "the head is solved, without steps or epochs" for key in keys if key not in kept}
    return keys_unread


def _unread_of_calibration(s: Settings) -> dict[str, str]:
    """Of `unread`, what follows from DiCaP's rates and thresholds."""
    c, found = s.calibration, {}
    if c.target == "soft":
        found["calibration.power"] = "calibration.target soft takes the chance itself"
    if c.source != "cross_fit":
        found["calibration.folds"] = "calibration.source is holdout"
    if c.estimator != "bins":
        found |= dict.fromkeys(("calibration.anchor", "calibration.empty_bin"), f"calibration.estimator is {c.estimator}")
    return found


def _keys(s: Settings, section: str) -> list[str]:
    return [f"{section}.{name}" for name in type(getattr(s, section)).model_fields]


def _value(s: Settings, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(s, section), name)


def _first_by_steps_on_features(s: Settings) -> str | None:
    """The first stage that takes gradient steps on features of strong views. (DRML has fixed features of plain images.)"""
    frozen = (stage for stage in ("warmup", "train", "finetune") if s.trains(stage) and s.trainable(stage) == "head")
    return next((stage for stage in frozen if s.method != "drml" and not s.solves(stage)), None)
