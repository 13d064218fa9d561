"""Questions: labels that can be read in more than one way, with the options of `init-data` that select one reading."""

import csv
import io
import shlex
from collections.abc import Container, Iterable, Mapping

from dicap.errors import DataError
from dicap.photos.readers.heads import SPLIT
from dicap.settings import Own

Options = Mapping[str, str | list[str]]  # settings of the section `own`


class Question(DataError):
    """Labels can be read in more than one way.

    Attributes:
        text: the question.
        options: settings of the section `own` that select the proposed reading, in addition to the user's.
    """

    def __init__(self, text: str, said: Options | None = None, /, **more: str | list[str]) -> None:
        self.text, self.options = text, {key: value for key, value in more.items() if value}
        options = joined(said or {}, self.options)
        words = [f"--{key.removesuffix('_root').replace('_', '-')} {typed(listed(value))}" for key, value in options.items()]
        self.words = " ".join(words)
        super().__init__(self.proposing("init-data"))

    def proposing(self, command: str, *more: str) -> str:
        """The question with a command, the options that it proposes, and more words of the command."""
        return f"{self.text} -- as it would be read: {' '.join([command, self.words, *map(typed, more)])}"


def ask_of_keys(where: object, keys: Iterable[str], of_images: Container[str], own: Own) -> None:
    """Ask about `keys` of an annotation file without a role; those `of_images` may name a split or a group. Raises Question."""
    if free := [key for key in dict.fromkeys(keys) if key not in (own.split, own.group, *(own.ignore or ()))]:
        named = ", ".join(key for key in free if key in of_images)
        way = f"; is one of {named} the split (--split) or a group (--group)?" if named else ""
        split = "" if own.split else next((key for key in free if key in SPLIT and key in of_images), "")
        ignore = [key for key in free if key != split]
        raise Question(f"{where}: keys {', '.join(free)} have no role{way}", split=split, ignore=ignore)


def joined(options: Options, more: Options) -> dict[str, str | list[str]]:
    """Options with more options added: lists grow, and an existing single value stays."""
    lists = {key: value for key, value in more.items() if isinstance(value, list)}
    grown = {key: list(dict.fromkeys([*(options.get(key) or ()), *value])) for key, value in lists.items()}
    return {**more, **{key: value for key, value in options.items() if value not in (None, "auto")}, **grown}


def typed(text: str) -> str:
    """A text in the syntax of a shell; invisible letters are written by their numbers."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(one if one.isalnum() else f"\\U{ord(one):08x}" for one in text) + "'"


def listed(value: object) -> str:
    """A value as the options of `init-data` take it: the members of a list separated by commas, quoted if they hold one."""
    if not isinstance(value, list):
        return str(value)
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(value)
    return text.getvalue()
