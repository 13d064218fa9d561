"""The three ways a run ends early: each carries one line for the user."""


class SettingsError(ValueError):
    """A setting is wrong. The message names file, key, value and remedy; commands exit with code 2."""


class DataError(ValueError):
    """A file is missing or not what it should be. Names the file and the remedy; commands exit with code 1."""


class Stopped(Exception):
    """A clean stop on SIGINT or SIGTERM after the state was saved; commands exit with code 75."""


def first_line(error: object) -> str:
    """The first line of another library's message, to be part of one line of our own; without a message, its kind."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
