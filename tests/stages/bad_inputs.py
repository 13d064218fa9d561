"""Bad inputs: what is wrong, what is typed, the exit code. What is said stands in docs/errors.md, which the tests compare.

WRITE_ERRORS=1 python -m pytest tests/stages/test_bad_inputs.py     writes docs/errors.md anew
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch


@dataclass(frozen=True)
class Case:
    """A mistake: `spoil` makes it in a project folder with raw images in `photos`; `command` then ends with `code`."""

    what: str
    command: str
    spoil: Callable[[Any], object] | dict[str, Any]  # a function of the project, or settings to change
    code: int = 1
    vague: bool = False  # what stands in brackets is the words of a library, which change with its version


# -- how inputs are spoiled -------------------------------------------------------------------------------------------


def wrong(**settings):
    """Settings with dots written as two underscores."""
    return {key.replace("__", "."): value for key, value in settings.items()}


def spoiling(function):
    """A function of a project that makes the mistake, of what is given now."""
    return lambda *given, **named: lambda project: function(project, *given, **named)


@spoiling
def params(project, text):
    """params.yaml as these bytes, or what a function makes of it."""
    path = Path("params.yaml")
    path.write_bytes(text if isinstance(text, bytes) else text(path.read_text()).encode())


@spoiling
def table(project, *rows, header="image,split,labels"):
    """labels.csv with these rows in the place of its first ones."""
    path = Path("photos/labels.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows, *lines[1 + len(rows) :]]) + "\n")


@spoiling
def written(project, path, content):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())


@spoiling
def edited(project, path, old, new):
    """A text with `new` in the place of `old`."""
    Path(path).write_text(Path(path).read_text().replace(old, new))


@spoiling
def frame(project, path, change):
    change(pd.read_parquet(path)).to_parquet(path, index=False)


class Planted:
    """Unpickled, it would leave a file behind."""

    def __reduce__(self):
        return Path.touch, (Path("planted"),)


@spoiling
def pickled(project, path):
    torch.save({"weight": Planted()}, path)


@spoiling
def both(project, *spoils):
    for one in spoils:
        project.set(one) if isinstance(one, dict) else one(project)


@spoiling
def remove(project, path):
    shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()


def replaced_by_file(path):
    return both(remove(path), written(path, "a file"))


def frozen(**settings):
    """Settings of a head on a frozen backbone."""
    return wrong(warmup__trainable="head", train__trainable="head", features__views=1) | wrong(**settings)


@spoiling
def linked_from_elsewhere(project, path):
    """A photograph that is a link to a file outside the data set's folder."""
    Path(path).rename(outside := Path(path).parents[1] / Path(path).name)
    Path(path).symlink_to(outside.resolve())


GONE = [f"photos/train-{i:03d}.png" for i in range(9)]

# -- the table --------------------------------------------------------------------------------------------------------

SETTINGS = [
    Case("a mistake, before DVC removes anything", "check", wrong(ratio="half"), code=2),
    Case("a head for a method with its own network", "warmup", wrong(method="bbam", head="linear"), code=2),
    Case(
        "a stride that the network does not support", "check", wrong(backbone="test_vit", network__stride=8), code=2, vague=True
    ),
    Case("a class token of a network that has none", "check", wrong(network__tokens="class_and_mean"), code=2),
    Case("weights that are a pickle", "check", both(wrong(weights_file="w.pth"), pickled("w.pth")), code=2),
    Case("a ratio that leaves nothing", "split", wrong(ratio=0.01), code=2),
    Case("a value in the place of a section", "train", wrong(train=3), code=2),
    Case("soft targets of uniform weights", "train", wrong(calibration__target="soft", calibration__policy="uniform"), code=2),
    Case("a cycle shorter than the training", "train", wrong(train__cycle_epochs=1), code=2),
    Case("tokens that the attention heads cannot share", "warmup", wrong(network__decoder_heads=3), code=2),
    Case("a batch of labelled images alone", "train", wrong(train__batch_labelled=8), code=2),
    Case("features of a backbone that was trained", "train", wrong(train__trainable="head"), code=2),
    Case("cross-fitting of the whole network", "train", wrong(protocol="recommended", warmup__trainable="all"), code=2),
    Case("images for a generator that gets features", "warmup", frozen(method="pclp", head=None), code=2),
    Case("tiles for a method that gets features", "warmup", frozen(method="d2l", head="linear"), code=2),
    Case("no strong views to train on", "warmup", frozen(features__views=0), code=2),
    Case("another image size than the converted one", "warmup", wrong(image_size=48), code=2),
    Case("a key twice in params.yaml", "train", params(lambda text: "ratio: 0.1\n" + text), code=2),
    Case("params.yaml in another encoding", "train", params("dataset: table # é\n".encode("latin-1")), code=2),
    Case("an object in params.yaml", "train", params(b"ratio: !!python/object/apply:os.system ['touch planted']\n"), code=2),
    Case("a section that holds itself", "train", params(lambda text: text + "\nloop: &a {b: *a}\n"), code=2),
    Case("counts in another form than a table", "count --out counts.json", {}, code=2),
    Case("an unknown command", "trian", {}, code=2),
    Case("a learning rate that explodes", "warmup", wrong(optimiser__lr=1e20)),
]

TABLES = [
    Case("a folder without a table", "convert", remove("photos/labels.csv")),
    Case("a folder that is not there", "convert", wrong(data_root="no/such/folder")),
    Case("labels that are gone, before DVC removes anything", "check", remove("photos/labels.csv")),
    Case("photographs that are gone, before DVC removes anything", "check", both(*map(remove, GONE))),
    Case("photographs elsewhere, before DVC removes anything", "check", both(*map(linked_from_elsewhere, GONE))),
    Case("a folder without photographs, to count", "count empty", lambda p: Path("empty").mkdir()),
    Case("an empty table", "convert", written("photos/labels.csv", "")),
    Case("a table of a header alone", "convert", written("photos/labels.csv", "image,split,labels\n")),
    Case("a column twice", "convert", table(header="image,split,labels,split")),
    Case("a quote that is never closed", "convert", table('"train-000.png,train,red'), vague=True),
    Case("an unknown split", "convert", table("train-000.png,tset,red")),
    Case("a row without an image", "convert", table(",train,red")),
    Case("an image of the test in the training", "convert", table("photos/../test-000.png,train,red")),
    Case("an absolute path", "convert", table("/etc/hostname,train,red")),
]

WEB_PAGES = [written(f"photos/train-{i:03d}.png", "<!doctype html><title>404</title>") for i in range(14)]
IMAGES = [Case("web pages saved as images", "convert", both(*WEB_PAGES))]  # half of the training photographs: too many

ARCHIVES = [
    Case("a folder that is no VOC archive", "convert", wrong(dataset="voc2012", data_root="photos")),
    Case("published lists of own photographs", "convert", wrong(convert__lists="photos"), code=2),
    Case("weights in the wrong place", "check", wrong(backbone_weights="w.pth"), code=2),
]

MADE = [
    Case("another data set than the converted one", "split", edited("data/converted/meta.json", '"table"', '"digits"')),
    Case("no converted set", "split", remove("data/converted")),
    Case("a label that is no class", "warmup", frame("data/converted/index.parquet", lambda f: f.assign(labels=[[77]] * len(f)))),
    Case("no split", "warmup", remove("artifacts/split")),
    Case("a split of another data set", "finetune", frame("artifacts/split/split.parquet", lambda f: f[::-1])),
    Case(
        "a split with other columns",
        "evaluate",
        frame("artifacts/split/split.parquet", lambda f: f.rename(columns={"id": "name"})),
    ),
    Case("another test split", "warmup", frame("artifacts/split/split.parquet", lambda f: f.replace("test", "unlabeled"))),
    Case("an unknown role", "warmup", frame("artifacts/split/split.parquet", lambda f: f.assign(role="trian"))),
    Case("no features of the frozen backbone", "warmup", frozen()),
    Case(
        "features of other views",
        "warmup",
        both(frozen(), lambda p: p.done("features", "--workers", "0"), wrong(features__views=2)),
    ),
    Case("no model to start from", "train", remove("artifacts/warmup")),
    Case("a model that is a pickle", "evaluate --model m.safetensors", pickled("m.safetensors"), vague=True),
    Case("a model of another seed", "train", both(wrong(seed=2), lambda p: p.done("split")), code=2),
    Case("a model of another D_est", "finetune", both(wrong(split__est_fraction=0.5), lambda p: p.done("split"))),
    Case("a damaged history", "evaluate", written("artifacts/train/history.csv", "epoch\n1,2,3\n4\n5,6,7,8,9\n"), vague=True),
    Case("a file in the place of all artifacts", "split", replaced_by_file("artifacts")),
    Case("a file in the place of the state", "warmup", both(remove(".dicap"), written(".dicap", "a file"))),
    Case("a file in the place of the converted set", "convert", replaced_by_file("data/converted")),
    Case("a model in a name that says nothing", "export artifacts/finetune --out model.pt", {}, code=2),
    Case("a table of experiments outside DVC", "table main", {}),
]

GROUPS = {
    "Settings and options": SETTINGS,
    "A table of your own images": TABLES,
    "Image files": IMAGES,
    "Archives and published lists": ARCHIVES,
    "Files that the stages made": MADE,
}
CASES = [case for group in GROUPS.values() for case in group]
