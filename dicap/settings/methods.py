"""The compared methods: facts about each method, and its options.

A method has a row in `METHODS`, a section here if it has options, and a class in `dicap/methods/<name>.py`, which is found by
name. This module imports nothing heavy, so that reading and checking settings is fast.
"""

from dataclasses import dataclass
from typing import Literal

from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.fields import Count, CountOrAuto, NonNegative, Positive, Section, Several, Share, Whole, assumed, published


@dataclass(frozen=True)
class MethodFacts:
    """Facts about a method, one row of docs/methods.md 4.10.

    Attributes:
        title: the method's name in tables and (without hyphens) of its class in `dicap/methods/<name>.py`.
        head: the published head, or OWN_HEAD.
        unlabelled: the method uses D_u.
        finetunes: D_est is held out and used for fine-tuning (DiCaP only).
        convex: training on fixed features is a convex problem (a linear head on weighted entries), so it can be solved.
        ema_on: data sets on which the authors' main stage starts from the EMA weights of the warm-up; None: not documented.
        reads: sections of other methods that the method reads too.
        partial: the method can learn from images with unknown classes, because it treats labels entry by entry or class by
            class.
    """

    title: str
    head: str
    unlabelled: bool = True
    finetunes: bool = False
    convex: bool = False
    partial: bool = True
    reads: tuple[str, ...] = ()
    ema_on: tuple[str, ...] | None = None


METHODS = {
    "dicap": MethodFacts(title="DiCaP", head="ml_decoder", finetunes=True, convex=True),
    "bce": MethodFacts(title="BCE", head="linear", unlabelled=False, convex=True),
    "asl": MethodFacts(title="ASL", head="linear", unlabelled=False, convex=True),
    "mld": MethodFacts(title="MLD", head="ml_decoder", unlabelled=False),
    "top1": MethodFacts(title="Top-1", head="linear", convex=True),
    "topk": MethodFacts(title="Top-k", head="linear", convex=True),
    "iat": MethodFacts(title="IAT", head="linear", convex=True),
    "drml": MethodFacts(title="DRML", head=OWN_HEAD, partial=False),
    "cap": MethodFacts(title="CAP", head="linear", convex=True, ema_on=("nuswide",)),
    "pclp": MethodFacts(title="PCLP", head=OWN_HEAD, partial=False, ema_on=()),
    "bbam": MethodFacts(title="BBAM", head=OWN_HEAD, partial=False, reads=("cap",), ema_on=("awa2",)),
    "d2l": MethodFacts(title="D2L", head="linear", ema_on=()),
}


class Topk(Section):
    """Top-k (docs/methods.md 4.4)."""

    k: CountOrAuto = published("auto", "auto: 2 on VOC and NUS-WIDE, 3 on COCO, else the rounded mean number of labels in D_l")


class Iat(Section):
    """Instance-aware thresholding (docs/methods.md 4.4). Its definition is not public; `rule` names our readings of it."""

    rule: Literal["fixed", "matched"] = assumed("fixed", "fixed: 1[p >= threshold]; matched (ours): by the label count of D_l")
    threshold: Share = assumed(0.5, "threshold of rule fixed")


class Drml(Section):
    """DRML (docs/methods.md 4.5): four MLPs on fixed features."""

    features: Literal["pretrained", "warmup"] = assumed(
        "pretrained",
        "features of the pretrained backbone, or after a warm-up on D_l; the features of the published row are unknown",
    )
    rounds: Count = published(150, "epochs of the main stage")
    iterations: Count = published(100, "steps per round")
    batch_size: Count = published(64, "labelled images per step, and as many unlabelled images")
    start: Whole = published(50, "the last round without adopted images; rounds count from 0")
    per_round: Count = assumed(20, "images adopted per round, those with the smallest disagreement; the paper: 10 to 20")
    relation: NonNegative = published(0.2, "weight of L_R (the paper says 0.5, its code 0.2)")
    discrepancy: NonNegative = published(1.0e-5, "weight of L_DA")
    lr_joint: Positive = published(1.0e-4, "update A: projector and classifiers")
    lr_disagree: Positive = published(1.0e-5, "update B: classifiers")
    lr_agree: Positive = published(1.0e-5, "update C: projector")
    lr_relation: Positive = published(1.0e-3, "update D: relation network")


class Cap(Section):
    """CAP's quota (docs/methods.md 4.6); BBAM uses it too."""

    eta_pos: Share = published(1.0, "share of the expected positives that is used in training")
    eta_neg: Share = published(0.998, "share of the expected negatives that is used in training")


class Pclp(Section):
    """PCLP (docs/methods.md 4.7)."""

    prior: Literal["scm", "none"] = published("scm", "scm: adversarial stage 1 with the causal prior")
    warmup_epochs: Count = published(10, "passes of stage 1 over D_u: 10 on VOC; COCO and NUS-WIDE: 1")
    warmup_labelled: Count = published(2, "labelled images per step of stage 1")
    warmup_unlabelled: Several = published(6, "unlabelled images per step of stage 1")
    epochs: CountOrAuto = assumed("auto", "passes of stage 2 over D_u: 10 on VOC, 29 on COCO and NUS-WIDE; auto: train.epochs")
    batch_size: Several | Literal["auto"] = published(
        "auto",
        "labelled + unlabelled images per step of stage 2: 64 on all data sets; auto: train.batch_size, which is halved on VOC",
    )
    batch_labelled: CountOrAuto = published(
        "auto", "labelled images of pclp.batch_size; auto: train.batch_labelled if set, else a quarter, 16 of 64 as published"
    )
    consistency: NonNegative = published(0.1, "weight of the consistency loss on D_u")
    adversarial: NonNegative = published(1.0e-3, "weight of the discriminator's score in the encoder's loss")
    adversary_size: Literal["auto", 8, 16, 32, 64, 128, 256, 512, 1024] = assumed(
        "auto", "image size of generator and discriminator; auto: the largest power of two within image_size; published code: 256"
    )
    adversary_width: Count = published(32, "channels of the generator's and the discriminator's outermost layer")
    adversary_lr: Positive = published(1.0e-4, "learning rate of the discriminator, the generator and the causal prior")


class Bbam(Section):
    """BBAM (docs/methods.md 4.8)."""

    scale: Positive = published(20.0, "factor of the cosines")
    margin: NonNegative = published(0.4, "margin of the angular loss")
    batch_size: Several | Literal["auto"] = published(
        "auto",
        "labelled + unlabelled images per step of the main stage, a quarter labelled: 128 on AWA2; auto: train.batch_size, "
        "and with train.batch_labelled auto 4/8/16/32 of 64 are labelled at 5/10/15/20 %",
    )
    lr: Positive | Literal["auto"] = published(
        "auto", "peak learning rate of both stages: 5e-5 on VOC, 1e-4 elsewhere; auto: optimiser.lr (published: 1e-4)"
    )
    momentum: Share = published(0.01, "weight of the old angle statistics in their moving average")
    negatives: Positive = published(5.0, "hard negatives kept for each positive")


class D2l(Section):
    """D2L with metric-adaptive thresholds (docs/methods.md 4.9)."""

    beta: Positive = published(0.5, "beta of F-beta; below 1 precision counts more")


def holds_out(method: str, protocol: str) -> bool:
    """Whether D_est is held out from training, to count correctness on it.

    The recommended rule trains on all of D_l and counts out of fold. Other methods count nothing and hold nothing out.
    """
    return METHODS[method].finetunes and protocol != "recommended"
