"""Early stopping: the best epoch by labels that serve nothing else (split.validation), never by the reported split."""

from typing import Any

from torch import nn

from dicap.metrics.ranking import mean_average_precision
from dicap.training.experiment import Experiment, VisibleLabels


class Selection:
    """Finds the best epoch's weights by validation mAP; idle where no image has the role validation.

    `best` is the checkpoint's: {epoch, map_val, weights} of the best epoch so far, empty before there is one.
    """

    def __init__(self, experiment: Experiment, networks: dict[str, nn.Module], judged: str, patience: int | None) -> None:
        """`judged`: raw or ema, the network whose mAP decides; `patience`: epochs without a better one, None: never stops."""
        self.experiment, self.networks, self.judged, self.patience = experiment, networks, judged, patience
        self.rows = experiment.roles.validation[: None if patience is not None else 0]
        self.labels = VisibleLabels(experiment.folder, self.rows) if len(self.rows) else None

    def is_over(self, best: dict[str, Any], epoch: int) -> bool:
        """Whether `patience` epochs before `epoch` went by without a better one."""
        return bool(best) and self.patience is not None and epoch - 1 - best["epoch"] >= self.patience

    def judge(self, best: dict[str, Any], epoch: int) -> dict[str, Any]:
        """The `map_val` of the epoch that was just trained, for the history; nothing without validation images.

        `best` is filled with the epoch where it is better.
        """
        if self.labels is None:
            return {}
        y = self.labels.of(self.rows).numpy()
        score = mean_average_precision(self.experiment.predict(self.networks[self.judged], self.rows).cpu().numpy(), y)
        if not best or score > best["map_val"]:
            weights = {
                name: {key: tensor.detach().clone() for key, tensor in network.state_dict().items()}
                for name, network in self.networks.items()
            }
            best |= {"epoch": epoch, "map_val": score, "weights": weights}
        return {"map_val": score}

    def restore(self, best: dict[str, Any], stage: str, epochs: int) -> list[str]:
        """Put the best epoch's weights back, of all networks; a line that says which of the trained `epochs` it was."""
        if not best:
            return []
        for name, network in self.networks.items():
            network.load_state_dict(best["weights"][name])
        return [f"{stage}: epoch {best['epoch']} of {epochs} is kept, with validation mAP {best['map_val']:.2f}"]
