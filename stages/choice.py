"""A choice among functions in a preset: `{kind: <name>, <the function's own keywords>}`.

    Surrogate = Annotated[Choice, OneOf({"clip": clipped_surrogate, ...}, given=("logprobs", ...))]

    surrogate: {kind: clip, low: 0.2, high: 0.28}    # stands in presets.yaml
    preset.surrogate(logprobs=..., ...)    # calls clipped_surrogate(..., low=0.2, high=0.28)

A function's parameters are what its caller gives and, all others, its own keywords: these have to
be in the preset, no more and no fewer, of the types in its signature. So a method is a function in
`algorithms/` and one line in the table of its kind. A kind without keywords may be its name alone.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, reduce
from operator import or_
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from stages.config import Params


class Choice(Params):
    """One function, with its own keywords."""

    kind: str
    function: ClassVar[Callable[..., Any]]
    given: ClassVar[frozenset[str]]
    """Of what the caller has, what the function takes."""

    @property
    def own(self) -> dict[str, Any]:
        """The function's own keywords, as the preset says."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}

    def __call__(self, **given: Any) -> Any:
        """The function of those of these that it takes, and of its own keywords."""
        taken = {name: value for name, value in given.items() if name in self.given}
        return type(self).function(**taken, **self.own)


class OneOf:
    """What makes a field of type `Choice` one of these functions."""

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        *,
        given: Collection[str] = (),
        bounds: Mapping[str, FieldInfo] = MappingProxyType({}),
        number: str | None = None,
    ) -> None:
        """A table of functions.

        Args:
            functions: by kind.
            given: the names of the parameters that the caller has; the others are own keywords.
            bounds: of own keywords, as pydantic's `Field`, by `<keyword>` or `<kind>.<keyword>`.
            number: a kind with one keyword, which a number in place of the mapping means.
        """
        self.functions, self.given = functions, frozenset(given)
        self.bounds, self.number = bounds, number

    @cached_property
    def models(self) -> dict[str, type[Choice]]:
        """Of each kind the fields that its mapping has."""
        return {kind: self._model(kind, function) for kind, function in self.functions.items()}

    def _model(self, kind: str, function: Callable[..., Any]) -> type[Choice]:
        parameters, bounds = inspect.signature(function).parameters, self.bounds
        own = {
            name: (parameter.annotation, bounds.get(f"{kind}.{name}", bounds.get(name, Field())))
            for name, parameter in parameters.items()
            if name not in self.given
        }
        fields: dict[str, Any] = {"kind": (Literal[kind], Field()), **own}
        model = pydantic.create_model(kind, __base__=Choice, **fields)
        model.function = staticmethod(function)
        model.given = self.given & parameters.keys()
        return model

    def _spelled_out(self, content: Any) -> Any:
        """The mapping that a name, or a number, stands for."""
        if self.number is not None and isinstance(content, int | float):
            (keyword,) = (name for name in self.models[self.number].model_fields if name != "kind")
            return {"kind": self.number, keyword: content}
        return by_name(content)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The schema of a mapping that is told by its `kind`."""
        union = reduce(or_, self.models.values())
        schema = handler.generate_schema(Annotated[union, Field(discriminator="kind")])
        return core_schema.no_info_before_validator_function(self._spelled_out, schema)


def by_name(content: Any) -> Any:
    """The mapping that the name of a kind stands for; all else as it is."""
    return {"kind": content} if isinstance(content, str) else content
