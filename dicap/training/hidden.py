"""Labels that training must not read, for diagnostics and scores. Each reader is opened where it may be used and never passed
on, except the oracle of calibration.policy `optimal` (`Settings.reads_hidden_labels`)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dicap.data.labels import labelled_mask, read_labels


@dataclass(frozen=True)
class HiddenLabelReader:
    """Reads any label of a converted set."""

    folder: Path

    def labels(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """(n, C) and (n,) bool: the labels, and whether a row has any; zero where it has none.

        uint8 of 0 and 1, or where entries of these rows are unknown int8 with -1.
        """
        known = labelled_mask(self.folder)[rows]
        of_known = read_labels(self.folder, rows[known], partial=True)
        labels = np.zeros((len(rows), of_known.shape[1]), of_known.dtype)
        labels[known] = of_known
        return torch.from_numpy(labels), torch.from_numpy(known)
