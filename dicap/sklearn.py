"""DiCaP on any feature matrix, as a scikit-learn estimator: `protocol: recommended` without images, files or torch.

Letters: n samples, D features, C classes.
"""

import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from dicap.calibration.ranks import curve_by_rank, log_odds
from dicap.frozen import recommended
from dicap.frozen.crossfit import scores_out_of_fold
from dicap.frozen.folds import deal_folds
from dicap.frozen.loss_weight import choose_loss_weight
from dicap.metrics.ranking import average_precision
from dicap.scaling import scaling_of

__all__ = ["DiCaPClassifier", "LabelledKFold"]

# Share of the head's own log-odds in the decision value. The measured curve is flat in places; this share keeps samples in order.
# The log-odds enter through arcsinh, because they are unbounded for outliers and would otherwise outweigh the measured curve.
OWN = 1e-3


class DiCaPClassifier(ClassifierMixin, BaseEstimator):
    """Semi-supervised multi-label classifier on features, with the measured chance that a decision is right.

    A teacher is solved on the labelled samples, after averaging rows with their neighbours. It pseudo-labels the open entries, in
    each class with the share of positives of the known labels. The weight of a pseudo-label is how often such labels are right,
    counted out of fold. A student is solved on labels and pseudo-labels. The classifier is a mixture of the student and a
    classifier on the labels alone; the out-of-fold loss of the labelled samples chooses the mixture (docs/photographs.md).

    Single entries may be unknown: an entry of Y that is -1 or NaN is unknown, not negative. A sample without known entries is
    unlabelled.

    Parameters have the names of settings; docs/reference.md describes them fully.

    Args:
        C: weight of the loss relative to half the squared norm (scikit-learn's C); `auto`: by cross-validation.
        features: scaling of the features: `plain`, `standard` (standardised), or `root` (signed square roots, standardised, each
            row scaled to the same length). The scaling is fitted on all samples.
        pseudo_weight: weight of a pseudo-label with a chance of 1, relative to a label; `auto`: 0.5, and the student is used as
            far as it improves out-of-fold scores of the labelled samples.
        neighbours: number of nearest samples with which the teacher's rows are averaged; 0: none.
        folds: number of folds of the labelled samples, at most the number of labelled samples; for out-of-fold scores.
        random_state: seed of the folds. The folds depend on the seed and the samples, not on the order of samples and, unless
            samples are equal, not on the order of classes. Reordering features only changes the folds, like another seed.

    Attributes:
        classes_: (C, 2): the outcomes 0 and 1 of each class, in scikit-learn's form for several outputs.
        class_names_: (C,) the column names if Y is a data frame, else 0 to C - 1.
        coef_, intercept_: (C, D), (C,), for scaled features.
        C_: C, given or chosen.
        choice_: with `pseudo_weight="auto"` the chosen `share` of the student, and `in_words()` with the reason; else None.
        curve_: (2, G): the head's log-odds, ascending, and the out-of-fold share of positives there.
        n_labelled_: number of samples with a known entry.
        n_features_in_, feature_names_in_: as in scikit-learn.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "features": [StrOptions({"plain", "standard", "root"})],
        "pseudo_weight": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "neighbours": [Interval(Integral, 0, None, closed="left")],
        "folds": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        C: float | Literal["auto"] = "auto",
        features: Literal["plain", "standard", "root"] = "root",
        pseudo_weight: float | Literal["auto"] = "auto",
        neighbours: int = 10,
        folds: int = 5,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.features: Literal["plain", "standard", "root"] = features
        self.pseudo_weight: float | Literal["auto"] = pseudo_weight
        self.neighbours = neighbours
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> "DiCaPClassifier":
        """Learn from labelled and unlabelled samples.

        Args:
            X: (n, D) finite features.
            y: (n, C) of 1, 0, and -1 or NaN for unknown; masked entries are unknown too.
            groups: (n,) group of each sample (a patient, a scene, an original and its copies). A group is in one fold, so that
                near-duplicates do not leak between folds.

        Raises:
            ValueError: a parameter or an array is invalid, fewer than two samples have a known entry, a class has no known entry,
                no known entry is 0, or all labelled samples are of one group.
        """
        self._validate_params()
        names = getattr(y, "columns", None)
        x = self._features(X, reset=True)
        labels = _known_labels(y, type(self).__name__)
        check_consistent_length(x, labels)
        labelled = np.asarray((labels >= 0).any(1))
        if labelled.sum() < 2:
            raise ValueError(
                f"Found {int(labelled.sum())} sample(s) with a known label while a minimum of 2 is required by "
                f"{type(self).__name__}: one to learn from and one to measure on."
            )
        if (empty := np.flatnonzero(~(labels >= 0).any(0))).size:
            raise ValueError(f"y: column {empty[0]} has no known label: leave it out, or label some samples of it")
        if not (labels == 0).any() and (labels < 0).any():
            raise ValueError("y: no entry is 0, and -1 means unknown: if -1 was meant as absent, write 0")
        if (one_sided := np.flatnonzero((labels < 0).any(0) & ~(labels == 0).any(0))).size:
            warnings.warn(f"y: column {one_sided[0]} has no 0: its -1 mean unknown, not absent", RuntimeWarning, stacklevel=2)
        grouped = _groups(groups, len(x))

        # Not the names: with one or two classes scikit-learn's scorers would treat the first name as the negative outcome.
        self.classes_ = np.tile([0, 1], (labels.shape[1], 1))
        self.class_names_ = np.arange(labels.shape[1]) if names is None else np.asarray(names)
        self.n_labelled_ = int(labelled.sum())
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self._solve(x, labels, labelled, seed, grouped)
        return self

    def _solve(self, x: NDArray, labels: NDArray, labelled: NDArray, seed: int, groups: NDArray | None) -> None:
        self._scaling = scaling_of(x, self.features)
        order = np.concatenate([np.flatnonzero(labelled), np.flatnonzero(~labelled)])
        rows, y = self._scaling.apply(x)[order], labels[labelled]
        largest = float(np.abs(rows).max(initial=0))  # in single precision, in which squares are summed
        limits = np.finfo(rows.dtype)
        if not (np.isfinite(self._scaling.scale).all() and largest**2 * rows.size < limits.max):
            raise ValueError(f"X: features of up to {np.abs(x).max():.3g}, whose squares overflow; give them in a larger unit")
        if self.features == "plain" and x.any() and largest**2 < limits.tiny / limits.eps:
            raise ValueError(f"X: features of up to {np.abs(x).max():.3g}, whose squares vanish; give them in a smaller unit")
        rank = np.unique(x[labelled], axis=0, return_inverse=True)[1].reshape(-1)  # independent of the features' units
        fold = deal_folds(rank, y, self.folds, seed, None if groups is None else groups[labelled])
        self.C_ = choose_loss_weight(rows[: len(y)], y, fold) if self.C == "auto" else float(self.C)
        open_entries = np.r_[y < 0, np.ones((len(rows) - len(y), y.shape[1]), bool)]
        fit = recommended.fit(
            rows, y, fold, loss_weight=self.C_, neighbours=min(self.neighbours, len(rows) - 1), open_entries=open_entries,
            pseudo_weight=self.pseudo_weight,
        )  # fmt: skip
        self.choice_, self.coef_, self.intercept_ = fit.choice, fit.heads.w[-1], fit.heads.b[-1]
        self.curve_ = np.stack(curve_by_rank(scores_out_of_fold(fit.heads, rows, fold)[0], y))

    def _features(self, X: Any, *, reset: bool) -> NDArray:
        """(n, D) finite, in single or double precision."""
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "reset": reset}
        if np.ma.is_masked(X):  # scikit-learn would read the value under the mask
            raise ValueError("X: some values are masked; fill them in")
        return np.asarray(validate_data(self, X, **options))

    def decision_function(self, X: Any) -> np.ndarray:
        """(n, C) log-odds of `predict_proba`; above 0 if `predict` says yes."""
        check_is_fitted(self, "coef_")
        x = self._features(X, reset=False)
        logits = self._scaling.apply(x).astype(np.float64) @ self.coef_.T + self.intercept_  # (n, C) the head's own log-odds
        if len(bad := np.flatnonzero(~np.isfinite(logits).all(1))):
            raise ValueError(f"X: row {bad[0]} has features of up to {np.abs(x[bad[0]]).max():.3g}, too far from those of fit")
        return (1 - OWN) * log_odds(np.interp(logits, *self.curve_)) + OWN * np.arcsinh(logits)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, C) measured probability of each class: the out-of-fold share of positives among entries with this score."""
        return expit(self.decision_function(X))

    def predict(self, X: Any) -> np.ndarray:
        """(n, C) 1 if the probability of a class is above 0.5, else 0."""
        return (self.decision_function(X) > 0).astype(np.int64)

    def chance(self, X: Any) -> np.ndarray:
        """(n, C) measured chance, from 0.5 to 1, that each entry of `predict` is right."""
        return expit(np.abs(self.decision_function(X)))

    def score(self, X: Any, y: Any) -> float:
        """Mean average precision, 0 to 1, over the known entries of y and the classes with a known positive.

        With `LabelledKFold` GridSearchCV can use partly labelled and unlabelled samples.

        Raises:
            ValueError: no known label of y is positive.
        """
        labels = _known_labels(y, type(self).__name__)
        if not (labels > 0).any():
            raise ValueError(
                "y: no known label is positive, so there is nothing to score; if some samples are unlabelled, "
                "cv=dicap.sklearn.LabelledKFold() cross-validates on the labelled samples"
            )
        return float(average_precision(self.decision_function(X), labels)[(labels > 0).any(0)].mean())

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.target_tags.two_d_labels = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags


class LabelledKFold:
    """Folds of the labelled samples, with each class spread evenly. Every training part has all unlabelled samples whose group
    is not scored.

    For `cv` of GridSearchCV and similar functions: KFold cannot tell which samples are labelled, and refuses NaN.

    Args:
        n_splits: number of folds, at most the number of samples with a known entry.
        random_state: seed of the folds.
    """

    def __init__(self, n_splits: int = 5, *, random_state: Any = None) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[NDArray, NDArray]]:
        """For each fold the indices of the training samples and of the labelled samples to score.

        Raises:
            ValueError: `DiCaPClassifier.fit` would refuse y, or there are fewer labelled samples or groups than folds.
        """
        labels = _known_labels(y, type(self).__name__)
        labelled = np.flatnonzero((labels >= 0).any(1))
        if not (isinstance(self.n_splits, Integral) and 2 <= self.n_splits <= len(labelled)):
            raise ValueError(f"n_splits: found {self.n_splits}, expected 2 to {len(labelled)}, the samples with a known label")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        fold = np.full(len(labels), -1)
        grouped = _groups(groups, len(labels))
        grouped = np.arange(len(labels)) if grouped is None else grouped
        if (found := len(np.unique(grouped[labelled]))) < self.n_splits:
            raise ValueError(f"n_splits: found {self.n_splits}, expected at most the {found} groups")
        fold[labelled] = deal_folds(labelled, labels[labelled], self.n_splits, seed, grouped[labelled])
        for k in range(self.n_splits):  # unlabelled samples of a scored group are left out of the training part
            yield np.flatnonzero(~np.isin(grouped, grouped[fold == k])), np.flatnonzero(fold == k)


def _known_labels(y: Any, name: str) -> NDArray:
    """Labels (n, C) float32: 1, 0, or -1 for unknown.

    Raises:
        ValueError: y is anything else. The messages are scikit-learn's, as far as it has some.
    """
    if y is None:
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    if isinstance(y, np.ma.MaskedArray):  # scikit-learn would read the values under the mask
        y = np.ma.filled(y.astype(np.float64), np.nan)
    if isinstance(y, list | tuple) and any(
        isinstance(name, str) for row in y if isinstance(row, list | tuple | set) for name in row
    ):
        raise ValueError("Unknown label type: y is of names; sklearn.preprocessing.MultiLabelBinarizer makes a column of each")
    array: Any = check_array  # its annotations only cover the defaults
    options = {"ensure_all_finite": "allow-nan", "input_name": "y"}
    labels = array(y, ensure_2d=False, dtype=None, **options)
    if labels.ndim != 2:
        raise ValueError(
            "Unknown label type: y is a 1d array, of one label a sample. Only binary classification is supported, of several "
            f"labels at once: {name} needs y of shape (n_samples, n_classes)"
        )
    labels = array(labels, dtype=np.float64, **options)
    labels = np.where(np.isnan(labels), -1, labels).astype(np.float32)
    invalid = ~np.isin(labels, (-1, 0, 1))
    if invalid.any():
        raise ValueError(
            f"Unknown label type: y holds {labels[invalid][0]:g}; expected 1, 0, and -1 or NaN for unknown"
            " (cross_val_predict recodes the values of each column: docs/sklearn.md has another way)"
        )
    return labels


def _groups(groups: Any, n: int) -> NDArray | None:
    """The group of each sample as a number, (n,). Raises ValueError."""
    if groups is None:
        return None
    groups = np.asarray(column_or_1d(groups))
    missing = int(np.sum(groups != groups)) + sum(group is None for group in groups.tolist())  # NaN is not equal to itself
    if len(groups) != n or missing:
        raise ValueError(f"groups: found {len(groups)}, {missing} of them missing; expected one for each of {n} samples")
    return np.unique(groups.astype(str), return_inverse=True)[1].reshape(-1)
