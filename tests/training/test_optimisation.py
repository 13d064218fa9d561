"""One step as published: the one-cycle's numbers, the EMA against a slow version, and no update from what is not finite."""

import copy

import pytest
import torch
from torch import nn

from dicap.machine.runtime import Runtime
from dicap.training.optimisation import Optimisation

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler")  # some tests look at the schedule alone


def optimisation(network, *, amp=None, **changes):
    options = {"lr": 1e-4, "weight_decay": 1e-4, "pct_start": 0.2, "ema_decay": 0.9, "cycle_steps": 100} | changes
    return Optimisation(network, Runtime(torch.device("cpu"), amp), **options)


def linear_layer(amp=None):
    """A layer of equal weights at every call, and its optimisation."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    return layer, optimisation(layer, amp=amp, lr=0.1)


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def take_step(o, loss=None):
    o.update(o.network(torch.randn(5, 3)).square().mean() if loss is None else loss)
    o.advance()


def values(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def test_one_cycle_has_the_published_learning_rates_and_momenta():
    o = optimisation(nn.Linear(1, 1), cycle_steps=40_000)
    wanted = {0: (4e-6, 0.95), 4_000: (5.2e-5, 0.9), 8_000: (1e-4, 0.85), 20_000: (6.9e-5, None), 27_999: (3.09e-5, 0.919)}
    for step in range(28_000):
        if step in wanted:
            lr, beta1 = wanted[step]
            assert o.lr == pytest.approx(lr, rel=2e-3)
            if beta1 is not None:
                assert o.optimisers["network"].param_groups[0]["betas"][0] == pytest.approx(beta1, abs=6e-4)
        o.advance()
    assert o.optimisers["network"].param_groups[0]["betas"][1] == 0.999


@pytest.mark.parametrize("pct_start", [0.1, 0.2, 0.25, 0.5, 0.9])
def test_a_cycle_may_be_of_any_length(pct_start):
    for steps in range(1, 31):
        o = optimisation(nn.Linear(1, 1), cycle_steps=steps, pct_start=pct_start, lr=1.0)
        seen = []
        for _ in range(steps):
            seen.append(o.lr)
            o.schedules["network"].step()
        assert all(0 <= lr <= 1.0 for lr in seen), steps


def test_ema_of_parameters_and_batchnorm_buffers_equals_a_slow_version():
    network = small_network()
    o = optimisation(network, lr=0.05)
    slow = values(network)
    for _ in range(6):
        take_step(o)
        for name, tensor in network.state_dict().items():
            slow[name] = 0.9 * slow[name] + 0.1 * tensor if tensor.is_floating_point() else tensor.clone()
    assert {"1.running_mean", "1.running_var", "1.num_batches_tracked"} <= slow.keys()
    for name, tensor in o.ema.state_dict().items():
        torch.testing.assert_close(tensor, slow[name])
    assert not o.ema.training


BAD = {
    "not a number": lambda network: network(torch.randn(5, 3)).mean() * float("nan"),
    "infinite": lambda network: network(torch.randn(5, 3)).mean() + float("inf"),
    "0, of infinite slope": lambda network: network[0].weight.sub(network[0].weight.detach()).abs().sum().sqrt(),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_not_finite_updates_nothing(bad):
    o = optimisation(small_network(), lr=0.05)
    take_step(o)
    parameters = {name: p.detach().clone() for name, p in o.network.named_parameters()}
    moments = copy.deepcopy(o.optimisers["network"].state_dict()["state"])
    assert int(o.first_bad_step) == -1
    take_step(o, bad(o.network))
    assert int(o.first_bad_step) == 1
    for name, p in o.network.named_parameters():
        assert torch.equal(p, parameters[name]), name
    for i, state in o.optimisers["network"].state_dict()["state"].items():
        for key, tensor in state.items():
            assert torch.equal(tensor, moments[i][key]), key
    take_step(o)
    take_step(o, bad(o.network))
    assert int(o.first_bad_step) == 1  # the first one is remembered
    assert all(torch.isfinite(p).all() for p in o.network.parameters())


def test_an_overflow_in_float16_skips_the_update_and_lowers_the_scale_which_is_saved():
    network, o = linear_layer(torch.float16)
    before, scale = network.weight.detach().clone(), o.scaler.get_scale()
    o.update((network.weight * torch.tensor(3e38)).sum())  # finite, but not times the scale
    assert torch.equal(network.weight, before) and int(o.first_bad_step) == -1
    _, again = linear_layer(torch.float16)
    again.load_state_dict(o.state_dict())
    assert again.scaler.get_scale() == o.scaler.get_scale() == scale / 2
    o.update(network.weight.square().sum())
    assert not torch.equal(network.weight, before) and torch.isfinite(network.weight).all()
