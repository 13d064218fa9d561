"""Grids of experiments (`experiments/*.yaml`): named cases times axes, expanded into cells; all cells are checked before a run.

```yaml
title: Ablation ladder
table: ablation            # the kind of `dicap-stage table` that shows the runs; null: none
settings: {train.epochs: 6}
cases:                     # optional; each is a set of settings
  dth: {calibration.target: hard, thresholds.rule: midrange}
axes:                      # every combination of these
  seed: [1, 2, 3]
```
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictStr, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from dicap.errors import SettingsError, did_you_mean
from dicap.lab.experiments import TABLES
from dicap.settings import changed, flatten, known_keys, read_yaml, resolve_values

KEYS = ("title", "table", "settings", "cases", "axes")


@checked_dataclass(frozen=True)
class Grid:
    """A grid as written: `cases` (name -> settings) times `axes` (setting -> values), over common `settings`.

    chosen: setting -> values; cells with other values are left out.
    """

    title: str
    table: Literal[*TABLES] | None = None  # type: ignore[valid-type]
    settings: dict[str, Any] = field(default_factory=dict)
    cases: dict[StrictStr, dict[str, Any]] = field(default_factory=lambda: {"": {}})  # 1 and "1" would be one
    axes: dict[str, Annotated[list[Any], Field(min_length=1)]] = field(default_factory=dict)
    chosen: dict[str, list[Any]] = field(default_factory=dict)

    def override(self, changes: Mapping[str, Sequence[Any]]) -> Grid:
        """The grid with changed values. Several values become an axis, one value becomes a new value of its axis or a setting.

        If a case sets the setting itself, the values choose among the cells instead.
        """
        axes, settings, chosen = dict(self.axes), dict(self.settings), dict(self.chosen)
        for key, values in changes.items():
            if any(key in case for case in self.cases.values()):
                chosen[key] = list(values)
                continue
            settings.pop(key, None)
            if key in axes or len(values) > 1:
                axes[key] = list(values)
            else:
                settings[key] = values[0]
        return replace(self, settings=settings, axes=axes, chosen=chosen)


@dataclass(frozen=True)
class Cell:
    """One experiment: a readable name that is unique to its settings, its case, its changes to params.yaml, all settings."""

    name: str
    case: str
    changes: dict[str, Any]
    settings: dict[str, Any]


def read_grid(path: Path) -> Grid:
    """Read a grid file. Raises SettingsError with a line for every mistake."""
    if not path.is_file():
        raise SettingsError(f"{path}: no such file; experiments/ holds the ready-made grids")
    content = read_yaml(path)
    if not content.keys() <= {*KEYS}:
        raise SettingsError(f"{path}: expected the keys {', '.join(KEYS)}")
    written: dict[str, Any] = {"title": path.stem} | {key: value for key, value in content.items() if value}
    try:
        grid = Grid(**written)
    except ValidationError as error:
        lines = (f"{'.'.join(map(str, item['loc']))}: found {item['input']!r}; {item['msg']}" for item in error.errors())
        raise SettingsError("\n".join(f"{path}: {line}" for line in lines)) from None
    known = list(known_keys())
    keys = dict.fromkeys([*grid.settings, *grid.axes, *(key for case in grid.cases.values() for key in case)])
    if unknown := [f"{path}: {key}: not a setting{did_you_mean(key, known)}" for key in keys if key not in known]:
        raise SettingsError("\n".join(unknown))
    return grid


def cells(grid: Grid, params: Path) -> list[Cell]:
    """Every cell, in the order of the cases, checked by the rules of params.yaml. Cells with equal settings are merged.

    Raises:
        SettingsError: a line for every invalid cell, and for every chosen value that no cell has.
    """
    read = functools.cache(read_yaml)  # reading the files for every cell would take minutes
    base = read(params)
    planned: dict[str, Cell] = {}
    problems = []
    values_of: dict[str, list[Any]] = {key: [] for key in grid.chosen}  # the values in all cells
    for (case, own), *values in itertools.product(grid.cases.items(), *grid.axes.values()):
        changes = grid.settings | dict(zip(grid.axes, values, strict=True)) | own
        if any(changes.get(key) not in (None, *values) for key, values in grid.chosen.items()):
            for key in grid.chosen:
                values_of[key].append(changes.get(key))
            continue
        try:
            settings = resolve_values(changed(base, changes), params, read=read).settings.model_dump()
        except SettingsError as error:
            label = " ".join(f"{key}={value}" for key, value in changes.items())
            problems += [f"{label}: {line}" for line in str(error).splitlines()]
            continue
        flat = dict(flatten(settings))
        for key in grid.chosen:
            values_of[key].append(flat[key])
        if any(flat[key] not in values for key, values in grid.chosen.items()):
            continue
        mark = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        planned.setdefault(mark, Cell(_name(grid, case, changes, settings, mark[:10]), case, changes, settings))
    for key, values in grid.chosen.items():
        for value in values:
            if value not in values_of[key]:
                found = ", ".join(sorted({str(found) for found in values_of[key] if found is not None}))
                problems.append(f"-S {key}={value}: no cell of the grid has it; the cases set {key} themselves ({found})")
    if problems:
        raise SettingsError("\n".join(problems))
    return list(planned.values())


def _name(grid: Grid, case: str, changes: Mapping[str, Any], settings: Mapping[str, Any], mark: str) -> str:
    """A name that DVC and Git accept, with the case or method, and the values of the axes that are not in every name anyway."""
    included = {"dataset", "ratio", "seed"} | (set() if case else {"method"})
    values = [changes[key] for key, values in grid.axes.items() if len(values) > 1 and key not in included]
    parts = [settings["dataset"], case or settings["method"], *(str(value) for value in values if value is not None)]
    return re.sub(r"[^\w-]+", "_", "-".join([*parts, f"r{settings['ratio']:g}", f"s{settings['seed']}", mark]))
