"""The split: which images are labelled or unlabelled, and D_sup / D_est (docs/methods.md 2.3, 3.2)."""

from pathlib import Path

import numpy as np

from dicap.data.format import read_index, read_meta
from dicap.errors import DataError, SettingsError
from dicap.randomness import order_by_name


def labelled_order(n_train: int, seed: int) -> np.ndarray:
    """The published order of the training images, (n_train,) int64; the labelled set of a ratio is a prefix of it.

    A new generator is used, so the order depends only on seed, n and the order of the rows (docs/methods.md 2.3).
    """
    return np.random.RandomState(seed).permutation(n_train)


def _permuted(rows: np.ndarray, ids: np.ndarray, seed: int, by_id: bool) -> np.ndarray:
    return rows[order_by_name(ids[rows], seed, "split") if by_id else labelled_order(len(rows), seed)]


def split_roles(
    ids: np.ndarray,
    split: np.ndarray,
    labelled: np.ndarray,
    added: np.ndarray,
    *,
    ratio: float,
    seed: int,
    est_fraction: float,
    by_id: bool = False,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Give every image its role.

    The first int(ratio * n_train) of the permuted training images are labelled (docs/methods.md 2.3, Equation (1)). Of these the
    first int((1 - est_fraction) * n_labelled) are D_sup and the rest is D_est (Equation (2)). D_u is the remaining training
    images, whose labels are hidden, and the images without labels.

    Images whose labels were given later are labelled at every ratio. They are split into D_sup and D_est separately, with the
    same est_fraction, so that all other images keep their roles.

    Args:
        ids, split: (N,) strings; split is train, test or unlabeled.
        labelled: (N,) bool.
        added: (N,) split of an image before its labels were given later (`train` or `unlabeled`); None for all other images.
        ratio: share of the training images whose labels may be used, in (0, 1].
        seed: of the experiment.
        est_fraction: share of the labelled images that goes to D_est, in (0, 1).
        by_id: permute by ids instead of by the published order of rows, for own images. Then the list can be reordered, and if
            it grows by k images, at most k images (usually one or two) change roles at each border between two roles.
        groups: (N,) strings; training images of one group get one role. A group has the position of its first image in the order;
            a border inside a group moves behind it (for D_est before it, if D_est would be empty). None: no groups.

    Returns:
        The role of each image, (N,) strings, one of `dicap.files.artifacts.ROLES`.

    Raises:
        SettingsError: D_sup or D_est would be empty.
        DataError: there are no training or no test images.
    """
    train = np.flatnonzero(split == "train")
    for name, count in (("train", len(train)), ("test", int((split == "test").sum()))):
        if count == 0:
            raise DataError(f"index.parquet: no images of split {name}; mark some in the labels file and convert again")
    unlabelled_train = train[~labelled[train]]
    if len(unlabelled_train):
        name = ids[unlabelled_train[0]]
        raise DataError(f"index.parquet: training image {name!r} has no labels; give it split unlabeled and convert again")

    groups = np.arange(len(ids)) if groups is None else groups
    ordered = _permuted(train[added[train] != "unlabeled"], ids, seed, by_id)  # the ratio is a share of these images
    ordered = ordered[together(groups[ordered])]
    drawn = ordered[: border(ordered, int(ratio * len(ordered)), groups)]
    labelled_later = _permuted(np.setdiff1d(train[[was is not None for was in added[train]]], drawn), ids, seed, by_id)
    labelled_later = labelled_later[together(groups[labelled_later])]
    role = np.full(len(ids), "unlabeled", dtype=object)
    role[split == "test"] = "test"
    for rows in (drawn, labelled_later):
        n_sup = border(rows, int((1 - est_fraction) * len(rows)), groups, least=1)
        role[rows[:n_sup]], role[rows[n_sup:]] = "sup", "est"
    # An image that was labelled later gets the role of the drawn images of its group.
    role_of = {groups[row]: role[row] for row in (*labelled_later, *drawn)}
    role[labelled_later] = [role_of[groups[row]] for row in labelled_later]
    n_sup, n_est = int((role == "sup").sum()), int((role == "est").sum())
    if not n_sup or not n_est:
        raise SettingsError(
            f"params.yaml: ratio: {ratio} of {len(ordered)} training images gives {n_sup} for D_sup and "
            f"{n_est} for D_est at split.est_fraction {est_fraction}; both need at least one: raise ratio, or label more"
        )
    return role


def together(groups: np.ndarray) -> np.ndarray:
    """An order (n,) of the rows with every group together, at the position of its first row."""
    first = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(first[1][first[2].reshape(-1)], kind="stable")


def border(rows: np.ndarray, n: int, groups: np.ndarray, *, least: int = 0) -> int:
    """A border near n that splits no group: n, or the end of the group around n, or with `least` its start.

    Args:
        rows: rows in an order with every group together.
        least: minimum number of rows behind the border; if fewer remain, the border moves before the group.
    """
    if not 0 < n < len(rows):
        return n
    row_groups = groups[rows]
    changes = np.flatnonzero(row_groups[1:] != row_groups[:-1]) + 1
    behind = int(min(changes[changes >= n], default=len(rows)))
    return behind if len(rows) - behind >= least else int(max(changes, default=behind))


def split_index(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The arguments of `split_roles` from a converted set: ids, split, labelled, added. Raises DataError."""
    added = {name: split for split, names in read_meta(folder).get("added", {}).items() for name in names}
    table = read_index(folder, ["id", "split", "labels"])
    ids, split = table["id"].to_numpy(), table["split"].to_numpy()
    return ids, split, table["labels"].is_valid().to_numpy(), np.array([*map(added.get, ids)], object)
