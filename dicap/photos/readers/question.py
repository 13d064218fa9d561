"""What can be read in more than one way is a question, with the options of `init-data` that say one of the readings."""

import csv
import io
import shlex
from collections.abc import Container, Iterable, Mapping

from dicap.errors import DataError
from dicap.photos.readers.heads import GROUP, SPLIT
from dicap.settings import Own

Options = Mapping[str, str | list[str]]  # settings of the section `own`


class Question(DataError):
    """What is there can be read in more than one way.

    Attributes:
        text: the question.
        options: settings of the section `own` that say the reading that would be chosen, beside those that were said.
    """

    def __init__(self, text: str, said: Options | None = None, /, **more: str | list[str]) -> None:
        self.text, self.options = text, {key: value for key, value in more.items() if value}
        options = joined(said or {}, self.options)
        words = [f"--{key.removesuffix('_root').replace('_', '-')} {typed(listed(value))}" for key, value in options.items()]
        super().__init__(f"{text} -- as it would be read: init-data {' '.join(words)}")


def ask_of_keys(where: object, keys: Iterable[str], of_images: Container[str], own: Own) -> None:
    """Ask of keys without a role.

    Args:
        keys: those that are no program's own.
        of_images: those among them that may name an image's split or its group.

    Raises:
        Question: with the roles that they would have.
    """
    strange = [key for key in dict.fromkeys(keys) if key not in (own.split, own.group, *(own.ignore or ()))]
    likely = {"split": [key for key in strange if key in SPLIT], "group": [key for key in strange if GROUP.fullmatch(key)]}
    roles = {role: next((key for key in some if key in of_images), "") for role, some in likely.items() if not getattr(own, role)}
    left = [key for key in strange if key not in roles.values()]
    if strange:
        raise Question(f"{where}: keys {', '.join(strange)} have no role", **roles, ignore=left)


def joined(said: Options, more: Options) -> dict[str, str | list[str]]:
    """Options with more of them: lists grow, of a single value the first one stays."""
    grown = {key: list(dict.fromkeys([*(said.get(key) or ()), *value])) for key, value in more.items() if isinstance(value, list)}
    return {**more, **{key: value for key, value in said.items() if value not in (None, "auto")}, **grown}


def typed(text: str) -> str:
    """A text as a shell takes it; what cannot be seen by its number."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(one if one.isalnum() else f"\\U{ord(one):08x}" for one in text) + "'"


def listed(value: object) -> str:
    """Values as the options of `init-data` take them: a comma between, those that hold one in quotes."""
    if not isinstance(value, list):
        return str(value)
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(value)
    return text.getvalue()
