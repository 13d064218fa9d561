"""`dicap-stage study-estimators`: which estimator of the correctness rate to trust on how many images."""

from pathlib import Path

import click

from stages.support.common import ARTIFACTS, data_folder, load, params_option


@click.command("study-estimators")
@click.argument("experiment", required=False)
@click.option("--sizes", default="20,45,90,180", show_default=True, metavar="N,N,...", help="Images in D_est.")
@click.option("--draws", type=click.IntRange(2), default=60, show_default=True, help="D_est drawn of each size.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("figures"), show_default=True, help="Folder."
)
@params_option
def command(experiment: str | None, sizes: str, draws: int, out: Path, params: Path) -> None:
    """Compare estimators of the correctness rate on the stored scores of EXPERIMENT (a DVC experiment or commit; the
    workspace if not given).

    Draws many D_est from the images the network was not trained on and judges each estimator by their hidden labels.
    Prints a table and writes it with a figure.
    """
    import tempfile

    import pandas as pd

    from dicap.errors import DataError, SettingsError
    from dicap.files import artifacts as files
    from dicap.machine.progress import progress
    from dicap.randomness import generator
    from dicap.report import estimator_study as estimators
    from dicap.report.figures.estimators import study as draw
    from dicap.report.style import house_style, save
    from stages.sweeps.finished import fetch

    files.check_own(out / "estimators.md", out / "estimators.svg")
    settings = load(params)
    try:
        wanted = sorted({int(size) for size in sizes.split(",")})
    except ValueError:
        raise SettingsError(f"--sizes {sizes}: expected numbers of images such as 20,45,90") from None
    with tempfile.TemporaryDirectory() as folder:
        source = ARTIFACTS
        if experiment is not None:
            for part in ("pseudo_label", "split"):
                if fetch(experiment, f"{ARTIFACTS}/{part}", Path(folder)) is None:
                    raise DataError(f"{experiment}: DVC has no {ARTIFACTS}/{part} of it; dvc exp show lists the experiments")
            source = Path(folder) / experiment[:12] / ARTIFACTS
        p, y, y_labelled = estimators.read_scores(source, data_folder(settings))
    if wanted[0] < 1 or wanted[-1] > len(p) // 2:
        raise SettingsError(f"--sizes {sizes}: each must lie between 1 and {len(p) // 2}, half of the {len(p)} scored images")
    rng = generator(settings.seed, "study", 0, 0, "estimators")
    bins = settings.calibration.bins
    total = len(wanted) * draws * len(estimators.estimates(bins))
    rows = estimators.study(p, y, y_labelled, wanted, draws, rng, bins=bins)
    table = estimators.summary(pd.DataFrame(progress(rows, desc="estimators", total=total, unit="fit")))
    text = estimators.to_markdown(table)
    with files.replacing_own(out / "estimators.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    with house_style():
        save(draw(table), out / "estimators.svg")
    click.echo(text)
    click.echo(f"Mean over {draws} draws with its 95 % interval. Written: {out}/estimators.md, .svg")
