"""What can be chosen by name: data sets, methods and heads, with the facts people ask about them.

Nothing heavy is imported here, so `dicap-stage methods` and the checks of the settings are instant.
"""

from dataclasses import dataclass

DATASETS = {
    "digits": "scenes of handwritten digits, bundled (the default)",
    "table": "your own photographs: a CSV or Parquet with image,split,labels",
    "voc2007": "PASCAL VOC 2007, trainval / test",
    "voc2012": "PASCAL VOC 2012, train / val (the VOC of the published tables)",
    "coco2014": "MS-COCO 2014, train / val",
    "coco2017": "MS-COCO 2017, train / val",
    "nuswide": "NUS-WIDE, 81 concepts",
    "awa2": "Animals with Attributes 2, 85 attributes, zero-shot species split",
}

HEADS = ("ml_decoder", "linear")


@dataclass(frozen=True)
class MethodFacts:
    """One row of methods.md 4.11: how a method differs from the others.

    Attributes:
        title: name in the tables, and (without hyphens) of the class in `dicap/methods/<name>.py`.
        head: the published head; None where the method brings its own network and `head` does not apply.
        unlabelled: whether D_u is used at all.
        finetunes: whether D_est is held out and used for fine-tuning (DiCaP only).
        rule: how teacher scores become pseudo-labels.
        source: publication.
        confidence: how sure methods.md 13 is of the algorithm.
    """

    title: str
    head: str | None
    loss: str
    rule: str
    source: str
    confidence: str
    unlabelled: bool = True
    finetunes: bool = False


METHODS = {
    "dicap": MethodFacts(
        title="DiCaP",
        head="ml_decoder",
        loss="weighted ASL + NT-Xent",
        rule="dual thresholds, weights by estimated correctness",
        source="AAAI 2026",
        confidence="high for the idea, medium for details",
        finetunes=True,
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
}
