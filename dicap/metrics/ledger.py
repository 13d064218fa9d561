"""Which terms of a loss act: each one's share of the gradient, the sum of the terms' norms being 1 (docs/methods.md 3.13-D).

Values say nothing of it: a loss of 5 may have a thousandth of the gradient of one of 0.1.
"""

from collections.abc import Mapping
from typing import Any

HARDLY = 0.01  # of the sum of the norms; less than this turns the direction of a step by half a degree
TERMS = {"sup": "the labels' loss", "pseudo": "the pseudo-labels' loss", "con": "the contrast"}
SETTINGS = {"con": " (contrastive.coefficient)"}  # what scales a term and no other


def shares(row: Mapping[str, Any]) -> dict[str, float]:
    """Share of each term in the sum of the norms `grad_<term>` of a row of history.csv; {} where none was measured.

    >>> shares({"epoch": 0, "grad_sup": 3.0, "grad_pseudo": 1.0, "grad_con": None})
    {'sup': 0.75, 'pseudo': 0.25}
    """
    norms = {term: row.get(f"grad_{term}") for term in TERMS}
    measured = {term: float(norm) for term, norm in norms.items() if norm is not None and norm == norm}  # NaN is none
    total = sum(measured.values())
    return {term: norm / total for term, norm in measured.items()} if total > 0 else {}


def idle(row: Mapping[str, Any]) -> dict[str, float]:
    """The terms that hardly act in an epoch, with their shares."""
    return {term: share for term, share in shares(row).items() if share < HARDLY}


def percent(share: float) -> str:
    """A share with three digits, as `0.12 %`."""
    return f"{100 * share:.3g} %"


def in_words(term: str, share: float) -> str:
    """That a term hardly acts.

    >>> in_words("con", 0.0012)
    'the contrast has 0.12 % of the gradient (contrastive.coefficient); it hardly acts'
    """
    return f"{TERMS[term]} has {percent(share)} of the gradient{SETTINGS.get(term, '')}; it hardly acts"
