"""A frozen backbone computed by ONNX Runtime, on CPUs 2.2 times as fast as torch (benchmarks/README.md, measured once).

ONNX Runtime replaces only the backbone. Torch computes normalisation and heads, so this works with every method's network.
Before the ONNX backbone is used, its features of a probe batch are compared with torch's features.
"""

import copy
import importlib.util
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dicap.frozen.onnx_file import PACKAGES, probe, write_onnx
from dicap.network import Network
from dicap.network.backbone import feature_map

PAYS_FROM = 2**25  # total pixels (2,048 images at 128 px): for fewer pixels the export takes longer than it saves
# Relative difference from torch on the probe batch, by norms. Measured: 1e-6 to 1e-5.
TOLERANCE = 1e-4
PROBE = 4  # images of the probe batch
GROUP = 4  # images per call, fixed because the last bits of a feature depend on it; larger groups are hardly faster


def accelerated(network: Network, images: int, image_size: int, device: torch.device) -> tuple[Network, list[str]]:
    """A network with an accelerated backbone and the same scores, and the engine of its backbone: [package, version].

    The engine is torch on GPUs, for few images, without the ONNX packages, if the backbone cannot be exported, or if its features
    differ from torch's by more than TOLERANCE.

    Args:
        network: on `device`; it is put into eval mode. The result shares all modules but the backbone, and cannot be trained.
        images: number of images to compute; image_size: their side in pixels.
    """
    torch_network = network.eval(), engines()[0]
    few = images * image_size**2 < PAYS_FROM
    if few or device.type != "cpu" or len(engines()) == 1:
        return torch_network
    try:
        onnx_network = with_backbone(network, OnnxBackbone(network, image_size)).eval()
        onnx_network.memory_format, onnx_network.tokens = torch.contiguous_format, "map"  # the export includes the tokens' map
        if _agrees(onnx_network, network, image_size):
            return onnx_network, engines()[1]
    except Exception:  # exporter and runtime raise many kinds of exceptions; torch is the fallback for all
        pass
    return torch_network


def engines() -> list[list[str]]:
    """The available engines for a backbone, [package, version] each, torch first."""
    incomplete = any(importlib.util.find_spec(package) is None for package in PACKAGES)
    return [["torch", torch.__version__], *([] if incomplete else [["onnxruntime", version("onnxruntime")]])]


class OnnxBackbone(nn.Module):
    """Replaces a backbone: normalised pixels (B, 3, S, S) -> feature map (B, D, h, w), on the CPU."""

    def __init__(self, network: Network, image_size: int) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "backbone.onnx"
            example = torch.zeros(2, 3, image_size, image_size)
            write_onnx(_FeatureMap(network).eval(), example, path, ("pixels", "features"))
            content = path.read_bytes()
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (B, 3, S, S), any B -> feature map (B, D, h, w)."""
        parts = [part.numpy() for part in pixels.float().contiguous().split(GROUP)]
        # One thread per group: threads that share an operator wait for each other, and two were slower than one on a busy CPU.
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:  # made here, because threads do not survive a fork
            maps = threads.map(lambda part: np.asarray(self._session.run(None, {"pixels": part})[0]), parts)
            return torch.from_numpy(np.concatenate(list(maps)))


class _FeatureMap(nn.Module):
    """The exported module: the backbone and the conversion of its tokens into a map."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.backbone, self._tokens = network.backbone, network.tokens

    def forward(self, pixels: Tensor) -> Tensor:
        return feature_map(self.backbone, pixels, self._tokens)


def with_backbone(network: Network, backbone: nn.Module) -> Network:
    """A network with this backbone that shares everything else with `network`."""
    result = copy.copy(network)
    result._modules = dict(network._modules)
    result.backbone = backbone
    return result


def _agrees(onnx_network: Network, network: Network, image_size: int) -> bool:
    """Whether the features agree, on a batch and on a single image."""
    images = probe(PROBE, image_size)
    with torch.inference_mode():
        for batch in (images, images[:1]):
            features, expected = onnx_network.features(batch), network.features(batch)
            if features.shape != expected.shape or not (features - expected).norm() <= TOLERANCE * expected.norm():  # or NaN
                return False
    return True
