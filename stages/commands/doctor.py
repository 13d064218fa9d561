"""`dicap-stage doctor`: checks a converted data set."""

from pathlib import Path

import click

from dicap.errors import DataError
from stages.support.common import data_folder, load, params_option
from stages.support.terminal import finish, say


@click.command("doctor")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@params_option
def command(folder: Path | None, params: Path) -> None:
    """Check the files of FOLDER, and its test images for duplicates of training images.

    FOLDER is a converted set, such as data/converted; default: the set of the settings.
    """
    folder = folder or data_folder(load(params))
    from dicap.data.doctor import examine

    findings = examine(folder)
    images, rejected, unknown = findings.meta["counts"], len(findings.meta["rejected"]), findings.meta.get("unknown", {})
    say(f"{folder}: {', '.join(f'{count} {split}' for split, count in images.items() if count)}; {rejected} rejected")
    if any(unknown.values()):
        counts = " and ".join(f"{count} of {split}" for split, count in unknown.items() if count)
        say(f"labelled in part: {counts} entries (image, class) are unknown")
    for test_id, train_id in findings.duplicates[:20]:
        say(f"duplicate: test {test_id} = train {train_id}")
    for line in findings.warnings:
        say(f"warning: {line}")
    if findings.damage:
        raise DataError("\n".join([*findings.damage, f"{folder} is damaged; run `dicap-stage convert` again"]))
    facts = {"folder": str(folder), "images": images, "rejected": rejected, "unknown": unknown}
    finish("doctor", facts | {"duplicates": findings.duplicates, "warnings": findings.warnings}, lines=[f"{folder}: sound"])
