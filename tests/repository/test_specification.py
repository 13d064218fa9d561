"""What docs/methods.md states in numbers is what the program does: sizes of the splits, the loss's fixture."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dicap.losses import asymmetric_loss

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")


def table(heading: str, end: str, first: str) -> list[list[str]]:
    """Cells of the rows below the head `first` in the section between two headings."""
    section = TEXT[TEXT.index(heading) : TEXT.index(end)]
    lines = section[section.index(f"| {first} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def whole(text: str) -> list[int]:
    return [int(part.replace(" ", "")) for part in text.split("/")]


def test_sizes_of_the_splits():
    rows = table("### 2.3 ", "### 2.4 ", "data set")
    assert len(rows) == 4
    for _, total, labelled, estimation in rows:
        (n,) = whole(total)
        index = pd.DataFrame({"id": np.arange(n + 1).astype(str), "split": ["train"] * n + ["test"]})
        for ratio, size, est in zip((0.05, 0.1, 0.15, 0.2), whole(labelled), whole(estimation), strict=True):
            found = pd.Series(tiny.roles_of(index, ratio, 1, 0.2)).value_counts()
            assert (found["sup"] + found["est"], found["est"], found["unlabeled"]) == (size, est, n - size)


def test_the_loss_and_its_gradient():
    rows = table("## 9. ", "## 10. ", "logit")
    assert len(rows) == 5
    for logit, *expected in rows:
        for y, (loss, slope) in enumerate((expected[:2], expected[2:])):
            x = torch.tensor(float(logit), requires_grad=True)
            value = asymmetric_loss(x, torch.tensor(float(y)))
            value.backward()
            assert value.item() == pytest.approx(float(loss), abs=6e-7) and x.grad.item() == pytest.approx(float(slope), abs=6e-7)
