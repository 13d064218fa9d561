"""What can be chosen by name: data sets, methods and heads, with the facts people ask about them.

Nothing heavy is imported here, so `dicap-stage methods` and the checks of the settings are instant.
"""

from dataclasses import dataclass

DATASETS = {
    "pictograms": "scenes of pictograms on photographs out of focus, bundled (the default)",
    "digits": "scenes of handwritten digits, bundled; small enough to train a whole network",
    "table": "your own photographs: a CSV or Parquet with image,split,labels",
    "voc2007": "PASCAL VOC 2007, trainval / test",
    "voc2012": "PASCAL VOC 2012, train / val (the VOC of the published tables)",
    "coco2014": "MS-COCO 2014, train / val",
    "coco2017": "MS-COCO 2017, train / val",
    "nuswide": "NUS-WIDE, 81 concepts",
    "awa2": "Animals with Attributes 2, 85 attributes, zero-shot species split",
}

OWN = "table"  # anybody's own images
NAMED_WEIGHTS = ("imagenet", "lite", "random")  # of a backbone; anything else is the path of a file
BUNDLED = ("pictograms", "digits")  # drawn when converted: they need no data_root

PROTOCOLS = ("published", "recommended")  # the first is what dicap/settings/schema.py says, the others are files in configs/
HEADS = ("ml_decoder", "linear")
OWN_HEAD = "own"  # of a method that brings its own network, to which `head` does not apply


@dataclass(frozen=True)
class MethodFacts:
    """One row of docs/methods.md 4.11: how a method differs from the others.

    Attributes:
        title: name in the tables, and (without hyphens) of the class in `dicap/methods/<name>.py`.
        head: the published head, or OWN_HEAD.
        unlabelled: whether D_u is used at all.
        finetunes: whether D_est is held out and used for fine-tuning (DiCaP only).
        rule: how teacher scores become pseudo-labels.
        convex: whether its training on fixed features is one linear head on weighted entries, so that it can be solved.
        partial: whether it can learn from images of which some classes are unknown: everything it does with labels is done entry
            by entry or class by class.
        source: publication.
        confidence: how sure docs/methods.md 13 is of the algorithm.
    """

    title: str
    head: str
    loss: str
    rule: str
    source: str
    confidence: str
    unlabelled: bool = True
    finetunes: bool = False
    convex: bool = False
    partial: bool = True

    @property
    def is_its_head(self) -> bool:
        """Whether another head would make another method of it: a protocol's head is not for it."""
        return self.head == OWN_HEAD or self.title == "MLD"


METHODS = {
    "dicap": MethodFacts(
        title="DiCaP",
        head="ml_decoder",
        loss="weighted ASL + NT-Xent",
        rule="dual thresholds, weights by estimated correctness",
        source="AAAI 2026",
        confidence="high for the idea, medium for details",
        finetunes=True,
        convex=True,
    ),
    "bce": MethodFacts(
        title="BCE",
        head="linear",
        loss="BCE",
        rule="-",
        source="labelled-only baseline, CAP's warm-up recipe",
        confidence="high (recipe: medium)",
        unlabelled=False,
        convex=True,
    ),
    "asl": MethodFacts(
        title="ASL",
        head="linear",
        loss="ASL",
        rule="-",
        source="asymmetric loss, ICCV 2021",
        confidence="high",
        unlabelled=False,
        convex=True,
    ),
    "mld": MethodFacts(
        title="MLD",
        head="ml_decoder",
        loss="ASL",
        rule="-",
        source="ML-Decoder, WACV 2023",
        confidence="high (recipe: low)",
        unlabelled=False,
    ),
    "top1": MethodFacts(
        title="Top-1",
        head="linear",
        loss="ASL",
        rule="the highest class of each image",
        source="baseline of CAP, NeurIPS 2023",
        confidence="high (recipe: medium)",
        convex=True,
    ),
    "topk": MethodFacts(
        title="Top-k",
        head="linear",
        loss="ASL",
        rule="the k highest classes of each image",
        source="baseline of CAP, NeurIPS 2023",
        confidence="high (recipe: medium)",
        convex=True,
    ),
    "iat": MethodFacts(
        title="IAT",
        head="linear",
        loss="ASL",
        rule="one threshold for all classes of an image",
        source="baseline of CAP, NeurIPS 2023",
        confidence="low: the definition is not public",
        convex=True,
    ),
    "drml": MethodFacts(
        title="DRML",
        head=OWN_HEAD,
        loss="MSE, four updates a step",
        rule="images on which two classifiers agree, soft, adopted for good",
        source="AAAI 2020",
        confidence="high (recipe: low)",
        partial=False,
    ),
    "cap": MethodFacts(
        title="CAP",
        head="linear",
        loss="masked ASL",
        rule="per class the labelled share of positives",
        source="NeurIPS 2023",
        confidence="high",
        convex=True,
    ),
    "pclp": MethodFacts(
        title="PCLP",
        head=OWN_HEAD,
        loss="ASL + BCE, adversarial warm-up",
        rule="the network's own soft scores",
        source="ICML 2024",
        confidence="high (recipe: medium)",
        partial=False,
    ),
    "bbam": MethodFacts(
        title="BBAM",
        head=OWN_HEAD,
        loss="balanced angular margin, negative sampling",
        rule="CAP's quota on balanced scores",
        source="NeurIPS 2024",
        confidence="high (recipe: medium, NUS-WIDE low)",
        partial=False,
    ),
    "d2l": MethodFacts(
        title="D2L",
        head="linear",
        loss="ASL on image and tiles, four heads",
        rule="per class the threshold of the best F-beta",
        source="ECCV 2024",
        confidence="high (recipe on AWA2: medium)",
    ),
}


def holds_out(method: str, source: str) -> bool:
    """Whether D_est is kept from training until correctness is counted on it.

    Not by a method that counts nothing, nor where `calibration.source` is cross_fit: then all of D_l is trained on and counted.
    """
    return METHODS[method].finetunes and source == "holdout"
