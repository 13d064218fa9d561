"""Rows by method, head and number of optimiser steps: one table for every data set and ratio (docs/methods.md 2.12).

A difference to labelled-only training is shown where there is a labelled-only row with the same head and as many steps. What was
solved took no steps, and is compared with what was solved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from dicap.lab.experiments import SOLVED, method_of, method_titles
from dicap.lab.tables import COLUMN, Spec, Table, collect, number
from dicap.settings.methods import METHODS

EQUAL = 0.05  # numbers of steps that differ by no more count as equal: an epoch is the smallest step of a budget
HEADS = {"linear": "linear", "ml_decoder": "ML-Decoder", "own": "its own"}
BASELINES = ("asl", "mld", "bce")  # labelled-only rows to compare with: the first of the same head
BEST_PRINTED = ("cap", "pclp", "bbam", "d2l")  # one code base, which reports the best epoch on the test images
OTHER = {"raw": "EMA network", "ema": "raw network"}  # the network that is not the result, by the one that is
Budget = tuple[str, str, int | str]  # row, head, steps


def budget_tables(runs: pd.DataFrame, spec: Spec, published: Mapping[tuple[str, str, float], float]) -> Iterator[Table]:
    """The tables of kind `main`, one for each data set and ratio.

    Args:
        runs: as `experiments.frame_of` gives them.
        spec: the kind's; its rows are replaced.
        published: the paper's numbers; each stands beside the row of the method, with its published head, with most steps.
    """
    titles = method_titles()
    parts: Any = runs.groupby(COLUMN)
    for (dataset, ratio), here in parts:
        known = {*here[["row", "head", "steps"]].itertuples(index=False, name=None)}
        longest = {row: (row, head, steps) for row, head, steps in sorted(known, key=_order) if head == _published_head(row)}
        printed = {row: value for (row, *column), value in published.items() if column == [dataset, ratio]}
        longest |= {row: (row, _published_head(row), "") for row in printed if row not in longest}
        budgets = sorted({*known, *(longest[row] for row in printed)}, key=_order)
        own = replace(
            spec,
            title=f"{spec.title}, {dataset} {100 * ratio:.4g} %",
            rows={_key(budget): titles[budget[0]] for budget in budgets},
            ours=_key(longest["dicap"]) if "dicap" in longest else None,
            against=_same_head(budgets),
        )
        facts = pd.DataFrame(
            [(HEADS[head], f"{steps:,}" if isinstance(steps, int) else steps or "–") for _, head, steps in budgets],
            index=[*own.rows],
            columns=["head", "steps"],
        )
        keys = [_key(budget) for budget in zip(here["row"], here["head"], here["steps"], strict=True)]
        here = here.assign(row=keys, method=here["row"])
        yield collect(here, own, {(_key(longest[row]), dataset, ratio): printed[row] for row in printed}, facts, _more(here))


def equal_steps(one: int | str, other: int | str) -> bool:
    """Whether two rows had the same budget: numbers of steps within EQUAL of each other, or both solved."""
    if isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= EQUAL * max(one, other)
    return one == other == SOLVED


def _same_head(budgets: list[Budget]) -> dict[str, str]:
    """Row -> the labelled-only row with its head and its number of steps, where there is one."""
    against = {}
    for row, head, steps in budgets:
        bases = [(r, h, s) for base in BASELINES for r, h, s in budgets if (r, h) == (base, head) and equal_steps(s, steps)]
        if bases and METHODS[method_of(row)].unlabelled:
            against[_key((row, head, steps))] = _key(bases[0])
    return against


def _more(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation of the network that is not the result, and of the best epoch on the test images, by row.

    The latter of rows whose authors print it (docs/methods.md 2.9).
    """
    others = runs.assign(title=runs["which"].map(OTHER))
    best = runs[runs["method"].isin(BEST_PRINTED)].assign(title="best epoch on test", other=runs["best_on_test"])
    known = pd.concat([others, best]).astype({"other": float}).dropna(subset="other")
    texts = {place: number(part.mean(), part.std()) for place, part in known.groupby(["title", "row"], sort=False)["other"]}
    return pd.Series(texts, pd.MultiIndex.from_tuples(texts, names=["title", "row"]), str).unstack("title")


def _published_head(row: str) -> str:
    return METHODS[method_of(row)].head


def _key(budget: Budget) -> str:
    return " ".join(map(str, budget)).strip()


def _order(budget: Budget) -> tuple[int, bool, str, int, str]:
    """Methods in the paper's order, its published head first, fewer steps first; what was solved comes last."""
    row, head, steps = budget
    amount = steps if isinstance(steps, int) else 10**12 * (steps == SOLVED)
    return list(method_titles()).index(row), head != _published_head(row), head, amount, str(steps)
