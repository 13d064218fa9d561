"""PCLP: the causal prior, the losses, who moves when, and companions that stay out of the model."""

import math

import pytest
import tiny
import torch

from dicap.errors import SettingsError
from dicap.methods import build_method
from dicap.methods.base import Batch
from dicap.methods.pclp import adversary_images, discriminator_loss, generator_loss
from dicap.network.adversary import Discriminator, Generator, widths
from dicap.network.causal_prior import CausalPrior
from dicap.runtime import Runtime
from dicap.training.optimisation import Optimisation
from dicap.training.pclp import step

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler")
CHANGES = {"method": "pclp", "pclp.adversary_width": 2, "pclp.latent": "auto"}


def test_prior_solves_the_structural_model_and_only_its_upper_triangle_learns():
    torch.manual_seed(0)
    prior, epsilon = CausalPrior(4), torch.randn(5, 6)
    assert torch.equal(prior(epsilon), epsilon)  # A = 0, f = identity
    with torch.no_grad():
        prior.adjacency.copy_(torch.randn(4, 4))
        prior.affine["scale"].copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        prior.affine["shift"].copy_(torch.tensor([0.5, 0.0, 0.0, 0.0]))
    z = prior(epsilon)
    assert torch.equal(prior.a, prior.adjacency.triu(1)) and not prior.a.tril().any()
    a = prior.adjacency.tolist()
    for b in range(5):  # z_j = epsilon_j + sum over causes i < j of z_i A_ij, one after the other
        u = []
        for j in range(4):
            u.append(float(epsilon[b, j]) + sum(u[i] * a[i][j] for i in range(j)))
        wanted = [u[0] + 0.5, 2 * u[1], 3 * u[2], 4 * u[3]]
        assert z[b, :4].tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    assert torch.equal(z[:, 4:], epsilon[:, 4:])
    z.square().sum().backward()
    assert not prior.adjacency.grad.tril().any() and prior.adjacency.grad.triu(1).abs().sum() > 0


def test_losses_by_hand():
    fake, real = torch.tensor([0.5, -3.0]), torch.tensor([2.0, 0.0])
    soft = lambda v: math.log1p(math.exp(v))  # noqa: E731
    assert float(discriminator_loss(fake, real)) == pytest.approx((soft(0.5) + soft(-3)) / 2 + (soft(-2) + soft(0)) / 2)
    fake = torch.tensor([0.5, -3.0, 2.0], requires_grad=True)
    loss = generator_loss(fake)
    weights = [math.exp(0.5), 0.5, 2.0]
    assert float(loss) == pytest.approx(-(weights[0] * 0.5 - 0.5 * 3 + 2 * 2) / 3)
    loss.backward()
    assert fake.grad.tolist() == pytest.approx([-w / 3 for w in weights])  # the clamped ratio is a constant


@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_generator_and_discriminator_fit_each_other(size):
    torch.manual_seed(0)
    generator, discriminator = Generator(7, size, 2), Discriminator(7, size, 2)
    z = torch.randn(3, 7)
    image = generator(z)
    assert image.shape == (3, 3, size, size) and image.abs().max() <= 1
    score = discriminator(image, z)
    assert score.shape == (3,) and torch.isfinite(score).all()
    score.sum().backward()
    assert all(p.grad is not None for p in [*generator.parameters(), *discriminator.parameters()])
    assert any(type(m).__name__ == "SelfAttention" for m in generator.modules())
    assert any(type(m).__name__ == "SelfAttention" for m in discriminator.modules())


def test_widths_of_the_published_size():
    assert widths(256, 32) == [512, 512, 512, 256, 128, 64, 32]


def test_the_adversary_sees_images_of_a_power_of_two():
    x = adversary_images(torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8), 32)
    assert x.shape == (2, 3, 32, 32) and x.min() >= -1.01 and x.max() <= 1.01
    assert [build_method(tiny.settings(CHANGES | {"image_size": n}), 3).adversary_size for n in (48, 224, 256)] == [32, 128, 256]


@pytest.mark.parametrize(("classes", "latent"), [(3, 32), (20, 32), (80, 128), (81, 128), (85, 128)])
def test_latent_of_the_published_sizes(classes, latent):
    assert build_method(tiny.settings(CHANGES), classes).latent == latent


def test_a_latent_that_holds_no_labels_is_refused():
    with pytest.raises(SettingsError, match=r"pclp\.latent: found 2, expected auto or at least"):
        build_method(tiny.settings(CHANGES | {"pclp.latent": 2}), 3).build_network()


def setup(changes=None):
    torch.manual_seed(0)
    method = build_method(tiny.settings(CHANGES | (changes or {})), 3)
    network, companions = method.build_network(), method.companions()
    optimisation = Optimisation(
        network, Runtime(torch.device("cpu")), lr=1e-3, weight_decay=0.1, pct_start=0.2, ema_decay=0.9, cycle_steps=10,
        companions=companions, param_groups=method.param_groups(network, companions),
    )  # fmt: skip
    network.train()
    views = {
        "weak": torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8),
        "strong": torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8),
    }
    y = torch.tensor([[1, 0, 0], [0, 1, 1]])
    none = torch.empty(0, 3)
    return method, network, companions, optimisation, Batch(views, y, none.to(torch.int8), none, False, none, 5)


def test_discriminator_encoder_and_generator_move_in_turn_and_alone():
    method, network, companions, optimisation, batch = setup()
    optimisation.advance()  # the first rate of a one-cycle is small, not 0
    whole = torch.nn.ModuleDict({"encoder": network, "others": companions})
    turns = []

    def update(terms, groups):
        before = {n: p.detach().clone() for n, p in whole.named_parameters()}
        optimisation.update(sum(terms.values()), groups)
        changed = {
            n.split(".")[1 if n.startswith("others") else 0] for n, p in whole.named_parameters() if not torch.equal(p, before[n])
        }
        turns.append((set(terms), changed))

    step(tiny.Updates(update), method, network, companions, batch)
    assert turns == [
        ({"loss_discriminator"}, {"discriminator"}),
        ({"loss_sup", "loss_pseudo", "loss_adversarial"}, {"encoder"}),
        ({"loss_generator"}, {"generator", "prior"}),
    ]
    assert set(optimisation.optimisers) == {"encoder", "discriminator", "generator", "adjacency", "affine"}
    assert all(o.param_groups[0]["weight_decay"] == 0 for o in optimisation.optimisers.values())
    assert len(optimisation.schedules) == 5


def test_without_a_prior_the_encoder_is_alone():
    method, network, companions, _, batch = setup({"pclp.prior": "none"})
    assert not companions
    updates = []
    step(tiny.Updates(lambda terms, groups: updates.append((set(terms), groups))), method, network, companions, batch)
    assert updates == [({"loss_sup", "loss_pseudo"}, ("encoder",))]


def test_encoder_terms_equal_the_printed_means_and_the_weak_look_is_a_constant():
    method, *_ = setup()
    torch.manual_seed(1)
    labelled, weak, strong = (torch.randn(2, 3, requires_grad=True) for _ in range(3))
    y = torch.tensor([[1, 0, 0], [0, 1, 1]])
    terms = method.encoder_terms(labelled, y, weak, strong)
    p, q = torch.sigmoid(weak), torch.sigmoid(strong)
    bce = -(p * q.log() + (1 - p) * (1 - q).log()).mean()
    assert float(terms["loss_pseudo"]) == pytest.approx(0.1 * float(bce), rel=1e-5)
    assert float(terms["loss_sup"]) == pytest.approx(float(method.supervised(labelled, y).mean()), rel=1e-6)
    terms["loss_pseudo"].backward()
    assert weak.grad is None and strong.grad.abs().sum() > 0
    active = torch.tensor([[True, True, False], [True, True, False]])
    masked = method.encoder_terms(labelled, y, weak, strong, active)["loss_pseudo"]
    wanted = -(p * q.log() + (1 - p) * (1 - q).log())[:, :2].mean()
    assert float(masked) == pytest.approx(0.1 * float(wanted), rel=1e-5)


def test_label_logits_are_the_first_means():
    _, network, *_ = setup()
    network.eval()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        mean, logvar = network.gaussian(images)
        assert mean.shape == logvar.shape == (2, 32)
        assert torch.equal(network(images)[0], mean[:, :3])
