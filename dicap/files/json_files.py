"""JSON objects in files."""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dicap.errors import DataError
from dicap.files.atomic import replacing


def write_json(values: dict[str, Any], path: Path) -> None:
    """Write indented JSON; NaN raises ValueError."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path, again: str = "remove it and run `dvc repro`") -> dict[str, Any]:
    """Read a JSON object. Raises DataError with a remedy if it is missing or damaged (`again`: the remedy if damaged)."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `dvc repro` makes it") from None
    except (ValueError, OSError, RecursionError):
        raise DataError(f"{path}: not readable as JSON; {again}") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: expected a JSON object; {again}")
    return values


def check_kinds(values: dict[str, Any], kinds: dict[str, Any], path: Path, again: str) -> None:
    """Raise DataError with the remedy `again` unless the values have the types {key: type}; other keys are allowed."""
    for key, kind in kinds.items():
        try:
            TypeAdapter(kind).validate_python(values.get(key), strict=True)
        except ValidationError as error:
            raise DataError(f"{path}: {key}: {error.errors()[0]['msg'].lower()}; {again}") from None
