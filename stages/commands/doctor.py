"""`dicap-stage doctor`: is a converted data set sound, and what can this machine do?"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages.support.common import ARTIFACTS, DATA, data_folder, load, params_option
from stages.support.terminal import finish, spoken

if TYPE_CHECKING:
    from dicap.machine.bench import Size


@click.command("doctor")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option(
    "--sheet",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Contact sheet (PNG); default: artifacts/doctor/<name>.png.",
)
@click.option("--image", "image", metavar="ID", help="Tell of one image instead: its labels, its role, and why it has it.")
@click.option("--strict", is_flag=True, help="Exit 1 on warnings too.")
@click.option("--bench", is_flag=True, help="Measure this machine instead, and predict the time of each data set's run on it.")
@click.option("--seconds", type=click.FloatRange(0), default=2.0, show_default=True, help="With --bench: of each part.")
@params_option
def command(
    folder: Path | None, sheet: Path | None, image: str | None, strict: bool, bench: bool, seconds: float, params: Path
) -> None:
    """Check counts, checksums, labels and duplicates of FOLDER, and draw a contact sheet.

    FOLDER is a converted set, such as data/converted; without it, that of the settings.
    """
    if bench:
        _bench(params, seconds)
        return
    if image is not None:
        _about(folder, image, params)
        return
    folder = folder or data_folder(load(params))
    from dicap.data.doctor import contact_sheet, examine
    from dicap.data.format import read_meta
    from dicap.errors import DataError

    findings = examine(folder)
    counts = ", ".join(f"{count} {split}" for split, count in findings.counts.items() if count)
    click.echo(f"{folder}: {counts}; {findings.rejected} rejected")
    if any(findings.unknown.values()):
        open_ = " and ".join(f"{count} of {split}" for split, count in findings.unknown.items() if count)
        click.echo(f"labelled in part: of {open_} entries (image, class) nothing is known")
    if len(findings.classes):
        width = max(5, *(len(name) for name in findings.classes["class"]))
        click.echo(f"{'class':<{width}}  {'train':>7}  {'share':>6}  {'test':>7}  {'share':>6}")
        for name, train, train_share, test, test_share in findings.classes.itertuples(index=False):
            click.echo(f"{name:<{width}}  {train:>7}  {train_share:>6.1%}  {test:>7}  {test_share:>6.1%}")
    for test_id, train_id in findings.duplicates[:20]:
        click.echo(f"duplicate: test {test_id} = train {train_id}")
    for line in findings.warnings:
        click.echo(f"warning: {line}")
    if findings.damage:
        raise DataError("\n".join([*findings.damage, f"{folder} is damaged; run `dicap-stage convert` again"]))
    sheet = sheet or Path("artifacts") / "doctor" / f"{read_meta(folder)['dataset']}.png"
    contact_sheet(folder, sheet)
    click.echo(f"{sheet}: contact sheet")
    if strict and findings.warnings:
        raise DataError(f"{folder}: {len(findings.warnings)} warnings with --strict")
    click.echo(f"{folder}: sound")


def _about(folder: Path | None, image: str, params: Path) -> None:
    from dicap.data.doctor import about
    from dicap.settings.methods import holds_out

    settings = load(params)
    held_out = holds_out(settings.method, settings.calibration.source)
    split = ARTIFACTS / "split" / "split.parquet"
    facts = about(folder or data_folder(settings), split, image, settings.ratio, held_out=held_out)
    if spoken()["json"]:
        finish("doctor", facts)
        return
    for key, value in facts.items():
        click.echo(f"{key:<8}  {value}")


def _bench(params: Path, seconds: float) -> None:
    """What limits this machine, and what a run of each data set would take, by the settings of params.yaml."""
    import tempfile

    from ruamel.yaml import YAML

    from dicap.machine.bench import SIZES, measure, predict
    from dicap.machine.runtime import Runtime
    from dicap.settings import load_settings
    from dicap.settings.catalogue import OWN

    chosen = load_settings(params)
    sizes = ({OWN: _own_size(DATA)} if chosen.dataset == OWN else {}) | SIZES
    yaml, runtime = YAML(typ="safe", pure=True), Runtime.choose()
    values = yaml.load(params.read_text(encoding="utf-8"))
    gpu = runtime.device.type == "cuda"
    measured = {}
    click.echo(f"{'network':<32}{'trained':>9}{'scored':>9}{'views':>9}{'entries':>10}  limit     (a second)")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, size in sizes.items():
            path = Path(folder) / params.name
            own = {} if name == OWN else {"dataset": name, "data_root": "."}
            with open(path, "w", encoding="utf-8") as handle:
                yaml.dump(values | own, handle)
            s = load_settings(path, params.parent / "configs")
            network = f"{s.backbone}, {s.image_size} px"
            if network not in measured:
                images = 64 if gpu else max(4, min(64, 200_000 // s.image_size**2))
                speeds = measured[network] = measure(s, size.classes, runtime, images=images, seconds=seconds)
                numbers = f"{speeds.trained:>9.1f}{speeds.scored:>9.1f}{speeds.views:>9.0f}{speeds.entries:>10.1e}"
                click.echo(f"{network:<32}{numbers}  {speeds.limit}")
            rows.append((name, predict(s, size, measured[network])))
    click.echo(
        f"\n{'data set':<12}{'warm-up epoch':>15}{'main epoch':>12}{'of it refresh':>15}{'whole run':>12}  (hours:minutes)"
    )
    for name, minutes in rows:
        found = (minutes.warmup, minutes.main, minutes.refresh, minutes.total)
        cells = [f"{int(value) // 60}:{int(value) % 60:02}" if value >= 1 else f"{60 * value:.1f} s" for value in found]
        click.echo(f"{name:<12}{cells[0]:>15}{cells[1]:>12}{cells[2]:>15}{cells[3]:>12}")
    click.echo("Network, views and refresh, every unlabelled image with an uncertain entry. How exact this is: docs/scaling.md.")


def _own_size(folder: Path) -> "Size":
    """Images and classes of one's own converted set. Raises DataError."""
    from dicap.data.format import read_meta
    from dicap.machine.bench import Size

    meta = read_meta(folder)
    counts = meta["counts"]
    return Size(counts["train"] + counts["unlabeled"], counts["test"], len(meta["classes"]))
