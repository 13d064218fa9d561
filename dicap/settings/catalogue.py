"""Names that a setting can have: data sets, formats, protocols and heads. The methods are in `dicap.settings.methods`."""

DATASETS = ("pictograms", "digits", "table", "voc2007", "voc2012", "coco2014", "coco2017", "nuswide", "awa2")

OWN = "table"  # your own images
FORMATS = {  # values of own.format, with the endings of label files; `dvc repro` notices changes of files with these endings
    "table": (".csv", ".tsv", ".tab", ".txt", ".parquet"),
    "coco": (".json",),
    "labelstudio": (".json",),
    "voc_xml": (".xml", ".txt"),
    "cvat": (".xml",),
    "folders": (),
}
NAMED_WEIGHTS = ("imagenet", "lite", "random")  # of a backbone; any other value is the path of a file
RAW, NONE = "data/raw", "data/none"
# Values of paths in params.yaml that are not set, because DVC needs all paths to exist. `data/none` is read as null.
PATHS = {"data_root": RAW, "own.unlabeled_root": NONE, "convert.lists": NONE, "weights_file": NONE}
BUNDLED = ("pictograms", "digits")  # drawn when converted: they need no data_root

# "published" has the values of dicap/settings/schema.py; each protocol is a file in configs/.
PROTOCOLS = ("published", "recommended", "trained")
HEADS = ("ml_decoder", "linear")
OWN_HEAD = "own"  # the head of a method with its own network; the setting `head` does not apply to it
