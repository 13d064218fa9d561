"""Questions: labels that can be read in more than one way, with the options of `init-data` that select one reading."""

import csv
import io
import shlex
from collections.abc import Collection, Iterable, Mapping

from dicap.errors import DataError
from dicap.photos.readers.heads import GROUP, SPLIT
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


def ask_of_keys(where: object, keys: Iterable[str], of_images: Collection[str], own: Own) -> None:
    """Ask about `keys` of an annotation file without a role; those `of_images` may name a split or a group.

    Raises Question; DataError if no image has the key that an option names.
    """
    if lost := [key for key in (own.split, own.group) if key is not None and key not in of_images]:
        raise DataError(f"{where}: no image has the key {lost[0]} (found {', '.join(of_images)}); name one that is there")
    if free := [key for key in dict.fromkeys(keys) if key not in (own.split, own.group, *(own.ignore or ()))]:
        named = [key for key in free if key in of_images]
        roles = {} if own.split else {"split": next((key for key in named if key in SPLIT), "")}
        roles |= {} if own.group else {"group": next((key for key in named if GROUP.fullmatch(key)), "")}
        way = f"; is one of {', '.join(named)} the split (--split) or a group (--group)?" if named else ""
        ignore = [key for key in free if key not in roles.values()]
        raise Question(f"{where}: keys {', '.join(free)} have no role{way}", **roles, ignore=ignore)


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
