"""The model card: what a model was made from, how good it is, and what it should not be trusted with."""

from collections.abc import Iterator, Sequence
from typing import Any

from dicap.catalogue import METHODS
from dicap.models import SavedModel
from dicap.settings import flatten

SHOWN = 100  # classes in the table at most: the best and the worst


def model_card(
    model: SavedModel,
    metrics: dict[str, Any],
    meta: dict[str, Any],
    roles: dict[str, int],
    classes: Sequence[tuple[str, int, int, float]],
    environment: dict[str, str],
) -> str:
    """Markdown; a pure function of its arguments.

    Args:
        metrics: as in metrics.json; meta: the converted set's description.
        roles: images by role (sup, est, unlabeled, test).
        classes: (name, labelled positives, test positives, AP in percent).
        environment: name and version of what decides the numbers.
    """
    s = model.settings
    parts = [
        f"# {METHODS[s.method].title} on {meta['dataset']}",
        f"A multi-label classifier of {len(model.classes)} classes: {s.backbone} with {s.head}, images of {s.image_size} px.",
        "## Result",
        _table(("measure", "value"), list(_results(metrics))),
        "## Data",
        _table(
            ("part", "images", "what for"),
            [
                ("D_sup", roles["sup"], "labelled, trained on"),
                (
                    "D_est",
                    roles["est"],
                    "labelled, kept for estimating correctness" if METHODS[s.method].finetunes else "labelled, trained on",
                ),
                ("D_u", roles["unlabeled"], "unlabelled"),
                ("test", roles["test"], "scored, never trained on"),
            ],
        ),
        f"{len(meta['rejected'])} files were rejected at conversion. " + " ".join(f"{note}." for note in meta["notes"]),
        "## Decisions",
        f"Yes above the class's upper threshold, no below the lower one, unsure between. Chance: {model.decisions.note}.",
        *_chance(metrics),
        "## Classes",
        _classes(classes),
        "## Limits",
        "\n".join(f"- {line}" for line in _limits(model, metrics, classes)),
        "## Settings",
        _table(
            ("key", "value"), [(key, value) for key, value in flatten(s.model_dump()) if value is not None and key != "data_root"]
        ),
        "## Environment",
        _table(("name", "version"), list(environment.items())),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _results(metrics: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    interval = ""
    if metrics["map_low"] is not None:
        interval = f" (95 % interval {metrics['map_low']:.2f} to {metrics['map_high']:.2f})"
    yield "mAP on the test images", f"{metrics['map']:.2f} %{interval}"
    yield "test images", metrics["n_test"]
    yield "entries (image, class) decided", f"{metrics['decided']:.1%}"
    if metrics["decided_right"] is not None:
        yield "of these right", f"{metrics['decided_right']:.1%}"
    if metrics["chance_gap"] is not None:
        yield "stated chance to be right is off by", f"{metrics['chance_gap']:.3f} on average"


def _chance(metrics: dict[str, Any]) -> list[str]:
    rows = [
        (f"{row['left']:.1f} to {row['right']:.1f}", row["n"], f"{row['chance']:.3f}", f"{row['share']:.3f}")
        for row in metrics["chance_tenths"]
    ]
    return [_table(("stated chance", "decisions", "mean chance", "share right"), rows)] if rows else []


def _classes(classes: Sequence[tuple[str, int, int, float]]) -> str:
    ordered = sorted(classes, key=lambda row: (-row[3], row[0]))
    left_out = max(0, len(ordered) - SHOWN)
    if left_out:
        ordered = [*ordered[: SHOWN // 2], *ordered[-SHOWN // 2 :]]
    rows = [(name, labelled, test, f"{ap:.1f}") for name, labelled, test, ap in ordered]
    table = _table(("class", "labelled images", "test images", "AP (%)"), rows)
    return f"{table}\n\n{left_out} classes between the best and the worst are left out." if left_out else table


def _limits(model: SavedModel, metrics: dict[str, Any], classes: Sequence[tuple[str, int, int, float]]) -> Iterator[str]:
    yield "The numbers hold for images like the test images; on others they are not known."
    few = [name for name, labelled, _, _ in classes if labelled < 10]
    if few:
        names = ", ".join(few[:10]) + (" ..." if len(few) > 10 else "")
        yield f"{len(few)} classes were learnt from fewer than 10 labelled images: {names}."
    if metrics["classes_without_positives"]:
        yield f"{metrics['classes_without_positives']} classes have no positive test image: nothing is known of them."
    if model.decisions.curve is None:
        yield "It states no chance to be right, because no labelled images were kept to measure it."
    else:
        yield (
            f"The chance to be right was measured on {model.decisions.entries} entries, all classes pooled: "
            "of a single class it may be off."
        )


def _table(header: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
