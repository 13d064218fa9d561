"""The settings of an experiment: params.yaml, then configs/<dataset>.yaml, configs/<protocol>.yaml, configs/published.yaml.

A key that is null in a file is looked up in the next one. The result is one frozen, typed, checked `Settings`.
All errors are found before any is reported; each names the file, the key, the value found and what is allowed.
"""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from dicap.catalogue import DATASETS, HEADS, METHODS, OWN_HEAD, PROTOCOLS
from dicap.errors import SettingsError

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A group of settings: frozen, no unknown keys, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Convert(Section):
    """Conversion of the raw data set into one array."""

    max_rejected: Share  # share of unreadable images above which `convert` fails
    store: Literal["array", "jpeg"]  # one uint8 array, or the resized images re-encoded for small disks


class Own(Section):
    """Options of the data set `table`: anybody's own images (docs/tutorial.md)."""

    format: Literal["auto", "table", "coco", "labelstudio", "voc_xml", "folders"]  # auto: the one that data_root looks like
    unlabeled_root: str | None  # a second folder, of truly unlabelled images
    test_share: Annotated[float, Field(ge=0, lt=1)]  # share of the labelled images to draw as test split where there is none
    added: str | None  # CSV of labels given later, as `dicap-stage import-labels` writes it


class Split(Section):
    """Labelled / unlabelled split and D_sup / D_est (docs/methods.md 2.3, 3.2)."""

    est_fraction: Annotated[float, Field(gt=0, lt=1)]  # share of the labelled images that goes to D_est
    validation: Annotated[float, Field(ge=0, lt=1)]  # share of the labelled images that only early stopping looks at; 0: none


class Network(Section):
    """What is common to the networks beside backbone and head (docs/methods.md 2.4, 2.5, 5)."""

    # none: pixels in [0, 1], as published; half: mean = std = 0.5; auto: what the backbone was pretrained with
    normalize: Literal["none", "imagenet", "half", "auto"]
    stride: Literal[8, 16, 32]  # pixels of the image per step of the last feature map
    decoder_dim: Count  # width of ML-Decoder's tokens and embeddings
    decoder_ffn: Count  # width of its feed-forward layer
    decoder_heads: Count
    dropout: Annotated[float, Field(ge=0, lt=1)]


class Features(Section):
    """The bank of features of a frozen backbone (dicap/features)."""

    views: Annotated[int, Field(ge=0, le=64)]  # V, strong views of each image
    grid: Annotated[int, Field(ge=1, le=64)]  # the feature map is pooled to grid x grid positions; 1: its mean
    tiles: Literal["none", "weak", "all"]  # the 2 x 2 tiles that D2L looks at: of the plain and mirrored image, or of all views


class Augment(Section):
    """Views (docs/methods.md 2.4)."""

    flip: Share  # probability of mirroring, in weak and strong views
    policy: Literal["published", "torchvision"]  # RandAugment of the published code, or torchvision's
    cutout_warmup: Share  # side of the hole over the side of the image
    cutout: Share  # the same in the main stage and in fine-tuning


class Loss(Section):
    """Asymmetric loss and the reduction of sums over entries (docs/methods.md 4.2, 3.13-D)."""

    gamma_neg: NonNegative
    gamma_pos: NonNegative
    clip: Annotated[float, Field(ge=0, lt=1)]
    reduction: Literal["sum", "mean"]  # sum over entries / images of the step, or mean over entries (literal equation)


class Optimiser(Section):
    """AdamW, one-cycle, EMA (docs/methods.md 2.6, 2.7)."""

    lr: Positive
    weight_decay: NonNegative
    pct_start: Annotated[float, Field(gt=0, lt=1)]
    ema_decay: Annotated[float, Field(ge=0, lt=1)]


class Warmup(Section):
    """Stage 1 (docs/methods.md 2.8, 3.3)."""

    trainable: Literal["head", "all"]  # all: as published; head: the backbone is frozen, and its features are computed once
    epochs: Count
    batch_size: Count | Literal["auto"]  # labelled images a step; auto: 320 x the labelled share, 16/32/48/64 as published
    wcl: bool  # class-wise contrastive loss on labelled and unlabelled images during warm-up
    passes_on: Literal["raw", "ema"]  # which weights the main stage starts from
    eval_every: Count
    patience: Count  # with split.validation: epochs without a better one after which the stage stops


class Calibration(Section):
    """Correctness rates and weights (paper section 3; docs/methods.md 3.4, 3.10, 3.13-A, 3.13-C)."""

    policy: Literal["estimated", "uniform", "confidence", "labeled", "optimal"]
    target: Literal["hard", "soft"]  # hard label with weight w, or soft target r_pos(p) (needs thresholds.rule none)
    estimator: Literal["bins", "beta", "shrunk_bins", "class_rank"]  # what is learnt on D_est (dicap/estimators.py)
    bins: Count  # K
    anchor: Literal["left", "centre", "right"]  # where in its bin a rate sits
    empty_bin: Literal["interpolate", "zero"]
    smoothing: NonNegative  # pseudo-counts added to positives and negatives of every bin
    isotonic: bool  # make the rates monotone before interpolating
    per_class: bool  # one table per class instead of one for the data set
    teacher: Literal["ema", "online"]
    view: Literal["weak", "test"]  # what the teacher looks at
    refresh: Literal["epoch", "batch"]  # pseudo-labels once an epoch, or anew on each batch


class Thresholds(Section):
    """Dual thresholds (paper section 4; docs/methods.md 3.5, 3.13-B)."""

    rule: Literal["midrange", "fixed", "quantile", "none"]  # none: every entry is confident, label 1[p >= 0.5]
    fixed_pos: Share
    fixed_neg: Share
    quantile: Share  # tau_pos: this quantile of the positives' scores; tau_neg: 1 - it of the negatives'
    crossed: Literal["swap", "priority", "midpoint"]  # what to do where tau_neg > tau_pos
    unseen: Literal["guard", "skip"]  # class without positives (negatives): tau_pos = 1 (tau_neg = 0), or left out


class Contrastive(Section):
    """Class-wise NT-Xent on uncertain entries, URRL (docs/methods.md 3.7, 3.13-E)."""

    enabled: bool
    temperature: Positive
    normalize: bool
    projector: Annotated[int, Field(ge=0)]  # width of a two-layer projection head; 0: none
    max_pairs: Annotated[int, Field(ge=2)]
    coefficient: NonNegative | Literal["auto"]  # auto: 1 / images of the step, i.e. plain sums with coefficient 1
    same_class_negatives: bool


class Train(Section):
    """Main stage (docs/methods.md 2.8, 3.8)."""

    trainable: Literal["head", "all"]  # as warmup.trainable
    epochs: Count
    cycle_epochs: Annotated[int, Field(ge=0)]  # length of the one-cycle; 0: as long as the training
    batch_size: Annotated[int, Field(ge=2)]  # labelled + unlabelled images a step
    batch_labelled: Count | Literal["auto"]  # auto: 1.25 x the labelled share of the batch, 4/8/12/16 of 64 as published
    shuffle: bool  # false: the published code's fixed batches
    eval_every: Count
    patience: Count  # as warmup.patience


class Finetune(Section):
    """Head-only fine-tuning on D_est, FTE (docs/methods.md 3.9)."""

    enabled: bool
    epochs: Count
    batch_size: Count
    lr: Positive
    ema_decay: Annotated[float, Field(ge=0, lt=1)]


class Evaluate(Section):
    """Evaluation (docs/methods.md 2.9)."""

    bootstrap: Annotated[int, Field(ge=0)]  # resamples of the test images for the 95 % interval


class Topk(Section):
    """Top-k (docs/methods.md 4.4)."""

    k: Count | Literal["auto"]  # auto: 2 on VOC and NUS-WIDE, 3 on COCO, elsewhere the rounded mean label count of D_l


class Iat(Section):
    """Instance-aware thresholding (docs/methods.md 4.4; its definition is uncertain, so each reading has a name)."""

    rule: Literal["fixed", "dual", "matched"]  # 1[p >= threshold]; two thresholds; one that fits the label count of D_l
    threshold: Share
    high: Share  # dual: positive from here
    low: Share  # dual: negative up to here, what lies between is masked


class Drml(Section):
    """DRML (docs/methods.md 4.5): four MLPs on fixed features."""

    features: Literal["pretrained", "warmup"]  # of the backbone as it comes, or after a warm-up on D_l
    rounds: Count  # epochs of the main stage
    iterations: Count  # steps a round
    batch_size: Count  # labelled images a step, and unlabelled ones
    start: Annotated[int, Field(ge=0)]  # rounds before the first images are adopted
    select: Literal["adaptive", "distance"]  # the per_round closest images, or all closer than `distance`
    per_round: Count
    distance: Positive
    relation: NonNegative  # weight of L_R (the paper says 0.5, its code 0.2)
    discrepancy: NonNegative  # weight of L_DA
    lr_joint: Positive  # update A: projector and classifiers
    lr_disagree: Positive  # update B: classifiers
    lr_agree: Positive  # update C: projector
    lr_relation: Positive  # update D: relation network


class Cap(Section):
    """CAP's quota (docs/methods.md 4.6); BBAM uses it too."""

    eta_pos: Share  # share of the expected positives that train
    eta_neg: Share  # share of the expected negatives that train
    unseen: Literal["mask", "negative", "published"]  # a class with a quota of 0; published: every image positive


class Pclp(Section):
    """PCLP (docs/methods.md 4.7)."""

    prior: Literal["scm", "none"]  # scm: adversarial stage 1 with the causal prior
    warmup_epochs: Count  # passes of stage 1 over D_u
    warmup_labelled: Count  # images a step of stage 1
    warmup_unlabelled: Count
    latent: Count | Literal["auto"]  # auto: 32, 64, 128 ...: the first above the number of classes
    consistency: NonNegative  # weight of the soft consistency on D_u
    adversarial: NonNegative  # weight of the discriminator's answer in the encoder's loss
    adversary_size: Annotated[int, Field(ge=8)] | Literal["auto"]  # pixels; auto: the largest power of two within image_size
    adversary_width: Count  # channels of the generator's and the discriminator's outermost layer
    adversary_lr: Positive


class Bbam(Section):
    """BBAM (docs/methods.md 4.8). The options after `clamp` exist to reproduce what its public code does."""

    scale: Positive
    margin: NonNegative
    balance: bool  # angle transform
    momentum: Share  # weight of the old statistics
    negatives: Positive  # hard negatives kept for each positive
    clamp: Annotated[float, Field(ge=0, lt=1)]  # cosines stay within +-(1 - clamp); 0: unclamped, as published
    transform: Literal["average", "hidden_labels"]  # in pseudo-labelling; hidden_labels: the published leak
    labelled_mask: Literal["refreshed", "first_epoch"]  # first_epoch: the labelled images' mask is never renewed, as published
    warmup_split: Literal["same", "seed_1000"]  # seed_1000: warm-up trains on another labelled subset: the published leak


class D2l(Section):
    """D2L with metric-adaptive thresholds (docs/methods.md 4.9)."""

    beta: Positive
    formula: Literal["published", "standard"]  # F-beta with b P + R, or b^2 P + R, in the denominator
    relabel: Literal["batch", "epoch"]  # pseudo-labels from each batch's weak views, or once an epoch
    unseen: Literal["mask", "negative", "published"]  # a class without labelled positives; published: every image positive


class Settings(Section):
    """One experiment, resolved."""

    dataset: str
    data_root: str | None
    ratio: Annotated[float, Field(gt=0, le=1)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    method: str
    protocol: str  # published, or recommended: what this project's own experiments favour (docs/estimators.md)
    backbone: str
    backbone_weights: str  # imagenet (timm's own), lite (extra package), random, or the path of a file
    head: str
    image_size: Annotated[int, Field(ge=16, le=2048)]
    convert: Convert
    own: Own
    split: Split
    network: Network
    features: Features
    augment: Augment
    loss: Loss
    optimiser: Optimiser
    warmup: Warmup
    calibration: Calibration
    thresholds: Thresholds
    contrastive: Contrastive
    train: Train
    finetune: Finetune
    evaluate: Evaluate
    topk: Topk
    iat: Iat
    drml: Drml
    cap: Cap
    pclp: Pclp
    bbam: Bbam
    d2l: D2l

    def warmup_batch(self, share: float) -> int:
        """Labelled images of a warm-up step: 16/32/48/64 at 5/10/15/20 % labelled (docs/methods.md 2.8)."""
        if self.warmup.batch_size != "auto":
            return self.warmup.batch_size
        return min(max(round(320 * share), 4), 64)

    def labelled_batch(self, share: float) -> int:
        """Labelled images of a main step: 4/8/12/16 of 64 at 5/10/15/20 %, never more than half (docs/methods.md 2.8)."""
        if self.train.batch_labelled != "auto":
            return self.train.batch_labelled
        return min(max(round(1.25 * share * self.train.batch_size), 1), self.train.batch_size // 2)


@dataclass(frozen=True)
class Resolved:
    """Settings, and for every dotted key the file (or method) its value came from."""

    settings: Settings
    origins: dict[str, str]


def load_settings(params: Path, configs: Path | None = None) -> Settings:
    """Read, merge and check the settings; see `resolve`."""
    return resolve(params, configs).settings


def resolve(params: Path, configs: Path | None = None) -> Resolved:
    """Merge params.yaml over the files in configs/ that it names (see above) and check everything.

    Args:
        params: the experiment's file.
        configs: folder of the data sets' settings; default: `configs` beside `params`.

    Raises:
        SettingsError: with one line for every mistake found.
    """
    return resolve_values(read_yaml(params), params, configs)


def resolve_values(
    values: dict[str, Any], params: Path, configs: Path | None = None, read: Callable[[Path], dict[str, Any]] | None = None
) -> Resolved:
    """`resolve` for the content `values` of a file `params` that need not exist. `read` reads the data sets' settings."""
    read = read or read_yaml
    configs = configs if configs is not None else params.parent / "configs"
    dataset, protocol = values.get("dataset"), values.get("protocol", PROTOCOLS[0])
    if dataset not in DATASETS:
        raise SettingsError(_unknown_name(params, "dataset", dataset, DATASETS))
    if protocol not in PROTOCOLS:
        raise SettingsError(_unknown_name(params, "protocol", protocol, PROTOCOLS))
    names = dict.fromkeys((dataset, protocol, PROTOCOLS[0]))
    layers = [(params, values), *((path, read(path)) for path in (configs / f"{name}.yaml" for name in names))]

    problems = [line for path, values in layers for line in _unknown_keys(path, values)]
    merged, origins = _merge(layers)
    merged["protocol"] = protocol
    if merged.get("method") not in METHODS:
        problems.append(_unknown_name(origins.get("method", params), "method", merged.get("method"), METHODS))
        merged["head"] = merged.get("head") or HEADS[0]  # no complaint about what only follows from this one
    elif merged.get("head") is None:
        merged["head"] = METHODS[merged["method"]].head
        origins["head"] = f"published head of {merged['method']}"
    own = merged.get("method") in METHODS and METHODS[merged["method"]].head == OWN_HEAD
    if own and merged["head"] != OWN_HEAD:
        problems.append(
            f"{origins['head']}: head: found {merged['head']!r}, but {merged['method']} brings its own network; set head to null"
        )
    elif not own and merged["head"] not in HEADS:
        problems.append(_unknown_name(origins["head"], "head", merged["head"], HEADS))
    settings = None
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        problems += [_explain(item, origins, params) for item in error.errors() if item["type"] != "extra_forbidden"]
    if settings is not None:
        problems += _contradictions(settings, origins)
    if problems or settings is None:
        raise SettingsError("\n".join(problems))
    return Resolved(settings, origins)


def flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) in order; sections are entered, not yielded. No setting lies deeper than in a section."""
    for key, value in values.items():
        if isinstance(value, dict) and not prefix:  # deeper, a YAML alias may refer to itself
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def known_keys(section: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of the settings, in the order of the classes above."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from known_keys(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def read_yaml(path: Path) -> dict[str, Any]:
    """The content of a file of settings. Raises SettingsError."""
    # YAML 1.2, the dialect DVC writes: PyYAML would return the string "3e-05" for a learning rate of 0.00003.
    try:
        values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file; run from the project's folder or pass --params") from None
    except (YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where is not None else ""
        if isinstance(error, DuplicateKeyError):
            raise SettingsError(f"{path}: a key stands there twice{line}; keep one") from None
        raise SettingsError(f"{path}: not readable as YAML{line}; compare it with the file in the repository") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: found {values!r}, expected `key: value` lines")
    return values


def _merge(layers: list[tuple[Path, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The first value that is not null wins, key by key."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key in known_keys():
        *parents, name = key.split(".")
        target = merged
        for parent in parents:
            target = target.setdefault(parent, {})
        target[name] = None
        for path, values in layers:
            found = _look_up(values, key)
            if found is not None:
                target[name], origins[key] = found, _short(path)
                break
    return merged, origins


def _look_up(values: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        if not isinstance(values, dict):
            return None
        values = values.get(part)  # type: ignore[assignment]
    return values


def _short(path: Path) -> str:
    return f"configs/{path.name}" if path.parent.name == "configs" else path.name


def _unknown_keys(path: Path, values: dict[str, Any]) -> list[str]:
    known = list(known_keys())
    sections = {key.split(".")[0] for key in known if "." in key}
    problems = []
    for name in sections & values.keys():
        if values[name] is not None and not isinstance(values[name], dict):
            problems.append(f"{_short(path)}: {name} is a section of settings; found the value {values[name]!r}")
    for key, _ in flatten(values):
        if key not in known and key not in sections:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else f"; the sections are {', '.join(sorted(sections))}"
            problems.append(f"{_short(path)}: {key} is not a setting{hint}")
    return problems


def _unknown_name(origin: Path | str, key: str, value: Any, allowed) -> str:
    near = difflib.get_close_matches(str(value), list(allowed), 1, 0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    origin = _short(origin) if isinstance(origin, Path) else origin
    return f"{origin}: {key}: found {value!r}, allowed are {', '.join(allowed)}{hint}"


def _explain(item: Any, origins: dict[str, str], params: Path) -> str:
    """One line for one of pydantic's findings."""
    # A union reports one finding per member with the member's type appended; the key ends where the known keys do.
    location = [str(part) for part in item["loc"]]
    known = set(known_keys())
    key = next(
        (".".join(location[:n]) for n in range(len(location), 0, -1) if ".".join(location[:n]) in known), ".".join(location)
    )
    message = item["msg"].removeprefix("Input should be ").replace("'", "")
    origin = origins.get(key, _short(params))
    if item["input"] is None:
        return f"{origin}: {key}: no value in any of the files; expected {message}"
    found = repr(item["input"])
    hint = ""
    if item["type"] == "literal_error" and isinstance(item["input"], str):
        options = [option.strip(" '") for option in message.replace(" or ", ",").split(",")]
        near = difflib.get_close_matches(item["input"], options, 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
    return f"{origin}: {key}: found {found}, expected {message}{hint}"


def _contradictions(s: Settings, origins: dict[str, str]) -> list[str]:
    """Settings that are fine alone and make no sense together."""
    problems = []
    if s.calibration.target == "soft" and s.thresholds.rule != "none":
        problems.append(
            f"{origins['calibration.target']}: calibration.target: found 'soft', which leaves no uncertain entries; "
            "set thresholds.rule to none"
        )
    if s.thresholds.fixed_neg > s.thresholds.fixed_pos:
        problems.append(
            f"{origins['thresholds.fixed_neg']}: thresholds.fixed_neg: found {s.thresholds.fixed_neg}, "
            f"expected at most thresholds.fixed_pos ({s.thresholds.fixed_pos})"
        )
    if s.labelled_batch(s.ratio) >= s.train.batch_size:
        problems.append(
            f"{origins['train.batch_labelled']}: train.batch_labelled: found {s.train.batch_labelled}, "
            f"expected less than train.batch_size ({s.train.batch_size})"
        )
    if s.train.cycle_epochs and s.train.cycle_epochs < s.train.epochs:
        problems.append(
            f"{origins['train.cycle_epochs']}: train.cycle_epochs: found {s.train.cycle_epochs}, "
            f"expected 0 or at least train.epochs ({s.train.epochs})"
        )
    if s.network.decoder_dim % s.network.decoder_heads:
        problems.append(
            f"{origins['network.decoder_dim']}: network.decoder_dim: found {s.network.decoder_dim}, "
            f"expected a multiple of network.decoder_heads ({s.network.decoder_heads})"
        )
    if s.iat.low > s.iat.high:
        problems.append(f"{origins['iat.low']}: iat.low: found {s.iat.low}, expected at most iat.high ({s.iat.high})")
    if s.dataset != "digits" and not s.data_root:
        problems.append(
            f"params.yaml: data_root: found null, expected the folder of the raw data set; "
            f"for example `dvc exp run -S dataset={s.dataset} -S data_root=/path/to/{s.dataset}`"
        )
    return problems
