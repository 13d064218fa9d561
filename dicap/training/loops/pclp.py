"""The warm-up of PCLP: a bidirectional GAN whose prior over labels is a causal model (docs/methods.md 4.7)."""

from functools import partial

import torch
from torch import nn

from dicap.methods.base import Batch
from dicap.methods.pclp import PCLP, adversary_images, discriminator_loss, generator_loss
from dicap.network.latent import sample
from dicap.randomness import torch_seed
from dicap.training.batches import Batches
from dicap.training.plan import main_plan
from dicap.training.trainer import Trainer


def warm_up(run: Trainer, network: nn.Module) -> None:
    """Passes over D_u, with labelled images cycled alongside."""
    method, s = run.method, run.settings
    assert isinstance(method, PCLP)
    phase = method.warmup(run.experiment.roles)
    plan = partial(main_plan, phase, seed=s.seed, stage="warmup")
    torch.manual_seed(torch_seed(s.seed, "companions", 0))
    companions = method.companions().to(run.experiment.runtime.device)
    run.begin(
        network,
        phase,
        steps=len(plan(epoch=0)),
        eval_every=s.warmup.eval_every,
        groups=method.param_groups(network, companions),
        companions=companions,
    )

    for epoch in run.epochs:
        for batch in run.batches(Batches(run.experiment, phase, plan(epoch=epoch), epoch)):
            step(run, method, network, companions, batch)
            run.end_step()

        run.end_epoch()
    run.publish()


def step(run: Trainer, method: PCLP, encoder: nn.Module, companions: nn.ModuleDict, batch: Batch) -> None:
    """Updates of the discriminator, the encoder, then generator, adjacency and affine map; without companions the encoder's."""
    with run.autocast():
        mean, logvar, terms = method.encode(encoder, batch)  # (B, L)
    if not companions:
        run.update(terms, "encoder")
        return
    generator, discriminator, prior = (companions[name] for name in ("generator", "discriminator", "prior"))
    with run.autocast():
        x = adversary_images(batch.views["weak"], method.adversary_size)
        z_fake = prior(torch.randn_like(mean))
        with torch.no_grad():
            fake = generator(z_fake)
        loss = discriminator_loss(discriminator(fake, z_fake.detach()), discriminator(x, sample(mean, logvar).detach()))
    run.update({"loss_discriminator": loss}, "discriminator")
    with run.autocast():
        terms["loss_adversarial"] = method.settings.pclp.adversarial * discriminator(x, sample(mean, logvar)).mean()
    run.update(terms, "encoder")
    with run.autocast():
        z_fake = prior(torch.randn_like(mean))
        loss = generator_loss(discriminator(generator(z_fake), z_fake))
    run.update({"loss_generator": loss}, "generator", "adjacency", "affine")
