"""Rows by method, head and number of optimiser steps: one table for every data set and ratio (docs/methods.md 2.12).

A difference to labelled-only training is shown where there is a labelled-only row with the same head and as many steps. What was
solved took no steps, and is compared with what was solved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from dicap.lab.experiments import SOLVED, head_of, labelled_only, row_titles
from dicap.lab.tables import Spec, Table, collect, number

EQUAL = 0.05  # numbers of steps that differ by no more count as equal: an epoch is the smallest step of a budget
HEADS = {"linear": "linear", "ml_decoder": "ML-Decoder", "own": "its own"}
BASELINES = ("asl", "mld", "bce", "bce ml_decoder")  # labelled-only rows to compare with: the first of the same head
BEST_PRINTED = ("cap", "pclp", "bbam", "d2l")  # one code base, which reports the best epoch on the test images
NETWORKS = {"raw": "raw network", "ema": "EMA network"}


def budget_tables(runs: pd.DataFrame, spec: Spec, published: Mapping[tuple[str, str, float], float]) -> Iterator[Table]:
    """The tables of kind `main`, one for each data set and ratio.

    Args:
        runs: as `experiments.frame_of` gives them.
        spec: the kind's; its rows are replaced.
        published: the paper's numbers; each stands beside the row of the method with most steps.
    """
    titles = row_titles()
    for dataset, ratio in sorted(set(zip(runs["dataset"], runs["ratio"], strict=True))):
        here = runs[(runs["dataset"] == dataset) & (runs["ratio"] == ratio)]
        pairs = list(zip(here["row"], here["steps"], strict=True))
        last = {row: _key(row, steps) for row, steps in sorted(set(pairs), key=_order)}
        ours = last.get(spec.ours or "", "")
        printed = {
            (last.get(row, row), dataset, ratio): value
            for (row, *column), value in published.items()
            if column == [dataset, ratio]
        }
        keys = {_key(*pair): pair for pair in pairs} | {row: (row, "") for row, _, _ in printed if row not in last.values()}
        rows = {key: titles[row] for key, (row, _) in sorted(keys.items(), key=lambda item: _order(item[1]))}
        here = here.assign(row=[_key(*pair) for pair in pairs])
        own = replace(
            spec,
            title=f"{spec.title}, {dataset} {100 * ratio:.4g} %",
            rows=rows,
            ours=ours or None,
            against=_same_head(keys),
        )
        table = collect(here, own, printed)
        table.facts["head"] = {key: HEADS[head_of(row)] for key, (row, _) in keys.items()}
        table.facts["steps"] = {key: _words(steps) for key, (_, steps) in keys.items()}
        table.more.update(_other_network(here) | _best_on_test(here, keys))
        for other in table.best_other.values():
            one, two = (f"{rows[key]} ({HEADS[head_of(keys[key][0])]}, steps: {_words(keys[key][1])})" for key in (ours, other))
            table.notes.append(f"Delta is {one} minus {two}.")
        yield table


def equal_steps(one: int | str, other: int | str) -> bool:
    """Whether two rows had the same budget: numbers of steps within EQUAL of each other, or both solved."""
    if isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= EQUAL * max(one, other)
    return one == other == SOLVED


def _same_head(keys: Mapping[str, tuple[str, int | str]]) -> dict[str, str]:
    """Row -> the labelled-only row with its head and its number of steps, where there is one."""
    against = {}
    for key, (row, steps) in keys.items():
        if labelled_only(row):
            continue
        for base in BASELINES:
            found = [k for k, (r, s) in keys.items() if r == base and head_of(r) == head_of(row) and equal_steps(s, steps)]
            if found:
                against[key] = found[0]
                break
    return against


def _other_network(runs: pd.DataFrame) -> dict[str, dict[str, str]]:
    """The score of the network that is not the result, by row: mean and sample standard deviation."""
    column: dict[str, dict[str, str]] = {}
    known = runs[runs["other"].notna()]
    for (which, row), part in known.groupby(["which", "row"], sort=False):
        column.setdefault(NETWORKS["ema" if which == "raw" else "raw"], {})[str(row)] = _mean_words(part["other"])
    return column


def _best_on_test(runs: pd.DataFrame, keys: Mapping[str, tuple[str, int | str]]) -> dict[str, dict[str, str]]:
    """The best epoch on the test images, beside the last one, of rows whose authors print the best (docs/methods.md 2.9)."""
    known = runs[runs["best_on_test"].notna()] if "best_on_test" in runs else runs[:0]
    found = {
        str(row): _mean_words(part["best_on_test"])
        for row, part in known.groupby("row", sort=False)
        if keys[str(row)][0].partition(" ")[0] in BEST_PRINTED
    }
    return {"best epoch on test": found} if found else {}


def _mean_words(values: pd.Series) -> str:
    return number(*values.astype(float).agg(["mean", "std"]))


def _key(row: str, steps: int | str) -> str:
    return f"{row} {steps}".strip()


def _order(budget: tuple[str, int | str]) -> tuple[int, int, str]:
    """Methods in the paper's order, heads of one method together, fewer steps first; what was solved comes last."""
    row, steps = budget
    return list(row_titles()).index(row), steps if isinstance(steps, int) else 10**12 * (steps == SOLVED), str(steps)


def _words(steps: int | str) -> str:
    return f"{steps:,}" if isinstance(steps, int) else steps or "–"
