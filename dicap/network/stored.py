"""A frozen backbone that computes nothing: its tensors are in a file, to be copied into published models."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from dicap.errors import DataError
from dicap.network.backbone import weights_checksum


class StoredBackbone(nn.Module):
    """Stands in a network for the backbone whose feature maps are the inputs; no library that builds backbones is loaded for it.

    Attributes:
        path: the file that `save_backbone` wrote.
        channels: D, of the feature map.
        checksum: of the tensors (`weights_checksum`).
    """

    def __init__(self, path: Path, channels: int, checksum: str) -> None:
        super().__init__()
        self.path, self.channels, self.checksum = path, channels, checksum

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        again = f"remove {self.path.parent} and run `dvc repro features`"
        try:
            tensors = load_file(self.path)
        except (SafetensorError, OSError) as error:
            raise DataError(f"{self.path}: not readable ({error}); {again}") from None
        if weights_checksum(tensors) != self.checksum:
            raise DataError(f"{self.path}: damaged (its content does not match its checksum); {again}")
        destination |= {prefix + name: tensor for name, tensor in tensors.items()}

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """A model that was published with this backbone holds the same tensors; any other would be given wrong maps."""
        own = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if weights_checksum(own) != self.checksum:
            raise DataError(
                f"{self.path.parent}: features of another backbone than the model's; run `dvc repro`, or name the model with "
                "`dicap-stage evaluate --model`, which scores it on images"
            )


def save_backbone(backbone: nn.Module, path: Path) -> None:
    """Write a backbone's tensors."""
    # Not `save_file`, whose files only their owner can read.
    path.write_bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in backbone.state_dict().items()}))
