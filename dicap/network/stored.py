"""A placeholder for a frozen backbone: it computes nothing, and its tensors are read from a file when a model is saved."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from dicap.errors import DataError
from dicap.network.backbone import weights_checksum


class StoredBackbone(nn.Module):
    """The placeholder of the backbone in a network whose inputs are feature maps. It needs no timm.

    Attributes:
        path: the file that `save_backbone` wrote.
        channels: D, the channels of the feature map.
        checksum: `weights_checksum` of the tensors.
    """

    def __init__(self, path: Path, channels: int, checksum: str) -> None:
        super().__init__()
        self.path, self.channels, self.checksum = path, channels, checksum

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        remedy = f"remove {self.path.parent} and run `dvc repro features`"
        try:
            tensors = load_file(self.path)
        except (SafetensorError, OSError) as error:
            raise DataError(f"{self.path}: not readable ({error}); {remedy}") from None
        if weights_checksum(tensors) != self.checksum:
            raise DataError(f"{self.path}: damaged (its content does not match its checksum); {remedy}")
        destination |= {prefix + name: tensor for name, tensor in tensors.items()}

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """Check that a saved model has this backbone's tensors; a model with another backbone would get wrong feature maps."""
        own = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if weights_checksum(own) != self.checksum:
            raise DataError(
                f"{self.path.parent}: these features are not from the model's backbone; run `dvc repro`, or name the model with "
                "`dicap-stage evaluate --model`, which scores it on images"
            )


def save_backbone(backbone: nn.Module, path: Path) -> None:
    """Write a backbone's tensors to a safetensors file."""
    # `save_file` would make a file that only its owner can read.
    path.write_bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in backbone.state_dict().items()}))
