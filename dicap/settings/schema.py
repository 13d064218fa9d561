"""Every setting of an experiment, in one place: type, published value and meaning.

A value that the paper does not state is `starred`: it is the reading that docs/methods.md recommends. A new key here needs
`dicap-stage reference --write`, which adds it to params.yaml and to docs/reference.md, and nothing else.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dicap.catalogue import METHODS

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


def starred(value: Any, meaning: str) -> Any:
    """A field whose published value is not stated in the paper."""
    return Field(value, description=meaning, json_schema_extra={"stated": False})


def stated(value: Any, meaning: str) -> Any:
    """A field whose value is stated in the publication, or that only this program has."""
    return Field(value, description=meaning)


def required(meaning: str) -> Any:
    """A field without a published value."""
    return Field(description=meaning)


class Section(BaseModel):
    """A group of settings: frozen, no unknown keys, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Convert(Section):
    """Conversion of the raw data set into arrays."""

    max_rejected: Share = stated(0.01, "share of unreadable images above which `convert` fails")
    store: Literal["array", "jpeg"] = stated("array", "one uint8 array, or the resized images re-encoded for small disks")
    shard_size: Count = stated(16_384, "images of a shard on average; a set of no more images is one file (docs/scaling.md)")


class Own(Section):
    """Options of the data set `table`: anybody's own images (docs/tutorial.md)."""

    format: Literal["auto", "table", "coco", "labelstudio", "voc_xml", "folders"] = stated(
        "auto", "auto: the one that data_root looks like"
    )
    unlabeled_root: str | None = stated(None, "a second folder, of truly unlabelled images")
    test_share: Fraction = stated(0.0, "share of the labelled images to draw as test split where there is none")
    added: str | None = stated(None, "CSV of labels given later, as `dicap-stage import-labels` writes it")
    separator: str = stated(
        "auto", "what separates names in a cell of a table; auto: `;`, and a question where it may be a comma"
    )
    empty: Literal["auto", "none", "unlabeled"] = stated(
        "auto", "what an empty cell of labels means in a row of split train or test; auto: none of the classes, said in a note"
    )
    empty_absent: Literal["auto", "absent", "unknown"] = stated(
        "auto",
        "what an empty cell of the column absent says of the classes that are no labels; auto: unknown, and a question where "
        "most rows have one",
    )
    label_folder: Literal["auto", "first", "last", "all"] = stated(
        "auto", "which of several folders is the label; auto: a question"
    )


class Split(Section):
    """Labelled / unlabelled split and D_sup / D_est (docs/methods.md 2.3, 3.2)."""

    est_fraction: Annotated[float, Field(gt=0, lt=1)] = stated(
        0.2, "share of the labelled images that goes to D_est, the rest to D_sup"
    )
    validation: Fraction = stated(
        0.0, "share of the labelled images that only early stopping looks at; 0: none, as published; 0.2 sets a fifth apart"
    )


class Network(Section):
    """What is common to the networks beside backbone and head (docs/methods.md 2.4, 2.5, 5)."""

    normalize: Literal["none", "imagenet", "half", "auto"] = starred(
        "none",
        "none: pixels in [0, 1], as in the published code; half: mean = std = 0.5; auto: what the backbone was pretrained with",
    )
    stride: Literal[8, 16, 32] = stated(32, "pixels of the image per step of the last feature map")
    decoder_dim: Count = stated(768, "width of ML-Decoder's tokens and embeddings")
    decoder_ffn: Count = stated(2048, "width of its feed-forward layer")
    decoder_heads: Count = stated(8, "attention heads of ML-Decoder; decoder_dim is a multiple of it")
    dropout: Fraction = starred(0.1, "dropout inside ML-Decoder")


class Features(Section):
    """The bank of features of a frozen backbone (dicap/features)."""

    views: Annotated[int, Field(ge=0, le=64)] = stated(4, "strong views of each image")
    grid: Annotated[int, Field(ge=1, le=64)] = stated(
        1, "the feature map is pooled to grid x grid positions; 1: its mean; the disk space grows with its square"
    )
    tiles: Literal["none", "weak", "all"] = stated(
        "none", "the 2 x 2 tiles that D2L looks at; weak: of the plain and mirrored image; all: of the strong views too"
    )


class Linear(Section):
    """A linear head on a frozen backbone, solved as a convex problem instead of trained by steps (dicap/linear)."""

    solver: Literal["steps", "convex"] = stated(
        "steps", "steps: as published; convex: cross-entropy at its minimum, where the head is linear and all else frozen"
    )
    l2: Positive | Literal["auto"] = stated("auto", "weight of the loss beside half the squared norm; auto: by cross-validation")
    features: Literal["plain", "standard", "root"] = stated(
        "plain",
        "what the head sees; standard: standardised; root: signed square roots, standardised, each row of one length",
    )
    pseudo_weight: Share = stated(0.3, "weight of a pseudo-labelled row beside a labelled one")
    neighbours: Whole = stated(0, "nearest images with which the teacher's rows are averaged; 0: none")


class Augment(Section):
    """Views (docs/methods.md 2.4)."""

    flip: Share = stated(0.5, "probability of mirroring, in weak and strong views")
    policy: Literal["published", "torchvision"] = stated("published", "RandAugment of the published code, or torchvision's")
    cutout_warmup: Share = starred(0.0, "warm-up: side of the hole over the side of the image")
    cutout: Share = stated(0.5, "the same in the main stage and in fine-tuning")


class Loss(Section):
    """Asymmetric loss and the reduction of sums over entries (docs/methods.md 4.2, 3.13-D)."""

    gamma_neg: NonNegative = starred(4.0, "focusing exponent of negative entries")
    gamma_pos: NonNegative = starred(0.0, "focusing exponent of positive entries")
    clip: Fraction = starred(0.05, "margin by which the probability of negative entries is lowered")
    reduction: Literal["sum", "mean"] = starred(
        "sum", "sum over entries / images of the step, or mean over entries (literal equation)"
    )


class Optimiser(Section):
    """AdamW, one-cycle, EMA (docs/methods.md 2.6, 2.7)."""

    lr: Positive = stated(1.0e-4, "peak learning rate of warm-up and main stage")
    weight_decay: NonNegative = stated(1.0e-4, "decoupled weight decay of AdamW")
    pct_start: Annotated[float, Field(gt=0, lt=1)] = starred(0.2, "share of the cycle in which the learning rate rises")
    ema_decay: Fraction = stated(0.9997, "weight of the old value in the moving average of the weights")


class Warmup(Section):
    """Stage 1 (docs/methods.md 2.8, 3.3)."""

    trainable: Literal["head", "all"] = stated(
        "all", "all: the whole network, as published; head: the backbone stays as it comes, and its features are computed once"
    )
    epochs: Count = starred(12, "passes over the labelled images")
    batch_size: Count | Literal["auto"] = starred(
        "auto", "labelled images per step; auto: 320 x the labelled share, which is 16/32/48/64 at 5/10/15/20 % as published"
    )
    wcl: bool = stated(True, "class-wise contrastive loss on labelled and unlabelled images during warm-up")
    passes_on: Literal["raw", "ema"] = stated(
        "raw", "which weights the main stage starts from, where there is one; published: ema on NUS-WIDE and AWA2"
    )
    eval_every: Count = stated(1, "epochs between two evaluations")
    patience: Count = stated(5, "with split.validation: epochs without a better one after which the stage stops")


class Calibration(Section):
    """Correctness rates and weights (paper section 3; docs/methods.md 3.4, 3.10, 3.13-A, 3.13-C)."""

    policy: Literal["estimated", "uniform", "confidence", "labeled", "optimal"] = stated(
        "estimated", "where the weights of pseudo-labels come from; estimated: from D_est, as published"
    )
    source: Literal["holdout", "cross_fit"] = stated(
        "holdout",
        "holdout: counted on D_est, as published; cross_fit: on out-of-fold scores of all labelled images (linear.solver convex)",
    )
    folds: Annotated[int, Field(ge=2)] = stated(5, "K, heads of cross-fitting; head k never sees fold k")
    target: Literal["hard", "soft"] = stated(
        "hard", "hard label with weight w, or soft target r_pos(p) (needs thresholds.rule none)"
    )
    estimator: Literal["bins", "beta", "shrunk_bins", "class_rank", "class_score"] = stated(
        "bins", "what is learnt on D_est: bins as published; the others need fewer labels (docs/estimators.md)"
    )
    power: Annotated[float, Field(gt=0)] = stated(1.0, "exponent of the weights of hard labels")
    bins: Count = stated(20, "number of bins K")
    anchor: Literal["left", "centre", "right"] = starred(
        "left", "where in its bin a rate sits: left is the printed formula with 0-based bins, centre the unbiased choice"
    )
    empty_bin: Literal["interpolate", "zero"] = starred("interpolate", "rate of a bin without entries")
    smoothing: NonNegative = stated(0.0, "pseudo-counts added to positives and negatives of every bin")
    isotonic: bool = stated(False, "make the rates monotone before interpolating")
    per_class: bool = stated(False, "one table per class instead of one for the data set")
    teacher: Literal["ema", "online"] = starred("ema", "which weights make the pseudo-labels")
    view: Literal["weak", "test"] = starred("weak", "what the teacher looks at")
    refresh: Literal["epoch", "batch"] = starred("epoch", "pseudo-labels once per epoch, or anew on each batch")
    storage: Literal["auto", "dense", "sparse"] = stated(
        "auto",
        "dense: scores in single precision, all entries in Parquet; sparse: in half precision, no confident negatives in "
        "Parquet, for large sets (docs/scaling.md); auto: sparse above 50 million entries (images x classes)",
    )


class Thresholds(Section):
    """Dual thresholds (paper section 4; docs/methods.md 3.5, 3.13-B)."""

    rule: Literal["midrange", "fixed", "quantile", "quota", "none"] = stated(
        "midrange",
        "midrange: as published; quota: per class the share of positives among the labels, as CAP (see cap); none: every entry "
        "is confident, label 1[p >= 0.5]",
    )
    fixed_pos: Share = stated(0.5, "tau_pos of the rule fixed")
    fixed_neg: Share = stated(0.5, "tau_neg of the rule fixed")
    quantile: Share = stated(0.5, "tau_pos: this quantile of the positives' scores; tau_neg: 1 - it of the negatives'")
    crossed: Literal["swap", "priority", "midpoint"] = starred("swap", "what to do where tau_neg > tau_pos")
    unseen: Literal["guard", "skip"] = starred(
        "guard", "class without positives (negatives): tau_pos = 1 (tau_neg = 0), or left out"
    )


class Contrastive(Section):
    """Class-wise NT-Xent on uncertain entries, URRL (docs/methods.md 3.7, 3.13-E)."""

    enabled: bool = stated(True, "whether the main stage contrasts uncertain entries")
    temperature: Positive = starred(0.5, "temperature of NT-Xent")
    normalize: bool = starred(True, "cosine similarity instead of the inner product")
    projector: Whole = starred(0, "width of a two-layer projection head; 0: none")
    max_pairs: Annotated[int, Field(ge=2)] = starred(2048, "entries that are contrasted in one step, drawn where there are more")
    coefficient: NonNegative | Literal["auto"] = starred(
        "auto", "weight of the loss; auto: 1 / images of the step, i.e. plain sums with coefficient 1"
    )
    same_class_negatives: bool = stated(True, "whether entries of the same class repel each other too")
    weak_gradient: bool = starred(
        False,
        "whether the weak view carries a gradient too, in warm-up and main stage; false: it is a constant",
    )


class Train(Section):
    """Main stage (docs/methods.md 2.8, 3.8)."""

    trainable: Literal["head", "all"] = stated("all", "as warmup.trainable")
    backbone_lr: Positive | Literal["auto"] = starred(
        "auto", "peak learning rate of the backbone, where it is trained; auto: optimiser.lr, one rate for both as published"
    )
    head_lr: Positive | Literal["auto"] = starred("auto", "the same of all but the backbone; auto: optimiser.lr")
    batch_norm: Literal["train", "eval"] = starred(
        "train", "BatchNorm of a backbone that is trained; train: by the batch; eval: by the statistics it came with, which stay"
    )
    epochs: Count = starred(28, "passes over the unlabelled images")
    cycle_epochs: Whole = starred(40, "length of the one-cycle; 0: as long as the training. CAP's cycle outlasts its training")
    batch_size: Annotated[int, Field(ge=2)] = starred(64, "labelled + unlabelled images per step")
    batch_labelled: Count | Literal["auto"] = starred(
        "auto",
        "labelled ones of these; auto: 1.25 x the labelled share of the batch, 4/8/12/16 of 64 at 5/10/15/20 % as published",
    )
    shuffle: bool = starred(True, "false: the published code's fixed batches")
    eval_every: Count = stated(1, "epochs between two evaluations")
    patience: Count = stated(5, "with split.validation: epochs without a better one after which the stage stops")


class Finetune(Section):
    """Head-only fine-tuning on D_est, FTE (docs/methods.md 3.9)."""

    enabled: bool = stated(True, "false: the model of the main stage is the result")
    epochs: Count = starred(20, "passes over D_est; with labels all over D_u, of which a few are enough")
    batch_size: Count = starred(32, "images per step; with labels all train.batch_size is used")
    lr: Positive = starred(1.0e-4, "learning rate")
    ema_decay: Fraction = stated(0.9997, "as optimiser.ema_decay")
    labels: Literal["est", "all"] = stated(
        "est",
        "est: the head, on D_est, as published; all: D_est's labels are given back, and what the main stage trained goes on with "
        "all labels and its last pseudo-labels",
    )


class Topk(Section):
    """Top-k (docs/methods.md 4.4)."""

    k: Count | Literal["auto"] = stated(
        "auto", "auto: 2 on VOC and NUS-WIDE, 3 on COCO, elsewhere the rounded mean label count of D_l"
    )


class Iat(Section):
    """Instance-aware thresholding (docs/methods.md 4.4; its definition is not public, so each reading has a name)."""

    rule: Literal["fixed", "dual", "matched"] = starred(
        "fixed", "fixed: 1[p >= threshold]; dual: two thresholds; matched: one that fits the label count of D_l, a rule of ours"
    )
    threshold: Share = starred(0.5, "of the rule fixed")
    high: Share = starred(0.95, "dual: positive from here")
    low: Share = starred(0.05, "dual: negative up to here, what lies between is masked")


class Drml(Section):
    """DRML (docs/methods.md 4.5): four MLPs on fixed features."""

    features: Literal["pretrained", "warmup"] = starred(
        "pretrained",
        "of the backbone as it comes, or after a warm-up on D_l; which features the published row used is not known",
    )
    rounds: Count = stated(150, "epochs of the main stage")
    iterations: Count = stated(100, "steps per round")
    batch_size: Count = stated(64, "labelled images per step, and as many unlabelled ones")
    start: Whole = stated(50, "rounds before the first images are adopted")
    select: Literal["adaptive", "distance"] = stated(
        "adaptive",
        "the per_round closest images, or all closer than `distance`; a fixed distance depends on the number of classes",
    )
    per_round: Count = stated(20, "images adopted per round; the paper: 10 to 20")
    distance: Positive = stated(1.0, "of the selection by distance")
    relation: NonNegative = stated(0.2, "weight of L_R (the paper says 0.5, its code 0.2)")
    discrepancy: NonNegative = stated(1.0e-5, "weight of L_DA")
    lr_joint: Positive = stated(1.0e-4, "update A: projector and classifiers")
    lr_disagree: Positive = stated(1.0e-5, "update B: classifiers")
    lr_agree: Positive = stated(1.0e-5, "update C: projector")
    lr_relation: Positive = stated(1.0e-3, "update D: relation network")


class Cap(Section):
    """CAP's quota (docs/methods.md 4.6); BBAM uses it too."""

    eta_pos: Share = stated(1.0, "share of the expected positives that train")
    eta_neg: Share = stated(0.998, "share of the expected negatives that train")
    unseen: Literal["mask", "negative", "published"] = stated(
        "mask", "a class with a quota of 0; published: every image positive, as in the published code"
    )


class Pclp(Section):
    """PCLP (docs/methods.md 4.7)."""

    prior: Literal["scm", "none"] = stated("scm", "scm: adversarial stage 1 with the causal prior")
    warmup_epochs: Count = stated(10, "passes of stage 1 over D_u: 10 on VOC; COCO and NUS-WIDE: 1")
    warmup_labelled: Count = stated(2, "labelled images per step of stage 1")
    warmup_unlabelled: Annotated[int, Field(ge=2)] = stated(6, "unlabelled images per step of stage 1")
    warmup_cutout: Share | Literal["auto"] = stated(
        "auto", "side of the hole over the side of the image in stage 1; auto: augment.cutout, which is 0.5 as published"
    )
    epochs: Count | Literal["auto"] = starred(
        "auto", "passes of stage 2 over D_u: 10 on VOC, 29 on COCO and NUS-WIDE; auto: train.epochs"
    )
    cycle_epochs: Whole = stated(0, "length of the one-cycle of stage 2; 0: as long as the stage, as published")
    batch_size: Annotated[int, Field(ge=2)] | Literal["auto"] = stated(
        "auto",
        "labelled + unlabelled images per step of stage 2: 64 on all data sets; auto: train.batch_size, which is halved on VOC",
    )
    batch_labelled: Count | Literal["auto"] = stated(
        "auto", "labelled ones of these; auto: train.batch_labelled where that is set, else a quarter, 16 of 64 as published"
    )
    affine: Literal["uniform", "identity"] = stated(
        "uniform", "what the prior's affine map starts from; uniform: U(0, 1), as in the published code; identity: 1 and 0"
    )
    latent: Count | Literal["auto"] = stated(
        "auto", "auto: 32, 64, 128 ...: the first above the number of classes; 32 on VOC, 128 on COCO and NUS-WIDE"
    )
    consistency: NonNegative = stated(0.1, "weight of the soft consistency on D_u")
    adversarial: NonNegative = stated(1.0e-3, "weight of the discriminator's answer in the encoder's loss")
    adversary_size: Annotated[int, Field(ge=8)] | Literal["auto"] = stated(
        "auto", "pixels; auto: the largest power of two within image_size; the published code trains at 256"
    )
    adversary_width: Count = stated(32, "channels of the generator's and the discriminator's outermost layer")
    adversary_lr: Positive = stated(1.0e-4, "learning rate of the discriminator, the generator and the causal prior")


class Bbam(Section):
    """BBAM (docs/methods.md 4.8). The options after `clamp` exist to reproduce what its public code does."""

    scale: Positive = stated(20.0, "factor of the cosines")
    margin: NonNegative = stated(0.4, "margin of the angular loss")
    lr: Positive | Literal["auto"] = stated(
        "auto", "peak learning rate of both stages: 5e-5 on VOC, 1e-4 elsewhere; auto: optimiser.lr, which is 1e-4 as published"
    )
    balance: bool = stated(True, "angle transform")
    momentum: Share = stated(0.01, "weight of the old statistics, as in the published code")
    negatives: Positive = stated(5.0, "hard negatives kept for each positive")
    clamp: Fraction = stated(1.0e-6, "cosines stay within +-(1 - clamp); 0: unclamped, as published")
    transform: Literal["average", "hidden_labels"] = stated(
        "average", "in pseudo-labelling; hidden_labels: the published code's leak"
    )
    labelled_mask: Literal["refreshed", "first_epoch"] = stated(
        "refreshed", "first_epoch: the labelled images' mask is never renewed, the published code's omission"
    )
    warmup_split: Literal["same", "seed_1000"] = stated(
        "same", "seed_1000: warm-up trains on another labelled subset, the published code's leak"
    )


class D2l(Section):
    """D2L with metric-adaptive thresholds (docs/methods.md 4.9)."""

    beta: Positive = stated(0.5, "of F-beta: below 1 precision counts more")
    formula: Literal["published", "standard"] = stated(
        "published", "published: (1 + b^2) P R / (b P + R); standard: b^2 in the denominator"
    )
    relabel: Literal["batch", "epoch"] = stated("batch", "pseudo-labels from each batch's weak views, or once per epoch")
    unseen: Literal["mask", "negative", "published"] = stated(
        "mask", "a class without labelled positives; published: every image positive, as in the published code"
    )


class Settings(Section):
    """One experiment, resolved."""

    dataset: str = required(
        "which images: pictograms, digits, table (one's own), voc2007, voc2012, coco2014, coco2017, nuswide, awa2"
    )
    data_root: str | None = stated(None, "folder of the raw data set (pictograms and digits need none)")
    ratio: Annotated[float, Field(gt=0, le=1)] = required("share of the training images whose labels may be used")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = required("of everything random")
    method: str = required("`dicap-stage methods` lists them")
    protocol: str = stated(
        "published", "published, or recommended: what this project's own experiments favour (docs/estimators.md)"
    )
    backbone: str = stated("resnet50", "any timm name")
    backbone_weights: str = stated("imagenet", "imagenet (timm's own), lite (extra package), random, or the path of a file")
    head: str = required("ml_decoder, linear; null: the method's published head")
    image_size: Annotated[int, Field(ge=16, le=2048)] = stated(224, "side of the square images in pixels")
    weights: Literal["raw", "ema"] = starred(
        "raw",
        "the network that is the result, of every method alike, and that is fine-tuned; raw: as trained; ema: its moving average",
    )
    convert: Convert
    own: Own
    split: Split
    network: Network
    features: Features
    linear: Linear
    augment: Augment
    loss: Loss
    optimiser: Optimiser
    warmup: Warmup
    calibration: Calibration
    thresholds: Thresholds
    contrastive: Contrastive
    train: Train
    finetune: Finetune
    topk: Topk
    iat: Iat
    drml: Drml
    cap: Cap
    pclp: Pclp
    bbam: Bbam
    d2l: D2l

    def trainable(self, stage: str) -> str:
        """What warmup, pseudo_label, train or finetune trains: `head`, on features of the frozen backbone, or `all`.

        Fine-tuning always trains the head alone; it works on the features if the stages before left the backbone as it came.
        """
        return self.warmup.trainable if stage == "warmup" else self.train.trainable

    def trains(self, stage: str) -> bool:
        """Whether the method has this stage: `warmup`, `train` or `finetune`. Else the model of the one before is passed on."""
        facts = METHODS[self.method]
        if stage == "finetune":
            return facts.finetunes and self.finetune.enabled and self.calibration.source == "holdout"
        return stage == "warmup" or facts.unlabelled

    def solves(self, stage: str) -> bool:
        """Whether a stage solves for the head as a convex problem instead of training it by steps."""
        frozen_linear = self.trainable(stage) == "head" and self.head == "linear" and METHODS[self.method].convex
        return self.linear.solver == "convex" and frozen_linear and stage != "finetune"

    def loop(self, stage: str) -> str:
        """Which loop trains a stage, where it is not the common one: by how it trains, or the method's own by its name."""
        if self.solves(stage):
            return "convex"
        if stage in ("train", "pseudo_label") and self.unfreezes:
            return "unfrozen"
        return "given_back" if stage == "finetune" and self.finetune.labels == "all" else self.method

    @property
    def needs_features(self) -> bool:
        """Whether a stage is to train the head alone, and so works on features of the frozen backbone."""
        return "head" in (self.warmup.trainable, self.train.trainable)

    @property
    def unfreezes(self) -> bool:
        """Whether the main stage goes on from a cross-fitted solution on the frozen backbone to the whole network."""
        return self.method == "dicap" and self.calibration.source == "cross_fit" and self.train.trainable == "all"
