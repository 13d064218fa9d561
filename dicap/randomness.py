"""Counter-based random numbers: every draw is a function of (seed, stage, epoch, row, stream).

No generator has state between draws, so results do not depend on the number of workers, on prefetching, or on where a run was
stopped and resumed.
"""

import hashlib
import zlib
from collections.abc import Iterable

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: SplitMix64's increment
_MASK = 0xFFFFFFFFFFFFFFFF


def _key(*parts: int | str) -> int:
    """One 64-bit key from integers and names; their order matters."""
    key = 0
    for part in parts:
        number = zlib.crc32(part.encode()) if isinstance(part, str) else int(part)
        key = int(_mix(np.array([(key + number * _GOLDEN + _GOLDEN) & _MASK], dtype=np.uint64))[0])
    return key


def _mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: a bijection of 64-bit integers whose output bits look independent."""
    z = z.copy()
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is intended
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


def generator(seed: int, stage: str, epoch: int, row: int, stream: str = "") -> np.random.Generator:
    """A NumPy generator for one sample of one epoch. Equal arguments give equal streams.

    Creating a Philox generator takes microseconds, because it is counter-based.
    """
    key = _key(seed, stage, epoch, row, stream)
    return np.random.Generator(np.random.Philox(key=key))


def uniform(seed: int, stage: str, epoch: int, rows: np.ndarray, stream: str = "") -> np.ndarray:
    """One number in [0, 1) for every row, (n,) float64; a row's number does not depend on the other rows."""
    key = np.uint64(_key(seed, stage, epoch, stream))
    with np.errstate(over="ignore"):
        z = _mix(_mix(np.asarray(rows, dtype=np.uint64) * np.uint64(_GOLDEN) + key) ^ key)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(seed: int, stage: str, epoch: int, n: int, stream: str = "") -> np.ndarray:
    """A shuffled ``arange(n)``, (n,) int64."""
    return generator(seed, stage, epoch, n, stream).permutation(n)


def torch_seed(seed: int, stage: str, epoch: int, step: int = 0) -> int:
    """The seed that torch gets before a step (dropout), in [0, 2**63)."""
    return _key(seed, stage, epoch, step, "torch") >> 1


def order_by_name(names: Iterable[str], seed: int, stage: str) -> np.ndarray:
    """The rows of `names` in a random order, (n,) int64. Which of two names comes first depends on these two names alone."""
    keys = [hashlib.sha256(f"{stage} {seed} {name}".encode("utf-8", "surrogateescape")).hexdigest() for name in names]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
