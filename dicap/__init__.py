"""DiCaP: distribution-calibrated pseudo-labelling for semi-supervised multi-label learning (AAAI 2026).

The paper's method and its parts (weights of pseudo-labels, dual thresholds, contrastive loss):

from dicap import DiCaP, correctness_weight, dual_thresholds, nt_xent

Your own photographs:

from dicap import fit, load_model, predict
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dicap.calibration.rates import correctness_weight
    from dicap.calibration.thresholds import dual_thresholds
    from dicap.losses import nt_xent
    from dicap.methods.dicap import DiCaP
    from dicap.models import load_model
    from dicap.photos.fit import fit
    from dicap.photos.predict import predict

__version__ = "0.2.0"
__all__ = ["DiCaP", "__version__", "correctness_weight", "dual_thresholds", "fit", "load_model", "nt_xent", "predict"]

_FACE = {
    "correctness_weight": "dicap.calibration.rates",
    "dual_thresholds": "dicap.calibration.thresholds",
    "nt_xent": "dicap.losses",
    "DiCaP": "dicap.methods.dicap",
    "load_model": "dicap.models",
    "fit": "dicap.photos.fit",
    "predict": "dicap.photos.predict",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import dicap` loads no torch."""
    if name not in _FACE:
        raise AttributeError(f"module 'dicap' has no attribute {name!r}")
    return getattr(import_module(_FACE[name]), name)
