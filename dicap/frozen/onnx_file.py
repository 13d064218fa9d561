"""A module as an ONNX file."""

import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.functional import interpolate

from dicap.randomness import generator

PACKAGES = ("onnx", "onnxscript", "onnxruntime")  # the extra `export` brings them


def write_onnx(
    module: nn.Module, example: Tensor, path: Path, names: tuple[str, str], about: dict[str, str] | None = None
) -> None:
    """Write a module of one input and one output, for batches of any size; nothing in the file tells where it was written.

    Args:
        module: in eval mode, on the processor. example: an input, of two images or more.
        names: of input and output. about: metadata of the file.

    Raises:
        Exception: of many kinds, where the module cannot be exported.
    """
    import onnx

    logging.getLogger("onnxscript").setLevel(logging.ERROR)  # it says what it leaves unoptimised
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        try:
            _by_torchscript(program, example, path, names)
        except Exception:  # it lacks operations that the newer exporter has
            written = torch.onnx.export(program, (), input_names=names[:1], output_names=names[1:], verbose=False)
            assert written is not None
            written.save(str(path), external_data=False)
    proto = onnx.load(path)
    graph = proto.graph  # the newer exporter notes where each operation comes from, with paths of this machine
    for part in (proto, graph, *graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.helper.set_model_props(proto, about or {})
    onnx.save(proto, path)


def _by_torchscript(program: torch.export.ExportedProgram, example: Tensor, path: Path, names: tuple[str, str]) -> None:
    """In a tenth of the seconds that torch's newer exporter takes. Raises where a shape is computed from the batch's size."""
    if any(node.target is torch.ops.aten.sym_size.int for node in program.graph.nodes):
        raise ValueError("the size of the example's batch would be taken for a constant")
    plain = program.module()
    module = fx.GraphModule(plain, plain.graph).eval()  # an exported module itself refuses to be put into eval mode
    axes = {name: {0: "batch"} for name in names}
    torch.onnx.export(module, (example,), path, input_names=names[:1], output_names=names[1:], dynamic_axes=axes, dynamo=False)


def probe(count: int, side: int) -> Tensor:
    """Random images (n, 3, S, S) uint8 on which a file is compared with its module: half are blurred, for noise looks alike."""
    numbers = torch.from_numpy(generator(0, "probe", 0, 0).random((count, 3, side, side), dtype=np.float32))
    coarse = interpolate(numbers[: count // 2, :, :4, :4], side, mode="bilinear")
    return (torch.cat([coarse, numbers[count // 2 :]]) * 255).to(torch.uint8)
