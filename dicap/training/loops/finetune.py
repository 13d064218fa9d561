"""Stage 3: the backbone is frozen, and the head is trained on D_est with its true labels (docs/methods.md 3.9)."""

from functools import partial

from torch import nn

from dicap.methods.base import NO_ROWS, Phase
from dicap.training.batches import FinetuneBatches
from dicap.training.evidence import carried_over, on_est, with_thresholds
from dicap.training.plan import labelled_plan
from dicap.training.trainer import Trainer


def finetune(run: Trainer, network: nn.Module) -> None:
    """L_ft on D_est, for the head alone (Equation (13))."""
    experiment, method, s, rows = run.experiment, run.method, run.settings.finetune, run.experiment.roles.est
    phase = Phase(rows, NO_ROWS, s.batch_size, 0, s.epochs, lr=s.lr, publishes=run.settings.weights)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith("head."))
    onto = carried_over(on_est(experiment, network), experiment, network, stage="finetune", where="before fine-tuning")

    plan = partial(labelled_plan, phase, seed=run.settings.seed, stage="finetune")
    run.begin(network, phase, steps=len(plan(epoch=0)), eval_every=s.epochs, ema_decay=s.ema_decay)

    for epoch in run.epochs:
        for batch in run.batches(FinetuneBatches(experiment, phase, plan(epoch=epoch), epoch)):
            if not experiment.frozen:  # else the inputs are the backbone's features
                network.backbone.eval()  # type: ignore[union-attr]  # BatchNorm statistics of the frozen backbone stay
            with run.autocast():
                logits, _ = network(batch.views["strong"])
                loss = method.supervised(logits, batch.y).sum() / batch.images
            run.update({"loss_sup": loss})
            run.end_step()

        run.end_epoch()
    run.publish(lambda tuned: with_thresholds(onto(experiment, tuned), experiment, tuned))
