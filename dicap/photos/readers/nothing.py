"""What an image means of which nothing is said: none of the classes, or that nobody looked at it."""

from collections import Counter
from dataclasses import replace

from dicap.photos.readers.listing import Listing
from dicap.photos.readers.question import Question


def with_empty(listing: Listing, empty: str) -> Listing:
    """The rows with what an image means of which nothing is said (`own.empty`).

    Nobody looked at it where none of the classes is said of other images, and in a split or a file in which no image has a label.

    Raises:
        Question: most of the images are so, or all of a split are said to show none, and it is not said what it means.
    """
    labelled = [row for row in listing.rows if row.labels is not None and row.split != "unlabeled"]
    said = [row for row in labelled if row.absent is None]
    parts = {id(row): {row.split or row.where, row.where} for row in said}
    sizes = Counter(part for row in said for part in parts[id(row)])
    labelled_parts = {part for row in said if row.labels for part in parts[id(row)]}
    idle = set()  # rows of which no other of the same split or file has a label
    if any(row.labels for row in labelled):
        idle = {row for row, of_row in parts.items() if any(sizes[part] > 1 for part in of_row - labelled_parts)}
    bare = [row for row in said if row.empty and id(row) not in idle]
    none = [row for row in said if not row.empty and not row.labels]
    told = len(said) < len(labelled) or any(id(row) not in idle for row in none)
    asked = [row for row in none if id(row) in idle]
    if not asked and not told and len(said) > len(bare) > (len(said) - len(idle)) / 2:
        asked = bare
    if empty == "auto" and asked:
        raise Question(
            f"{asked[0].where}: nothing is said of {len(asked)} of {len(said)} images (the first: {asked[0].image}): none of the "
            "classes (--empty none), or not labelled?",
            empty="unlabeled",
        )
    gone = set() if empty == "none" else idle | {id(row) for row in bare if told or empty == "unlabeled"}
    rows = [
        replace(row, labels=None, split=row.split or "unlabeled", empty=False) if id(row) in gone else row for row in listing.rows
    ]
    kept = sum(row.empty for row in rows if row.labels is not None)
    notes = [*listing.notes]
    for count, meaning, other in ((len(gone), "be not labelled", "none"), (kept, "show none of the classes", "unlabeled")):
        if count:
            text = f"images of which nothing is said, taken to {meaning}: {count}"
            notes.append(f"{text} (own.empty: {other} reads them otherwise)")
    return replace(listing, rows=rows, notes=notes)
