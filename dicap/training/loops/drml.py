"""The main stage of DRML: rounds on fixed features, four updates per step, images adopted for good (docs/methods.md 4.5)."""

import numpy as np
from torch import nn

from dicap.methods.base import Batch
from dicap.methods.drml import DRML
from dicap.network.relation import RelationHead
from dicap.training.batches import MainBatches
from dicap.training.plan import pool_plan
from dicap.training.trainer import Trainer

RECORD_EVERY = 10  # rounds between two Parquet records: little changes from round to round


def train(run: Trainer, network: nn.Module) -> None:
    """Rounds of drml.iterations steps. A step draws images from the pool (labelled or adopted) and from outside the pool."""
    method, roles, s = run.method, run.experiment.roles, run.settings
    assert isinstance(method, DRML) and isinstance(network.head, RelationHead)
    phase, head, steps = method.main(roles), network.head, s.drml.iterations

    phase.begin(network)  # type: ignore[misc]
    run.experiment = run.experiment.on_features(phase, network)
    run.begin(network, phase, steps=steps, eval_every=s.train.eval_every, groups=method.param_groups(head))

    for epoch in run.epochs:
        parquet = epoch % RECORD_EVERY == 0 or epoch == phase.epochs - 1
        refresh = run.refresh(lambda teacher: method.refresh(teacher, roles), parquet=parquet)
        adopted = np.any(refresh.pseudo.label.cpu().numpy() >= 0, axis=1)
        plan = pool_plan(len(phase.labelled), adopted, phase.batch_labelled, steps, seed=s.seed, epoch=epoch)

        for batch in run.batches(MainBatches(run.experiment, phase, plan, epoch, refresh, run.teacher)):
            step(run, method, head, batch)
            run.end_step()

        run.end_epoch()
    run.publish()


def step(run: Trainer, method: DRML, head: RelationHead, batch: Batch) -> None:
    """Four updates; each uses the weights that the previous update left."""
    s = method.settings.drml
    with run.autocast():  # A: projector and classifiers
        losses = method.losses(head, batch)
        loss = losses.classification + s.relation * losses.relation
    run.update({"loss_sup": loss}, "joint")
    with run.autocast():  # B: classifiers, to disagree on images outside the pool
        losses = method.losses(head, batch)
        loss = losses.classification + s.relation * losses.relation - s.discrepancy * losses.discrepancy
    run.update({"loss_disagree": loss}, "disagree")
    with run.autocast():  # C: projector, to make them agree there
        loss = s.discrepancy * method.discrepancy(head, batch)
    run.update({"loss_agree": loss}, "agree")
    with run.autocast():  # D: relation network
        losses = method.losses(head, batch)
        loss = losses.classification + s.relation * losses.relation
    run.update({"loss_relation": loss}, "relation")
