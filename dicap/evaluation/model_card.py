"""The model card: what a model was made from, how good it is, and what it should not be trusted with."""

from collections.abc import Iterator, Sequence
from typing import Any

from dicap.errors import first_of
from dicap.metrics.operating_point import digits
from dicap.metrics.warnings import score_in_words
from dicap.models import SavedModel
from dicap.settings import flatten
from dicap.settings.catalogue import OWN
from dicap.settings.checks import unread
from dicap.settings.methods import METHODS, holds_out


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
        metrics: as in details.json; meta: the converted set's description.
        roles: images by role (sup, est, unlabeled, test).
        classes: (name, labelled positives, test positives, AP in percent).
        environment: name and version of what decides the numbers.
    """
    s = model.settings
    name = f"{METHODS[s.method].title} on {'own images' if meta['dataset'] == OWN else meta['dataset']}"
    hidden = {"data_root", *unread(s)}
    held_out, unknown = holds_out(s.method, s.protocol), metrics.get("unknown_labelled")
    parts = [
        f"# {name}",
        f"A multi-label classifier of {len(model.classes)} classes: {s.backbone} with {s.head}, images of {s.image_size} px.",
        *(f"> **Warning:** {line}." for line in metrics.get("warnings", [])),
        "## Intended use",
        "Says of a photograph which of its classes it shows: yes, no or unsure, each with the chance to be right where that was "
        "measured. Meant for photographs like those it was tested on, with a person who looks at what is unsure. "
        f"Classes: {_named(model.classes)}.",
        "Not meant for decisions about people, nor where a wrong answer does harm, without a test on images of that use.",
        '```python\nfrom dicap import load_model, predict\n\ntable = predict(load_model("."), "photograph.jpg")\n```',
        "## Result",
        _table(("measure", "value"), list(_results(metrics))),
        "## Data",
        _table(
            ("part", "images", "what for"),
            [
                ("D_sup", roles["sup"], "labelled, trained on"),
                ("D_est", roles["est"], "labelled, kept for estimating correctness" if held_out else "labelled, trained on"),
                ("D_u", roles["unlabeled"], "unlabelled"),
                ("test", roles["test"], "scored, never trained on"),
            ],
        ),
        f"Of {unknown} entries (image, class) of the labelled images nothing is known; they were not learnt." if unknown else "",
        f"{len(meta['rejected'])} files were rejected at conversion. " + " ".join(f"{note}." for note in meta["notes"]),
        "## Decisions",
        f"Yes above the class's upper threshold, no below the lower one, unsure between. Chance: {model.evidence.note}.",
        *_chance(metrics),
        "## Classes",
        _classes(classes),
        "## Limits",
        "\n".join(f"- {line}" for line in _limits(model, metrics, classes)),
        "## Settings",
        _table(
            ("key", "value"), [(key, value) for key, value in flatten(s.model_dump()) if value is not None and key not in hidden]
        ),
        "## Environment",
        _table(("name", "version"), list(environment.items())),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _named(classes: Sequence[str], most: int = 30) -> str:
    return first_of([*map(_plain, classes)], most)


def _results(metrics: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    left_out = metrics["classes_left_out"]
    kind = "positive" if left_out <= metrics["classes_without_positives"] else "positive or without a known negative"
    over = (
        f", mean over {metrics['n_classes'] - left_out} classes ({left_out} without a {kind} test image left out)"
        if left_out
        else ""
    )
    yield "mAP on the test images, %", f"{score_in_words(metrics)}{over}"
    yield "test images", metrics["n_test"]
    if metrics.get("unknown_entries"):
        yield "entries (image, class) of the test images that are unknown and not counted", metrics["unknown_entries"]
    yield "entries (image, class) answered yes, no, unsure", f"{metrics['yes']}, {metrics['no']}, {metrics['unsure']}"
    yield "of the yes right (precision)", _share(metrics["yes_right"])
    yield "of the positives found (recall)", _share(metrics["yes_recall"])
    yield "F1 of yes, at the model's thresholds", f"{metrics['f1']:.3f}"
    if metrics.get("threshold_best") is not None:
        yield (
            f"F1 of yes, at one threshold chosen on {metrics['threshold_images']} labelled images that no score had learnt",
            f"{metrics['f1_best']:.3f} (at {metrics['threshold_best']:.3g}: precision {_share(metrics['precision_best'])}, "
            f"recall {_share(metrics['recall_best'])})",
        )
    yield "F1 of always saying yes", f"{metrics['constant_f1']:.3f}"
    yield "of the no right", _share(metrics["no_right"])
    yield f"right if the answer were always {metrics['constant']}", _share(metrics["constant_right"])
    if "unlabelled" in metrics:
        yield "unlabelled photographs", metrics["unlabelled"]
    if metrics["chance_gap"] is not None:
        yield "stated chance to be right is off by", f"{metrics['chance_gap']:.3f} on average"


def _share(value: float | None) -> str:
    return "(none)" if value is None else f"{value:.1%}"


def _chance(metrics: dict[str, Any]) -> list[str]:
    rows = [
        (
            f"{row['left']:.1f} to {row['right']:.1f}",
            f"{row['n']} in {row['images']} images",
            f"{row['chance']:.{digits((row['high'] - row['low']) / 2)}f}",
            f"{row['share']:.{digits((row['high'] - row['low']) / 2)}f} ({row['low']:.2f} to {row['high']:.2f})",
        )
        for row in metrics["chance_tenths"]
    ]
    return [_table(("stated chance", "decisions", "mean chance", "share right (95 % interval)"), rows)] if rows else []


def _classes(classes: Sequence[tuple[str, int, int, float]]) -> str:
    ordered = sorted(classes, key=lambda row: (row[2] == 0, -row[3], row[0]))
    rows = [(name, labelled, test, f"{ap:.1f}" if test else "not tested") for name, labelled, test, ap in ordered]
    return _table(("class", "labelled images", "test images", "AP (%)"), rows)


def _limits(model: SavedModel, metrics: dict[str, Any], classes: Sequence[tuple[str, int, int, float]]) -> Iterator[str]:
    yield "The numbers hold for images like the test images; on others they are not known."
    few = [name for name, labelled, _, _ in classes if labelled < 10]
    if few:
        names = ", ".join(map(_plain, few[:10])) + (" ..." if len(few) > 10 else "")
        yield f"{len(few)} classes were learnt from fewer than 10 labelled images: {names}."
    if metrics["classes_without_positives"]:
        yield f"{metrics['classes_without_positives']} classes have no positive test image: nothing is known of them."
    if model.evidence.measured is None:
        yield "It states no chance to be right, because no labelled images were kept to measure it."
    else:
        yield (
            f"The chance to be right was measured on {model.evidence.entries} entries, all classes pooled: "
            "of a single class it may be off."
        )


def _table(header: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(_plain(str(cell)) for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Text on one line that no viewer takes for HTML or for the end of a cell."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
