"""Each loss term's share of the gradient: its norm divided by the sum of the terms' norms (docs/methods.md 3.13-D).

Loss values do not show this: the gradient of a loss of 5 can be a thousandth of the gradient of a loss of 0.1.
"""

from collections.abc import Mapping
from typing import Any

HARDLY = 0.01  # share of the sum of the norms; a term below this share turns the step's direction by less than half a degree
TERMS = {"sup": "the supervised loss", "pseudo": "the pseudo-label loss", "con": "the contrastive loss"}
SETTINGS = {"con": " (contrastive.coefficient)"}  # the setting that scales only this term


def shares(row: Mapping[str, Any]) -> dict[str, float]:
    """Share of each term in the sum of the norms `grad_<term>` of a row of history.csv; {} if the row has no norms.

    >>> shares({"epoch": 0, "grad_sup": 3.0, "grad_pseudo": 1.0, "grad_con": None})
    {'sup': 0.75, 'pseudo': 0.25}
    """
    norms = {term: row.get(f"grad_{term}") for term in TERMS}
    measured = {term: float(norm) for term, norm in norms.items() if norm is not None and norm == norm}  # not NaN
    total = sum(measured.values())
    return {term: norm / total for term, norm in measured.items()} if total > 0 else {}


def idle(row: Mapping[str, Any]) -> dict[str, float]:
    """The terms with hardly any effect in an epoch, with their shares."""
    return {term: share for term, share in shares(row).items() if share < HARDLY}


def percent(share: float) -> str:
    """A share with three digits, as `0.12 %`."""
    return f"{100 * share:.3g} %"


def in_words(term: str, share: float) -> str:
    """The message about a term with hardly any effect.

    >>> in_words("con", 0.0012)
    'the contrastive loss has 0.12 % of the gradient (contrastive.coefficient); it has hardly any effect'
    """
    return f"{TERMS[term]} has {percent(share)} of the gradient{SETTINGS.get(term, '')}; it has hardly any effect"
