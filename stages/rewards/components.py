"""Kinds of components that a reward is made of: hyperparameters and function of each."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from stages.config import Params, spell_out_kind
from stages.rewards import model_components, text_components
from stages.rewards.completion_rewards import CompletionRewards, Completions, RewardModels
from stages.rewards.feedback.prompts import Style
from stages.rewards.text_components import Script

Count = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class PlainValue(Params):
    """A component without hyperparameters."""

    kind: Literal["answer", "final_line", "boxed", "scorer", "own"]


class Tags(Params):
    """The format of `text_components.tags`."""

    kind: Literal["tags"]
    credit: Literal["whole", "per_tag"]


class LengthPenalty(Params):
    """Minus the length, in units of `per` tokens."""

    kind: Literal["length_penalty"]
    per: Count


class LengthTarget(Params):
    """Minus the distance from `target` tokens, relative to it."""

    kind: Literal["length_target"]
    target: Count


class NgramRepetition(Params):
    """Minus the share of repeated n-grams."""

    kind: Literal["ngram_repetition"]
    n: Count


class Overlong(Params):
    """DAPO's soft punishment over the last `buffer` tokens before the length limit."""

    kind: Literal["overlong"]
    buffer: Count


class Language(Params):
    """Share of the letters that are of `scripts`."""

    kind: Literal["language"]
    scripts: Annotated[list[Script], Field(min_length=1)]


class Process(Params):
    """Scores of reasoning steps by a process reward model, minus `zero`."""

    kind: Literal["process"]
    credit: Literal["sum", "min"]
    zero: Share


class JudgeWins(Params):
    """Share of the comparisons within its group that a completion wins before a judge."""

    kind: Literal["judge"]
    style: Style
    constitution: Literal["correct", "harmless", "none"]
    min_option_mass: Share


Value = Annotated[
    PlainValue
    | Tags
    | LengthPenalty
    | LengthTarget
    | NgramRepetition
    | Overlong
    | Language
    | Process
    | JudgeWins,
    Field(discriminator="kind"),
    BeforeValidator(spell_out_kind),
]
FORMS = {"final_line": "hash", "boxed": "boxed", "tags": "tag"}
"""Component -> the form of an answer that it rewards, of `answer_forms`."""
FUNCTIONS: dict[str, Callable[[Completions, RewardModels, Any], CompletionRewards]] = {
    "answer": lambda completions, _, __: text_components.answer(completions),
    "final_line": lambda completions, _, __: text_components.final_line(completions),
    "boxed": lambda completions, _, __: text_components.boxed(completions),
    "tags": lambda completions, _, value: text_components.tags(completions, value.credit),
    "length_penalty": lambda completions, _, value: text_components.length_penalty(
        completions, value.per
    ),
    "length_target": lambda completions, _, value: text_components.length_target(
        completions, value.target
    ),
    "ngram_repetition": lambda completions, _, value: text_components.ngram_repetition(
        completions, value.n
    ),
    "overlong": lambda completions, models, value: text_components.overlong(
        completions, models.max_new_tokens, value.buffer
    ),
    "language": lambda completions, _, value: text_components.language(completions, value.scripts),
    "scorer": lambda _, models, __: model_components.model_score(models.scorer),
    "own": lambda completions, models, _: model_components.own_function(
        completions, models.function
    ),
    "process": lambda _, models, value: model_components.step_scores(
        models.scorer, value.credit, value.zero
    ),
    "judge": lambda completions, models, value: model_components.win_rate(
        completions, models.judge, value.style, value.constitution, value.min_option_mass
    ),
}
"""Kind -> its value for each completion."""
