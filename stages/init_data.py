"""`dicap-stage init-data`: from a folder to settings that run."""

from pathlib import Path

import click

from stages.common import params_option
from stages.terminal import finish, say


@click.command("init-data")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--unlabeled", type=click.Path(path_type=Path, file_okay=False), help="A second folder, of images without labels.")
@click.option(
    "--test-share", type=click.FloatRange(0, 1, max_open=True), help="Share of the labelled images to draw as test split."
)
@click.option("--dry-run", is_flag=True, help="Look, and leave params.yaml as it is.")
@params_option
def command(folder: Path, unlabeled: Path | None, test_share: float | None, dry_run: bool, params: Path) -> None:
    """Look at FOLDER, say what was found, and write the settings to run it.

    FOLDER holds images and their labels as a labels.csv, a COCO or Label Studio JSON, Pascal VOC or CVAT XML, or a
    folder a label; it may also be the file of labels itself.
    """
    from dicap.data.survey import survey
    from dicap.settings import Own

    options = Own(
        format="auto",
        unlabeled_root=None if unlabeled is None else str(unlabeled.resolve()),
        test_share=test_share or 0.0,
        added=None,
    )
    found, options = survey(folder.resolve(), options)
    width = max(5, *(len(name) for name, _, _ in found.classes))
    say(f"{'class':<{width}}  {'train':>7}  {'share':>6}  {'test':>7}")
    for name, train, test in found.classes[:40]:
        say(f"{name:<{width}}  {train:>7}  {train / max(1, found.counts['train']):>6.1%}  {test:>7}")
    if len(found.classes) > 40:
        say(f"... and {len(found.classes) - 40} more classes")
    for line in found.notes:
        say(f"note: {line}")
    for line in found.problems:
        say(f"problem: {line}")
    settings = {
        "dataset": "table",
        "data_root": str(folder.resolve()),
        "ratio": 1.0 if found.counts["unlabeled"] else 0.5,
        "own": {"test_share": options.test_share or None, "unlabeled_root": options.unlabeled_root, "added": None},
    }
    if not dry_run:
        write_settings(params, settings)
    facts = {
        "format": found.kind,
        "images": ", ".join(f"{count} {split}" for split, count in found.counts.items() if count),
        "classes": len(found.classes),
        "labels an image": round(found.labels_per_image, 2),
        "unreadable": len(found.unreadable),
        "problems": len(found.problems),
        "settings": "not written" if dry_run else str(params),
    }
    finish("init-data", facts, ["dvc repro"])


def write_settings(params: Path, changes: dict) -> None:
    """Change keys of params.yaml, its comments kept. Raises SettingsError where there is no such file."""
    from ruamel.yaml import YAML

    from dicap.artifacts import replacing
    from dicap.errors import SettingsError

    yaml = YAML()
    yaml.width = 4096
    if not params.exists():
        raise SettingsError(f"{params}: no such file; run from the project's folder or pass --params")
    values = yaml.load(params.read_text(encoding="utf-8"))
    for key, value in changes.items():
        if isinstance(value, dict):
            values.setdefault(key, {}).update(value)
        else:
            values[key] = value
    with replacing(params) as temporary, temporary.open("w", encoding="utf-8") as file:
        yaml.dump(values, file)
