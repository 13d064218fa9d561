"""Names that programs give to columns, keys, files and folders of labels."""

import re

SPLIT_WORDS = {
    "train": ("train", "training", "trainval"),
    "test": ("test", "testing"),
    "val": ("val", "valid", "validation", "dev"),
    "unlabeled": ("unlabeled", "unlabelled"),
}
SPLIT_NAMES = {word: split for split, words in SPLIT_WORDS.items() for word in words}
IMAGE = (
    *("image", "images", "file_name", "filename", "file", "image_path", "filepath", "file_path", "path", "image_name"),
    *("image_file", "img", "photo", "photograph", "picture", "image_id", "id"),
)
LABEL = ("labels", "label", "ground_truth", "tags", "tag", "classes", "class", "categories", "category", "keywords")
LABEL += ("class_name", "label_name")
SPLIT = ("split", "set", "subset", "partition", "data_split", "phase")
VALUE = re.compile(r"(is_)?(confidence|value|present|presence|positive|truth|score|answer)|y")
GROUP = re.compile(  # but no age of a patient, or date of a study
    r"(?!(.*_)?(age|sex|gender|type|race|date|time|position)(_.*)?$)"
    r"(.*(patient|subject|person|scene|session|burst|seq|video|series|study|group|source|site|case).*|.+_id)"
)
BOX = re.compile(r"[wh]|[xy]_?(min|max|[12])|bbox|boxes|polygon|segmentation")  # x or y alone may be a mark or a value
# Columns that well-known programs always export: ids, sizes, places in the image, paths.
USUAL = re.compile(
    r"id|(image|annotation|label|category|class|object|task)_?id|(image|img|file|box)?_?(width|height|size|area)"
    rf"|x|{BOX.pattern}|iscrowd|depth|channels|url|uri|path|(image|file)_path|md5|sha1|sha256|checksum|index"
)
# Columns of 0 and 1 that describe the row, not the photograph.
OF_ROWS = re.compile(
    r"(is|has|was|in|use|to)_.+|(k_?)?fold_?\d*|cv|flag(ged)?|label(s|led)?|annotat(ed|ors?)|(re)?checked|reviewed|verified|validated|done"
    r"|(in)?valid|train(ing)?|test(ing)?|val|validation|hold_?out|public|private|augmented|duplicate[ds]?|copy|used?|keep|skip(ped)?"
    r"|exclude[ds]?|include[ds]?|missing|error|rating|grade|adult|seen|quality|difficult|truncated|active|confidence|score|weight"
    rf"|class|classes|tags?|(sub|data_?)?set|partition|phase|(data_?)?split|mode|usage|unlabell?ed|{USUAL.pattern}"
)
# Folders whose names do not say what their photographs show, or name a time only; folders of programs.
ANYTHING = re.compile(
    r"[\s!-@\[-`{-~]*(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(tember)?|oct(ober)?|nov(ember)?"
    r"|dec(ember)?)?[\s!-@\[-`{-~]*"
    r"|(train|test|val|valid|validation|raw|all|new|old|my)?[\s_-]*(images?|imgs?|photo(graph)?s?|pictures?|pics|masks?|labels?"
    r"|annotations?|data|dataset|jpegimages|files|media|uploads?|frames?|set|folder|dcim|camera|export)(\s*\(?\d*\)?)?"
    r"|thumb(nail)?s?|cache|trash|recycler|papierkorb|lost\+found|system volume information|.+\.\w*library"
    r"|gt|ground[ _]?truth|segmentations?",
    re.IGNORECASE,
)
MODEL = re.compile(r"pred|pseudo|infer|output|submission")  # in names of files: a model's answers
# Heads of the tables that this program writes: a model's answers, not labels.
OURS = ({"image", "class", "probability", "decision"}, {"image", "labels", "unsure", "absent"})
OURS += ({"image", "labels", "model_says"}, {"image", "labels", "surprise"})


def plain(head: str) -> str:
    """A head in one spelling: `File Name`, `file-name` and `FileName` become file_name."""
    return re.sub(r"[\s_\-]+|(?<=[a-z])(?=[A-Z])", "_", head.strip()).casefold()
