"""Half precision on the processor: what stays in float32, how far a run is from that of float32, and what overflow does."""

from dataclasses import replace

import pytest
import tiny
import torch
from torch import nn
from training.test_optimisation import linear_layer

from dicap.errors import DataError
from dicap.losses import asymmetric_loss, binary_cross_entropy, nt_xent
from dicap.machine.runtime import Runtime
from dicap.settings.methods import METHODS
from dicap.training.experiment import Experiment
from dicap.training.trainer import Trainer

from .test_pretended import SMALL, stages_of

CPU = torch.device("cpu")
# Relative difference of the losses of an epoch: a rounding of the forward pass is 2^-8 in bfloat16 and 2^-11 in float16. The
# largest is BBAM's, 0.024 in float16, whose cosines are multiplied by 20; that of every other method is below 0.01.
BOUNDS = {torch.bfloat16: 0.05, torch.float16: 0.03}
HALF = pytest.mark.parametrize("amp", BOUNDS, ids=["bf16", "fp16"])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_in_half_precision_is_close_to_that_in_float32(tiny_experiment, tmp_path, monkeypatch, method):
    """With the same pseudo-labels: of a network that knows nothing yet, a score's last bits decide on which side it falls."""
    import pandas as pd

    predict, scaler = Experiment.predict, torch.amp.GradScaler
    in_float32 = Runtime(CPU)
    # An overflow leaves out a step, which is another run: with the usual scale the sums of BBAM overflow at once.
    monkeypatch.setattr(torch.amp, "GradScaler", lambda *a, **b: scaler(*a, init_scale=2.0**8, **b))
    monkeypatch.setattr(Experiment, "predict", lambda self, *a, **b: predict(replace(self, runtime=in_float32), *a, **b))
    experiment = tiny_experiment(SMALL | {"method": method, "head": METHODS[method].head})
    stage = stages_of(method)[: 1 + METHODS[method].unlabelled][-1]
    losses = {}
    for amp in (None, *BOUNDS):
        here = replace(experiment, runtime=Runtime(CPU, amp, 0))
        place = tiny.run_stage(here, stage, None, tmp_path / str(amp))
        losses[amp] = pd.read_csv(place / "history.csv")["loss"].to_numpy()
    for amp, bound in BOUNDS.items():
        assert losses[amp] == pytest.approx(losses[None], rel=bound)


@HALF
@pytest.mark.parametrize("method", ["dicap", "drml", "pclp"])  # a loop each
def test_what_is_not_finite_ends_a_run_of_any_loop_and_updates_nothing(tiny_experiment, tmp_path, monkeypatch, method, amp):
    update = Trainer.update

    def poisoned(run, terms, *groups):
        trained = [p for group in run.optimisation.param_groups.values() for p in group.parameters]
        before = [p.detach().clone() for p in trained]
        update(run, {name: value * torch.nan for name, value in terms.items()}, *groups)
        assert all(map(torch.equal, before, trained))

    monkeypatch.setattr(Trainer, "update", poisoned)
    experiment = tiny_experiment(SMALL | {"method": method, "head": METHODS[method].head})
    stage = stages_of(method)[: 1 + METHODS[method].unlabelled][-1]
    with pytest.raises(DataError, match="the loss is not finite in step 1 of epoch 1;"):
        tiny.run_stage(replace(experiment, runtime=Runtime(CPU, amp, 0)), stage, None, tmp_path)


@HALF
def test_losses_and_contrast_stay_in_float32(amp):
    torch.manual_seed(0)
    x, y = torch.randn(5, 4), (torch.rand(5, 4) < 0.5).float()
    z = 60 * torch.randn(2, 6, 128)  # |z|^2 is beyond 65504, the largest number of float16
    layer = nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=amp):
        logits = layer(x)
        assert logits.dtype == amp
        for loss in (asymmetric_loss, binary_cross_entropy):
            assert loss(logits, y).dtype == torch.float32 and torch.equal(loss(logits, y), loss(logits.float(), y))
        half = z.to(amp).requires_grad_()
        found = nt_xent(half[0], half[1])
        exact = nt_xent(half[0].detach().float(), half[1].detach().float())
        assert found.dtype == torch.float32 and torch.isfinite(found) and torch.equal(found, exact)
        found.backward()
        assert torch.isfinite(half.grad).all()


def test_an_overflow_in_float16_skips_the_update_and_lowers_the_scale():
    network, o = linear_layer(torch.float16)
    before, scale = network.weight.detach().clone(), o.scaler.get_scale()
    o.update((network.weight * torch.tensor(3e38)).sum())  # finite, but not times the scale
    assert torch.equal(network.weight, before) and int(o.first_bad_step) == -1
    assert o.scaler.get_scale() == scale / 2
    o.update(network.weight.square().sum())
    assert not torch.equal(network.weight, before) and torch.isfinite(network.weight).all()


def test_the_scale_goes_on_where_a_state_was_saved():
    network, o = linear_layer(torch.float16)
    o.update((network.weight * torch.tensor(3e38)).sum())
    _, again = linear_layer(torch.float16)
    again.load_state_dict(o.state_dict())
    assert again.scaler.get_scale() == o.scaler.get_scale() != linear_layer(torch.float16)[1].scaler.get_scale()
