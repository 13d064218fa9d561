"""From a template to one HTML file whose content security policy lets in nothing from outside."""

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")  # what pages share


def render(
    name: str,
    *folders: Path,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    images: str = "data:",
    style_attributes: bool = False,
    **values: Any,
) -> str:
    """The text of a page. Everything put into the template is escaped unless it is Markup.

    It extends frame.html, which finds `policy`, `style` and `script`: the content of the Content-Security-Policy, of the one
    <style> and of its one <script>. The policy names these two by their hashes and allows nothing else.

    Args:
        folders: where templates lie beside the shared ones.
        styles, scripts: file names in the order of their contents; scripts share one scope, which the page does not see.
        images: sources of images in the policy's words.
        style_attributes: elements bear style attributes (figures do); styles can then not be named by a hash.
    """
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, *folders]),
        autoescape=True,  # names of classes and of files come from users
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["thousands"] = lambda n: f"{n:,}"
    environment.filters["number"] = lambda x, digits=2: "–" if x is None else f"{x:.{digits}f}"
    environment.filters["percent"] = lambda x, digits=0: "–" if x is None else f"{100 * x:.{digits}f}"

    def contents(names: Sequence[str]) -> str:
        return "\n".join(environment.get_template(part).render() for part in names)

    style = contents(styles)
    script = f'"use strict";\n(async () => {{\n{contents(scripts)}}})();\n' if scripts else ""
    policy = [
        "default-src 'none'",
        f"style-src {_source(style)}" if not style_attributes else "style-src 'unsafe-inline'",
        f"script-src {_source(script)}" if script else "script-src 'none'",
        f"img-src {images}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    page = environment.get_template(name)
    return page.render(policy="; ".join(policy), style=Markup(style), script=Markup(script), **values)


def data_block(value: Any, name: str) -> Markup:
    """`value` as JSON in a <script type="application/json" id="name">, which no browser runs; whatever it holds stays inside.

    Lone surrogates (file names that are not UTF-8) travel as escapes. Raises ValueError for a NaN.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":  # ASCII alone is left of the others, the two line ends of JavaScript included
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(f'<script type="application/json" id="{Markup.escape(name)}">{text}</script>')


def address(content: bytes, kind: str = "image/jpeg") -> str:
    """A file as an address of itself."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _source(text: str) -> str:
    """How a policy names an inline element by its content."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
