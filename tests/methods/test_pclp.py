"""PCLP: the causal prior, the losses, who moves when, and companions that stay out of the model."""

import copy
from functools import partial

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from training.test_optimisation import optimisation as optimisation_of

from dicap.errors import SettingsError
from dicap.losses import asymmetric_loss
from dicap.methods import build_method
from dicap.methods.base import Batch, Roles
from dicap.methods.pclp import adversary_images
from dicap.network.adversary import Discriminator, Generator
from dicap.network.causal_prior import CausalPrior
from dicap.training.loops.pclp import step

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler")
CHANGES = {"method": "pclp", "pclp.adversary_width": 2, "pclp.adversary_size": "auto"}


def test_the_affine_map_starts_from_uniform_numbers_as_published():
    torch.manual_seed(0)
    prior = CausalPrior(2000)
    for values in (prior.affine["scale"], prior.affine["shift"]):
        assert values.min() >= 0 and values.max() <= 1 and float(values.detach().mean()) == pytest.approx(0.5, abs=0.03)
        assert float(values.detach().var()) == pytest.approx(1 / 12, abs=0.01)
    assert not torch.equal(prior.affine["scale"], prior.affine["shift"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "latent", "generator", "discriminator"),
    [(256, 128, 10_105_604, 14_854_964), (128, 32, 8_010_020, 18_542_132)],
)
def test_parameters_are_as_many_as_published(monkeypatch, size, latent, generator, discriminator):
    monkeypatch.setattr(torch.nn.init, "orthogonal_", lambda weight: weight)  # takes seconds, changes no count
    unused = 512 * 512 + 512  # the published discriminator's last block has a convolved shortcut that no image passes
    with torch.device("meta"):
        networks = Generator(latent, size, 32), Discriminator(latent, size, 32)
    assert [sum(p.numel() for p in n.parameters()) for n in networks] == [generator, discriminator - unused]


def test_weights_start_orthogonal_and_biases_at_0():
    for network in (Generator(7, 16, 2), Discriminator(7, 16, 2)):
        layers = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
        assert len(layers) > 8
        for layer in layers:
            weight = layer.parametrizations.weight.original.flatten(1)
            small = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
            assert torch.allclose(small, torch.eye(len(small)), atol=1e-5) and not layer.bias.any()


def test_the_adversary_sees_images_of_a_power_of_two_between_0_and_1():
    images = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    assert torch.equal(adversary_images(images, 48), images.float() / 255)
    assert adversary_images(images, 32).shape == (2, 3, 32, 32)
    assert [build_method(tiny.settings(CHANGES | {"image_size": n}), 3).adversary_size for n in (48, 224, 256)] == [32, 128, 256]


@pytest.mark.parametrize(("classes", "latent"), [(3, 32), (20, 32), (80, 128), (81, 128), (85, 128)])
def test_latent_of_the_published_sizes(classes, latent):
    assert build_method(tiny.settings(CHANGES), classes).latent == latent


def setup(changes=None):
    torch.manual_seed(0)
    method = build_method(tiny.settings(CHANGES | (changes or {})), 3)
    network, companions = method.build_network(), method.companions()
    optimisation = optimisation_of(network, companions=companions, param_groups=method.param_groups(network, companions))
    network.train()
    views = {
        "weak": torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8),
        "strong": torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8),
    }
    y = torch.tensor([[1, 0, 0], [0, 1, 1]])
    none = torch.empty(0, 3)
    return method, network, companions, optimisation, Batch(views, y, none.to(torch.int8), none, False, none, 5)


def test_without_a_prior_the_encoder_is_alone():
    method, network, companions, _, batch = setup({"pclp.prior": "none"})
    assert not companions
    updates = []
    step(tiny.updates(lambda terms, groups: updates.append((set(terms), groups))), method, network, companions, batch)
    assert updates == [({"loss_sup", "loss_pseudo"}, ("encoder",))]


# -- whole steps against steps written from the published procedure: same weights, same batch, same random numbers

ADAM = {"betas": (0.95, 0.999), "eps": 1e-8}  # one-cycle starts beta1 at 0.95


def slow_consistency(strong, weak):
    """Mean of BCE against the constant sigmoid(weak)."""
    p, q = torch.sigmoid(weak).detach(), torch.sigmoid(strong)
    return -(p * q.log() + (1 - p) * (1 - q).log()).mean()


def slow_means(network, images):
    """(B, L): backbone, mean over the positions, MLP, first half of the last layer."""
    pixels = network.features(images).mean((2, 3))
    out = network.head.out(network.head.mlp(pixels))
    return out[:, : out.shape[1] // 2], out[:, out.shape[1] // 2 :]


def slow_attention(block, x):
    """(B, D, h, w): each place looks at all places of the pooled map, one image after the other."""
    out = []
    for image in x.split(1):
        q, k, v = block.query(image), F.max_pool2d(block.key(image), 2), F.max_pool2d(block.value(image), 2)
        share = torch.softmax(q[0].flatten(1).T @ k[0].flatten(1), 1)  # (hw, hw/4)
        out.append(block.out((share @ v[0].flatten(1).T).T.reshape(1, -1, *x.shape[2:])))
    return x + block.strength * torch.cat(out)


def slow_generator(generator, z):
    """The published order of layers; noise after the first layer and after both convolutions of a block."""

    def noisy(x, noise):
        return x + noise.strength * torch.randn(len(x), 1, *x.shape[2:])

    def double(x):
        return x.repeat_interleave(2, 2).repeat_interleave(2, 3)

    first, *blocks = generator.blocks
    x = noisy(generator.first(z).reshape(len(z), -1, 4, 4), first)
    for block in blocks:
        if hasattr(block, "query"):
            x = slow_attention(block, x)
            continue
        h = noisy(block.conv1(double(torch.relu(block.norm1(x)))), block.noise1)
        x = noisy(block.conv2(torch.relu(block.norm2(h))), block.noise2) + block.shortcut(double(x))
    norm, _, to_rgb, _ = generator.last
    return torch.tanh(to_rgb(torch.relu(norm(x))))


def slow_discriminator(discriminator, images, z):
    """(B,): the mean of three scores, of sums over the last map, of the code, and of both."""
    from_rgb, first, attention, *blocks, last, _ = discriminator.image

    def residual(block, x):
        return block.conv2(torch.relu(block.conv1(torch.relu(x))))

    def mlp(network, x):
        x = torch.relu(network.first(x))
        for one, _, two in network.blocks:
            x = torch.relu(two(torch.relu(one(x))) + x)
        return x

    x = from_rgb(images)
    for block in (first, *blocks):
        x = F.avg_pool2d(residual(block, x), 2) + F.avg_pool2d(block.shortcut(x), 2)
        x = slow_attention(attention, x) if block is first else x
    x = residual(last, x) + last.shortcut(x)
    x = torch.relu(x).sum((2, 3))
    code = mlp(discriminator.latent, z)
    both = mlp(discriminator.joint, torch.cat([x, code], 1))
    a, b, c = discriminator.heads
    return (a(x) + b(code) + c(both)).squeeze(1) / 3


def adam(parameters, lr):
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0, **ADAM)


def main_batch():
    torch.manual_seed(5)
    images = lambda n: torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8)  # noqa: E731
    views = {"labelled": images(2), "weak": images(3), "strong": images(3)}
    label = torch.tensor([[1, 0, -1]] * 3, dtype=torch.int8)  # class 2 has no labelled positive
    y = torch.tensor([[1, 0, 0], [0, 1, 0]], dtype=torch.uint8)
    return Batch(views, y, label, torch.zeros(3, 3), True, torch.empty(0, 3), 5)


def test_a_main_step_equals_the_published_one_and_batchnorm_counts_the_weak_views():
    method, network, _, optimisation, _ = setup({"pclp.prior": "none"})
    batch, slow = main_batch(), copy.deepcopy(network)

    optimisation.update(sum(method.main_losses(network, batch).values()))

    optimiser = adam(slow.parameters(), optimisation.lr)
    views = torch.cat([batch.views["labelled"], batch.views["weak"], batch.views["strong"]])
    logits = slow_means(slow, views)[0][:, :3]
    loss = asymmetric_loss(logits[:2], batch.y).mean() + 0.1 * slow_consistency(logits[5:, :2], logits[2:5, :2])
    loss.backward()
    optimiser.step()
    tiny.assert_same_step(network, slow)
    assert all(int(m.num_batches_tracked) == 1 for m in network.modules() if hasattr(m, "num_batches_tracked"))


def test_a_step_of_stage_1_equals_the_published_one():
    method, network, companions, optimisation, batch = setup()
    torch.nn.init.constant_(companions["prior"].adjacency, 0.5)  # from zeros every order of the classes would do
    both = torch.nn.ModuleDict({"encoder": network, "others": companions})
    slow = copy.deepcopy(both)
    rate = {name: o.param_groups[0]["lr"] for name, o in optimisation.optimisers.items()}

    torch.manual_seed(7)
    step(tiny.updates(lambda terms, groups: optimisation.update(sum(terms.values()), groups)), method, network, companions, batch)

    torch.manual_seed(7)
    encoder = slow["encoder"]
    generator, prior = partial(slow_generator, slow["others"]["generator"]), slow["others"]["prior"]
    score = partial(slow_discriminator, slow["others"]["discriminator"])
    turns = {name: list(slow["others"][name].parameters()) for name in ("discriminator", "generator")}
    turns |= {
        "encoder": list(encoder.parameters()),
        "adjacency": [prior.adjacency],
        "affine": list(prior.affine.parameters()),
    }
    optimisers = {name: adam(parameters, rate[name]) for name, parameters in turns.items()}
    weak, strong = batch.views["weak"], batch.views["strong"]
    x = weak.float() / 255

    def scm():
        noise = torch.randn(5, 32)
        causes = noise[:, :3] @ torch.linalg.inv(torch.eye(3) - prior.adjacency.triu(1))
        return torch.cat([causes * prior.affine["scale"] + prior.affine["shift"], noise[:, 3:]], 1)

    def inferred(mean, logvar):
        return mean + (0.5 * logvar).exp() * torch.randn(5, 32)

    def turn(loss, *names):
        loss.backward(retain_graph=True, inputs=[p for name in names for p in turns[name]])
        for name in names:
            optimisers[name].step()

    mean, logvar = slow_means(encoder, weak)  # the weak views alone ...
    answer = slow_means(encoder, strong)[0][:, :3]  # ... and the strong ones alone
    z = scm().detach()
    fake = generator(z).detach()
    scores = score(fake, z), score(x, inferred(mean, logvar).detach())
    turn(F.softplus(scores[0]).mean() + F.softplus(-scores[1]).mean(), "discriminator")

    loss = asymmetric_loss(mean[:2, :3], batch.y).mean() + 0.1 * slow_consistency(answer, mean[2:, :3])
    turn(loss + 1e-3 * score(x, inferred(mean, logvar)).mean(), "encoder")

    z = scm()
    answer = score(generator(z), z)
    turn(-(answer.exp().clamp(0.5, 2).detach() * answer).mean(), "generator", "adjacency", "affine")
    tiny.assert_same_step(both, slow)


# -- settings

ROLES = Roles(np.arange(40), np.arange(40, 50), np.arange(50, 1000), np.arange(0))


def test_strong_views_of_stage_1_have_the_cutout_of_the_main_stage():
    method = build_method(tiny.settings(CHANGES), 3)
    assert [request.view.cutout for request in method.warmup_views(ROLES.sup, ROLES.unlabelled)] == [0, 0.5]


def test_a_single_unlabelled_image_is_refused():
    with pytest.raises(SettingsError, match="ratio: leaves 1 unlabelled image, but pclp needs at least 2"):
        build_method(tiny.settings(CHANGES), 3).warmup(Roles(np.arange(3), np.arange(3, 5), np.arange(5, 6), np.arange(0)))
