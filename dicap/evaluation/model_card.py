"""The model card: a model's data, its metrics, its intended use and its limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

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
    """The card in Markdown, from the template `model_card.md`; a pure function of its arguments.

    Args:
        metrics: the content of details.json; meta: the converted set's meta.json.
        roles: images by role (sup, est, unlabeled, test).
        classes: (name, labelled positives, test positives, AP in percent).
    """
    s = model.settings
    hidden = {"data_root", *unread(s)}
    card = Environment(undefined=StrictUndefined, finalize=_plain, trim_blocks=True, keep_trailing_newline=True)
    card.filters |= {
        "digits": lambda row: digits((row["high"] - row["low"]) / 2),
        "first_of": first_of,
        "score_in_words": score_in_words,
        "share": lambda value: "(none)" if value is None else f"{value:.1%}",
    }
    return card.from_string(Path(__file__).with_suffix(".md").read_text(encoding="utf-8")).render(
        title=f"{METHODS[s.method].title} on {'own images' if meta['dataset'] == OWN else meta['dataset']}",
        model=model,
        settings=s,
        metrics={"unknown_entries": 0, "unknown_labelled": 0, "warnings": [], **metrics},
        meta=meta,
        roles=roles,
        held_out=holds_out(s.method, s.protocol),
        classes=sorted(classes, key=lambda row: (row[2] == 0, -row[3], row[0])),
        few=[name for name, labelled, _, _ in classes if labelled < 10],
        values=[(key, value) for key, value in flatten(s.model_dump()) if value is not None and key not in hidden],
        environment=environment,
    )


def _plain(value: Any) -> str:
    """Text on one line, escaped so that no viewer reads it as HTML or as the end of a table cell."""
    return " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
