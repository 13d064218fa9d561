"""The items of a raw set as Arrow columns: ten million of them are about a gigabyte, and as Python objects ten."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dicap.data.sources.base import Item
from dicap.data.texts import Texts, chunks_of

_NAMES = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("path", pa.string()),
        ("split", _NAMES),
        ("labels", pa.list_(pa.int16())),
        ("added", _NAMES),
        ("absent", pa.list_(pa.int16())),
    ]
)


class Items(Sequence[Item]):
    """A sequence of items in columns; an Item is made where one is asked for.

    Attributes:
        table: a row an item, of SCHEMA.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @classmethod
    def of(cls, items: Iterable[Item]) -> "Items":
        """The items of anything that yields them; of a generator only some exist as Python objects at a time."""
        if isinstance(items, Items):
            return items
        parts = [
            pa.table({name: [getattr(item, name) for item in chunk] for name in SCHEMA.names}, schema=SCHEMA)
            for chunk in chunks_of(items)
        ]
        return cls(pa.concat_tables(parts).unify_dictionaries() if parts else SCHEMA.empty_table())

    @property
    def ids(self) -> Texts:
        """The names of the items."""
        return Texts(self.table["id"])

    def where(self, column: str, value: str) -> np.ndarray:
        """Which items have a value in a column of texts, (n,) bool."""
        texts = self.table[column].cast(pa.string())
        return pc.fill_null(pc.equal(texts, value), False).to_numpy()  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, key: int) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> "Items": ...
    @overload
    def __getitem__(self, key: np.ndarray) -> "Items": ...
    def __getitem__(self, key: Any) -> Any:
        """An item; the Items of a slice; or those of a mask, (n,) bool, or at an array of rows."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            assert step == 1, "items are sliced without steps"
            return Items(self.table.slice(start, max(stop - start, 0)))
        if isinstance(key, np.ndarray):
            rows = np.flatnonzero(key) if key.dtype == bool else key
            return Items(self.table.take(pa.array(rows, pa.int64())))
        if key < 0:
            key += len(self)
        if not 0 <= key < len(self):
            raise IndexError(key)
        return _item(self.table.slice(key, 1).to_pylist()[0])

    def __iter__(self) -> Iterator[Item]:
        for batch in self.table.to_batches(max_chunksize=1024):
            yield from map(_item, batch.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Items) and self.table.equals(other.table)

    __hash__ = None  # type: ignore[assignment]


def _item(row: dict[str, Any]) -> Item:
    row = row | {name: None if row[name] is None else tuple(row[name]) for name in ("labels", "absent")}
    return Item(**row)
