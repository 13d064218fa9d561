"""Rows by method, head and number of optimiser steps: one table for every data set and ratio (docs/methods.md 2.12).

A difference to labelled-only training is shown where there is a labelled-only row with the same head and as many steps. What was
solved took no steps, and is compared with what was solved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pandas as pd

from dicap.lab.experiments import SOLVED, method_of, method_titles
from dicap.lab.tables import Spec, Table, collect, number
from dicap.settings.methods import METHODS

EQUAL = 0.05  # numbers of steps that differ by no more count as equal: an epoch is the smallest step of a budget
HEADS = {"linear": "linear", "ml_decoder": "ML-Decoder", "own": "its own"}
BASELINES = ("asl", "mld", "bce")  # labelled-only rows to compare with: the first of the same head
BEST_PRINTED = ("cap", "pclp", "bbam", "d2l")  # one code base, which reports the best epoch on the test images
NETWORKS = {"raw": "raw network", "ema": "EMA network"}
Budget = tuple[str, str, int | str]  # row, head, steps


def budget_tables(runs: pd.DataFrame, spec: Spec, published: Mapping[tuple[str, str, float], float]) -> Iterator[Table]:
    """The tables of kind `main`, one for each data set and ratio.

    Args:
        runs: as `experiments.frame_of` gives them.
        spec: the kind's; its rows are replaced.
        published: the paper's numbers; each stands beside the row of the method, with its published head, with most steps.
    """
    titles = row_titles()
    for dataset, ratio in sorted(set(zip(runs["dataset"], runs["ratio"], strict=True))):
        here = runs[(runs["dataset"] == dataset) & (runs["ratio"] == ratio)]
        here = here.assign(
            row=[_key(*budget) for budget in zip(here["row"], here["head"], here["steps"], strict=True)], method=here["row"]
        )
        budgets = {_key(*budget): budget for budget in zip(here["method"], here["head"], here["steps"], strict=True)}
        keys = dict(sorted(budgets.items(), key=lambda item: _order(item[1])))
        last = {row: key for key, (row, head, _) in keys.items() if head == METHODS[method_of(row)].head}
        ours = last.get(spec.ours or "", "")
        printed = {}
        for (row, *column), value in published.items():
            if column == [dataset, ratio]:
                printed[last.setdefault(row, row), dataset, ratio] = value
                keys.setdefault(last[row], (row, METHODS[row].head, ""))
        keys = dict(sorted(keys.items(), key=lambda item: _order(item[1])))
        rows = {key: titles[row] for key, (row, *_) in keys.items()}
        own = replace(
            spec,
            title=f"{spec.title}, {dataset} {100 * ratio:.4g} %",
            rows=rows,
            ours=ours or None,
            against=_same_head(keys),
        )
        facts = {
            "head": {key: HEADS[head] for key, (_, head, _) in keys.items()},
            "steps": {key: _words(steps) for key, (*_, steps) in keys.items()},
        }
        table = collect(here, own, printed, facts=facts)
        table.more.update(_other_network(here) | _best_on_test(here))
        yield table


def row_titles() -> dict[str, str]:
    """Titles of the rows of the main table, in order: each method, and a rule of ours after its own."""
    titles = method_titles()
    after = list(titles).index("iat") + 1
    ours = {"iat_matched": f"{titles['iat']}, matched threshold (ours)"}
    return dict([*titles.items()][:after]) | ours | dict([*titles.items()][after:])


def equal_steps(one: int | str, other: int | str) -> bool:
    """Whether two rows had the same budget: numbers of steps within EQUAL of each other, or both solved."""
    if isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= EQUAL * max(one, other)
    return one == other == SOLVED


def _same_head(keys: Mapping[str, Budget]) -> dict[str, str]:
    """Row -> the labelled-only row with its head and its number of steps, where there is one."""
    against = {}
    for key, (row, head, steps) in keys.items():
        bases = [k for base in BASELINES for k, (r, h, s) in keys.items() if (r, h) == (base, head) and equal_steps(s, steps)]
        if bases and METHODS[method_of(row)].unlabelled:
            against[key] = bases[0]
    return against


def _other_network(runs: pd.DataFrame) -> dict[str, dict[str, str]]:
    """The score of the network that is not the result, by row: mean and sample standard deviation."""
    column: dict[str, dict[str, str]] = {}
    known = runs[runs["other"].notna()]
    for (which, row), part in known.groupby(["which", "row"], sort=False):
        column.setdefault(NETWORKS["ema" if which == "raw" else "raw"], {})[str(row)] = _mean_words(part["other"])
    return column


def _best_on_test(runs: pd.DataFrame) -> dict[str, dict[str, str]]:
    """The best epoch on the test images, beside the last one, of rows whose authors print the best (docs/methods.md 2.9)."""
    known = runs[runs["best_on_test"].notna() & runs["method"].isin(BEST_PRINTED)] if "best_on_test" in runs else runs[:0]
    best = {str(row): _mean_words(part["best_on_test"]) for row, part in known.groupby("row", sort=False)}
    return {"best epoch on test": best} if best else {}


def _mean_words(values: pd.Series) -> str:
    return number(*values.astype(float).agg(["mean", "std"]))


def _key(row: str, head: str, steps: int | str) -> str:
    return f"{row} {head} {steps}".strip()


def _order(budget: Budget) -> tuple[int, bool, str, int, str]:
    """Methods in the paper's order, its published head first, fewer steps first; what was solved comes last."""
    row, head, steps = budget
    amount = steps if isinstance(steps, int) else 10**12 * (steps == SOLVED)
    return list(row_titles()).index(row), head != METHODS[method_of(row)].head, head, amount, str(steps)


def _words(steps: int | str) -> str:
    return f"{steps:,}" if isinstance(steps, int) else steps or "–"
