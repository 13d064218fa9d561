"""A frozen backbone computed by ONNX Runtime: on processors 2.2 times as fast as torch (benchmarks/README.md, measured once).

It takes the place of a network's backbone alone: normalisation before it and heads after it are torch's, so every method's
network works with it. Before it is used, its features of a probe batch are compared with torch's.
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

PAYS_FROM = 2**25  # pixels in all, 2,048 images at 128 px: with fewer, exporting the backbone takes longer than it saves
# Difference from torch on the probe batch: root mean square over that of the features. Measured: 1e-6 to 1e-5.
TOLERANCE = 1e-4
PROBE = 4  # images of the probe batch
GROUP = 4  # images at a time of a thread, however many threads there are, for their last bits: more are hardly faster


def accelerated(network: Network, images: int, image_size: int, device: torch.device) -> tuple[Network, list[str]]:
    """A network with the same feature maps and scores, and what computes its backbone: a package and its version.

    torch itself on GPUs, for few images, where the packages are not installed, and where the backbone cannot be exported or its
    features differ from torch's by more than TOLERANCE.

    Args:
        network: on `device`; it is put into eval mode, and shares all but the backbone with the result, which cannot be trained.
        images: how many are going to be computed. image_size: their side in pixels.
    """
    plain = network.eval(), engines()[0]
    few = images * image_size**2 < PAYS_FROM
    if few or device.type != "cpu" or len(engines()) == 1:
        return plain
    try:
        fast = with_backbone(network, OnnxBackbone(network, image_size)).eval()
        fast.memory_format, fast.tokens = torch.contiguous_format, "map"  # which the tokens are by then
        if _agrees(fast, network, image_size):
            return fast, engines()[1]
    except Exception:  # exporter and runtime raise kinds of their own; all mean that torch has to do it
        pass
    return plain


def engines() -> list[list[str]]:
    """What can compute a backbone here: packages and their versions, torch first."""
    lacking = any(importlib.util.find_spec(package) is None for package in PACKAGES)
    return [["torch", torch.__version__], *([] if lacking else [["onnxruntime", version("onnxruntime")]])]


class OnnxBackbone(nn.Module):
    """In the place of a backbone: normalised pixels (B, 3, S, S) -> feature map (B, D, h, w), on the processor."""

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
        """Of any number of images."""
        parts = [part.numpy() for part in pixels.float().contiguous().split(GROUP)]
        # Threads that share each operator wait for one another at its end: beside another process two were slower than one alone.
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:  # they would not live on in a forked process
            maps = threads.map(lambda part: np.asarray(self._session.run(None, {"pixels": part})[0]), parts)
            return torch.from_numpy(np.concatenate(list(maps)))


class _FeatureMap(nn.Module):
    """What is exported: the backbone with its tokens turned into a map."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.backbone, self._tokens = network.backbone, network.tokens

    def forward(self, pixels: Tensor) -> Tensor:
        return feature_map(self.backbone, pixels, self._tokens)


def with_backbone(network: Network, backbone: nn.Module) -> Network:
    """A network that shares everything with `network` but its backbone."""
    other = copy.copy(network)
    other._modules = dict(network._modules)
    other.backbone = backbone
    return other


def _agrees(fast: Network, network: Network, image_size: int) -> bool:
    """On a batch and on one image alone: the size of a batch is no part of a result."""
    images = probe(PROBE, image_size)
    with torch.inference_mode():
        for some in (images, images[:1]):
            features, expected = fast.features(some), network.features(some)
            if features.shape != expected.shape or not (features - expected).norm() <= TOLERANCE * expected.norm():  # NaN is not
                return False
    return True
