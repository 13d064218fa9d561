"""Is a converted set what it says it is, and is there something in it that would spoil an experiment?"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from dicap.data import format as files
from dicap.data.labels import labelled_mask, read_labels
from dicap.data.sources.own.listing import finder_of
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.files.artifacts import read_split
from dicap.files.checksum import sha256
from dicap.machine.progress import progress

NEAR = 6.0  # mean difference in levels below which two images with equal fingerprints count as the same
CHUNK = 256


@dataclass
class Findings:
    """What an examination found.

    Attributes:
        counts: images per split.
        rejected: images that convert left out.
        unknown: entries (image, class) of labelled images per split of which nothing is known.
        damage: lines on what is broken; training on the set would be wrong.
        warnings: lines on what a user should know.
        duplicates: (id of a test image, id of a training image), the same picture.
    """

    counts: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)


def examine(folder: Path) -> Findings:
    """Check the files of a set against meta.json, its labels, and the test images for copies of training images.

    Raises:
        DataError: the folder is not a converted set at all.
    """
    findings = Findings()
    meta = files.read_meta(folder)
    findings.counts, findings.rejected = meta["counts"], len(meta["rejected"])
    findings.unknown = meta.get("unknown", {})
    findings.warnings += meta["notes"]
    for name, checksum in progress(meta["checksums"].items(), desc="checksums", unit="file"):
        path = folder / name
        if not path.exists():
            findings.damage.append(f"{path}: missing")
        elif sha256(path) != checksum:
            findings.damage.append(f"{path}: its bytes differ from those that convert wrote")
    try:
        store = Store.open(folder)
        split = files.read_index(folder, ["split"])["split"].to_numpy()
        _check_index(store, meta, split, findings)
        read_labels(folder, np.flatnonzero(labelled_mask(folder)), partial=True)  # that each is of a class
    except DataError as error:
        findings.damage.append(str(error))
        return findings
    findings.duplicates = find_duplicates(store, split)
    if findings.duplicates:
        test, train = findings.duplicates[0]
        shown = f"{len(findings.duplicates)} test images are training images too, for instance {test} = {train}"
        findings.warnings.append(shown + ": the score is too good by them")
    return findings


def _check_index(store: Store, meta: dict, split: np.ndarray, findings: Findings) -> None:
    path = store.folder / files.INDEX
    for name, count in meta["counts"].items():
        found = int((split == name).sum())
        if found != count:
            findings.damage.append(f"{path}: {found} rows of split {name}, meta.json counts {count}")
    repeated = store.ids[pd.Index(store.ids).duplicated()]
    if len(repeated):
        findings.damage.append(f"{path}: id {repeated[0]!r} occurs more than once")


def find_duplicates(store: Store, split: np.ndarray) -> list[tuple[str, str]]:
    """Test images whose picture is also among the training or unlabelled ones.

    Equal pixels are found by a hash of them. Re-encoded copies are found by a fingerprint that survives it (which of
    two neighbouring patches is brighter, 64 bits) and confirmed by their mean difference.
    """
    exact: dict[bytes, list[int]] = {}
    rough: dict[int, list[int]] = {}
    test = split == "test"
    order = np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)])  # what is trained on comes first
    found = []
    starts = range(0, len(order), CHUNK)
    for start in progress(starts, desc="duplicates", total=len(starts), unit="batch"):
        rows = order[start : start + CHUNK]
        pixels = store.pixels(rows)
        for row, image, mark in zip(rows.tolist(), pixels, fingerprints(pixels).tolist(), strict=True):
            digest = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
            if not test[row]:
                exact.setdefault(digest, []).append(row)
                rough.setdefault(mark, []).append(row)
            elif digest in exact:
                found.append((row, exact[digest][0]))
            else:
                twin = next((other for other in rough.get(mark, [])[:20] if _near(image, store.image(other))), None)
                if twin is not None:
                    found.append((row, twin))
    return [(str(store.ids[a]), str(store.ids[b])) for a, b in found]


def fingerprints(pixels: np.ndarray) -> np.ndarray:
    """A 64-bit mark of each of (B, H, W, 3) images: the signs of the differences along rows of a 8 x 9 thumbnail."""
    thumbs = np.stack([np.asarray(Image.fromarray(image).convert("L").resize((9, 8), Image.Resampling.BOX)) for image in pixels])
    bits = (thumbs[:, :, 1:] > thumbs[:, :, :-1]).reshape(len(pixels), 64)
    return np.packbits(bits, axis=1).view(">u8")[:, 0]


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    return float(np.abs(a.astype(np.int16) - b).mean()) < NEAR


def about(folder: Path, split: Path, name: str, ratio: float, *, held_out: bool) -> dict[str, str]:
    """What one image is, and why: its split, labels and role.

    Args:
        folder: the converted set; split: split.parquet, which need not be there yet.
        name: id of the image, or a file name that only one id fits.
        ratio: share of the labels in use; held_out: whether D_est is kept from training. For the explanation.

    Raises:
        DataError: there is no such image, or it was rejected (with the reason).
    """
    meta = files.read_meta(folder)
    absent = ["absent"] if files.is_partial(meta) else []
    index = files.read_index(folder, ["id", "path", "width", "height", "split", "labels", *absent]).to_pandas()
    found = finder_of(index["id"])(name)
    if found is None:
        rejected = {entry["path"]: entry["reason"] for entry in meta["rejected"]}
        lost = finder_of(rejected)(name)
        if lost is not None:
            raise DataError(f"{folder}: image {lost!r} was rejected by convert: {rejected[lost]}")
        raise DataError(f"{folder}: no image {name!r}, or several that end so; write its id as in {files.INDEX}")
    row = index[index["id"] == found].iloc[0]
    added = next((was for was, names in meta.get("added", {}).items() if found in names), None)
    in_part = bool(absent) and row["absent"] is not None
    none = "(none known)" if in_part else "(none of the classes)"
    labels = None if row["labels"] is None else "; ".join(meta["classes"][c] for c in row["labels"]) or none
    known = {}
    if in_part:
        open_ = [name for c, name in enumerate(meta["classes"]) if c not in row["labels"] and c not in row["absent"]]
        known = {
            "absent": "; ".join(meta["classes"][c] for c in row["absent"]) or "(none known)",
            "unknown": "; ".join(open_) or "(nothing)",
        }
    role = None
    if split.exists():
        roles = read_split(split).set_index("id")["role"]
        role = str(roles.get(found, "")) or None
    return {
        "image": found,
        "file": f"{row['path']}, {row['width']} x {row['height']}",
        "split": str(row["split"]),
        "labels": labels if labels is not None else "(not labelled)",
        **known,
        "role": role or "not drawn yet: run `dicap-stage split`",
        "because": _because(role, labels is not None, added, ratio, held_out),
    }


def _because(role: str | None, labelled: bool, added: str | None, ratio: float, held_out: bool) -> str:
    """Why an image has its role."""
    use = {
        "sup": "trained on with its labels (D_sup)",
        "est": "its labels measure how often the network is right (D_est)" if held_out else "trained on with its labels (D_est)",
    }
    if role == "test":
        return "the test split is scored and never trained on"
    if role == "unlabeled":
        return f"it has labels, which ratio {ratio:g} hides: set ratio to 1 to use them" if labelled else "nobody has labelled it"
    if role in use:
        drawn = (
            "its labels were given later, and such labels always count"
            if added
            else f"drawn among the labelled by ratio {ratio:g}"
        )
        return f"{drawn}; {use[role]}"
    return "it has no role yet"
