"""Options that exist to read hidden labels. Nothing else gives a method more than the labels of D_l."""

from dicap.settings import Settings


def named_leak(settings: Settings) -> str | None:
    """The option that asks for hidden labels (docs/methods.md 3.10, 4.8), or None."""
    leaks = {
        "dicap": {"calibration.policy: optimal": settings.calibration.policy == "optimal" and not settings.recommends},
        "bbam": {
            "bbam.transform: hidden_labels": settings.bbam.transform == "hidden_labels" and settings.bbam.balance,
            "bbam.warmup_split: seed_1000": settings.bbam.warmup_split == "seed_1000",
        },
    }
    return next((name for name, asked in leaks.get(settings.method, {}).items() if asked), None)
