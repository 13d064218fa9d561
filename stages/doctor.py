"""`dicap-stage doctor`: is a converted data set sound?"""

from pathlib import Path

import click


@click.command("doctor")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--sheet",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Contact sheet (PNG); default: artifacts/doctor/<name>.png.",
)
@click.option("--strict", is_flag=True, help="Exit 1 on warnings too.")
def command(folder: Path, sheet: Path | None, strict: bool) -> None:
    """Check counts, checksums, labels and duplicates of data/<dataset>, and draw a contact sheet."""
    from dicap.data.doctor import contact_sheet, examine
    from dicap.errors import DataError

    findings = examine(folder)
    counts = ", ".join(f"{count} {split}" for split, count in findings.counts.items() if count)
    click.echo(f"{folder}: {counts}; {findings.rejected} rejected")
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
    sheet = sheet or Path("artifacts") / "doctor" / f"{folder.resolve().name}.png"
    contact_sheet(folder, sheet)
    click.echo(f"{sheet}: contact sheet")
    if strict and findings.warnings:
        raise DataError(f"{folder}: {len(findings.warnings)} warnings with --strict")
    click.echo(f"{folder}: sound")
