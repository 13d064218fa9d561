"""Which labels may be used: the labelled/unlabelled split and D_sup / D_est (docs/methods.md 2.3, 3.2)."""

from pathlib import Path

import numpy as np

from dicap.data.format import read_index, read_meta
from dicap.errors import DataError, SettingsError
from dicap.randomness import order_by_name


def labelled_order(n_train: int, seed: int) -> np.ndarray:
    """The published order of the training images, (n_train,) int64: a ratio's labelled set is a prefix of it.

    A fresh generator is used, so the order depends on the seed, n and the order of the rows alone (docs/methods.md 2.3).
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

    The first int(ratio * n_train) of the permuted training images are labelled (docs/methods.md 2.3, Equation (1)); of these the
    first int((1 - est_fraction) * n_labelled) are D_sup and the others D_est (Equation (2)). The remaining training images
    (labels hidden) and the truly unlabelled ones are D_u.

    Labels that were given later always count: such images are labelled whatever the ratio, and cut into D_sup and
    D_est by the same share among themselves, so that all other images keep the role they had before.

    Args:
        ids, split: (N,) of texts; split is train, test or unlabeled.
        labelled: (N,) bool.
        added: (N,) what an image was before its labels were given (`train` or `unlabeled`; None for all others).
        ratio: share of the training images whose labels may be used, in (0, 1].
        seed: of the experiment.
        est_fraction: share of the labelled images that goes to D_est, in (0, 1).
        by_id: permute by ids in place of the published order of rows: one's own list may be sorted, or grow by k images, and at
            most k images, hardly ever more than one or two, change sides at each border between two roles.
        groups: (N,) of texts; training images of one group have one role: it stands in the order where its first one does, and
            a border that falls into a group is moved behind it (D_est: before it, where it would be empty). None: there are none.

    Returns:
        The role of each image, (N,) of texts, one of `dicap.files.artifacts.ROLES`.

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
    ordered = _permuted(train[added[train] != "unlabeled"], ids, seed, by_id)  # what the ratio is a share of
    ordered = ordered[together(groups[ordered])]
    drawn = ordered[: border(ordered, int(ratio * len(ordered)), groups)]
    given = _permuted(np.setdiff1d(train[[was is not None for was in added[train]]], drawn), ids, seed, by_id)
    given = given[together(groups[given])]
    role = np.full(len(ids), "unlabeled", dtype=object)
    role[split == "test"] = "test"
    for rows in (drawn, given):
        n_sup = border(rows, int((1 - est_fraction) * len(rows)), groups, least=1)
        role[rows[:n_sup]], role[rows[n_sup:]] = "sup", "est"
    # Images that were labelled later have the role of the drawn images of their group.
    role_of = {groups[row]: role[row] for row in (*given, *drawn)}
    role[given] = [role_of[groups[row]] for row in given]
    n_sup, n_est = int((role == "sup").sum()), int((role == "est").sum())
    if not n_sup or not n_est:
        raise SettingsError(
            f"params.yaml: ratio: {ratio} of {len(ordered)} training images gives {n_sup} for D_sup and "
            f"{n_est} for D_est at split.est_fraction {est_fraction}; both need at least one: raise ratio, or label more"
        )
    return role


def together(groups: np.ndarray) -> np.ndarray:
    """The order (n,) of rows in which the rows of a group follow its first row."""
    first = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(first[1][first[2].reshape(-1)], kind="stable")


def border(rows: np.ndarray, n: int, groups: np.ndarray, *, least: int = 0) -> int:
    """A border near n that parts no group: n, the end of the group around it or, with `least`, its start.

    Args:
        rows: the rows of a group lie side by side.
        least: number of rows behind the border; if fewer are left, the border moves before the group.
    """
    if not 0 < n < len(rows):
        return n
    own = groups[rows]
    changes = np.flatnonzero(own[1:] != own[:-1]) + 1
    behind = int(min(changes[changes >= n], default=len(rows)))
    return behind if len(rows) - behind >= least else int(max(changes, default=behind))


def split_index(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What `split_roles` needs of a converted set: ids, split, labelled, added. Raises DataError."""
    was = {name: split for split, names in read_meta(folder).get("added", {}).items() for name in names}
    table = read_index(folder, ["id", "split", "labels"])
    ids, split = table["id"].to_numpy(), table["split"].to_numpy()
    return ids, split, table["labels"].is_valid().to_numpy(), np.array([*map(was.get, ids)], object)
