"""NumPy files of one array: written row by row, and mapped with every check that is cheap."""

from pathlib import Path
from typing import BinaryIO

import numpy as np

from dicap.errors import DataError, first_line


def write_head(file: BinaryIO, shape: tuple[int, ...], dtype: type) -> None:
    """Write what stands before the rows of an .npy file in C order. Its length does not depend on their number."""
    np.lib.format.write_array_header_1_0(file, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape})


def open_npy(path: Path, again: str, dtype: type | None = None, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Map an .npy file, read-only. Raises DataError where it is missing, truncated, or of another shape or type.

    Args:
        again: what to do about a file that cannot be used, for the error.
        dtype, shape: what it has to hold; no dtype stands for anything.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {again}") from None
    except (ValueError, OSError, EOFError) as error:
        reason = first_line(error)
        if "pickle" in reason:  # NumPy advises to load it, which would run whatever it holds
            reason = "no NumPy file, or one with Python objects, which are not loaded"
        raise DataError(f"{path}: not readable ({reason}); {again}") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: holds an archive of arrays (npz), expected one array; {again}")
    if dtype is not None and (array.dtype != dtype or array.shape != shape):
        held, wanted = ("x".join(map(str, sizes)) for sizes in (array.shape, shape))
        raise DataError(f"{path}: holds {held} {array.dtype}, meta.json says {wanted} {np.dtype(dtype).name}; {again}")
    return array
