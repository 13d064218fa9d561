"""Hidden labels, which training must not read, for diagnostics and test scores. Code that may read them opens its own reader and
never passes it on, except the oracle of calibration.policy `optimal` (`Settings.reads_hidden_labels`)."""

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
        """Labels (n, C), and (n,) bool: the row has labels. Rows without labels are zero.

        The labels are uint8 of 0 and 1, or int8 with -1 if entries of these rows are unknown.
        """
        known = labelled_mask(self.folder)[rows]
        of_known = read_labels(self.folder, rows[known], partial=True)
        labels = np.zeros((len(rows), of_known.shape[1]), of_known.dtype)
        labels[known] = of_known
        return torch.from_numpy(labels), torch.from_numpy(known)
