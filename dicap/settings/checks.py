"""Checks of settings that are valid alone but not together: contradictions, which are refused, and warnings."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

from pydantic.fields import FieldInfo

from dicap.settings.batch_sizes import labelled_batch, pclp_batch
from dicap.settings.catalogue import BUNDLED, OWN, OWN_HEAD
from dicap.settings.fields import ORIGINS
from dicap.settings.methods import METHODS
from dicap.settings.schema import Settings


def contradictions(s: Settings, origins: dict[str, str]) -> Iterator[str]:
    """One line for every pair of contradictory settings. `origins`: the source of each value, by dotted key."""

    def wrong(key: str, rest: str) -> str:
        return f"{origins[key]}: {key}: found {_value(s, key)!r}, {rest}"

    if s.method == "dicap" and not s.recommends and s.calibration.target == "soft" and s.calibration.policy == "uniform":
        yield wrong("calibration.target", "but calibration.policy uniform gives no probability; set calibration.target to hard")
    if labelled_batch(s, s.ratio) >= s.train.batch_size:
        yield wrong("train.batch_labelled", f"expected less than train.batch_size ({s.train.batch_size})")
    if 0 < s.train.cycle_epochs < s.train.epochs:
        yield wrong("train.cycle_epochs", f"expected 0 or at least train.epochs ({s.train.epochs})")
    if s.network.decoder_dim % s.network.decoder_heads:
        yield wrong("network.decoder_dim", f"expected a multiple of network.decoder_heads ({s.network.decoder_heads})")
    if s.warmup.trainable == "all" and s.train.trainable == "head":
        reason = "but warmup.trainable 'all' trains the backbone, so its stored features would be outdated; set both to head"
        yield wrong("train.trainable", reason)
    if s.recommends and not s.solves("warmup"):
        yield wrong("protocol", "but for dicap it needs head linear, linear.solver convex and warmup.trainable head")
    if s.method == "pclp" and s.pclp.prior == "scm" and s.warmup.trainable == "head":
        yield wrong("pclp.prior", "but its generator needs images, and warmup.trainable is head; set pclp.prior to none")
    if s.method == "d2l" and s.needs_features:
        reason = "d2l needs tiles of the images, not stored features"
        yield wrong("warmup.trainable", f"but {reason}; set warmup.trainable and train.trainable to all")
    if (stage := _first_by_steps_on_features(s)) is not None and not s.features.views:
        yield wrong("features.views", f"but {stage} trains the head by steps on strong views; set it to 1 or more")
    if s.method == "pclp":
        batch, labelled = pclp_batch(s)
        if labelled >= batch:
            key = "train.batch_labelled" if s.pclp.batch_labelled == "auto" else "pclp.batch_labelled"
            yield wrong(key, f"expected less than the {batch} images of a step of pclp")


def warnings(s: Settings, origins: dict[str, str]) -> Iterator[str]:
    """One line for every setting that is valid but suspicious. `origins`: see `contradictions`."""
    typed: dict[tuple[str, str], list[str]] = {}
    for key, reason in unread(s).items():
        origin, value = origins.get(key), _value(s, key)  # no origin if no file has a value
        section, _, name = key.rpartition(".")
        if origin and not origin.startswith(("configs/", *ORIGINS.values())) and value != _fields(s, section)[name].default:
            typed.setdefault((origin, reason), []).append(f"{key} {value!r}")
    for (origin, reason), settings in typed.items():
        pronoun = "it" if len(settings) == 1 else "them"
        yield f"{origin}: {', '.join(settings)}: found, but nothing reads {pronoun} here: {reason}; leave {pronoun} empty"
    key = "warmup" if s.warmup.trainable == "head" else "train"
    if s.backbone_weights == "random" and s.needs_features:
        yield (
            f"{origins['backbone_weights']}: backbone_weights: found 'random' with {key}.trainable head "
            f"({origins[f'{key}.trainable']}): the head would learn from an untrained backbone; set backbone_weights to "
            "weights of a pretrained backbone, or warmup.trainable and train.trainable to all"
        )
    if s.linear.features != "plain" and s.head == "linear" and s.warmup.trainable == "all":
        yield (
            f"{origins['linear.features']}: linear.features: found {s.linear.features!r} with warmup.trainable all "
            f"({origins['warmup.trainable']}): the features of a trained backbone are not standardised; set linear.features to "
            "plain"
        )


def unread(s: Settings) -> dict[str, str]:
    """The settings that do not affect the result, given the other settings: {dotted key: reason}."""
    facts, method = METHODS[s.method], f"the method is {s.method}"
    skipped = s.method == "drml" and s.drml.features == "pretrained"  # the pretrained backbone is used without a warm-up
    trained = {stage for stage in ("warmup", "train") if s.trains(stage)}
    frozen = {stage for stage in trained if s.trainable(stage) == "head"}
    solved = {stage for stage in trained if s.solves(stage)}
    steps = trained - solved
    views_read = _first_by_steps_on_features(s) is not None
    if skipped:
        steps -= {"warmup"}
    if s.method == "drml":
        steps -= {"train"}  # DRML's main stage has rounds instead
    tuned = s.trains("finetune")
    own_head = method if s.head == OWN_HEAD else f"head is {s.head}"
    own_rate = s.method == "bbam" and s.bbam.lr != "auto"
    two_rates = s.train.trainable == "all" and "auto" not in (s.train.head_lr, s.train.backbone_lr)
    solvable = s.head == "linear" and facts.convex and bool(frozen)
    no_steps = bool(solved) and not steps
    over = s.method == "dicap" and s.warmup.wcl and s.warmup.over == "unlabelled"
    contrasts = s.warmup.wcl or (s.contrastive.enabled and s.thresholds.rule != "none")
    by_solving, own_rule = "the head is solved, without steps or epochs", "the recommended rule has its own labels and weights"
    no_warmup = "drml.features is pretrained: there is no warm-up"
    rules = [  # (condition, reason, keys); a name without a section belongs to the section before it
        *((name not in (s.method, *facts.reads), method, f"{name}.*") for name in METHODS if name in _fields(s, "")),
        (s.dataset != OWN, f"dataset is {s.dataset}", "own.*"),
        (s.dataset in BUNDLED, f"dataset is {s.dataset}, {OWN} is your own photographs", "data_root convert.*"),
        (s.method != "dicap", method, "calibration.* thresholds.* contrastive.* finetune.* warmup.wcl over"),
        (not facts.finetunes, f"{s.method} trains on all labels", "split.est_fraction"),
        (s.recommends, "the recommended rule holds no label out", "split.est_fraction finetune.*"),
        (s.recommends, own_rule, "calibration.policy target anchor empty_bin thresholds.* contrastive.*"),
        (not s.trains("train"), f"{s.method} has no main stage", "train.* trainable warmup.passes_on"),
        # The network and its features
        (s.head != "ml_decoder", own_head, "network.decoder_dim decoder_ffn decoder_heads dropout"),
        (s.head != "linear", own_head, "linear.features"),
        (not frozen, "every stage trains the whole network", "features.*"),
        (not views_read, "no head is trained by steps on features", "features.views"),
        # Solved heads
        (not solvable, "there is no linear head on a frozen backbone to solve for", "linear.solver"),
        (not solved, "no head is solved", "linear.C"),
        ("train" not in solved and not s.unfreezes, "no main stage is solved", "linear.neighbours pseudo_weight"),
        ("warmup" in solved, by_solving, "warmup.*"),
        ("train" in solved, by_solving, "train.*"),
        (no_steps, by_solving, "contrastive.* optimiser.lr ema_decay loss.reduction augment.cutout_warmup"),
        (no_steps and not tuned, by_solving, "weights optimiser.* loss.* augment.cutout flip"),
        # Steps of the warm-up and of the main stage
        (skipped, no_warmup, "warmup.epochs batch_size eval_every loss.* augment.* optimiser.lr weight_decay pct_start"),
        (s.method == "drml", method, "train.* augment.cutout"),
        (s.method == "pclp", method, "warmup.epochs batch_size augment.cutout_warmup optimiser.weight_decay loss.reduction"),
        (s.method == "pclp", method, "train.cycle_epochs head_lr backbone_lr"),
        (s.method in ("bce", "bbam"), method, "loss.gamma_neg gamma_pos clip"),
        (own_rate, "bbam.lr is the rate of the whole network", "optimiser.lr train.head_lr backbone_lr"),
        (s.train.trainable == "head", "the head alone is trained, at optimiser.lr", "train.head_lr backbone_lr"),
        (s.train.trainable == "head", "the backbone is frozen", "train.batch_norm"),
        (two_rates and steps == {"train"}, "train.head_lr and train.backbone_lr are the rates", "optimiser.lr"),
        (s.warmup.trainable == "head", "features are computed once, with augment.cutout", "augment.cutout_warmup"),
        (steps == {"warmup"} and s.warmup.trainable == "all", f"{s.method} has no main stage", "augment.cutout"),
        (not s.finetune.enabled, "finetune.enabled is false", "finetune.epochs batch_size lr ema_decay"),
        # DiCaP's rates, thresholds and contrast
        (not s.warmup.wcl, "warmup.wcl is false", "warmup.over"),
        (over, "warmup.over is unlabelled: steps are as large as the main stage's", "warmup.batch_size"),
        (s.thresholds.rule == "none", "thresholds.rule none leaves no entry uncertain", "contrastive.enabled"),
        (not contrasts, "nothing is contrasted", "contrastive.temperature max_pairs coefficient weak_gradient"),
        # Options of single methods that rule each other out
        (s.iat.rule == "matched", "iat.rule is matched", "iat.threshold"),
        (s.pclp.prior == "none", "pclp.prior is none", "pclp.adversarial adversary_size adversary_width adversary_lr"),
        (s.method == "pclp" and s.pclp.epochs != "auto", "pclp.epochs is set", "train.epochs"),
        (s.method == "pclp" and s.pclp.batch_size != "auto", "pclp.batch_size is set", "train.batch_size"),
        (s.method == "pclp" and s.pclp.batch_labelled != "auto", "pclp.batch_labelled is set", "train.batch_labelled"),
        (s.method == "bbam" and s.bbam.batch_size != "auto", "bbam.batch_size is set", "train.batch_size batch_labelled"),
    ]
    reasons: dict[str, str] = {}
    for holds, reason, keys in rules:
        section = ""
        for key in keys.split() if holds else ():
            prefix, point, name = key.rpartition(".")
            section = prefix if point else section
            # `trainable` is always read: these rules depend on it.
            names = [field for field in _fields(s, section) if field != "trainable"] if name == "*" else [name]
            for name in names:
                reasons.setdefault(f"{section}.{name}".removeprefix("."), reason)
    return reasons


def _value(s: Settings, key: str) -> Any:
    return reduce(getattr, key.split("."), s)


def _fields(s: Settings, section: str) -> dict[str, FieldInfo]:
    return type(getattr(s, section) if section else s).model_fields


def _first_by_steps_on_features(s: Settings) -> str | None:
    """The first stage with gradient steps on features of strong views, or None. (DRML's rounds use features of plain views.)"""
    frozen = (stage for stage in ("warmup", "train", "finetune") if s.trains(stage) and s.trainable(stage) == "head")
    fixed = () if s.method != "drml" else ("train",) if s.drml.features == "warmup" else ("warmup", "train")
    return next((stage for stage in frozen if stage not in fixed and not s.solves(stage)), None)
