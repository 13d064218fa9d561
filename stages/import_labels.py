"""`dicap-stage import-labels`: new labels for one's own data set."""

from pathlib import Path

import click

from stages.common import data_folder, load, params_option
from stages.terminal import finish, say

FOLDER = Path("labels")
SHOWN = 20  # changed images that are listed


@click.command("import-labels")
@click.argument("filled", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--new-classes", is_flag=True, help="Allow names that no image had so far.")
@params_option
def command(filled: Path, new_classes: bool, params: Path) -> None:
    """Add the labels of FILLED, a table of image and labels as `suggest` writes it, and set params.yaml to use them.

    Rows whose labels are empty are left out; `-` means none of the classes. These images train from then on, whatever the ratio.
    Says which labels that were there are changed.
    All labels given so far are kept in one file under labels/, named by its content: commit it with params.yaml.
    """
    import csv
    import hashlib
    import io
    from difflib import get_close_matches

    from dicap.artifacts import replacing
    from dicap.data.format import read_index, read_meta
    from dicap.data.sources.own import read_added
    from dicap.errors import DataError, SettingsError
    from stages.init_data import write_settings

    settings = load(params)
    if settings.dataset != "table":
        raise SettingsError(f"{params}: dataset: found {settings.dataset!r}; only one's own data (table) takes new labels")
    folder = data_folder(settings)
    known, classes = set(read_index(folder, ["id"])["id"].to_pylist()), read_meta(folder)["classes"]
    fresh = read_added(filled, classes, known)
    if not fresh:
        raise DataError(f"{filled}: no row has labels; fill in the column labels (`-` for none of the classes)")
    names = sorted({name for labels in fresh.values() for name in labels} - set(classes))
    if names and not new_classes:
        near = get_close_matches(names[0].casefold(), [name.casefold() for name in classes], 1, 0.6)
        hint = next((f"; did you mean {name}?" for name in classes if near and name.casefold() == near[0]), "")
        raise DataError(
            f"{filled}: no image was labelled {', '.join(names[:5])} so far; correct the spelling, or pass --new-classes{hint}"
        )
    before = read_added(Path(settings.own.added)) if settings.own.added else {}
    changed, confirmed = compared(fresh, current_labels(folder, classes) | before)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "labels"])
    for image, labels in sorted((before | fresh).items()):
        writer.writerow([image, ";".join(labels) or "-"])
    name = hashlib.sha256(text.getvalue().encode()).hexdigest()[:12]
    path = FOLDER / f"added-{name}.csv"
    with replacing(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")
    write_settings(params, {"own": {"added": path.as_posix()}})
    for image, lost, gained in changed[:SHOWN]:
        say(f"{image}: {', '.join([f'- {name}' for name in lost] + [f'+ {name}' for name in gained])}")
    if len(changed) > SHOWN:
        say(f"... and {len(changed) - SHOWN} more")
    facts = {"new": len(fresh) - len(changed) - confirmed, "changed": len(changed), "confirmed": confirmed}
    finish("import-labels", facts | {"in all": len(before | fresh), "labels": str(path)}, ["dvc repro"])


def current_labels(folder: Path, classes: list[str]) -> dict[str, list[str]]:
    """{image: names} of the images of a converted set that have labels."""
    from dicap.data.format import read_index

    table = read_index(folder, ["id", "labels"])
    rows = zip(table["id"].to_pylist(), table["labels"].to_pylist(), strict=True)
    return {image: sorted(classes[c] for c in labels) for image, labels in rows if labels is not None}


def compared(fresh: dict[str, list[str]], known: dict[str, list[str]]) -> tuple[list[tuple[str, list[str], list[str]]], int]:
    """(image, names lost, names gained) of the images whose labels change, and how many keep theirs."""
    changed = [
        (image, sorted(set(known[image]) - set(labels)), sorted(set(labels) - set(known[image])))
        for image, labels in sorted(fresh.items())
        if image in known and set(known[image]) != set(labels)
    ]
    return changed, sum(image in known for image in fresh) - len(changed)
