"""Histograms for the terminal: bars of eighth blocks, or of `#` where the terminal can only show ASCII.

Every function returns lines of at most `width` columns and prints nothing.
"""

from __future__ import annotations

import math
import unicodedata

import pandas as pd

from dicap.report.style import short

NARROWEST = 40  # columns: below this the numbers alone fill the line


def rates(weights: pd.DataFrame, width: int, ascii_only: bool = False) -> list[str]:
    """One epoch's rates: one bar per bin, as long as its share of positives, the entries counted, the optimal share if known.

    A bin in which nothing was counted has no bar: its rate was filled in from elsewhere (calibration.empty_bin).
    """
    known = weights["optimal_r_pos"].notna().any()
    entries = [f"{n:,}" for n in weights["n_pos"] + weights["n_neg"]]
    column = max(len("entries"), *map(len, entries))
    head = f"{'confidence':<11} {'entries':>{column}}  "
    room = _room(width, len(head) + 6 + (9 if known else 0))
    lines = [f"{head}{'share of positives'[: room + 6]:<{room + 6}}" + ("  optimal" if known else "")]
    for row, n in zip(weights.itertuples(), entries, strict=True):
        empty = n == "0"
        bar = "" if empty else blocks(float(row.r_pos), room, ascii_only)  # type: ignore[arg-type]
        rate = f"{'-':>5}" if empty else f"{row.r_pos:.3f}"
        line = f"{row.left:.2f}-{row.right:.2f}   {n:>{column}}  {bar:<{room}} {rate}"
        if known:
            line += f"    {row.optimal_r_pos:.3f}" if pd.notna(row.optimal_r_pos) else f"    {'-':>5}"  # type: ignore[arg-type]
        lines.append(line)
    return [line.rstrip() for line in lines]


def weights(histogram: pd.DataFrame, shares: dict[int, int], width: int, ascii_only: bool = False) -> list[str]:
    """The weights of one epoch's confident entries, positives then negatives; each scaled to its own largest bin.

    histogram: label, left, right, n. shares: number of entries by label (1, 0, -1).
    """
    total = max(1, sum(shares.values()))
    lines = []
    for label, name in ((1, "positive"), (0, "negative")):
        part = histogram[histogram["label"] == label]
        lines.append(f"{name}: {shares[label]:,} of {total:,} entries ({100 * shares[label] / total:.1f} %)")
        numbers = [f"{n:,}" for n in part["n"]]
        column = max(map(len, numbers))
        room = _room(width, 11 + column + 3)
        largest = max(1, int(part["n"].max()))
        for row, n in zip(part.itertuples(), numbers, strict=True):
            bar = blocks(float(row.n) / largest, room, ascii_only)  # type: ignore[arg-type]
            lines.append(f"  {row.left:.2f}-{row.right:.2f} {n:>{column}} {bar}".rstrip())
        lines.append("")
    lines.append(f"uncertain: {shares[-1]:,} of {total:,} entries ({100 * shares[-1] / total:.1f} %)")
    return lines


def thresholds(frame: pd.DataFrame, width: int, ascii_only: bool = False) -> list[str]:
    """The uncertain band of every class on a line from 0 to 1, with both thresholds; × marks crossed ones."""
    line, band, mark = ("-", "=", "x") if ascii_only else ("─", "━", "×")
    names = [_fit(short(name, 20), ascii_only) for name in frame["class"]]
    column = max(len("class"), *map(columns_of, names))
    room = _room(width, column + 1 + 18)
    lines = [f"{'class':<{column}} 0{'':{max(0, room - 2)}}1  below  above"]
    for name, row in zip(names, frame.itertuples(), strict=True):
        low, high = sorted((float(row.tau_neg), float(row.tau_pos)))  # type: ignore[arg-type]
        start, end = (min(room - 1, max(0, int(x * room))) for x in (low, high))
        track = line * start + band * (end - start + 1) + line * (room - end - 1)
        numbers = f"  {row.tau_neg:.3f}  {row.tau_pos:.3f} {mark if row.crossed else ''}"
        lines.append(f"{name}{' ' * (column - columns_of(name))} {track}{numbers}".rstrip())
    return lines


def blocks(share: float, room: int, ascii_only: bool = False) -> str:
    """A bar of `share` (0 to 1, clipped; NaN is empty) of `room` columns. Anything above zero shows at least a sliver."""
    if math.isnan(share) or share <= 0:
        return ""
    share = min(1.0, share)
    if ascii_only:
        return "#" * max(1, round(share * room))
    eighths = max(1, round(share * room * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def columns_of(text: str) -> int:
    """Columns that `text` takes in a terminal: wide letters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text
    )


def _fit(name: str, ascii_only: bool) -> str:
    return name.replace("…", "...").encode("ascii", "replace").decode("ascii") if ascii_only else name


def _room(width: int, taken: int) -> int:
    return max(4, max(width, NARROWEST) - taken)
