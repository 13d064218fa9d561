"""Export a model as ONNX and check the scores against the original before the file appears."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dicap.errors import DataError, SettingsError, first_line
from dicap.evaluation.answers import Answers
from dicap.files.written import check_own, replacing_own
from dicap.frozen.onnx_file import PACKAGES, probe, write_onnx
from dicap.models import SavedModel

ENDING = ".onnx"
TOLERANCE = 1e-4
BATCHES = (16, 5, 1)  # numbers of random images in a check: the exported model must not depend on the size of a batch


class Scorer(nn.Module):
    """The exported module: resized images (B, 3, S, S) uint8 -> scores (B, C) float32."""

    def __init__(self, model: SavedModel) -> None:
        super().__init__()
        self.network = model.network
        self._scores = model.method.scores

    def forward(self, images: Tensor) -> Tensor:
        """The scores of images."""
        return self._scores(self.network, images)


def export(model: SavedModel, out: Path) -> float:
    """Write the model to `out` and its description to `<out>.json`; return the largest difference of a score.

    The scores of random images must agree with the original's to TOLERANCE, in batches of several sizes; otherwise nothing is
    written. Raises SettingsError for another ending or a missing package; DataError if the export fails or its scores differ.
    """
    if out.suffix.lower() != ENDING:
        raise SettingsError(f"--out: found {out.name!r}; give a name that ends in {ENDING}")
    described = out.with_name(f"{out.name}.json")
    check_own(out, described)
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise SettingsError(f"export needs the package {name}; install the extra: pip install 'dicap[export]'")
    scorer = Scorer(model).cpu().eval()
    images, facts = probe(max(BATCHES), model.settings.image_size), description(model)
    with replacing_own(out) as temporary:
        try:
            write_onnx(scorer, images[:2], temporary, ("images", "scores"), {"dicap": json.dumps(facts)})
        except Exception as error:  # the exporter raises many kinds of exceptions
            raise DataError(f"{out}: this network cannot be exported ({first_line(error)})") from None
        run, parts = _reader(temporary), [images[-size:] for size in BATCHES]
        with torch.inference_mode():
            worst = float(np.max([np.abs(run(part.numpy()) - scorer(part).numpy()).max() for part in parts]))  # NaN where one is
        if not worst <= TOLERANCE:
            raise DataError(f"{out}: the exported scores differ by up to {worst:.2g} from the original's, so nothing was written")
    with replacing_own(described) as temporary:
        temporary.write_text(json.dumps(facts, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return worst


def description(model: SavedModel) -> dict[str, Any]:
    """Preprocessing, classes, thresholds and correctness curve of a model, as plain JSON."""
    size = model.settings.image_size
    return {
        "input": {
            "name": "images",
            "shape": ["batch", 3, size, size],
            "dtype": "uint8",
            "preprocessing": "decode to RGB, upright as EXIF says, transparent parts on white, 16 bits as 8; "
            f"resize to {size} x {size} (bilinear, aspect ratio ignored), channels first; normalisation is inside the model",
        },
        "output": {"name": "scores", "shape": ["batch", len(model.classes)], "dtype": "float32", "range": [0, 1]},
        "classes": model.classes,
        "decisions": decisions(Answers.of(model.evidence)),
        "model": {
            "method": model.settings.method,
            "backbone": model.settings.backbone,
            "stage": model.stage,
            "which": model.which,
            "checksum": model.checksum,
        },
    }


def decisions(answers: Answers) -> dict[str, Any]:
    """The rule of `Answers.decide` as plain JSON: thresholds, shares of positives, and the correctness curve."""
    evidence, curve = answers.evidence, answers.curve
    return {
        "tau_pos": _plain(evidence.tau_pos),
        "tau_neg": _plain(evidence.tau_neg),
        "prior": _plain(evidence.prior),
        "curve": curve and {"logit": _plain(curve.knots), "rate": _plain(curve.rate), "entries": evidence.entries},
        "note": evidence.note,
        "f1_threshold": answers.f1_threshold(),
    }


def _plain(values: np.ndarray) -> list[float | None]:
    """Values with all digits: rounding could turn a chance just below a half into an answer. NaN becomes None."""
    return [None if np.isnan(value) else float(value) for value in values]


def _reader(path: Path) -> Any:
    """A function from images (n, 3, S, S) uint8 to scores (n, C) that uses the exported file only."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: session.run(["scores"], {"images": images})[0]
