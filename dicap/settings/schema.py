"""Every setting of an experiment: type, default value and meaning.

A default that the paper does not state is `assumed`: the reading that docs/methods.md recommends. The options of single methods
are in `dicap.settings.methods`. After adding a key run `dicap-stage reference > docs/reference.md`.
"""

from typing import Annotated, Literal

from pydantic import Field

from dicap.settings.catalogue import FORMATS, RAW
from dicap.settings.fields import (
    Count,
    Fraction,
    Inside,
    NonNegative,
    Positive,
    Section,
    Several,
    Share,
    Whole,
    assumed,
    own,
    published,
    required,
)
from dicap.settings.methods import METHODS, Bbam, Cap, D2l, Drml, Iat, Pclp, Topk, holds_out


class Convert(Section):
    """Conversion of the raw data set into arrays."""

    max_rejected: Share = own(0.01, "share of unreadable images above which `convert` fails")
    lists: str | None = own(None, "folder of published lists, formatted_{train,val}_*.npy; data/none: the set's own")


class Own(Section):
    """Options of the data set `table`, your own images (docs/tutorial.md). `init-data` writes these options for your labels.

    With `format: null` you need no `init-data`: labels.csv in data_root has the columns image, labels and, if needed, split,
    absent and group.
    """

    format: Literal[*FORMATS] | None = own(  # type: ignore[valid-type]
        None, "format of the labels; null: labels.csv with columns image, labels and perhaps split"
    )
    files: list[str] | None = own(None, "label files, below data_root; null: labels.csv, or all files of the format")
    image: str | None = own(None, "column of a table, or key of a Label Studio task, that names the images")
    labels: str | None = own(None, "column of labels")
    classes: list[str] | None = own(
        None, "columns of 0 and 1, one a class, where there is no column of labels; of Label Studio the controls with classes"
    )
    names: list[str] | None = own(
        None,
        "names of the classes, whatever they look like; `init-data` writes all, and then another name, or one that no image has "
        "any more, is refused; null: any name",
    )
    split: str | None = own(None, "column of a table, or key of COCO or Label Studio: train, val, test, unlabeled")
    group: str | None = own(None, "column or key of groups, such as patients or scenes: a group stays on one side of every split")
    value: str | None = own(None, "column beside labels: 1 where the label is there, 0 where it is known to be absent")
    absent: str | None = own(None, "column of classes known to be absent; a class in neither column is then unknown")
    open: str | None = own(None, "column that is 1 where a row is not labelled")
    ignore: list[str] | None = own(
        None, "columns, keys of COCO and Label Studio, endings, files and folders without labels, and patterns as `*_mask.png`"
    )
    rows: Literal["image", "label"] | None = own(None, "a row is an image, or one label of its image; null: an image")
    separator: str = own("auto", "separator of names in a cell, beside `;`; auto: `;`, and a question if another is possible")
    words: Literal["auto", "class", "none", "empty"] = own(
        "auto", "meaning of words such as NA, none or ? for a label: a class, no class, an empty cell; auto: a question"
    )
    minus: Literal["auto", "absent", "unknown"] = own("auto", "meaning of -1; auto: a question")
    blank: Literal["auto", "absent", "unknown"] = own(
        "auto", "meaning of an empty cell in a row that has values for other classes; auto: a question"
    )
    empty: Literal["auto", "none", "unlabeled"] = own(
        "auto",
        "meaning of an image of split train or test without any label; auto: none of the classes, with a note; in folders of "
        "splits a question",
    )
    empty_absent: Literal["auto", "absent", "unknown"] = own(
        "auto", "meaning of an empty cell in the column absent, for the classes that are not labels of the row; auto: a question"
    )
    derived: Literal["auto", "photographs"] = own(
        "auto", "pictures by names of photographs and a word more, as `1_mask.png`, or in a folder of such; auto: a question"
    )
    label_folder: Literal["auto", "first", "last", "all"] = own("auto", "which of several folders is the label; auto: refused")
    answers: Literal["auto", "last", "all"] = own(
        "auto", "which of several answers to a Label Studio task counts if times do not tell the newest; auto: a question"
    )
    attributes: Literal["auto", "classes", "ignore"] = own("auto", "use of labels' attributes in CVAT and COCO; auto: a question")
    unlabeled_root: str | None = own(
        None, "a folder of truly unlabelled images; data_root, as `init-data` writes: those that no row names; data/none: none"
    )
    test_share: Fraction = own(0.0, "share of the labelled images to draw as test split if no split is given")
    added: str | None = own(None, "CSV of labels given later, as `dicap-stage import-labels` writes it")
    new_classes: list[str] | None = own(None, "classes added by `import-labels`: unknown in images whose labels do not name them")


class Split(Section):
    """Labelled / unlabelled split and D_sup / D_est (docs/methods.md 2.3, 3.2)."""

    est_fraction: Inside = published(0.2, "share of the labelled images that goes to D_est, the rest to D_sup")


class Network(Section):
    """Network options of all methods, besides backbone and head (docs/methods.md 2.4, 2.5, 5)."""

    normalize: Literal["none", "imagenet", "half", "auto"] = assumed(
        "none", "none: pixels in [0, 1], as in the published code; half: mean = std = 0.5; auto: as the backbone was pretrained"
    )
    stride: Literal[8, 16, 32] = published(32, "image pixels per position of the last feature map")
    tokens: Literal["map", "class_and_mean"] = own(
        "map",
        "a transformer's input to the head; map: its patches; class_and_mean: class token and mean of the patches, concatenated",
    )
    decoder_dim: Count = assumed(768, "width of ML-Decoder's tokens and embeddings")
    decoder_ffn: Count = assumed(2048, "width of ML-Decoder's feed-forward layer")
    decoder_heads: Count = assumed(8, "attention heads of ML-Decoder; decoder_dim is a multiple of it")
    dropout: Fraction = assumed(0.1, "dropout inside ML-Decoder")


class Features(Section):
    """The feature bank of a frozen backbone (dicap/frozen/features)."""

    views: Annotated[int, Field(ge=0, le=64)] = own(4, "strong views of each image")
    grid: Annotated[int, Field(ge=1, le=64)] = own(
        1, "the feature map is pooled to grid x grid positions; 1: its mean; the disk space grows with its square"
    )


class Linear(Section):
    """A linear head on a frozen backbone, solved as a convex problem instead of trained by steps (dicap/frozen)."""

    solver: Literal["steps", "convex"] = own(
        "steps", "steps: as published; convex: the minimum of the cross-entropy, for a linear head on a frozen backbone"
    )
    C: Positive | Literal["auto"] = own("auto", "weight of the loss relative to half the squared norm; auto: by cross-validation")
    features: Literal["plain", "standard", "root"] = own(
        "plain",
        "scaling of the features; standard: standardised, if the warm-up freezes the backbone; root: signed square roots, "
        "standardised in this case too, then each row scaled to the same length",
    )
    pseudo_weight: Share | Literal["auto"] = own(
        0.3,
        "weight of a pseudo-labelled row relative to a labelled row; auto: 0.5, and DiCaP's recommended rule then uses the "
        "students only as far as they improve the out-of-fold scores of the labelled images",
    )
    neighbours: Whole = own(0, "number of nearest images with which a teacher's row is averaged; 0: none")


class Augment(Section):
    """Views (docs/methods.md 2.4)."""

    flip: Share = assumed(0.5, "probability of mirroring, in weak and strong views")
    cutout_warmup: Share = assumed(0.0, "side of Cutout's hole divided by the side of the image, in the warm-up")
    cutout: Share = assumed(0.5, "side of Cutout's hole in the main stage, in fine-tuning, and if only the head is trained")


class Loss(Section):
    """Asymmetric loss and the reduction of sums over entries (docs/methods.md 4.2, 3.13-D)."""

    gamma_neg: NonNegative = assumed(4.0, "focusing exponent of negative entries")
    gamma_pos: NonNegative = assumed(0.0, "focusing exponent of positive entries")
    clip: Fraction = assumed(0.05, "margin that is subtracted from the probability of negative entries")
    reduction: Literal["sum", "mean"] = assumed("sum", "sum over entries / images of the step, or mean over entries (as printed)")


class Optimiser(Section):
    """AdamW, one-cycle, EMA (docs/methods.md 2.6, 2.7)."""

    lr: Positive = published(1.0e-4, "peak learning rate of warm-up and main stage")
    weight_decay: NonNegative = published(1.0e-4, "decoupled weight decay of AdamW")
    pct_start: Inside = assumed(0.2, "share of the cycle in which the learning rate rises")
    ema_decay: Fraction = published(0.9997, "weight of the old value in the moving average of the weights")


class Warmup(Section):
    """Stage 1 (docs/methods.md 2.8, 3.3)."""

    trainable: Literal["head", "all"] = published(
        "all", "all: the whole network, as published; head: the backbone stays pretrained, and its features are computed once"
    )
    epochs: Count = assumed(12, "passes over the labelled images, or over the images named by warmup.over")
    batch_size: Several | Literal["auto"] = assumed(
        "auto",
        "labelled images per step; auto: 320 x the labelled share, which is 16/32/48/64 at 5/10/15/20 % as published; bbam: 16",
    )
    wcl: bool = published(True, "class-wise contrastive loss on labelled and unlabelled images during warm-up")
    over: Literal["labelled", "unlabelled"] = assumed(
        "labelled",
        "the images of an epoch with wcl; labelled: D_sup, with as many images of D_unsup; unlabelled: D_unsup, with D_sup "
        "cycled alongside, in steps as large as the main stage's",
    )
    passes_on: Literal["raw", "ema"] = assumed(
        "raw", "initial weights of the main stage, if there is one; published: ema for CAP on NUS-WIDE and BBAM on AWA2"
    )
    eval_every: Count = own(1, "epochs between two evaluations")


class Calibration(Section):
    """Correctness rates and weights (paper section 3; docs/methods.md 3.4, 3.10, 3.13-A, 3.13-C)."""

    policy: Literal["estimated", "uniform", "confidence", "labeled", "optimal"] = published(
        "estimated", "source of the pseudo-labels' weights; estimated: correctness rates on D_est, as published"
    )
    target: Literal["hard", "soft"] = published("hard", "target of confident entries: hard label with weight w, or soft w(p, 1)")
    bins: Count = published(20, "number of bins K")
    anchor: Literal["left", "centre", "right"] = assumed(
        "left", "position of a rate within its bin: left is the printed formula with 0-based bins, centre is unbiased"
    )
    empty_bin: Literal["interpolate", "zero"] = assumed("interpolate", "rate of a bin without entries")


class Thresholds(Section):
    """Dual thresholds (paper section 4; docs/methods.md 3.5, 3.13-B)."""

    rule: Literal["midrange", "none"] = published("midrange", "midrange: as published; none: no uncertain entries, 1[p >= 0.5]")


class Contrastive(Section):
    """Class-wise NT-Xent on uncertain entries, URRL (docs/methods.md 3.7, 3.13-E)."""

    enabled: bool = published(True, "whether the main stage contrasts uncertain entries")
    temperature: Positive = assumed(0.5, "temperature of NT-Xent")
    max_pairs: Several = assumed(2048, "maximum number of entries to contrast in one step, sampled at random")
    coefficient: NonNegative | Literal["auto"] = assumed(
        "auto", "weight of the loss; auto: 1 relative to the other terms (1 / images of the step with loss.reduction sum)"
    )
    weak_gradient: bool = assumed(False, "whether the weak view has a gradient too, in warm-up and main stage")


class Train(Section):
    """Main stage (docs/methods.md 2.8, 3.8)."""

    trainable: Literal["head", "all"] = published("all", "see warmup.trainable")
    backbone_lr: Positive | Literal["auto"] = assumed(
        "auto", "peak learning rate of the backbone, if it is trained; auto: optimiser.lr, one rate for both as published"
    )
    head_lr: Positive | Literal["auto"] = assumed("auto", "peak learning rate of everything else; auto: optimiser.lr")
    batch_norm: Literal["train", "eval"] = assumed(
        "train", "BatchNorm of a trained backbone; train: statistics of the batch; eval: pretrained statistics, unchanged"
    )
    epochs: Count = assumed(28, "passes over the unlabelled images")
    cycle_epochs: Whole = assumed(40, "length of the one-cycle; 0: train.epochs. As in CAP the cycle is longer than the training")
    batch_size: Several = assumed(64, "labelled + unlabelled images per step")
    batch_labelled: Count | Literal["auto"] = assumed(
        "auto",
        "labelled images of train.batch_size; auto: 1.25 x the labelled share, 4/8/12/16 of 64 at 5/10/15/20 % as published",
    )
    eval_every: Count = own(1, "epochs between two evaluations")


class Finetune(Section):
    """Head-only fine-tuning on D_est, FTE (docs/methods.md 3.9)."""

    enabled: bool = published(True, "false: the model of the main stage is the result")
    epochs: Count = assumed(20, "passes over D_est")
    batch_size: Count = assumed(32, "images per step")
    lr: Positive = assumed(1.0e-4, "learning rate")
    ema_decay: Fraction = assumed(0.9997, "see optimiser.ema_decay")


class Settings(Section):
    """One experiment, resolved: settings of all methods, then the options of single methods."""

    dataset: str = required("one of pictograms, digits, table (your own), voc2007, voc2012, coco2014, coco2017, nuswide, awa2")
    data_root: str = own(RAW, "folder of the raw data set (pictograms and digits need none)")
    ratio: Annotated[float, Field(gt=0, le=1)] = required("share of the training images whose labels may be used")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = required("seed of all random numbers")
    method: str = required(", ".join(METHODS))
    protocol: str = own(
        "published", "published; or the best of our own experiments: recommended (frozen backbone), trained (small networks)"
    )
    backbone: str = published("resnet50", "any timm name")
    backbone_weights: str = published("imagenet", "imagenet (from timm), lite (extra package), random, or the weights_file")
    weights_file: str | None = own(None, "a file of backbone weights that replaces backbone_weights; data/none: none")
    head: str = required("ml_decoder, linear; null: the method's published head")
    image_size: Annotated[int, Field(ge=16, le=2048)] = published(224, "side of the square images in pixels")
    weights: Literal["raw", "ema"] = assumed(
        "raw", "the network that is fine-tuned and published, for every method; raw: as trained; ema: its moving average"
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
        """The trained part in warmup, pseudo_label, train or finetune: `head`, on features of the frozen backbone, or `all`.

        Fine-tuning always trains only the head. It uses stored features if the earlier stages did not train the backbone.
        """
        return self.warmup.trainable if stage == "warmup" else self.train.trainable

    def trains(self, stage: str) -> bool:
        """Whether the method has this stage: `warmup`, `train` or `finetune`. Else the stage passes on the previous model."""
        if stage == "finetune":
            return self.finetune.enabled and holds_out(self.method, self.protocol)
        return stage == "warmup" or METHODS[self.method].unlabelled

    def publishes(self, stage: str) -> Literal["raw", "ema"]:
        """The network that warmup, train or finetune publishes as its model, for the next stage or as the result."""
        return self.warmup.passes_on if stage == "warmup" and METHODS[self.method].unlabelled else self.weights

    def solves(self, stage: str) -> bool:
        """Whether a stage solves for the head as a convex problem instead of training it by steps."""
        frozen_linear = self.trainable(stage) == "head" and self.head == "linear" and METHODS[self.method].convex
        return self.linear.solver == "convex" and frozen_linear and stage != "finetune"

    @property
    def needs_features(self) -> bool:
        """Whether a stage trains only the head, and so needs features of the frozen backbone."""
        return "head" in (self.warmup.trainable, self.train.trainable)

    @property
    def unfreezes(self) -> bool:
        """Whether the main stage applies the recommended rule on the frozen backbone, and then trains the whole network."""
        return self.recommends and self.train.trainable == "all"

    @property
    def reads_hidden_labels(self) -> bool:
        """Whether rates are counted on labels that training must not read (docs/methods.md 3.10). Nothing else reads them."""
        return self.method == "dicap" and self.calibration.policy == "optimal" and not self.recommends

    @property
    def recommends(self) -> bool:
        """Whether DiCaP uses our recommended rule for a frozen backbone (docs/photographs.md) instead of the paper's rule."""
        return self.method == "dicap" and self.protocol == "recommended"
