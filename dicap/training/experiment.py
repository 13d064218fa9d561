"""The inputs of a stage: settings, images, roles, the labels it may read, and the method."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dicap.data.format import is_partial
from dicap.data.labels import read_labels
from dicap.data.store import Store
from dicap.errors import DataError, SettingsError
from dicap.files.artifacts import ROLES, read_roles
from dicap.machine.progress import progress
from dicap.machine.runtime import Runtime
from dicap.methods import build_method
from dicap.methods.base import Method, Phase, Roles
from dicap.network import detach_backbone
from dicap.network.stored import StoredBackbone
from dicap.settings import Settings
from dicap.settings.methods import METHODS, holds_out
from dicap.training.hidden import HiddenLabelReader
from dicap.training.inputs import FixedFeatures, FrozenFeatures, Images, Inputs


class VisibleLabels:
    """Labels of some rows only; a request for another row is a bug.

    Training gets the labels of D_l only, so hidden labels cannot leak into it.
    """

    def __init__(self, folder: Path, rows: np.ndarray) -> None:
        self._rows = np.sort(rows)
        self._matrix = torch.from_numpy(read_labels(folder, self._rows, partial=True))  # (n, C)

    def of(self, rows: np.ndarray) -> Tensor:
        """(n, C) labels of these rows: uint8 of 0 and 1, or int8 with -1 if the data set has unknown entries."""
        index = np.searchsorted(self._rows, rows)
        allowed = (index < len(self._rows)) & (self._rows[np.minimum(index, len(self._rows) - 1)] == rows)
        assert allowed.all(), "this stage may not read these labels"
        return self._matrix[torch.from_numpy(index)]


@dataclass
class Experiment:
    """Everything a stage needs apart from its networks."""

    settings: Settings
    runtime: Runtime
    folder: Path
    store: Store
    roles: Roles
    labels: VisibleLabels
    method: Method
    inputs: Inputs
    oracle: HiddenLabelReader | None = None  # see Settings.reads_hidden_labels
    frozen: bool = False  # only the head is trained, on stored features of the frozen backbone
    bank: FrozenFeatures | None = None  # features of the pretrained backbone, also if the stage then trains the backbone

    @staticmethod
    def open(
        settings: Settings,
        runtime: Runtime,
        folder: Path,
        split: Path,
        bank: FrozenFeatures | None = None,
    ) -> "Experiment":
        """Open the converted data set `folder` and the split file.

        With a `bank` only the head is trained, on the bank's features. With `Settings.unfreezes` the whole network is trained on
        images, starting from a head that is solved on the bank (`on_bank`).

        Raises:
            DataError: the data set or the split is missing or damaged, or they do not belong together.
            SettingsError: the data set was converted at another image size.
        """
        store = Store.open(folder, settings.image_size)
        if is_partial(store.meta) and not METHODS[settings.method].partial:
            partial = ", ".join(name for name, facts in METHODS.items() if facts.partial)
            raise SettingsError(
                f"params.yaml: method: found {settings.method!r}, which needs every label of a labelled image, but {folder} has "
                f"images that are labelled in part; choose one of {partial}"
            )
        role_of = read_roles(split, store.ids)
        if not np.array_equal(role_of == "test", store.is_test):
            raise DataError(
                f"{split}: its test images differ from the test images of {folder}; run `dvc repro` (or `dicap-stage split`)"
            )
        rows = {role: np.flatnonzero(role_of == role) for role in ROLES}
        roles = Roles(sup=rows["sup"], est=rows["est"], unlabelled=rows["unlabeled"], test=rows["test"])
        counts = store.meta["counts"]  # `ratio` excludes images without labels, a step's composition includes them
        method = build_method(settings, len(store.classes), counts["train"] / (counts["train"] + counts["unlabeled"]))
        oracle = None
        if settings.reads_hidden_labels:
            oracle = HiddenLabelReader(folder)
            if not oracle.labels(roles.unlabelled)[1].any():
                raise SettingsError(
                    "params.yaml: calibration.policy: found 'optimal', which looks at the labels of unlabelled images, and no "
                    f"unlabelled image of {folder} has any; leave calibration.policy as published"
                )
        labels = VisibleLabels(folder, roles.labelled)
        images = Images(store, settings.seed, settings.augment.flip)
        experiment = Experiment(settings, runtime, folder, store, roles, labels, method, images, oracle, bank=bank)
        return experiment if bank is None or settings.unfreezes else experiment.on_bank()

    def on_bank(self) -> "Experiment":
        """This experiment with the stored features of the frozen backbone as inputs."""
        assert self.bank is not None
        return replace(self, inputs=self.bank, frozen=True)

    @property
    def split_mark(self) -> str:
        """SHA-256 of the image names by role. Without held-out labels D_est counts as part of the labelled images."""
        s, roles = self.settings, self.roles
        held_out = holds_out(s.method, s.protocol)
        parts = (roles.sup, roles.est) if held_out else (roles.labelled,)
        names = [self.store.ids[rows].tolist() for rows in (*parts, roles.unlabelled, roles.test)]
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def training_features(self) -> np.ndarray:
        """Mean features (n, D) of all training images, labelled or not; a head's scaling is fitted on them."""
        assert self.bank is not None
        return self.bank.mean(np.sort(np.concatenate([self.roles.labelled, self.roles.unlabelled])))

    @property
    def stored_backbone(self) -> StoredBackbone | None:
        """The placeholder of the backbone if only the head is trained; None if networks take images."""
        return self.bank.backbone if self.frozen and self.bank is not None else None

    def place(self, network: nn.Module) -> nn.Module:
        """The network on the device, ready for this stage: a frozen backbone is detached."""
        if self.frozen:
            detach_backbone(network, self.settings.features.grid)
        return network.to(self.runtime.device)

    def on_features(self, phase: Phase, network: nn.Module) -> "Experiment":
        """This experiment with features as inputs if the phase works on features; they are computed once for all images."""
        if phase.features is None:
            return self
        rows = np.arange(self.store.n)
        return replace(self, inputs=FixedFeatures(self.predict(network, rows, function=phase.features, desc="features")))

    def predict(
        self,
        network: nn.Module,
        rows: np.ndarray,
        *,
        function: Callable[[nn.Module, Tensor], Tensor] | None = None,
        weak: tuple[str, int] | None = None,
        desc: str | None = None,
    ) -> Tensor:
        """Scores (n, C) of images by a network in eval mode, on its device.

        Args:
            function: (network, inputs) -> (b, ...), computed instead of the method's scores.
            weak: (stage, epoch) of a weak view; None: the test view.
            desc: title of the progress bar; None: no bar.
        """
        function = self.method.scores if function is None else function
        scored = rows if len(rows) else np.zeros(1, np.int64)  # without rows one image shows the shape of the result
        batches = self.inputs.scoring(self.runtime, scored, weak)
        if desc is not None:
            batches = progress(batches, desc=desc, total=len(scored), unit="image", count=lambda batch: len(batch[0]))
        was_training = network.training
        network.eval()
        out: Tensor | None = None  # filled in place: concatenating the parts would take twice the memory
        start = 0
        with torch.inference_mode(), self.runtime.autocast():
            for _, inputs in batches:
                part = function(network, inputs)[: len(rows)]
                if out is None:
                    with torch.inference_mode(False):  # an ordinary tensor, which training can use
                        out = torch.empty(len(rows), *part.shape[1:], device=part.device)
                out[start : start + len(part)] = part
                start += len(part)
        network.train(was_training)
        assert out is not None
        return out
