"""What settings are made of: a section, the types of its values, and where a value comes from."""

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

# Where the value that a setting has of itself comes from.
ORIGINS = {
    "published": "published value",  # stated in the publication, or follows from it
    "assumed": "our reading (*)",  # not stated in the publication: the reading that docs/methods.md gives reasons for
    "own": "this program's value",  # of a setting that only this program has
}


def _field(origin: str) -> Callable[[Any, str], Any]:
    """(value, meaning) -> a field whose own value is of this origin, a key of ORIGINS."""
    return lambda value, meaning: Field(value, description=meaning, json_schema_extra={"origin": origin})


published, assumed, own = map(_field, ORIGINS)


def required(meaning: str) -> Any:
    """A field without a value of its own."""
    return Field(description=meaning)


class Section(BaseModel):
    """A group of settings: frozen, no unknown keys, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
