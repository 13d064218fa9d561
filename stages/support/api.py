"""docs/api.md, made from the docstrings of what Python programs may use; `dicap-stage reference --api` prints it."""

import importlib
import inspect
import re
import textwrap
from typing import Any

MODULES = (
    *(
        "dicap",
        "dicap.calibration.rates",
        "dicap.calibration.thresholds",
        "dicap.calibration.curve",
        "dicap.calibration.decision",
        "dicap.metrics.ranking",
        "dicap.metrics.operating_point",
    ),
    "dicap.sklearn",
)
INTRODUCTION = """# Python

Made by `dicap-stage reference --api` from the docstrings; a test keeps it current. What is listed here stays as it is within a
minor version; everything else may change.

## Weights for scores of your own

The calibrated weights of the paper need no network of this project: scores of labelled images that were not trained on, and
scores of unlabelled ones, are enough.

```python
import torch
from dicap.calibration.rates import correctness_weight, count_bins, estimate_rates
from dicap.calibration.thresholds import dual_thresholds, hard_labels

labels = (torch.rand(200, 5) < 0.3).int()  # (N, C), of images kept from training
scores = (0.4 * labels + 0.6 * torch.rand(200, 5)).clamp(0, 1)  # (N, C) in [0, 1]: your network's
unlabelled = torch.rand(1000, 5)  # (M, C)
rates = estimate_rates(*count_bins(scores, labels, bins=20), anchor="centre")
pseudo = hard_labels(unlabelled, dual_thresholds(scores, labels))  # 1, 0, or -1: uncertain
weight = correctness_weight(unlabelled, pseudo, rates)  # how likely each is right; 0 where uncertain
loss = torch.nn.functional.binary_cross_entropy(unlabelled, pseudo.clamp(min=0).float(), weight=weight)
print(f"{(pseudo >= 0).float().mean():.0%} of the entries train, with a mean weight of {weight[pseudo >= 0].mean():.2f}")
```
"""


def api() -> str:
    """The page: the public names of each module with their signatures and docstrings."""
    return "\n".join([INTRODUCTION, *(_module(name) for name in MODULES)])


def _module(name: str) -> str:
    module = importlib.import_module(name)
    names = [public for public in module.__all__ if not public.startswith("__")]
    parts = [f"## {name}", _text(module)] if name != "dicap" else [f"## {name}"]
    parts += [_entry(getattr(module, public), public) for public in names]
    return "\n\n".join(parts) + "\n"


def _entry(thing: Any, name: str) -> str:
    heading = f"### {name}"
    if inspect.isclass(thing):
        methods = [
            f"#### {name}.{key}\n\n{_code(key, value)}{_text(value)}"
            for key, value in vars(thing).items()
            if not key.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)) and value.__doc__
        ]
        return "\n\n".join([heading, _text(thing), *methods])
    return f"{heading}\n\n{_code(name, thing)}{_text(thing)}"


def _code(name: str, thing: Any) -> str:
    """The call of a function; nothing for a property."""
    return "" if isinstance(thing, property) else f"```python\n{name}{_signature(thing)}\n```\n\n"


def _signature(function: Any) -> str:
    """Parameters on lines of their own where one line would be too long; modules' names left out."""
    signature = inspect.signature(function)
    line = re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w+)", r"\1", str(signature))
    if len(line) <= 100:
        return line
    listed = [re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w+)", r"\1", str(value)) for value in signature.parameters.values()]
    keywords = next((i for i, value in enumerate(signature.parameters.values()) if value.kind is value.KEYWORD_ONLY), None)
    if keywords is not None:
        listed.insert(keywords, "*")
    return "(\n" + "".join(f"    {part},\n" for part in listed) + ")" + line.rpartition(")")[2]


def _text(thing: Any) -> str:
    """A docstring as Markdown: the sections Args and Raises become lists."""
    text, out = inspect.getdoc(thing) or "", []
    for block in text.split("\n\n"):
        head, _, rest = block.partition("\n")
        if head == "Returns:":
            out.append(f"{head} {textwrap.dedent(rest)}")
        elif re.fullmatch(r"(Args|Raises|Attributes):", head):
            items = re.sub(r"\n\s{4,}", " ", textwrap.dedent(rest))
            out.append(f"{head}\n\n" + "\n".join(f"- {item.strip()}" for item in items.splitlines()))
        else:
            out.append(block)
    return "\n\n".join(out)
