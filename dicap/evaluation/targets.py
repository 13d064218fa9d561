"""A precision or a recall that a model's yes is to have: thresholds from the labelled images that came with the model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dicap.calibration.risk_control import Target, Threshold, check_share, targets_of
from dicap.errors import DataError, SettingsError, first_of
from dicap.models import SavedModel

Asked = float | Mapping[str, float] | None
SHOWN = 10  # classes whose shortage is said, the others are counted


@dataclass(frozen=True)
class Targets:
    """What is asked of a model: a precision, a recall, of all classes or {class: number}, and with which confidence."""

    precision: Asked = None
    recall: Asked = None
    confidence: float = 0.9

    def __bool__(self) -> bool:
        return self.precision is not None or self.recall is not None

    def applied(self, model: SavedModel) -> tuple[SavedModel, list[str]]:
        """The model with thresholds that meet the targets, and sentences that say what is promised; without a target as it is.

        Raises:
            SettingsError: a number is outside (0, 1), a class is not there, or has two targets. DataError: the model came with no
            scores to choose by, or no labelled image shows a class that is named, or any.
        """
        if not self:
            return model, []
        try:
            check_share("confidence", self.confidence)
            targets = targets_of(model.classes, precision=self.precision, recall=self.recall)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        own = model.decisions.rankings
        if own is None:
            raise DataError(
                f"nothing can be promised: this model came with no scores of labelled images that it had not learnt "
                f"({model.decisions.note}); train it again with protocol: recommended, or calibration.source: cross_fit"
            )
        named = {name for given in (self.precision, self.recall) if isinstance(given, Mapping) for name in given}
        empty = [name for name, ranking in zip(model.classes, own, strict=True) if not len(ranking.scores)]
        if (lost := named.intersection(empty)) or len(empty) == len(own):
            raise DataError(f"class {min(lost or empty)}: no labelled image shows it, so nothing can be promised; label some")
        decisions, found = model.decisions.meeting(targets, self.confidence)
        return replace(model, decisions=decisions), list(self._sentences(model.classes, targets, found))

    def _sentences(self, classes: list[str], targets: list[Target | None], found: list[Threshold | None]) -> Iterator[str]:
        asked = [(name, target, one) for name, target, one in zip(classes, targets, found, strict=True) if target and one]
        for kind in ("precision", "recall"):
            met = [(name, value) for name, (what, value), one in asked if what == kind and one.at is not None]
            for value in sorted({value for _, value in met}):
                names = [name for name, of in met if of == value]
                those = f"{len(names)} class{'es' * (len(names) > 1)} ({first_of(names, SHOWN)})"
                yield f"{kind} {value}: promised with {100 * self.confidence:.12g}% confidence for {those}"
        short = [(name, target, one) for name, target, one in asked if one.at is None]
        for name, (kind, value), one in short[:SHOWN]:
            yield f"{name}: {kind} {value} cannot be promised, so it gets no yes: {one.why}"
        if (more := len(short) - SHOWN) > 0:
            yield f"so it is for {more} more class{'es' * (more > 1)}"
