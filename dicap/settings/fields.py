"""The building blocks of settings: sections, types of values, and origins of default values."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Inside = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Several = Annotated[int, Field(ge=2)]
CountOrAuto = Count | Literal["auto"]

# The origin of a setting's default value.
ORIGINS = {
    "published": "published value",  # stated in the publication, or implied by it
    "assumed": "our reading (*)",  # not stated in the publication; docs/methods.md gives reasons
    "own": "this program's value",  # the setting exists only in this program
}


def _field(origin: str) -> Callable[[Any, str], Any]:
    """(value, meaning) -> a field with this default value; `origin` is a key of ORIGINS."""
    return lambda value, meaning: Field(value, description=meaning, json_schema_extra={"origin": origin})


published, assumed, own = map(_field, ORIGINS)


def required(meaning: str) -> Any:
    """A field without a default value."""
    return Field(description=meaning)


class Section(BaseModel):
    """A group of settings. It is immutable, refuses unknown keys, and does not convert types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
