"""Names and paths of many images: one Arrow column of bytes and offsets instead of a Python object for each."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

T = TypeVar("T")

CHUNK = 65_536  # things that exist as Python objects at a time while a column is built


def chunks_of(things: Iterable[T]) -> Iterator[list[T]]:
    """What an iterable yields, CHUNK at a time."""
    rest = iter(things)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


class Texts(Sequence[str]):
    """A sequence of texts; single ones, slices and arrays of rows are taken out of it as from a NumPy array of objects."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.column = column

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Texts":
        """The texts of anything that yields them."""
        if isinstance(texts, Texts):
            return texts
        return cls(pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks_of(texts)], pa.string()))

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, key: int | np.integer) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> "Texts": ...
    @overload
    def __getitem__(self, key: np.ndarray) -> np.ndarray: ...
    def __getitem__(self, key: Any) -> Any:
        """A text, the Texts of a slice, or an object array of the texts at an array of rows."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            assert step == 1, "texts are sliced without steps"
            return Texts(self.column.slice(start, max(stop - start, 0)))
        if isinstance(key, np.ndarray):
            rows = np.flatnonzero(key) if key.dtype == bool else key
            return np.asarray(self.column.take(pa.array(rows, pa.int64())).to_pylist(), dtype=object)
        return self.column[int(key)].as_py()

    def __iter__(self) -> Iterator[str]:
        for chunk in self.column.chunks:
            for start in range(0, len(chunk), 1024):
                yield from chunk.slice(start, 1024).to_pylist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.column.to_pylist(), dtype=dtype or object)

    def __eq__(self, other: object) -> Any:
        """Which texts equal those of a sequence of as many, (n,) bool, as NumPy compares."""
        theirs = other.column if isinstance(other, Texts) else pa.array(np.asarray(other), pa.string())
        return pc.equal(self.column, theirs).to_numpy()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[str]:
        """All of them as Python objects."""
        return self.column.to_pylist()

    def same(self, other: Any) -> bool:
        """Whether a column of texts (pandas, Arrow, Texts) holds the same in the same order."""
        column = other.column if isinstance(other, Texts) else pa.table({"text": other})["text"].cast(pa.string())
        return self.column.cast(pa.string()).equals(column)  # a file may hold large strings

    def repeated(self) -> str | None:
        """The first text that occurs more than once."""
        counts = self.column.value_counts()  # in the order in which they occur first
        often = np.flatnonzero(counts.field("counts").to_numpy() > 1)
        return counts.field("values")[int(often[0])].as_py() if len(often) else None
