"""What a stage works on: settings, images, roles, the labels it may read, and the method."""

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
    """Labels of some rows, and of no others: asking for another row is an error in the program.

    Training is given one that holds D_l only, so that hidden labels cannot reach it.
    """

    def __init__(self, folder: Path, rows: np.ndarray) -> None:
        self._rows = np.sort(rows)
        self._matrix = torch.from_numpy(read_labels(folder, self._rows, partial=True))  # (n, C)

    def of(self, rows: np.ndarray) -> Tensor:
        """(n, C) labels of these rows: uint8 of 0 and 1, or where entries of the set are unknown int8 with -1."""
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
    inputs: Inputs
    oracle: HiddenLabelReader | None = None  # see Settings.reads_hidden_labels
    frozen: bool = False  # the head alone is trained, on features of the backbone
    bank: FrozenFeatures | None = None  # of the backbone as it came, also where the stage trains it

    @staticmethod
    def open(
        settings: Settings,
        runtime: Runtime,
        folder: Path,
        split: Path,
        bank: FrozenFeatures | None = None,
    ) -> "Experiment":
        """Open the converted data set `folder` and the split file.

        With a `bank` the head alone is trained, on its features, unless the settings say that the whole network goes on from a
        solution on them (`Settings.unfreezes`): then the inputs are images, and `on_bank` has the features.

        Raises:
            DataError: if they are missing, damaged, or do not belong together.
            SettingsError: if the array was converted at another image size.
        """
        store = Store.open(folder, settings.image_size)
        if is_partial(store.meta) and not METHODS[settings.method].partial:
            able = ", ".join(name for name, facts in METHODS.items() if facts.partial)
            raise SettingsError(
                f"params.yaml: method: found {settings.method!r}, which needs every label of a labelled image, but {folder} has "
                f"images that are labelled in part; choose one of {able}"
            )
        role_of = read_roles(split, store.ids)
        if not np.array_equal(role_of == "test", store.is_test):
            raise DataError(
                f"{split}: its test images differ from the test images of {folder}; run `dvc repro` (or `dicap-stage split`)"
            )
        rows = {role: np.flatnonzero(role_of == role) for role in ROLES}
        roles = Roles(sup=rows["sup"], est=rows["est"], unlabelled=rows["unlabeled"], test=rows["test"])
        counts = store.meta["counts"]  # of images without any labels `ratio` knows nothing, a step's composition must
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
        """This experiment on the features of the frozen backbone."""
        assert self.bank is not None
        return replace(self, inputs=self.bank, frozen=True)

    @property
    def split_mark(self) -> str:
        """SHA-256 of the names of the images by role. Where no label is held out, D_est is part of the labelled images."""
        s, roles = self.settings, self.roles
        held_out = holds_out(s.method, s.protocol)
        parts = (roles.sup, roles.est) if held_out else (roles.labelled,)
        names = [self.store.ids[rows].tolist() for rows in (*parts, roles.unlabelled, roles.test)]
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def training_features(self) -> np.ndarray:
        """Mean features (n, D) of the training images, labelled or not: what the scaling of a head learns from."""
        assert self.bank is not None
        return self.bank.mean(np.sort(np.concatenate([self.roles.labelled, self.roles.unlabelled])))

    @property
    def stored_backbone(self) -> StoredBackbone | None:
        """What stands for the backbone where the head alone is trained; None where networks look at images."""
        return self.bank.backbone if self.frozen and self.bank is not None else None

    def place(self, network: nn.Module) -> nn.Module:
        """The network on the device, as the stage trains it: a frozen backbone is put aside."""
        if self.frozen:
            detach_backbone(network, self.settings.features.grid)
        return network.to(self.runtime.device)

    def on_features(self, phase: Phase, network: nn.Module) -> "Experiment":
        """This experiment, on features of all images computed once where the phase works on them."""
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
            function: what to compute, (network, inputs) -> (b, ...), instead of the method's scores.
            weak: (stage, epoch) for a weak view; without it the test view.
            desc: name of the progress bar; None: no bar.
        """
        function = self.method.scores if function is None else function
        shown = rows if len(rows) else np.zeros(1, np.int64)  # without rows any image tells the shape of an answer
        batches = self.inputs.scoring(self.runtime, shown, weak)
        if desc is not None:
            batches = progress(batches, desc=desc, total=len(shown), unit="image", count=lambda batch: len(batch[0]))
        was_training = network.training
        network.eval()
        out: Tensor | None = None  # filled part by part: with all parts beside it, memory would be twice the result's
        start = 0
        with torch.inference_mode(), self.runtime.autocast():
            for _, inputs in batches:
                part = function(network, inputs)[: len(rows)]
                if out is None:
                    with torch.inference_mode(False):  # training may use the result
                        out = torch.empty(len(rows), *part.shape[1:], device=part.device)
                out[start : start + len(part)] = part
                start += len(part)
        network.train(was_training)
        assert out is not None
        return out
