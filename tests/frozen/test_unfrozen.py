"""From a solution on the frozen backbone to the whole network: where it starts, what it learns from, what a model carries."""

import numpy as np
import pytest
import tiny
import torch
from safetensors.numpy import load_file
from training.test_resume import run_all

from dicap.files.artifacts import epoch_file, read_pseudo_labels
from dicap.files.json_files import read_json
from dicap.frozen import recommended
from dicap.frozen.loops import recommended as unfrozen
from dicap.frozen.recommended import PART
from dicap.models import load_model
from dicap.network.linear import signed_root
from dicap.training.loops.main import hold_statistics
from frozen.test_convex import RECOMMENDED

WHOLE = RECOMMENDED | {
    "weights": "ema",
    "train.trainable": "all",
    "train.backbone_lr": 1e-3,
    "train.head_lr": 1e-4,
    "train.batch_norm": "eval",
}


@pytest.fixture
def unfreeze(frozen_experiment, tmp_path):
    """A function from changed settings to the folder of a warm-up on features and a main stage of the whole network."""

    def unfreeze(changes=None, *, place=None, **options):
        place = place or tmp_path / "whole"
        experiment = frozen_experiment(WHOLE | (changes or {}), **options)
        tiny.run_stages([("warmup", experiment.on_bank()), ("train", experiment)], place)
        return place

    return unfreeze


@pytest.fixture
def solved(frozen_experiment, tmp_path):
    """The folder of the same two stages on features alone."""
    return run_all(frozen_experiment(RECOMMENDED), tmp_path / "solved")


def weights(place, name="model_raw"):
    tensors = load_file(place / "train" / f"{name}.safetensors")
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("evidence.")}


# -- where it starts and what moves -----------------------------------------------------------------------------------


def test_without_a_learning_rate_it_stays_the_solution_on_the_frozen_backbone(unfreeze, solved):
    place = unfreeze({"train.backbone_lr": 1e-12, "train.head_lr": 1e-12})
    expected = weights(solved, "model")
    for name in ("model", "model_raw"):
        found = weights(place, name)
        assert found.keys() == expected.keys()
        assert all(np.allclose(found[key], expected[key], atol=1e-6) for key in expected)
    still, heads = (load_model(each / "train" / "model.safetensors").evidence for each in (place, solved))
    for name in ("tau_pos", "tau_neg", "p", "at_rank"):
        assert np.allclose(getattr(still, name), getattr(heads, name), atol=5e-3), name
    assert (still.y == heads.y).all()
    assert "14 labelled images, each scored by a head that never saw it, on the frozen backbone" in still.note


@pytest.mark.parametrize(("part", "other"), [("head", "backbone"), ("backbone", "head")])
def test_backbone_and_head_have_rates_of_their_own(unfreeze, solved, part, other):
    found, before = weights(unfreeze({f"train.{part}_lr": 1e-2, f"train.{other}_lr": 1e-12})), weights(solved, "model")
    far = {key: float(np.abs(found[key] - before[key]).max()) for key in found if "running" not in key}
    trained = {key: distance for key, distance in far.items() if "head.scaling" not in key and "num_batches" not in key}
    assert max(distance for key, distance in trained.items() if key.startswith(part)) > 1e-3
    assert max(distance for key, distance in trained.items() if key.startswith(other)) < 1e-6
    assert all(far[key] == 0 for key in far if "head.scaling" in key), "its scaling is a part of the head that stays"


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_statistics_of_batch_norm_stay_where_they_are_to_stay(unfreeze, solved, mode):
    found, before = weights(unfreeze({"train.batch_norm": mode})), weights(solved, "model")
    running = [key for key in found if "running_" in key or "num_batches" in key]
    assert running and all((found[key] == before[key]).all() for key in running) == (mode == "eval")
    affine = [key for key in found if key.startswith("backbone.") and ".bn" in key and key.endswith(".weight")]
    assert affine and any((found[key] != before[key]).any() for key in affine), "scale and shift are trained"


def test_batch_norm_of_a_method_s_own_head_is_not_held():
    network = torch.nn.ModuleDict({name: torch.nn.BatchNorm1d(2) for name in ("backbone", "head")})
    hold_statistics(network)
    assert (network["backbone"].training, network["head"].training) == (False, True)


def test_a_signed_root_has_a_gradient_everywhere():
    x = torch.tensor([[0.0, 2.0**-24, -4.0, 9.0]], requires_grad=True)  # 2**-24: the least half above 0
    assert torch.equal(signed_root(x), x.sign() * x.abs().sqrt())
    (slope,) = torch.autograd.grad(signed_root(x).sum(), x)
    assert torch.isfinite(slope).all()
    assert slope[0].tolist() == pytest.approx([0, 2**11, 0.25, 1 / 6])


# -- what it learns from ----------------------------------------------------------------------------------------------


def test_every_epoch_learns_from_the_labels_of_the_frozen_main_stage(unfreeze, solved):
    place = unfreeze()
    expected = read_pseudo_labels(epoch_file(solved / "train", "pseudo_labels", 0))
    for epoch in (0, 1):
        found = read_pseudo_labels(epoch_file(place / "train", "pseudo_labels", epoch))
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


# -- resuming, using --------------------------------------------------------------------------------------------------


def test_a_pseudo_labelled_image_counts_what_its_row_did(unfreeze, monkeypatch, tmp_path):
    """As far as the students are used; not at all where they are not."""
    seen, learn, choose = [], unfrozen.learn, recommended.chosen
    monkeypatch.setattr(
        unfrozen, "learn", lambda *args, **options: seen.append(options["pseudo_weight"]) or learn(*args, **options)
    )
    for share in (0.0, 0.5):
        monkeypatch.setattr(
            recommended, "chosen", lambda *args, share=share: (lambda s, c: (s, c._replace(share=share)))(*choose(*args))
        )
        place = unfreeze({"linear.pseudo_weight": "auto"}, place=tmp_path / f"{share}")
        assert read_json(place / "train" / "choice.json")["share"] == share
    unfreeze({"linear.pseudo_weight": 0.25}, place=tmp_path / "given")
    assert seen == [0, 0.5 * PART, 0.25]
