"""DiCaP: distribution-calibrated pseudo-labelling for semi-supervised multi-label learning.

from dicap import fit, load_model, predict

fitted = fit("photographs")                  # with labels.csv in it; some rows may be without labels
print(fitted.evaluate()["map"], fitted.save("model.safetensors"))
table = predict(load_model("model.safetensors"), "more photographs")
print(table[table["decision"] == "yes"])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dicap.models import load_model
    from dicap.photos.fit import fit
    from dicap.photos.predict import predict

__version__ = "0.1.0"
__all__ = ["__version__", "fit", "load_model", "predict"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import dicap` loads no torch."""
    if name == "load_model":
        from dicap.models import load_model

        return load_model
    if name == "fit":
        from dicap.photos.fit import fit

        return fit
    if name == "predict":
        from dicap.photos.predict import predict

        return predict
    raise AttributeError(f"module 'dicap' has no attribute {name!r}")
