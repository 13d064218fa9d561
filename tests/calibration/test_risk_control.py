"""Thresholds for a precision and a recall: loops that do it the obvious way, and the promise itself by exact enumeration."""

import itertools
import json
from math import comb
from unicodedata import normalize

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.calibration.decision import Decisions
from dicap.calibration.risk_control import Ranking, Threshold, at_least, rankings, targets_of, threshold, trials
from stages.support.common import target_options

LABELLED = st.lists(
    st.tuples(st.sampled_from(np.float32([0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0])), st.sampled_from([-1, 0, 0, 1, 1]))
)


def tail(hits, n, chance):
    """P(Bin(n, chance) >= hits), term by term."""
    return sum(comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(max(hits, 0), n + 1))


@given(LABELLED)
def test_a_ranking_holds_every_rank_and_survives_its_dict(entries):
    score, label = np.array([*zip(*entries, strict=True)]).reshape(2, -1)
    ranking = rankings(score[:, None], label[:, None])[0]
    known = [(s, y) for s, y in zip(score, label, strict=True) if y >= 0]
    assert ranking.images == len(known)
    for s, above in zip(ranking.scores, ranking.negatives, strict=True):
        assert above == sum(y == 0 and other >= s for other, y in known)
    again = Ranking.from_dict(json.loads(json.dumps(ranking.to_dict())))
    assert again.to_dict() == ranking.to_dict()
    assert np.array_equal(again.scores.astype(np.float32), ranking.scores.astype(np.float32))


@pytest.mark.parametrize(("target", "error"), [(0.9, 0.1), (0.5, 0.3), (0.95, 0.05)])
def test_a_recall_s_rank_is_the_first_whose_order_statistic_holds(target, error):
    """Of P positives the recall of the k-th highest score is beta distributed: below the target with P(Bin(P, target) >= k)."""
    assert trials(target, error) == next(n for n in range(1, 99) if target**n <= error)
    for positives in (trials(target, error) - 1, trials(target, error), 60, 200):
        scores = np.linspace(1, 0.1, positives)
        found = threshold(Ranking(scores, np.zeros(positives, int), 2 * positives), ("recall", target), 1 - error)
        rank = next((k for k in range(1, positives + 1) if tail(k, positives, target) <= error), None)
        assert found.at == (None if rank is None else scores[rank - 1])
        assert (rank is None) == ("labelled images that show it" in found.why)


def chosen_rank(labels, target, error):
    """The last rank before the first that fails, by the definition of a fixed sequence; 0 for none."""
    ranks = range(trials(target, error), len(labels) + 1)
    return max([*itertools.takewhile(lambda rank: tail(sum(labels[:rank]), rank, target) <= error + 1e-12, ranks), 0])


@pytest.mark.parametrize(("target", "error"), [(0.5, 0.4), (0.7, 0.3)])
def test_a_precision_is_missed_no_more_often_than_allowed_by_exact_enumeration(target, error):
    """All labels of ten ranked images: the first `good` of them positive with the target's chance, the others with less."""
    patterns = np.array(list(itertools.product([0, 1], repeat=10)))
    ranks = np.array([chosen_rank(labels, target, error) for labels in patterns])
    for labels, rank in zip(patterns[::7], ranks[::7], strict=True):
        scores, above = np.linspace(0.9, 0.1, 10), np.cumsum(1 - labels)
        ranking = Ranking(scores[labels == 1], above[labels == 1], 10)
        # below the last rejected rank's last positive there are negatives alone
        at = scores[:rank][labels[:rank] == 1][-1] if rank else None
        assert threshold(ranking, ("precision", target), 1 - error).at == (at if labels.any() else None)
    assert 0 < (ranks > 0).mean() < 1
    for good, lower in itertools.product(range(10), (0.0, 0.5 * target, target)):
        chance = np.where(np.arange(10) < good, target, lower)
        weight = np.where(patterns == 1, chance, 1 - chance).prod(1)
        assert weight[ranks > good].sum() <= error + 1e-9


@pytest.mark.parametrize("kind", ["precision", "recall"])
def test_what_mapie_finds_valid_is_valid_here_too(kind):
    """MAPIE's p-values are bounds, ours the binomial's own: nothing that it accepts at one threshold is refused."""
    control = pytest.importorskip("mapie.risk_control")
    rng = np.random.default_rng(1)
    y = (rng.random(500) < 0.4).astype(int)
    p = np.round(1 / (1 + np.exp(1.5 - rng.normal(3.0 * y, 1))), 3)
    grid = np.arange(0.05, 1, 0.05) + 0.0005  # between the scores
    both = control.BinaryClassificationController(
        lambda p: np.concatenate([1 - p, p], axis=1), kind, 0.8, confidence_level=0.9, list_predict_params=grid
    )
    both.calibrate(p[:, None], y)
    yes = [p >= at for at in grid]
    exact = [at_least(*((y[s].sum(), s.sum()) if kind == "precision" else (y[s].sum(), y.sum())), 0.8) for s in yes]
    assert (np.ravel(both.p_values) >= np.array(exact) - 1e-9).all()
    found = threshold(rankings(p[:, None], y[:, None])[0], (kind, 0.8), 0.9).at
    assert found is not None and both.best_predict_param is not None
    assert found <= both.best_predict_param if kind == "precision" else found >= both.best_predict_param


def test_what_is_missing_is_said_and_enough():
    """A class of which all is right needs as many as all-right trials take; one that is never sure gets told so."""
    right = Ranking(np.linspace(1, 0.9, 5), np.zeros(5, int), 100)
    needed = int(threshold(right, ("precision", 0.9), 0.9).why.split("about ")[1].split()[0])
    assert needed == trials(0.9, 0.1) * 100 // 5
    more = Ranking(np.linspace(1, 0.9, needed // 20), np.zeros(needed // 20, int), needed)
    assert threshold(more, ("precision", 0.9), 0.9).at is not None
    unsure = Ranking(np.linspace(1, 0.9, 50), np.arange(1, 51), 1000)
    assert "better" in threshold(unsure, ("precision", 0.9), 0.9).why
    below = Ranking(np.linspace(1, 0, 90), np.ones(90, int), 200)  # the highest score alone is wrong
    assert threshold(below, ("precision", 0.8), 0.9).why.startswith(
        "of its 91 highest scores 90 are right, but of its 11 highest 10, which all have to be"
    )
    assert threshold(Ranking(np.zeros(0), np.zeros(0, int), 9), ("recall", 0.5), 0.9) == Threshold(
        None, "none of its labelled images shows it"
    )
    assert at_least(np.array([3, 0]), 5, 0.4) == pytest.approx([tail(3, 5, 0.4), 1])


@given(st.integers(0, 99), st.sampled_from(["precision", "recall"]))
def test_a_yes_is_a_score_at_or_above_the_threshold_and_nothing_else(seed, kind):
    rng = np.random.default_rng(seed)
    y = (rng.random((60, 2)) < (0.5, 0.03)).astype(int)
    p = (1 / (1 + np.exp(-rng.normal(3.0 * y, 1)))).astype(np.float32)
    half = np.full(2, 0.5)
    model = Decisions(half, half, half, None, "", rankings=rankings(p, y))
    for targets in ([(kind, 0.8), (kind, 0.8)], [(kind, 0.8), None]):
        changed, found = model.meeting(targets, 0.9)
        answer = Decisions.from_dict(json.loads(json.dumps(changed.to_dict(), allow_nan=False))).decide(p)[0]
        for c, one in enumerate(found):
            own = model.decide(p)[0][:, c] == 1
            assert np.array_equal(answer[:, c] == 1, own if one is None else p[:, c] >= (np.float32(one.at) if one.at else 2))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"recall": {"dog": np.float32(0.5)}, "precision": "0.9"}, "precision: found '0.9', expected a number between 0 and 1"),
        ({"recall": {"dgo": 0.9}}, "no class is called 'dgo'; did you mean dog?"),
        ({"precision": 0.9, "recall": {"dog": 0.9}}, "class dog: both precision and recall"),
    ],
)
def test_targets_that_cannot_be_are_refused(asked, said):
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        targets_of(["dog", "cat"], **asked)


def test_names_of_classes_with_commas_and_signs_are_read_as_they_are():
    @click.command()
    @target_options
    def command(targets):
        return targets.precision

    for names in (["dog"], ["a=b", "c, d", 'e "f" =1'], ["=", "dog = cat", "e\u0301"]):
        text = ",".join(f"{name}=0.{k + 1}" for k, name in enumerate(names))
        assert command.main(["--precision", text], standalone_mode=False) == {
            normalize("NFC", name): (k + 1) / 10 for k, name in enumerate(names)
        }
