"""Reading and merging settings: params.yaml, configs/<protocol>.yaml, configs/<dataset>.yaml, then the published values.

A key that is null or missing in one file is read from the next; published values are in `schema`. The result is an immutable,
typed and checked `Settings`. All errors are reported together. Each error names the file, the key, the value and the allowed
values.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError

from dicap.errors import SettingsError, did_you_mean
from dicap.files.atomic import replacing
from dicap.settings.catalogue import DATASETS, HEADS, NONE, OWN_HEAD, PATHS, PROTOCOLS
from dicap.settings.checks import contradictions, warnings
from dicap.settings.fields import ORIGINS
from dicap.settings.methods import METHODS
from dicap.settings.schema import Settings

TEMPLATE = Path(__file__).parents[1] / "project"  # the files of a new project, also in an installed package


@dataclass(frozen=True)
class Resolved:
    """Settings, and the origin of every value by dotted key: a file, a method, or a text of ORIGINS."""

    settings: Settings
    origins: dict[str, str]

    @property
    def warnings(self) -> list[str]:
        """A line for every setting that is valid but suspicious; see `dicap.settings.checks`."""
        return [*warnings(self.settings, self.origins)]


def load_settings(params: Path) -> Settings:
    """Read, merge and check the settings; see `resolve`."""
    return resolve(params).settings


def resolve(params: Path) -> Resolved:
    """Merge params.yaml over its protocol's and its data set's file in configs/ and over the published values; check everything.

    `configs` is the folder next to `params`, else in the current folder, else in the package.

    Raises:
        SettingsError: one line for every mistake.
    """
    return resolve_values(read_yaml(params), params)


def resolve_values(values: dict[str, Any], params: Path, read: Callable[[Path], dict[str, Any]] | None = None) -> Resolved:
    """`resolve` for given content `values` of the file `params`, which need not exist. `read` reads the files in configs/."""
    read = read or read_yaml
    configs = next(path for folder in (params.parent, Path(), TEMPLATE) if (path := folder / "configs").is_dir())
    dataset, protocol = values.get("dataset"), values.get("protocol", PROTOCOLS[0])
    if dataset not in DATASETS:
        misspelt = _unknown_keys(params, values) if dataset is None else []
        raise SettingsError("\n".join(misspelt) or _unknown_name(params, "dataset", dataset, DATASETS))
    if protocol not in PROTOCOLS:
        raise SettingsError(_unknown_name(params, "protocol", protocol, PROTOCOLS))
    files = [configs / f"{name}.yaml" for name in (protocol, dataset)]
    layers = [(params, values), *((path, read(path)) for path in files)]

    problems = [line for path, values in layers for line in _unknown_keys(path, values)]
    for path, section in layers[1:]:  # dataset and protocol choose these files, so these files cannot set them
        misplaced = [key for key in ("dataset", "protocol", "method", *PATHS) if key in dict(flatten(section))]
        problems += [f"{_short(path)}: {key}: is read from {_short(params)} alone; move it there" for key in misplaced]
    undotted = [(_short(path), {key: section[key] for key in section if "." not in str(key)}) for path, section in layers]
    merged, origins = _merge(undotted)  # without dotted keys, which `_unknown_keys` reported
    merged["protocol"] = protocol
    for key in PATHS:
        section, _, name = key.rpartition(".")
        target = merged[section] if section else merged
        if target[name] == NONE:
            target[name] = None
            del origins[key]
    if merged["weights_file"] is not None:
        merged["backbone_weights"], origins["backbone_weights"] = merged["weights_file"], origins["weights_file"]
    method = next((name for name in METHODS if name == merged["method"]), None)
    own = method is not None and METHODS[method].head == OWN_HEAD
    if method is None:
        problems.append(_unknown_name(origins.get("method", params), "method", merged["method"], METHODS))
        merged["head"] = merged.get("head") or HEADS[0]  # avoids a second error that only follows from this one
    elif merged["head"] is None or ((own or method == "mld") and origins["head"] != _short(params)):  # ignore a protocol's
        merged["head"] = METHODS[method].head
        origins["head"] = f"published head of {method}"
    if method is not None:
        _values_of_method(method, merged, origins)
    if own and merged["head"] != OWN_HEAD:
        problems.append(
            f"{origins['head']}: head: found {merged['head']!r}, but {method} brings its own network; set head to null"
        )
    elif not own and merged["head"] not in HEADS:
        problems.append(_unknown_name(origins["head"], "head", merged["head"], HEADS))
    settings = None
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        problems += [_explain(item, origins, params) for item in error.errors() if item["type"] != "extra_forbidden"]
    if settings is not None and not problems:  # else a contradiction may only follow from another mistake
        problems += contradictions(settings, origins)
    if problems or settings is None:
        raise SettingsError("\n".join(problems))
    return Resolved(settings, origins)


def flatten(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) in order, entering sections. Settings are at most one section deep."""
    for key, value in values.items():
        if isinstance(value, dict) and not prefix:  # one level only: a YAML alias may refer to itself
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def known_fields(section: type[BaseModel] = Settings, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every dotted key of the settings with its field, in the order of the classes."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from known_fields(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def known_keys() -> Iterator[str]:
    """Yield every dotted key of the settings, in the order of the classes."""
    return (key for key, _ in known_fields())


def change_settings(params: Path, changes: Mapping[str, Any]) -> None:
    """Change values at dotted keys of a settings file, keeping its comments. Raises SettingsError as `read_yaml` does."""
    read_yaml(params)
    yaml = YAML()
    yaml.width = 4096  # long paths are not wrapped
    values = changed(yaml.load(params.read_text(encoding="utf-8")), changes)
    with replacing(params) as temporary, temporary.open("w", encoding="utf-8") as file:
        yaml.dump(values, file)


def changed(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a settings file's content with changed values at dotted keys."""
    values = copy.deepcopy(values)
    for key, value in changes.items():
        value = PATHS.get(key) if value is None else value
        section, _, name = key.rpartition(".")
        if section and not isinstance(values.get(section), dict):
            values[section] = {}  # the section is missing or empty
        (values[section] if section else values)[name] = value
    return values


def read_yaml(path: Path) -> dict[str, Any]:
    """The content of a settings file. Raises SettingsError."""
    # YAML 1.2, the dialect DVC writes: PyYAML would return the string "3e-05" for a learning rate of 0.00003.
    try:
        values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file; run from the project's folder or pass --params") from None
    except (YAMLError, ValueError, RecursionError) as error:  # bytes that are not UTF-8; a date of month 13; 10,000 brackets
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        if isinstance(error, DuplicateKeyError):
            raise SettingsError(f"{path}: has a key twice{line}; keep one") from None
        raise SettingsError(f"{path}: not readable as YAML{line}; compare it with the file in the repository") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: found {values!r}, expected `key: value` lines")
    return values


def _merge(layers: list[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    """For each key the first value that is not null, by the order of the layers, else the default value; and all origins."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    flat = [(origin, values | dict(flatten(values))) for origin, values in layers]  # with sections too: a value may be a mapping
    for key, field in known_fields():
        section, _, name = key.rpartition(".")
        target = merged.setdefault(section, {}) if section else merged
        values = ((origin, values.get(key)) for origin, values in flat)
        own = ("", None) if field.is_required() else (ORIGINS[field.json_schema_extra["origin"]], field.default)  # type: ignore[index]
        origin, target[name] = next(((origin, value) for origin, value in values if value is not None), own)
        if target[name] is not None:
            origins[key] = origin
    return merged, origins


def _values_of_method(method: str, merged: dict[str, Any], origins: dict[str, str]) -> None:
    """Set the two default values that depend on the method, in place (docs/methods.md 2.7, 4.5)."""
    ema_on = METHODS[method].ema_on
    if ema_on is not None and origins["warmup.passes_on"] == ORIGINS["assumed"]:
        merged["warmup"]["passes_on"] = "ema" if merged["dataset"] in ema_on else "raw"
        origins["warmup.passes_on"] = ORIGINS["published"]
    fixed = method == "drml" and merged["drml"]["features"] == "pretrained"
    if fixed and origins["network.normalize"] == ORIGINS["assumed"]:
        merged["network"]["normalize"] = "auto"


def _short(path: Path) -> str:
    return f"configs/{path.name}" if path.parent.name == "configs" else path.name


def _unknown_keys(path: Path, values: dict[str, Any]) -> list[str]:
    keys = list(known_keys())
    sections = {key.split(".")[0] for key in keys if "." in key}
    problems = []
    for name in sections & values.keys():
        if values[name] is not None and not isinstance(values[name], dict):
            problems.append(f"{_short(path)}: {name} is a section of settings; found the value {values[name]!r}")
    for key in values:
        if key in keys and "." in str(key):
            section, name = key.split(".")
            problems.append(f"{_short(path)}: {key} is not a key here; write `{name}:` below `{section}:`")
    for key, _ in flatten(values):
        if key not in keys and key not in sections:
            hint = did_you_mean(key, keys) or f"; the sections are {', '.join(sorted(sections))}"
            problems.append(f"{_short(path)}: {key} is not a setting{hint}")
    return problems


def _unknown_name(origin: Path | str, key: str, value: Any, allowed) -> str:
    origin = _short(origin) if isinstance(origin, Path) else origin
    return f"{origin}: {key}: found {value!r}, allowed are {', '.join(allowed)}{did_you_mean(value, allowed)}"


def _explain(item: Any, origins: dict[str, str], params: Path) -> str:
    """One line for one of pydantic's errors."""
    # For a union pydantic reports one error per member and appends the member's type to the key; the known key is its prefix.
    section, *names = map(str, item["loc"])
    key = next((key for key in known_keys() if key in (section, ".".join([section, *names[:1]]))), section)
    message = item["msg"].removeprefix("Input should be ").replace("'", "")
    origin = origins.get(key, _short(params))
    if item["input"] is None:
        return f"{origin}: {key}: no value in any of the files; expected {message}"
    value = repr(item["input"])
    hint = ""
    if item["type"] == "literal_error" and isinstance(item["input"], str):
        options = [option.strip(" '") for option in message.replace(" or ", ",").split(",")]
        hint = did_you_mean(item["input"], options)
    return f"{origin}: {key}: found {value}, expected {message}{hint}"
