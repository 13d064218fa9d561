"""The ledger: norms of gradients against autograd term by term, the same run with it and without, and what it says once."""

import math
from contextlib import suppress

import pandas as pd
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from dicap.errors import Stopped
from dicap.metrics import ledger
from dicap.settings.methods import METHODS
from dicap.training.optimisation import Optimisation
from dicap.training.trainer import Trainer
from training.test_leaks import models
from training.test_optimisation import linear_layer
from training.test_resume import stop_after

WCL = {"method": "dicap", "warmup.wcl": True, "warmup.epochs": 2, "warmup.eval_every": 2}
RUNS = {  # the terms of a stage's loss
    "dicap": (WCL, "train", ("sup", "pseudo", "con")),
    "dicap, warm-up": (WCL, "warmup", ("sup", "con")),
    "dicap, two rates": (WCL | {"train.backbone_lr": 1e-4}, "train", ("sup", "pseudo", "con")),
    "without contrast": ({"method": "dicap", "contrastive.enabled": False}, "train", ("sup", "pseudo")),
    "without contrast, warm-up": ({"method": "dicap", "warmup.wcl": False}, "warmup", ()),
    "pclp": ({"method": "pclp"}, "train", ("sup", "pseudo")),
    "drml": ({"method": "drml"}, "train", ()),
}


def opened(make, name):
    return make(RUNS[name][0] | {"head": METHODS[RUNS[name][0]["method"]].head})


def slow_norm(term, network):
    """The norm of a term's gradient, parameter by parameter, the squares added in double precision."""
    total = 0.0
    for p in network.parameters():
        if p.requires_grad:
            (gradient,) = torch.autograd.grad(term, p, retain_graph=True, allow_unused=True)
            total += 0.0 if gradient is None else float(gradient.double().square().sum())
    return math.sqrt(total)


@pytest.mark.parametrize("name", RUNS)
def test_each_epoch_has_the_norms_of_its_first_batch(tiny_experiment, tmp_path, monkeypatch, name):
    _, stage, terms_of_stage = RUNS[name]
    update, wanted = Trainer.update, []

    def slow(run, terms, *groups):
        if run.checkpoint.step == 0 and not groups and (stage == "train" or run.checkpoint.epoch == 1):  # of 0 and 1
            wanted.append({f"grad{term[4:]}": slow_norm(loss, run.networks["raw"]) for term, loss in terms.items()})
        update(run, terms, *groups)

    monkeypatch.setattr(Trainer, "update", slow)
    folder = tiny.run_stage(opened(tiny_experiment, name), stage, None, tmp_path)
    history = pd.read_csv(folder / "history.csv").filter(like="grad_")
    assert set(history) == {f"grad_{term}" for term in terms_of_stage}
    for column in history:
        slowly = [row[column] for row in wanted]
        assert history[column].dropna().tolist() == pytest.approx(slowly, rel=1e-4) and min(slowly) > 0, column


def test_a_run_with_it_is_a_run_without_it(tiny_experiment, tmp_path, monkeypatch):
    experiment, both = opened(tiny_experiment, "dicap"), []
    for place in (tmp_path / "with", tmp_path / "without"):
        tiny.run_stages([(stage, experiment) for stage in ("warmup", "train")], place)
        both.append([models(place / stage) for stage in ("warmup", "train")])
        monkeypatch.setattr(Optimisation, "norms", lambda self, terms: torch.full((len(terms),), math.nan))
    assert both[0] == both[1]
    found, none = (pd.read_csv(tmp_path / place / "train" / "history.csv") for place in ("with", "without"))
    assert "grad_sup" in found and found["grad_sup"].notna().any() and none["grad_sup"].isna().all()
    assert found.drop(columns=found.filter(like="grad_")).equals(none.drop(columns=none.filter(like="grad_")))


def test_in_float16_the_norm_is_that_of_the_gradient_without_its_scale():
    (network, o), (_, plain) = linear_layer(torch.float16), linear_layer()
    before = o.scaler.get_scale()
    small, large = (network(torch.ones(1, 3)).square().sum() * factor for factor in (1e-6, 3e34))
    norm, overflow = o.norms([small, large]).tolist()
    same = float(plain.norms([plain.network(torch.ones(1, 3)).square().sum() * 1e-6]))
    assert before == o.scaler.get_scale() > 1000 and norm == pytest.approx(same, rel=1e-5) and norm > 0
    assert math.isnan(overflow), "3e34 times the scale is beyond float32"
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.parametrize(("coefficient", "stops"), [(1e-7, 2), (1.0, 10**6)], ids=["hardly, stopped", "well, undisturbed"])
def test_a_term_that_hardly_acts_is_said_once_in_a_stage(tiny_experiment, tmp_path, coefficient, stops):
    experiment, source = tiny_experiment(WCL | {"contrastive.coefficient": coefficient}), None
    for stage in ("warmup", "train"):
        said = []
        for _ in range(50):
            with stop_after(stops), suppress(Stopped):
                source = tiny.run_stage(experiment, stage, source, tmp_path, log=said.extend) / "model.safetensors"
                break
        lines = [line for line in said if "the contrastive loss" in line]
        assert len(lines) == (coefficient < 1), said
        for line in lines:
            first = {"warmup": 2, "train": 1}[stage]  # epoch that is measured
            share = float(line.removeprefix(f"{stage}, epoch {first}: the contrastive loss has ").partition(" %")[0])
            assert 0 < share < 0.01 and line.endswith(" of the gradient (contrastive.coefficient); it has hardly any effect")


norms = st.one_of(st.sampled_from([None, math.nan, 0.0]), st.floats(1e-6, 1e6))
rows = st.fixed_dictionaries({f"grad_{term}": norms for term in ledger.TERMS})


@given(rows, st.floats(1e-3, 1e3))
def test_shares_add_up_to_one_and_know_no_unit(row, factor):
    shares = ledger.shares(row)
    measured = {term: norm for term in ledger.TERMS if (norm := row[f"grad_{term}"]) is not None and norm >= 0}
    assert set(shares) == (set(measured) if any(measured.values()) else set())
    assert not shares or sum(shares.values()) == pytest.approx(1)
    other = ledger.shares({name: norm and norm * factor for name, norm in row.items()} | {"epoch": 0})
    assert other == pytest.approx(shares)
    assert set(ledger.idle(row)) == {term for term, share in shares.items() if share < 0.01}
