"""Early stopping: the best epoch by labels that serve nothing else (split.validation), never by the reported split."""

from typing import Any

from dicap.metrics import mean_average_precision
from dicap.training.experiment import Experiment
from dicap.training.optimisation import Optimisation
from dicap.training.steps import Progress


class Selection:
    """Remembers the best epoch's weights by validation mAP; idle where no image has the role validation.

    What it knows lies in `progress.best`, so that it is saved and resumed with everything else.
    """

    def __init__(self, experiment: Experiment, optimisation: Optimisation, progress: Progress, which: str, patience: int) -> None:
        self.experiment, self.optimisation, self.progress = experiment, optimisation, progress
        self.which, self.patience = which, patience  # raw or ema: the network that is published first is the one to judge
        self.rows = experiment.roles.validation

    def over(self) -> bool:
        """Whether `patience` epochs went by without a better one."""
        best = self.progress.best
        return bool(best) and self.progress.epoch - 1 - best["epoch"] >= self.patience

    def look(self, epoch: int) -> dict[str, Any]:
        """Judge the epoch that was just trained: its `map_val` for the history, nothing without validation images."""
        if not len(self.rows):
            return {}
        network = self._networks()[self.which]
        y, _ = self.experiment.hidden(self.rows)
        score = mean_average_precision(self.experiment.predict(network, self.rows).cpu().numpy(), y)
        if not self.progress.best or score > self.progress.best["map_val"]:
            weights = {
                name: {key: tensor.detach().clone() for key, tensor in network.state_dict().items()}
                for name, network in self._networks().items()
            }
            self.progress.best = {"epoch": epoch, "map_val": score, "weights": weights}
        return {"map_val": score}

    def restore(self) -> list[str]:
        """Put the best epoch's weights back, both networks'; a line that says which it was."""
        best = self.progress.best
        if not best:
            return []
        for name, network in self._networks().items():
            network.load_state_dict(best["weights"][name])
        stage = self.progress.state.stage
        return [f"{stage}: epoch {best['epoch']} of {self.progress.epoch} is kept, with validation mAP {best['map_val']:.2f}"]

    def _networks(self) -> dict[str, Any]:
        return {"raw": self.optimisation.network, "ema": self.optimisation.ema.module}
