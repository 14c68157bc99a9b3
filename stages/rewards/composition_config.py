"""A preset of `by: rule`: what a completion is worth, by named components."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from stages.params import Params
from stages.rewards.component import Component

TAKEN = frozenset(("mean", "std", "accuracy"))
"""`reward/mean` and the like are logged of the whole."""
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]*$")]


class SumParts(Params):
    """The components times their weights, added."""

    kind: Literal["sum"]


class NormaliseParts(Params):
    """GDPO: each normalised within its group first; the sum is whitened over the batch."""

    kind: Literal["normalise"]
    ddof: int = Field(ge=0, le=1)
    """n - ddof divides a component's variance."""
    eps: float = Field(gt=0)
    """Added to its standard deviation."""


class Composition(Params):
    """What a completion is worth: components by name, and how they are combined."""

    components: dict[Name, Component] = Field(min_length=1)
    combine: Annotated[SumParts | NormaliseParts, Field(discriminator="kind")]

    @model_validator(mode="after")
    def _names_are_free(self) -> "Composition":
        taken = sorted(self.components.keys() & TAKEN)
        if taken:
            raise ValueError(f"a component named {taken[0]}: reward/{taken[0]} is of the whole")
        return self

    @model_validator(mode="after")
    def _normalised_once(self) -> "Composition":
        twice = [name for name, part in self.components.items() if part.normalise.kind != "none"]
        if self.combine.kind == "normalise" and twice:
            raise ValueError(
                f"combine normalise normalises every component: {twice[0]} needs "
                "normalise: {kind: none}"
            )
        return self

    @model_validator(mode="after")
    def _steps_as_they_are(self) -> "Composition":
        for name, part in self.components.items():
            if part.value.kind == "process" and self.rescales(name):
                raise ValueError(
                    f"component {name} of kind process gives step rewards, which are paid as they "
                    "are: it needs normalise: {kind: none}, and the reward combine: {kind: sum}"
                )
        return self

    @model_validator(mode="after")
    def _one_model(self) -> "Composition":
        scored = sorted(self.kinds() & {"scorer", "process"})
        if scored and self.needs_judge():
            raise ValueError(
                f"components of kind judge and {scored[0]}: the one asks a policy, the other a "
                "model that scores, and a reward has one model: leave one of them out"
            )
        return self

    def check_group_size(self, size: int, where: str) -> None:
        """Refuse single completions where completions of a prompt are compared.

        Raises:
            ValueError: naming the number `where` it is said.
        """
        if self.needs_judge() and size < 2:
            raise ValueError(
                f"{where} is {size}: a reward with a component of kind judge compares the "
                "completions of a prompt with each other: at least 2"
            )

    def check_lengths(self, max_new_tokens: int) -> None:
        """Refuse a stretch before the length limit that is longer than a completion.

        Raises:
            ValueError: saying which.
        """
        for name, part in self.components.items():
            if part.value.kind == "overlong" and part.value.buffer > max_new_tokens:
                raise ValueError(
                    f"{name}.value.buffer {part.value.buffer} is more than max_new_tokens "
                    f"{max_new_tokens}: it is the last stretch before that limit"
                )

    def kinds(self) -> frozenset[str]:
        """What is measured."""
        return frozenset(part.value.kind for part in self.components.values())

    def needs_model(self) -> bool:
        """Whether a model is asked."""
        return bool(self.kinds() & {"scorer", "process", "judge"})

    def needs_judge(self) -> bool:
        """Whether that model must be a policy, which compares completions."""
        return "judge" in self.kinds()

    def needs_own(self) -> bool:
        """Whether the row must name a file of stages/rewards/own/."""
        return "own" in self.kinds()

    def rescales(self, name: str) -> bool:
        """Whether what a component says is normalised, by itself or with all others."""
        return self.combine.kind == "normalise" or self.components[name].normalise.kind != "none"

    def compares(self) -> set[str]:
        """Among which completions values are normalised: none, `batch`, `group`, or both."""
        found = {part.normalise.kind for part in self.components.values()} - {"none"}
        return found | ({"batch", "group"} if self.combine.kind == "normalise" else set())
