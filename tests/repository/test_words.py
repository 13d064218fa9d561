"""Plain words: documents and help texts name the noun and put the subject first, at least in the wordings listed here."""

import re

import click
import pytest

from repository.test_citations import ROOT, text_of
from stages.cli import main

GENERATED = {"docs/errors.md"}  # its sentences are the messages in the code
PAGES = sorted(
    {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"} | {f"docs/{p.name}" for p in ROOT.glob("docs/*.md")}
)
INSTEAD = {  # a wording that makes a reader look back, and what to write
    r"\bof (which|whom)\b": "a sentence for the part",
    r"\b(is that|those|the same) of\b": "the noun again",
    r"\b(is|are) none\b|\bone's own\b|\bto be had\b": "what is missing, whose it is",
    r"(?m)(^|[.:;|] +)(- )?(\*\*)?Of (?!course)": "the subject first",
    r"(?i)\b(nobody|anybody|whichever|vouch\w*|anew|asked again)\b": "the field's term",
    r"\b(is|are|was|were) told\b|\bhas to beat\b|(^|[.;] )Nor do": "who does what",
}


def stumbles(text: str) -> list[str]:
    """The wordings in a text, each with what stands around it and what to write; code, names and addresses are no prose."""
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.DOTALL)
    prose = re.sub(r"(?<!\n)\n *(?![\n|#-])", " ", prose)  # a wrapped sentence in one line
    hits = [(hit, instead) for wording, instead in INSTEAD.items() for hit in re.finditer(wording, prose)]
    return [f"{prose[max(hit.start() - 40, 0) : hit.end() + 20]!r}: write {instead}" for hit, instead in hits]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED])
def test_a_page_is_in_plain_words(page):
    assert not stumbles(text_of(page))


def test_the_help_is_in_plain_words():
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        assert command
        texts = [command.help, *(option.help for option in command.params if isinstance(option, click.Option))]
        assert not stumbles("\n\n".join(filter(None, texts))), name
