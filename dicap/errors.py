"""The three exceptions that end a run early, each with a message of one line for the user."""

import difflib
import re
from collections.abc import Iterable, Sequence

# Messages of torch, its kernels and ONNX Runtime about too little memory; torch has an exception class for GPU memory only.
_TOO_LITTLE = re.compile(
    r"(?<!\S)((CUDA|HIP|XPU|MPS backend)( driver)?( error:)? out of memory"
    r"|DefaultCPUAllocator: (can't allocate|not enough) memory|Failed to allocate memory for requested buffer"
    r"|std::bad_alloc).*?(?=\.\s|\.?$)",
    re.MULTILINE,
)


class SettingsError(ValueError):
    """A setting is wrong. The message names file, key, value and remedy; commands exit with code 2."""


class DataError(ValueError):
    """A file is missing, damaged or malformed. The message names the file and the remedy; commands exit with code 1."""


class Stopped(Exception):
    """A clean stop on SIGINT or SIGTERM, after the checkpoint was saved; commands exit with code 75."""


def did_you_mean(value: object, names: Iterable[str], count: int = 1) -> str:
    """The end of a message, `; did you mean NAME?`, with at most `count` of the closest names; "" if no name is close."""
    folded = {name.casefold(): name for name in names}  # case-insensitive
    matches = difflib.get_close_matches(str(value).casefold(), folded, count, 0.5)
    return f"; did you mean {', '.join(folded[name] for name in matches)}?" if matches else ""


def first_of(names: Sequence[str], most: int) -> str:
    """The names, or the first `most` names and the number of the remaining names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def first_line(error: object) -> str:
    """The first line of another library's error message, for use in our own message; without a message, the error's type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def out_of_memory(error: BaseException) -> str | None:
    """The part of an error's message about too little memory; None for any other error."""
    if isinstance(error, MemoryError):
        return first_line(error)
    match = _TOO_LITTLE.search(str(error))
    return match and match[0]
