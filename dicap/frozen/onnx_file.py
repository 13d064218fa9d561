"""Writes a module as an ONNX file."""

import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.functional import interpolate

from dicap.randomness import generator

PACKAGES = ("onnx", "onnxscript", "onnxruntime")  # the extra `export` installs them


def write_onnx(
    module: nn.Module, example: Tensor, path: Path, names: tuple[str, str], about: dict[str, str] | None = None
) -> None:
    """Write a module with one input and one output, for any batch size; the file contains no paths of this machine.

    Args:
        module: in eval mode, on the CPU. example: an input of two images or more.
        names: names of input and output. about: metadata of the file.

    Raises:
        Exception: of many kinds, if the module cannot be exported.
    """
    import onnx

    logging.getLogger("onnxscript").setLevel(logging.ERROR)  # without its messages about skipped optimisations
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        try:
            _by_torchscript(program, example, path, names)
        except Exception:  # the older exporter lacks some operations of the newer exporter
            written = torch.onnx.export(program, (), input_names=names[:1], output_names=names[1:], verbose=False)
            assert written is not None
            written.save(str(path), external_data=False)
    proto = onnx.load(path)
    graph = proto.graph  # the newer exporter records the origin of each operation, with paths of this machine
    for part in (proto, graph, *graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.helper.set_model_props(proto, about or {})
    onnx.save(proto, path)


def _by_torchscript(program: torch.export.ExportedProgram, example: Tensor, path: Path, names: tuple[str, str]) -> None:
    """Export ten times as fast as torch's newer exporter. Raises ValueError if a shape is computed from the batch size."""
    if any(node.target is torch.ops.aten.sym_size.int for node in program.graph.nodes):
        raise ValueError("the batch size of the example would become a constant")
    exported = program.module()
    module = fx.GraphModule(exported, exported.graph).eval()  # `exported` itself cannot be put into eval mode
    axes = {name: {0: "batch"} for name in names}
    torch.onnx.export(module, (example,), path, input_names=names[:1], output_names=names[1:], dynamic_axes=axes, dynamo=False)


def probe(count: int, side: int) -> Tensor:
    """Random images (n, 3, S, S) uint8 for comparing a file with its module; half are smooth, because noise images look alike."""
    numbers = torch.from_numpy(generator(0, "probe", 0, 0).random((count, 3, side, side), dtype=np.float32))
    coarse = interpolate(numbers[: count // 2, :, :4, :4], side, mode="bilinear")
    return (torch.cat([coarse, numbers[count // 2 :]]) * 255).to(torch.uint8)
