"""What small runs of every method publish, as hashes: two checkouts that give the same results give the same file.

    python tests/golden.py record OUT.json             # in the checkout before a change
    python tests/golden.py --check OUT.json            # in the checkout after it
    python tests/golden.py --check OUT.json --only dicap --only "dicap, one bin"

Each run goes through `dicap-stage` convert, features, split, warmup, pseudo-label, train and finetune, on generated images, on
one thread of the processor. Recorded for every run, by path below `artifacts/`:

- models (`model*.safetensors`): sha256 of the file, of the tensors, and of what else is needed to use them;
- tables (`*.parquet`): sha256 of the file and of its rows;
- `history.csv`: sha256 of the file and of each column; what a run cost is left out.

A check fails where contents differ. A file whose bytes differ and whose contents do not is only mentioned: its metadata hold all
settings, which a change may legitimately touch. The numbers depend on the processor and on torch's version, so a record is
compared on the machine that made it and is no fixture of the tests.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and torch are loaded
sys.path.insert(0, str(Path(__file__).parents[1]))

import pandas as pd
import pyarrow.parquet as pq
import tiny
import torch
from click.testing import CliRunner
from ruamel.yaml import YAML
from safetensors import safe_open
from tqdm import tqdm

from dicap.settings.methods import METHODS

ROOT = Path(__file__).parents[1]
COUNTS = {"train": 40, "test": 10, "unlabeled": 8}
LEAKS = "bbam, published leaks"  # looks up labels of any training image, so all of them need some
STAGES = ("warmup", "pseudo-label", "train", "finetune")
PUBLISHED = ("warmup", "pseudo_label", "train", "finetune", "split", "resolved")
NO_THRESHOLDS = {"thresholds.rule": "none"}
WHOLE = {"warmup.trainable": "all", "train.trainable": "all", "linear.solver": "steps"}  # `table` freezes the backbone
SOLVED = {
    **{"head": "linear", "linear.solver": "convex", "linear.features": "root", "features.views": 2},
    **{"warmup.trainable": "head", "train.trainable": "head"},
}
Record = dict[str, dict[str, str]]  # path below artifacts -> {"file": sha256, name of a part of the content: sha256}

# What runs beyond one of each method: changes of the tiny settings by title.
VARIANTS: dict[str, dict[str, Any]] = {
    "dicap, estimator class_score": {"calibration.estimator": "class_score"},
    "dicap, anchor centre": {"calibration.anchor": "centre"},
    "dicap, anchor right": {"calibration.anchor": "right", "calibration.bins": 7},
    "dicap, one bin": {"calibration.bins": 1},
    "dicap, empty bins zero": {"calibration.empty_bin": "zero", "calibration.bins": 30},
    "dicap, soft target": {"calibration.target": "soft"} | NO_THRESHOLDS,
    "dicap, hard labels without thresholds": NO_THRESHOLDS,
    "dicap, policy uniform": {"calibration.policy": "uniform"},
    "dicap, policy confidence": {"calibration.policy": "confidence"},
    "dicap, policy labeled": {"calibration.policy": "labeled"},
    "dicap, policy optimal": {"calibration.policy": "optimal"},
    "dicap, online teacher, test view": {"calibration.teacher": "online", "calibration.view": "test"},
    "dicap, few pairs": {"contrastive.max_pairs": 6},
    "dicap, labelled only in warm-up, no contrast": {"warmup.wcl": False, "contrastive.enabled": False},
    "dicap, mean reduction, EMA passed on": {"loss.reduction": "mean", "warmup.passes_on": "ema"},
    "dicap, no fine-tuning": {"finetune.enabled": False, "warmup.eval_every": 1},
    "drml, features of the warm-up": {"method": "drml", "drml.features": "warmup"},
    "pclp, no prior": {"method": "pclp", "pclp.prior": "none"},
    "bbam, balance by hidden labels": {"method": "bbam", "bbam.transform": "hidden_labels"},
    "bce, solved head": SOLVED | {"method": "bce"},
    "cap, solved head": SOLVED | {"method": "cap"},
    "dicap, solved head": SOLVED,
    "dicap, recommended": SOLVED
    | {
        **{"linear.pseudo_weight": 0.5, "linear.neighbours": 3, "thresholds.rule": "quota"},
        **{
            "calibration.source": "cross_fit",
            "calibration.folds": 3,
            "calibration.estimator": "class_score",
            "calibration.power": 2.0,
        },
    },
    LEAKS: {"method": "bbam", "bbam.labelled_mask": "first_epoch", "bbam.warmup_split": "seed_1000"},
}


def runs() -> dict[str, dict[str, Any]]:
    """Changes of the tiny settings by the title of a run: the twelve methods, then the variants."""
    chosen = {method: {"method": method} for method in METHODS} | VARIANTS
    for changes in chosen.values():
        changes.setdefault("head", METHODS[changes.get("method", "dicap")].head)
    return chosen


def record(changes: dict[str, Any], raw: Path) -> Record:
    """Run every stage on the photographs in `raw` with these settings; the hashes of what it published."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        (Path(folder) / "configs").symlink_to(ROOT / "configs")
        values = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text())
        for key, value in (tiny.CHANGES | WHOLE | {"data_root": str(raw)} | changes).items():
            *section, name = key.split(".")
            (values.setdefault(section[0], {}) if section else values)[name] = value
        with open("params.yaml", "w") as handle:
            YAML().dump(values, handle)
        for stage in ("convert", "features", "split", *STAGES):
            _stage(stage)
        return _hashes(Path("artifacts"))


def _stage(name: str) -> None:
    from stages.cli import main

    with contextlib.redirect_stderr(io.StringIO()):  # progress bars
        result = CliRunner().invoke(main, [name])
    if result.exit_code:
        raise RuntimeError(f"dicap-stage {name}: exit {result.exit_code}\n{result.output}") from result.exception


def _hashes(folder: Path) -> Record:
    read = {".safetensors": _model, ".parquet": _table, ".csv": _columns}
    found = [path for path in sorted(folder.rglob("*")) if path.suffix in read and path.relative_to(folder).parts[0] in PUBLISHED]
    return {str(path.relative_to(folder)): {"file": _sha256(path.read_bytes()), **read[path.suffix](path)} for path in found}


def _model(path: Path) -> dict[str, str]:
    digest = hashlib.sha256()
    with safe_open(path, framework="pt") as file:
        metadata = json.loads((file.metadata() or {})["dicap"])
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    needed = {key: metadata.get(key) for key in ("stage", "which", "classes", "decisions")}
    return {"tensors": digest.hexdigest(), "metadata": _sha256(json.dumps(needed, sort_keys=True))}


def _table(path: Path) -> dict[str, str]:
    rows = pq.read_table(path, partitioning=None).to_pydict()  # type: ignore[arg-type]
    return {"rows": _sha256(json.dumps(rows, sort_keys=True, default=float))}


def _columns(path: Path) -> dict[str, str]:
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return {f"column {name}": _sha256("\n".join(frame[name])) for name in frame}


def _sha256(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def differences(before: Record, after: Record) -> tuple[list[str], list[str]]:
    """Lines about contents that differ or are missing on one side, and about files that differ in their bytes only."""
    wrong, bytes_only = [], []
    for path in sorted(before.keys() | after.keys()):
        if path not in before or path not in after:
            wrong.append(f"{path}: {'new' if path in after else 'gone'}")
            continue
        old, new = before[path], after[path]
        parts = [name for name in (old | new) if name != "file" and old.get(name) != new.get(name)]
        if parts:
            wrong.append(f"{path}: {', '.join(parts)}")
        elif old["file"] != new["file"]:
            bytes_only.append(path)
    return wrong, bytes_only


def main() -> int:
    parser = argparse.ArgumentParser(description="Hashes of what small runs of every method publish.")
    parser.add_argument("action", nargs="?", choices=["record"], help="write the hashes to OUT")
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT")
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="compare with the hashes in FILE; exit 1 where contents differ"
    )
    parser.add_argument("--only", action="append", metavar="RUN", choices=list(runs()), help="this run only; may be repeated")
    options = parser.parse_args()
    if (options.action is None) != (options.out is None) or (options.out is None and options.check is None):
        parser.error("give `record OUT`, `--check FILE`, or both")
    before = json.loads(options.check.read_text()) if options.check else {}

    torch.set_num_threads(1)
    os.environ |= {"DICAP_DEVICE": "cpu", "DICAP_WORKERS": "0"}
    os.environ.pop("DVC_ROOT", None)
    found: dict[str, Record] = {}
    with tempfile.TemporaryDirectory() as folder:
        raw = tiny.photographs(Path(folder) / "raw", COUNTS)
        with_labels = tiny.photographs(Path(folder) / "with_labels", COUNTS | {"unlabeled": 0})
        for title, changes in tqdm(runs().items(), desc="runs", mininterval=30):
            if not options.only or title in options.only:
                found[title] = record(changes, with_labels if title == LEAKS else raw)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if not options.check:
        return 0
    failed = 0
    for title in found:
        wrong, bytes_only = differences(before.get(title, {}), found[title])
        failed += bool(wrong)
        for line in wrong:
            print(f"{title}: {line}")
        if bytes_only:
            print(f"{title}: same contents in other bytes: {', '.join(bytes_only)}")
    print(f"{len(found) - failed} of {len(found)} runs have the same contents")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
