"""The teacher of an epoch: the EMA network in eval mode, on weak views (docs/methods.md 3.13-C1)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from dicap.training.experiment import Experiment


@dataclass
class EpochTeacher:
    """See `dicap.methods.base.Teacher`."""

    experiment: Experiment
    network: nn.Module
    online: nn.Module
    epoch: int
    carry: dict[str, Tensor]

    def scores(self, rows: np.ndarray) -> Tensor:
        """(n, C) float32 scores."""
        return self.experiment.predict(self.network, rows, weak=("refresh", self.epoch))

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """function(network, inputs) of the network being trained, (n, ...) float32."""
        return self.experiment.predict(self.online, rows, function=function, weak=("refresh", self.epoch))

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) labels of rows of D_l, -1 if unknown."""
        return self.experiment.labels.of(rows).to(self.experiment.runtime.device)

    def hidden_labels(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Labels (n, C), and (n,) bool: the row has labels; only with `Settings.reads_hidden_labels`."""
        assert self.experiment.oracle is not None
        labels, known = self.experiment.oracle.labels(rows)
        return labels.to(self.experiment.runtime.device), known.to(self.experiment.runtime.device)
