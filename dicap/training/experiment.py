"""What a stage works on: settings, images, roles, the labels it may read, and the method."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dicap.artifacts import ROLES, read_split
from dicap.data.labels import labelled_mask, read_labels
from dicap.data.loader import scoring_batches
from dicap.data.store import Store
from dicap.errors import DataError, SettingsError
from dicap.methods import build_method
from dicap.methods.base import Method, Roles
from dicap.progress import progress
from dicap.runtime import Runtime
from dicap.settings import Settings
from dicap.training.world import Alone

SCORING_BATCH = 256  # images a scoring step; changes no result beyond rounding


class VisibleLabels:
    """Labels of some rows, and of no others: asking for another row is an error in the program.

    Training is given one that holds D_l only, so that hidden labels cannot reach it.
    """

    def __init__(self, folder: Path, rows: np.ndarray) -> None:
        self._rows = np.sort(rows)
        self._matrix = torch.from_numpy(read_labels(folder, self._rows))  # (n, C) uint8

    def of(self, rows: np.ndarray) -> Tensor:
        """(n, C) uint8 labels of these rows."""
        places = np.searchsorted(self._rows, rows)
        known = (places < len(self._rows)) & (self._rows[np.minimum(places, len(self._rows) - 1)] == rows)
        assert known.all(), "labels were asked for that this stage may not read"
        return self._matrix[torch.from_numpy(places)]


@dataclass
class Experiment:
    """Everything a stage needs beside its networks."""

    settings: Settings
    runtime: Runtime
    folder: Path
    store: Store
    roles: Roles
    labels: VisibleLabels
    method: Method
    features: Tensor | None = None  # (N, D) on the device, for methods that work on fixed features
    world: Alone = field(default_factory=Alone)

    @staticmethod
    def open(settings: Settings, runtime: Runtime, folder: Path, split: Path, world: Alone | None = None) -> "Experiment":
        """Open the converted data set `folder` and the split file.

        Raises:
            DataError: if they are missing, damaged, or do not belong together.
            SettingsError: if the array was converted at another image size, or the method cannot run in several processes.
        """
        world = Alone() if world is None else world
        store = Store.open(folder)
        if store.image_size != settings.image_size:
            raise SettingsError(
                f"params.yaml: image_size: found {settings.image_size}, but {folder} was converted at {store.image_size}; "
                "run `dvc repro` (or `dicap-stage convert`)"
            )
        frame = read_split(split)
        if len(frame) != store.n or not (frame["id"].to_numpy() == store.ids).all():
            raise DataError(f"{split}: made for another data set than {folder}; run `dvc repro split`")
        rows = {role: np.flatnonzero(frame["role"].to_numpy() == role) for role in ROLES}
        roles = Roles(**rows)
        counts = store.meta["counts"]  # of images without any labels `ratio` knows nothing, a step's composition must
        method = build_method(settings, len(store.classes), counts["train"] / (counts["train"] + counts["unlabeled"]))
        if world.size > 1 and not method.in_parts:
            key, value = ("method", settings.method) if settings.loss.reduction == "sum" else ("loss.reduction", "mean")
            raise SettingsError(
                f"params.yaml: {key}: found {value!r}, which runs in one process only; unset DICAP_NPROC (or leave out torchrun)"
            )
        labels = VisibleLabels(folder, method.readable(roles))
        return Experiment(settings, runtime, folder, store, roles, labels, method, world=world)

    def hidden(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For scores and diagnostics: labels (n, C) of rows that training may not read, and which rows have any (n,) bool."""
        known = labelled_mask(self.folder)[rows]
        labels = np.zeros((len(rows), len(self.store.classes)), np.uint8)
        if known.any():
            labels[known] = read_labels(self.folder, rows[known])
        return labels, known

    def fix_features(self, network: nn.Module) -> None:
        """Compute the features of all images once, for a method that works on them."""
        if self.method.on_features:
            self.features = None
            rows = np.arange(self.store.n)
            self.features = self.predict(network, rows, function=self.method.features, desc="features")

    def features_of(self, rows: np.ndarray) -> Tensor:
        """(n, D) fixed features of these rows."""
        assert self.features is not None
        return self.features[torch.from_numpy(rows).to(self.features.device)]

    def predict(
        self,
        network: nn.Module,
        rows: np.ndarray,
        *,
        function: Callable[[nn.Module, Tensor], Tensor] | None = None,
        flip: tuple[int, str, int] | None = None,
        desc: str | None = None,
    ) -> Tensor:
        """Scores (n, C) float32 of images by a network in eval mode, on its device; each image by one process of the run.

        Args:
            function: what to compute, (network, images) -> (b, ...), instead of the method's scores. Once features are fixed,
                it gets those instead of images.
            flip: (seed, stage, epoch) for the weak view; None for the test view.
            desc: name of the progress bar; None: no bar.
        """
        n, own, size = len(rows), self.world.own(len(rows)), SCORING_BATCH
        rows = rows[own]
        function = self.method.scores if function is None else function
        if self.features is not None:
            batches = ((rows[i : i + size], self.features_of(rows[i : i + size])) for i in range(0, len(rows), size))
        else:
            batches = scoring_batches(
                self.store,
                rows,
                size,
                flip=flip,
                flip_share=self.settings.augment.flip,
                device=self.runtime.device,
                data_on=self.runtime.data_on,  # type: ignore[arg-type]
            )
        if desc is not None:
            batches = progress(batches, desc=desc, total=-(-len(rows) // size), unit="batch")
        was_training = network.training
        network.eval()
        out: Tensor | None = None
        start = 0
        with torch.inference_mode(), self.runtime.autocast():
            for batch, images in batches:
                part = function(network, images)
                if out is None:
                    with torch.inference_mode(False):  # a result that training may use
                        out = torch.empty(len(rows), *part.shape[1:], device=self.runtime.device)
                out[start : start + len(batch)] = part
                start += len(batch)
        network.train(was_training)
        if out is None:
            return torch.empty(0, self.method.classes, device=self.runtime.device)
        return self.world.whole(out, own, n)
