"""DiCaP's losses and pairs against loops written from the paper, with a network whose answers are tables."""

import numpy as np
import pytest
import tiny
import torch
from calibration.test_losses import plain_nt_xent, slow_asymmetric
from torch import nn

from dicap.calibration.rates import count_bins
from dicap.calibration.thresholds import dual_thresholds, hard_labels
from dicap.data.loader import scoring_batches
from dicap.methods import build_method
from dicap.methods.base import Batch, Roles
from dicap.training.teacher import EpochTeacher

IMAGES, CLASSES, WIDTH = 6, 3, 5
ROLES = Roles(np.array([0, 1]), np.array([2]), np.array([3, 4, 5]), np.array([6]))
STRONG, WEAK = 0, 1


class Tables(nn.Module):
    """Looks up what image i gives in view v: an image is (view, i) painted into its pixels."""

    def __init__(self, classes=CLASSES):
        super().__init__()
        torch.manual_seed(1)
        self.logits = nn.Parameter(2 * torch.randn(2, IMAGES, classes))
        self.z = nn.Parameter(torch.randn(2, IMAGES, classes, WIDTH))
        self.norm = nn.BatchNorm1d(classes, affine=False)

    def forward(self, images):
        view, i = images[:, 0, 0, 0].long(), images[:, 1, 0, 0].long()
        self.norm(self.logits[view, i].detach())
        return self.logits[view, i], self.z[view, i]


def pictures(view, rows):
    images = torch.zeros(len(rows), 3, 2, 2, dtype=torch.uint8)
    images[:, 0], images[:, 1] = view, torch.as_tensor(rows, dtype=torch.uint8).view(-1, 1, 1)
    return images


def method_of(**changes):
    s = tiny.settings({key.replace("__", "."): value for key, value in changes.items()})
    return build_method(s, CLASSES)


def slow_asl(x, y):
    return slow_asymmetric(float(x), int(y), 4, 0, 0.05)


def slow_nt_xent(pairs):
    """`pairs`: list of (z_w, z_s)."""
    return plain_nt_xent(*map(torch.stack, zip(*pairs, strict=True)), 0.5)


Y = torch.tensor([[1, 0, 0], [0, 1, 1]], dtype=torch.uint8)
LABEL = np.array([[1, 0, -1], [0, 0, 1], [-1, 1, -1], [0, 1, 0]], dtype=np.int8)
WEIGHT = torch.tensor([[0.9, 0.8, 0.35], [0.7, 0.6, 0.5], [0.15, 0.4, 0.95], [0.3, 0.2, 0.1]])  # of confident entries


def main_batch(method, label=LABEL, soft=False):
    """Two labelled images (rows 0, 1) and four others (rows 2 to 5)."""
    uncertain = (label == -1).any(1)
    requests = method.main_views(np.array([0, 1]), np.array([2, 3, 4, 5]), uncertain)
    views = {r.key: pictures({"strong": STRONG, "weak": WEAK}[r.view.name], r.rows) for r in requests}
    make = method.main(ROLES).pairs
    pairs = np.empty((0, 3), np.int64) if make is None else make(label, np.random.default_rng(0))
    weight = WEIGHT * torch.from_numpy(label >= 0)
    return Batch(views, Y, torch.from_numpy(label), weight, soft, torch.from_numpy(pairs), images=6)


def warmup_batch(method):
    """Two labelled images and two others, whose every entry is contrasted."""
    strong, weak = method.warmup_views(np.array([0, 1]), np.array([2, 3]))
    assert strong.rows.tolist() == weak.rows.tolist() == [0, 1, 2, 3] and strong.view.cutout == 0
    pairs = method.warmup(ROLES).pairs(np.full((4, CLASSES), -1), np.random.default_rng(0))
    assert sorted(map(tuple, pairs.tolist())) == [(i, c, i) for i in range(4) for c in range(CLASSES)]
    views = {"strong": pictures(STRONG, strong.rows), "weak": pictures(WEAK, weak.rows)}
    none = torch.empty(0, CLASSES)
    return Batch(views, Y, none, none, False, torch.from_numpy(pairs), images=4)


ONE_UNCERTAIN = np.where(np.arange(12).reshape(4, CLASSES) == 7, -1, 1).astype(np.int8)
LABELS = {"of all kinds": LABEL, "one uncertain": ONE_UNCERTAIN}
LABELS |= {f"all {value}": np.full_like(LABEL, value) for value in (-1, 0, 1)}


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_the_main_loss_equals_loops_over_entries(mean, soft, label):
    """A sum over entries by images; or means, of the labelled entries, the confident ones, the pairs.

    A soft target counts both labels of a confident entry. A single uncertain entry has nothing to be contrasted with.
    """
    network, method = Tables(), method_of(loss__reduction="mean" if mean else "sum")
    batch = main_batch(method, label, soft)
    terms = method.main_losses(network, batch)
    x, z = network.logits.detach(), network.z.detach()
    sup = sum(slow_asl(x[STRONG, i, c], Y[i, c]) for i in range(2) for c in range(CLASSES))
    pseudo, pairs = 0.0, []
    for i, c in np.ndindex(4, CLASSES):
        if label[i, c] == -1:
            pairs.append((z[WEAK, 2 + i, c], z[STRONG, 2 + i, c]))
        else:
            w, logit, y = float(WEIGHT[i, c]), x[STRONG, 2 + i, c], label[i, c]
            pseudo += w * slow_asl(logit, y) + soft * (1 - w) * slow_asl(logit, 1 - y)
    sums = {"loss_sup": (sup, 2 * CLASSES), "loss_pseudo": (pseudo, max(4 * CLASSES - len(pairs), 1))}
    if len(pairs) > 1:
        sums["loss_con"] = float(slow_nt_xent(pairs)), 1
    slow = {name: value / (n if mean else 6) for name, (value, n) in sums.items()}
    assert {name: float(term.detach()) for name, term in terms.items()} == pytest.approx(slow, rel=1e-5)
    assert batch.views["strong"][:, 1, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    weak = batch.views["weak"][:, 1, 0, 0].tolist() if "weak" in batch.views else []
    assert weak == [2 + i for i in range(4) if -1 in label[i]], "only of images with uncertain entries"
    sum(terms.values()).backward()
    assert torch.isfinite(network.logits.grad).all()


def slow_gradient(pairs, images):
    """Gradients (2, N, C, D) of the contrastive term by autograd through both sides of the symmetric loop.

    pairs: (image, class) of the entries, in order.
    """
    z = Tables().z
    (slow_nt_xent([(z[WEAK, i, c], z[STRONG, i, c]) for i, c in pairs]) / images).backward()
    return z.grad


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("stage", ["warmup", "main"])
def test_the_contrastive_gradient_goes_through_the_strong_view_or_through_both(stage, both):
    network, method = Tables(), method_of(contrastive__weak_gradient=both)
    if stage == "warmup":
        method.warmup_losses(network, warmup_batch(method))["loss_con"].backward()
        wanted = slow_gradient([(i, c) for i in range(4) for c in range(CLASSES)], 4)
    else:
        sum(method.main_losses(network, main_batch(method)).values()).backward()
        wanted = slow_gradient([(2 + i, c) for i in range(4) for c in range(CLASSES) if LABEL[i, c] == -1], 6)
        assert not network.logits.grad[WEAK].any()
    assert wanted[WEAK].abs().max() > 1e-3
    torch.testing.assert_close(network.z.grad[STRONG], wanted[STRONG], rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(network.z.grad[WEAK], wanted[WEAK] * both, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("both", [False, True])
def test_the_weak_look_leaves_the_running_statistics_alone(both):
    network, method = Tables(), method_of(contrastive__weak_gradient=both)
    method.main_losses(network, main_batch(method))
    once = Tables()
    once(pictures(STRONG, range(6)))
    assert torch.equal(network.norm.running_mean, once.norm.running_mean)
    assert network.norm.momentum == once.norm.momentum


@pytest.mark.parametrize("mean", [False, True])
def test_the_warm_up_loss_contrasts_every_entry_of_the_step(mean):
    network, method = Tables(), method_of(loss__reduction="mean" if mean else "sum")
    terms = method.warmup_losses(network, warmup_batch(method))
    x, z = network.logits.detach(), network.z.detach()
    sup = sum(slow_asl(x[STRONG, i, c], Y[i, c]) for i in range(2) for c in range(CLASSES))
    con = float(slow_nt_xent([(z[WEAK, i, c], z[STRONG, i, c]) for i in range(4) for c in range(CLASSES)]))
    assert float(terms["loss_sup"].detach()) == pytest.approx(sup / (2 * CLASSES if mean else 4), rel=1e-5)
    assert float(terms["loss_con"].detach()) == pytest.approx(con / (1 if mean else 4), rel=1e-5)


def test_warm_up_without_wcl_sees_labelled_images_alone():
    method = method_of(warmup__wcl=False)
    (request,) = method.warmup_views(np.array([0, 1]), np.array([], np.int64))
    phase = method.warmup(ROLES)
    assert not len(phase.unlabelled) and request.key == "strong" and phase.pairs is None


def test_pairs_point_at_the_uncertain_entries_and_are_capped():
    method = method_of(contrastive__max_pairs=5)
    rng = np.random.default_rng(0)
    label = rng.integers(-1, 2, (20, CLASSES)).astype(np.int8)
    seen = np.flatnonzero((label == -1).any(1))  # rows that have a weak view
    make = method.main(ROLES).pairs
    pairs = make(label, np.random.default_rng(1))
    assert len(pairs) == 5 and len({(i, c) for i, c, _ in pairs.tolist()}) == 5
    assert (np.lexsort((pairs[:, 1], pairs[:, 0])) == np.arange(5)).all()
    for image, c, weak in pairs:
        assert label[image, c] == -1 and seen[weak] == image
    assert (make(label, np.random.default_rng(1)) == pairs).all()
    assert not (make(label, np.random.default_rng(2)) == pairs).all()
    drawn = {(i, c) for seed in range(200) for i, c, _ in make(label, np.random.default_rng(seed)).tolist()}
    assert len(drawn) == (label == -1).sum()


def test_batches_are_labelled_anew_in_eval_mode_without_gradient(tiny_experiment, monkeypatch, tmp_path):
    experiment = tiny_experiment({"method": "d2l", "head": "linear", "train.epochs": 1})
    original, seen = experiment.method.relabel, []

    def relabel(network, views, refresh):
        seen.append((network.training, torch.is_grad_enabled()))
        return original(network, views, refresh)

    monkeypatch.setattr(experiment.method, "relabel", relabel)  # which `main` hands to the loop
    tiny.run_stage(experiment, "train", None, tmp_path)
    assert set(seen) == {(False, False)} and len(seen) == 4


class Table:
    """A teacher whose scores and labels are given by row."""

    epoch = 0

    def __init__(self, scores, y, nameless=()):
        self._scores, self._y, self.asked = scores, y, []
        self._nameless = list(nameless)  # truly unlabelled rows

    def scores(self, rows):
        return self._scores[rows]

    def labels(self, rows):
        self.asked.extend(rows)
        return self._y[rows]

    def hidden_labels(self, rows):
        return self.labels(rows), torch.from_numpy(~np.isin(rows, self._nameless))


@pytest.mark.parametrize("policy", ["estimated", "labeled", "optimal", "uniform"])
def test_refresh_counts_where_the_policy_says(policy):
    torch.manual_seed(0)
    scores, y = torch.rand(30, CLASSES), torch.randint(0, 2, (30, CLASSES), dtype=torch.uint8)
    roles = Roles(np.arange(8), np.array([8, 20, 9]), np.array([10, 11, 12, 13, 25]), np.arange(26, 30))
    y[[12, 25]] = 0  # what a row without labels looks like
    teacher, method = Table(scores, y, nameless=[12, 25]), method_of(calibration__policy=policy, calibration__bins=4)
    refresh = method.refresh(teacher, roles)
    unsup = [8, 9, 10, 11, 12, 13, 20, 25]
    asked = {"labeled": range(8), "optimal": [10, 11, 12, 13, 25]}.get(policy, [8, 9, 20])
    counted = sorted({*asked} - {12, 25})
    assert all(map(torch.equal, refresh.rates[:2], count_bins(scores[counted], y[counted], 4)))
    assert set(teacher.asked) == set(asked) | set(range(8))
    assert torch.equal(refresh.pseudo.confidence, scores[unsup])
    thresholds = dual_thresholds(scores[:8], y[:8])
    assert all(map(torch.equal, refresh.thresholds, thresholds))
    assert torch.equal(refresh.pseudo.label, hard_labels(scores[unsup], thresholds))


def test_refresh_counts_guarded_classes():
    scores, y = torch.rand(10, CLASSES), torch.ones(10, CLASSES, dtype=torch.uint8)
    y[:3, 1], y[:, 2] = 0, 0
    roles = Roles(np.arange(6), np.array([6, 7]), np.array([8]), np.array([9]))
    refresh = method_of().refresh(Table(scores, y), roles)
    assert refresh.guarded == 2  # class 0 has no negative, class 2 no positive
    assert not (refresh.pseudo.label[:, 0] == 0).any() and not (refresh.pseudo.label[:, 2] == 1).any()
    assert method_of(thresholds__rule="none").refresh(Table(scores, y), roles).guarded is None


def test_a_teachers_scores_are_those_of_its_network_in_eval_mode_which_stays_as_it_is(tiny_experiment):
    experiment = tiny_experiment()
    network, same = tiny.network_of(experiment, None)(), tiny.network_of(experiment, None)()
    rows, seed = experiment.roles.sup, experiment.settings.seed
    scores = EpochTeacher(experiment, network, network, 3, {}).scores(rows)
    ((_, images),) = scoring_batches(experiment.store, rows, len(rows), flip=(seed, "refresh", 3))
    before = {name: value.clone() for name, value in same.state_dict().items()}
    same.eval()
    with torch.no_grad():
        torch.testing.assert_close(scores, experiment.method.scores(same, images))
    after = network.state_dict()
    assert network.training and all(torch.equal(value, after[name]) for name, value in before.items())
