"""`RankedLayer`, the base of layers in 1, 2 and 3 spatial dimensions, and `with_sections`, for layers' docstrings."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from .module import Module


class RankedLayer(Module):
    """The base of layers with a class for each number of spatial dimensions: ``class Conv2d(Convolution, rank=2)``.

    The docstring of a class with a `rank` gets the sections that only its base's docstring has; see `with_sections`.
    """

    _rank: ClassVar[int]

    def __init_subclass__(cls, rank: int | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if rank is not None:
            cls._rank = rank
            cls.__doc__ = with_sections(cls.__doc__, cls.__base__)


# The places of sections in docstrings; paragraphs without a heading come first.
_PLACES: Final = {"Shape": 1, "Args": 2, "Attributes": 3, "Raises": 4, "Example": 5}


def with_sections(doc: str | None, base: type | None) -> str | None:
    """Return `doc`, a class's docstring, with the sections and paragraphs added that only the docstring of `base` has.

    The first paragraph of the base's docstring is not added.  If a docstring is missing, the result is `doc`.
    """
    if doc is None or base is None or base.__doc__ is None:
        return doc
    # The indentation is not removed, because `inspect.cleandoc` would slow the import down.
    parts = {_heading(part): part.rstrip() for part in doc.split("\n\n")}
    for part in base.__doc__.split("\n\n")[1:]:
        parts.setdefault(_heading(part), part.rstrip())
    order = sorted(parts, key=lambda heading: _PLACES.get(heading, 0))
    return "\n\n".join([parts[heading] for heading in order])


def _heading(part: str) -> str:
    return part.lstrip().partition(":")[0]
