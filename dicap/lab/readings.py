"""What each open reading of the paper is worth: runs that depart from one of them in one thing (docs/methods.md 3.13, 3.14)."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dicap.lab.tables import Spec, Table, collect
from dicap.settings.resolve import known_fields


def readings_table(runs: pd.DataFrame, cases: Mapping[str, Mapping[str, Any]], likelihood: Mapping[str, str]) -> Table:
    """The cases of a grid, each with its difference to the first one.

    Args:
        runs: as `experiments.frame_of` gives them, the cases as rows.
        cases: name -> the settings in which it departs from the first one.
        likelihood: name -> how likely the sources make it.
    """
    base, *others = cases
    rows = {case: case for case in cases}
    against = dict.fromkeys(others, base)
    table = collect(runs, Spec("readings", "Readings, mAP (%)", "reading", rows, against=against, gain=f"minus {base}"))
    usual = {key: field.default for key, field in known_fields()}
    changes = {case: cases[case].items() for case in others}
    table.facts["settings"] = {
        case: f"`{' '.join(f'{key}={str(value).lower()}' for key, value in own)}`" for case, own in changes.items()
    }
    table.facts["likelihood"] = dict(likelihood)
    table.facts["default"] = {
        case: "yes" if all(usual[key] == value for key, value in own) else "no" for case, own in changes.items()
    }
    return table
