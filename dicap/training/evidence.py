"""The evidence (held-out scores, labels, thresholds) of a stage's networks, which is published with their weights."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from dicap.calibration.evidence import Evidence
from dicap.calibration.thresholds import Thresholds
from dicap.randomness import permutation
from dicap.settings.methods import METHODS, holds_out
from dicap.training.experiment import Experiment

MOST_CARRIED = 4096  # images whose ranks map scores to a fine-tuned network's scale; more images hardly change the mapping
SCALED = ("p", "at_rank", "tau_pos", "tau_neg")  # the parts of the evidence that are on the network's score scale


def evidence_of(experiment: Experiment, network: nn.Module, stage: str) -> Evidence:
    """The evidence of a network at the end of a stage.

    If the method holds D_est out, the evidence is counted on D_est. Other methods have no held-out images and decide at 0.5. A
    warm-up model decides at 0.5 too: thresholds.rule is a setting of the main stage, and changing it must not rerun the warm-up.
    """
    s = experiment.settings
    if holds_out(s.method, s.protocol):
        evidence = on_est(experiment, network)
        return evidence if stage == "warmup" else with_thresholds(evidence, experiment, network)
    reason = f"{METHODS[s.method].title} trains on all labelled images"
    if s.recommends:
        reason = "the warm-up trains on all labelled images, the main stage measures"
    return Evidence.none(prior_of(_labels(experiment, experiment.roles.labelled)), f"no curve: {reason}; decisions at 0.5")


def on_est(experiment: Experiment, network: nn.Module) -> Evidence:
    """Scores and labels of D_est, with thresholds of 0.5."""
    est, prior = experiment.roles.est, prior_of(_labels(experiment, experiment.roles.labelled))
    note = f"counted on {len(est)} labelled images kept from training"
    return Evidence.of_scores(prior, note, _scores(experiment, network, est), _labels(experiment, est))


def with_thresholds(evidence: Evidence, experiment: Experiment, network: nn.Module) -> Evidence:
    """The evidence with the method's own thresholds, from this network's scores of D_sup."""
    sup = experiment.roles.sup
    y = experiment.labels.of(sup).to(experiment.runtime.device)
    tau_pos, tau_neg = published_thresholds(experiment.method.thresholds(experiment.predict(network, sup), y))
    return replace(evidence, tau_pos=tau_pos, tau_neg=tau_neg)


def published_thresholds(thresholds: Thresholds) -> tuple[NDArray, NDArray]:
    """tau_pos and tau_neg, (C,) each; 1 and 0 for an inactive class, so that its answer is always unsure."""
    tau_pos, tau_neg, active = (part.cpu().numpy() for part in (thresholds.tau_pos, thresholds.tau_neg, thresholds.active))
    return np.where(active, tau_pos, 1.0), np.where(active, tau_neg, 0.0)


def prior_of(y: NDArray) -> NDArray:
    """(C,) share of positives of each class among the known entries of labels (n, C); 0 for a class without known entries."""
    return (y > 0).sum(0) / np.maximum((y >= 0).sum(0), 1)


def carried_over(
    evidence: Evidence, experiment: Experiment, network: nn.Module, *, stage: str, where: str, most: int = MOST_CARRIED
) -> Callable[[Experiment, nn.Module], Evidence]:
    """A function that maps the evidence of `network` to the score scale of a network fine-tuned from it.

    The fine-tuned network may have learnt the evidence's labels, so its own scores of these images would be biased upwards.
    Unlabelled images relate its scores to the old scores: a score is mapped to the new score of equal rank among them.

    Args:
        stage: seeds the draw of at most `most` unlabelled images; where: words for the evidence's note.
    """
    rows = experiment.roles.unlabelled
    if len(rows) > most:
        rows = np.sort(rows[permutation(experiment.settings.seed, stage, 0, len(rows), "carried")[:most]])
    before = _scores(experiment, network, rows)
    mapping = f", and carried over on {len(rows)} unlabelled images" if len(rows) else ""
    evidence = replace(evidence, note=f"{evidence.note}, {where}{mapping}")

    def onto(experiment: Experiment, network: nn.Module) -> Evidence:
        after, arrays = _scores(experiment, network, rows), {name: getattr(evidence, name) for name in SCALED}
        return replace(evidence, **{name: at_equal_rank(x, before, after) for name, x in arrays.items() if x is not None})

    return onto


def at_equal_rank(x: NDArray, before: NDArray, after: NDArray) -> NDArray:
    """Maps scores x, (C,) or (n, C), class by class: their rank among `before` (m, C) gives the score of this rank in `after`.

    The map is linear between ranks, and maps 0 to 0 and 1 to 1. The result has the type of x.
    """
    ends = np.array([0.0, 1.0])[:, None].repeat(x.shape[-1], 1)
    old, new = (np.sort(np.concatenate([part, ends]).astype(np.float64), axis=0) for part in (before, after))
    moved = np.stack([np.interp(x[..., c], old[:, c], new[:, c]) for c in range(x.shape[-1])], axis=-1)
    return np.where((x > 0) & (x < 1), moved, x).astype(x.dtype)


def _scores(experiment: Experiment, network: nn.Module, rows: NDArray) -> NDArray:
    return experiment.predict(network, rows).cpu().numpy()


def _labels(experiment: Experiment, rows: NDArray) -> NDArray:
    return experiment.labels.of(rows).numpy()
