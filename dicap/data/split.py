"""Which labels may be used: the labelled/unlabelled split and D_sup / D_est (docs/methods.md 2.3, 3.2)."""

import numpy as np
import pandas as pd

from dicap.errors import DataError, SettingsError

ROLES = ("sup", "est", "unlabeled", "test", "validation")


def labelled_order(n_train: int, seed: int) -> np.ndarray:
    """The published order of the training images, (n_train,) int64: a ratio's labelled set is a prefix of it.

    A fresh generator is used, so the order depends on the seed, n and the order of the rows alone (docs/methods.md 2.3).
    """
    return np.random.RandomState(seed).permutation(n_train)


def split_roles(index: pd.DataFrame, ratio: float, seed: int, est_fraction: float, validation: float = 0.0) -> pd.DataFrame:
    """Give every image its role.

    The first int(ratio * n_train) of the permuted training images are labelled; of these the first
    int((1 - est_fraction) * n_labelled) are D_sup and the others D_est. The remaining training images (labels
    hidden) and the truly unlabelled ones are D_u.

    Args:
        index: a row an image, with columns id, split (train, test, unlabeled) and labelled (bool).
        ratio: share of the training images whose labels may be used, in (0, 1].
        seed: of the experiment.
        est_fraction: share of the labelled images that goes to D_est, in (0, 1).
        validation: share of the labelled images, the last of them, that is set apart for early stopping before D_sup and
            D_est are cut, in [0, 1).

    Returns:
        DataFrame of id and role (one of ROLES), in the order of `index`.

    Raises:
        SettingsError: D_sup or D_est would be empty.
        DataError: there are no training or no test images.
    """
    split = index["split"].to_numpy()
    train = np.flatnonzero(split == "train")
    for name, count in (("train", len(train)), ("test", int((split == "test").sum()))):
        if count == 0:
            raise DataError(f"index.parquet: no images of split {name}; mark some in the labels file and convert again")
    unlabelled_train = train[~index["labelled"].to_numpy(dtype=bool)[train]]
    if len(unlabelled_train):
        name = index["id"].iloc[unlabelled_train[0]]
        raise DataError(f"index.parquet: training image {name!r} has no labels; give it split unlabeled and convert again")

    n_all = int(ratio * len(train))
    n_validation = int(validation * n_all)
    if validation and not n_validation:
        raise SettingsError(
            f"params.yaml: split.validation: {validation} of {n_all} labelled images gives none; set it to "
            f"{np.ceil(1e4 / max(n_all, 1)) / 1e4:.4g} or more, or to 0"
        )
    n_labelled = n_all - n_validation
    n_sup = int((1 - est_fraction) * n_labelled)
    if n_sup == 0 or n_sup == n_labelled:
        raise SettingsError(
            f"params.yaml: ratio: {ratio} of {len(train)} training images gives {n_sup} for D_sup and "
            f"{n_labelled - n_sup} for D_est at split.est_fraction {est_fraction}; "
            f"both need at least one, which takes {_labelled_needed(est_fraction)} labelled images, "
            f"a ratio of {_ratio_needed(len(train), est_fraction)} or more"
        )
    role = np.full(len(index), "unlabeled", dtype=object)
    role[split == "test"] = "test"
    labelled = train[labelled_order(len(train), seed)[:n_all]]
    role[labelled[n_labelled:]] = "validation"
    role[labelled[:n_sup]] = "sup"
    role[labelled[n_sup:n_labelled]] = "est"
    return pd.DataFrame({"id": index["id"].to_numpy(), "role": role})


def _labelled_needed(est_fraction: float) -> int:
    """The smallest number of labelled images that leaves neither D_sup nor D_est empty."""
    n = 2
    while not 0 < int((1 - est_fraction) * n) < n:
        n += 1
    return n


def _ratio_needed(n_train: int, est_fraction: float) -> str:
    need = _labelled_needed(est_fraction)
    if need > n_train:
        return f"{need / n_train:.2f} (impossible: more images are needed)"
    return f"{np.ceil(need / n_train * 1e4) / 1e4:.4g}"
