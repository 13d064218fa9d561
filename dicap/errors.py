"""The three ways a run ends early: each carries one line for the user."""

import difflib
import re
from collections.abc import Iterable, Sequence

# The rest of the sentence after what torch, its kernels and ONNX Runtime say; torch has a class for a GPU's allocator alone.
_TOO_LITTLE = re.compile(
    r"(?<!\S)((CUDA|HIP|XPU|MPS backend)( driver)?( error:)? out of memory"
    r"|DefaultCPUAllocator: (can't allocate|not enough) memory|Failed to allocate memory for requested buffer"
    r"|std::bad_alloc).*?(?=\.\s|\.?$)",
    re.MULTILINE,
)


class SettingsError(ValueError):
    """A setting is wrong. The message names file, key, value and remedy; commands exit with code 2."""


class DataError(ValueError):
    """A file is missing or not what it should be. Names the file and the remedy; commands exit with code 1."""


class Stopped(Exception):
    """A clean stop on SIGINT or SIGTERM after the state was saved; commands exit with code 75."""


def did_you_mean(value: object, names: Iterable[str], count: int = 1) -> str:
    """The end of a message: `; did you mean NAME?` for the closest of the names, `count` at most; nothing where none is close."""
    folded = {name.casefold(): name for name in names}  # capitals do not count
    near = difflib.get_close_matches(str(value).casefold(), folded, count, 0.5)
    return f"; did you mean {', '.join(folded[name] for name in near)}?" if near else ""


def first_of(names: Sequence[str], most: int) -> str:
    """The names, or the first of them and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def first_line(error: object) -> str:
    """The first line of another library's message, to be part of one line of our own; without a message, its kind."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def out_of_memory(error: BaseException) -> str | None:
    """What an error says of memory that does not suffice; None where it is another error."""
    if isinstance(error, MemoryError):
        return first_line(error)
    match = _TOO_LITTLE.search(str(error))
    return match and match[0]
