"""What can be chosen by name: data sets, formats, protocols and heads. The methods are in `dicap.settings.methods`."""

DATASETS = ("pictograms", "digits", "table", "voc2007", "voc2012", "coco2014", "coco2017", "nuswide", "awa2")

OWN = "table"  # your own images
FORMATS = {  # of its labels (own.format), with the endings of their files, whose change `dvc repro` notices
    "table": (".csv", ".tsv", ".tab", ".txt", ".parquet"),
    "coco": (".json",),
    "labelstudio": (".json",),
    "voc_xml": (".xml", ".txt"),
    "cvat": (".xml",),
    "folders": (),
}
NAMED_WEIGHTS = ("imagenet", "lite", "random")  # of a backbone; anything else is the path of a file
RAW, NONE = "data/raw", "data/none"
# What stands in params.yaml where a path is not given: DVC wants all of them to exist. `data/none` is read as null.
PATHS = {"data_root": RAW, "own.unlabeled_root": NONE, "convert.lists": NONE, "weights_file": NONE}
BUNDLED = ("pictograms", "digits")  # drawn when converted: they need no data_root

# The first is what dicap/settings/schema.py says; all are files in configs/.
PROTOCOLS = ("published", "recommended", "trained")
HEADS = ("ml_decoder", "linear")
OWN_HEAD = "own"  # of a method that brings its own network, to which `head` does not apply
