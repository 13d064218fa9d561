"""What can be chosen by name: data sets, protocols and heads. The methods are in `dicap.settings.methods`."""

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
