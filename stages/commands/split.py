"""`dicap-stage split`: draws the images whose labels may be used."""

from pathlib import Path

import click

from dicap.settings.catalogue import OWN
from stages.support.common import ARTIFACTS, data_folder, load, params_option
from stages.support.terminal import finish


@click.command("split")
@params_option
def command(params: Path) -> None:
    """Draw the labelled images and divide them into D_sup and D_est."""
    from dicap.data.format import read_groups
    from dicap.data.split import split_index, split_roles
    from dicap.files import artifacts

    settings = load(params)
    folder = data_folder(settings)
    ids, *columns = split_index(folder)  # refuses a set of another schema here, not three stages later
    own, est_fraction = settings.dataset == OWN, settings.split.est_fraction
    options = {"by_id": own, "groups": read_groups(folder)}
    roles = split_roles(ids, *columns, ratio=settings.ratio, seed=settings.seed, est_fraction=est_fraction, **options)
    path = ARTIFACTS / "split" / "split.parquet"
    artifacts.write_split(ids, roles, path)
    facts = {role: int((roles == role).sum()) for role in artifacts.ROLES}
    finish("split", facts | {"file": str(path)}, ["dicap-stage warmup"])
