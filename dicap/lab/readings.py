"""What each open reading of the paper is worth: runs that depart from one of them in one thing (docs/methods.md 3.13, 3.14)."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dicap.lab.tables import Spec, Table, collect


def readings_table(runs: pd.DataFrame, cases: Mapping[str, Mapping[str, Any]]) -> Table:
    """The cases of a grid, each with its difference to the first one.

    Args:
        runs: as `experiments.frame_of` gives them, the cases as rows.
        cases: name -> the settings in which it departs from the first one.
    """
    base, *others = cases
    rows, against = {case: case for case in cases}, dict.fromkeys(others, base)
    changes = {case: f"`{' '.join(f'{key}={str(value).lower()}' for key, value in cases[case].items())}`" for case in others}
    spec = Spec("readings", "Readings, mAP (%)", "reading", rows, against=against, gain=f"minus {base}")
    return collect(runs, spec, facts=pd.DataFrame({"settings": changes}))
