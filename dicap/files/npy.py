"""NumPy files of one array: written row by row, and memory-mapped after cheap checks."""

from pathlib import Path
from typing import BinaryIO

import numpy as np

from dicap.errors import DataError, first_line


def write_head(file: BinaryIO, shape: tuple[int, ...], dtype: type) -> None:
    """Write the header of an .npy file in C order. Its length does not depend on the number of rows."""
    np.lib.format.write_array_header_1_0(file, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape})


def open_npy(path: Path, again: str, dtype: type | None = None, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Memory-map an .npy file, read-only. Raises DataError if it is missing, truncated, or of another shape or type.

    Args:
        again: the remedy in the error.
        dtype, shape: the expected type and shape; without `dtype` neither is checked.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {again}") from None
    except (ValueError, OSError, EOFError) as error:
        reason = first_line(error)
        if "pickle" in reason:  # NumPy's own text advises to load pickles, which can execute code
            reason = "not a NumPy file, or a file with Python objects, which are not loaded"
        raise DataError(f"{path}: not readable ({reason}); {again}") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: holds an archive of arrays (npz), expected one array; {again}")
    if dtype is not None and (array.dtype != dtype or array.shape != shape):
        found, expected = ("x".join(map(str, sizes)) for sizes in (array.shape, shape))
        raise DataError(f"{path}: holds {found} {array.dtype}, meta.json says {expected} {np.dtype(dtype).name}; {again}")
    return array
