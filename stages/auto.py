"""Values of `auto` in params.yaml, presets.yaml and the studies' params.yaml, by a table of rules.

stages/README.md shows the table. A rule has the value of the embedded model and, for a model of
yours (`model.path`), a function of what prepare_data measures (`Facts`) and of what params.yaml
says of LoRA, the engine, the source and the key's own method, which are among what DVC watches for
every stage that reads such a key; and of `sampling`, for judges, who read the samples. Stages that
read such a key also depend on `data/prompts`, where the facts are, and on this file. A value in the
place of `auto` overrides the rule.

Learning rates: published ones, most of them of models of 7 billion parameters, are taken for 1
billion and scaled by sqrt(1e9 / parameters), down to a half. At the size of the embedded model this
comes within a factor of four of what was measured to be good for it. At 135 million parameters it
moved neither DPO nor GRPO (studies/smollm2), so theirs are interpolated between three sizes: the
embedded model's, that one and 7 billion. Both rules are ours.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from stages.config import AUTO, NO_RULE

DECIDED_LATER = ("*.step_token", "*.correction")
"""Keys whose `auto` the tokenizer or the engine decides, where it is used."""
DECIDED_FIRST = ("lora", "engine", "*.max_new_tokens", "*.prompts_per_step")
"""Keys of params.yaml that other rules depend on."""

Content = Mapping[str, Any]
"""Of params.yaml, of presets.yaml, or of a part of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Measurements of a model that has a path, and of the data in its tokens: facts.json."""

    parameters: int
    positions: int
    has_chat_template: bool
    prompt_tokens: int = 1
    """Longest prompt of any split."""
    completion_tokens: int = 0
    """Longest demonstration that solves a problem, the end token included; 0: there is none, or of
    fewer than 1 % of the problems."""
    train_prompts: int = 1
    demonstrations: int = 1
    shares_rows: bool = True
    """Whether completions and prompts can share rows: see `policy.can_share_rows`."""
    thinks: bool = False
    """Whether the chat template has the model think before it answers."""

    @property
    def answer_tokens(self) -> int:
        """Length limit of a completion: twice the longest solution, rounded up to a multiple of 64.

        At least 256; 8192 more for a model that thinks first. Without solutions 1024, as in verl's
        GSM8K example. At most 7/8 of the positions after the longest prompt: the other eighth is
        free for step tokens.
        """
        room = max(1, (self.positions - self.prompt_tokens) * 7 // 8)
        solution = max(256, 64 * math.ceil(2 * self.completion_tokens / 64))
        solution = solution if self.completion_tokens else 1024
        return min(room, solution + 8192 * self.thinks)

    @property
    def row_tokens(self) -> int:
        """The longest prompt with an answer."""
        return self.prompt_tokens + self.answer_tokens


UNMEASURED = Facts(
    parameters=10**9, positions=4096, has_chat_template=True, prompt_tokens=512,
    completion_tokens=512, train_prompts=7000, demonstrations=7000,
)  # fmt: skip
"""Stands in where only types matter: `stages.plan --check` before prepare_data has run."""


class Rule(NamedTuple):
    """A line of the table of rules."""

    embedded: Any
    """Value with `model.path: null`; None: that of the function, which then needs no facts."""
    function: Callable[[Facts, Content], Any]
    """Of the facts and of params.yaml."""
    description: str
    source: str


RULES: dict[str, Rule] = {}
"""Pattern of keys, as `fnmatch` reads it -> its rule. The first that matches counts: a preset of
yours has the rule of `presets.*`."""

OURS = "ours"
DAPO = "Yu et al. 2025 (DAPO): 4096 of 20480"
ZEPHYR = "Tunstall et al. 2023 (Zephyr)"


def rule(
    pattern: str, embedded: Any, source: str = OURS, description: str = ""
) -> Callable[..., Any]:
    """Decorator that adds a function to RULES, described by its docstring."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        described = description or " ".join((function.__doc__ or "").split()).removesuffix(".")
        RULES[pattern] = Rule(embedded, function, described, source)
        return function

    return register


@rule("engine", "transformers")
def choose_engine(facts: Facts, _: Content) -> str:
    """vllm from 100 M parameters, whatever the machine."""
    return "vllm" if facts.parameters >= 1e8 else "transformers"


@rule("lora", {"rank": 0, "alpha": 16}, "size ours; Schulman et al. 2025 (LoRA Without Regret)")
def choose_lora(facts: Facts, _: Content) -> dict[str, int]:
    """Rank 32, alpha 32 above 2 B parameters, else all weights."""
    return {"rank": 32 if facts.parameters > 2e9 else 0, "alpha": 32}


@rule("compute.dtype", "float32")
def choose_dtype(facts: Facts, _: Content) -> str:
    """bfloat16 from 50 M parameters."""
    return "bfloat16" if facts.parameters >= 5e7 else "float32"


@rule("compute.gradient_checkpointing", False)
def choose_gradient_checkpointing(facts: Facts, _: Content) -> bool:
    """From 1 B parameters."""
    return facts.parameters >= 1e9


@rule("compute.max_tokens", 4096)
def choose_micro_batch_tokens(facts: Facts, _: Content) -> int:
    """8192, or the longest prompt with an answer if longer."""
    return max(8192, facts.row_tokens)


@rule("compute.row_tokens", 512)
def choose_row_tokens(facts: Facts, _: Content) -> int:
    """2048, or all positions; 0 with sliding windows, or attention without PyTorch's masks."""
    return min(2048, facts.positions) if facts.shares_rows else 0


@rule("compute.pack_tokens", 128)
def choose_pack_tokens(facts: Facts, _: Content) -> int:
    """128 below 50 M parameters, else 0: masks rule out the fastest kernels; 0 if row_tokens is."""
    return 128 if facts.parameters < 5e7 and facts.shares_rows else 0


@rule("compute.max_batch", 1024)
def choose_decoding_batch(facts: Facts, _: Content) -> int:
    """2^17 positions in the cache, as a power of two from 16 to 1024."""
    return 2 ** max(4, min(10, int(math.log2(2**17 / facts.row_tokens))))


@rule("data.mixture", None)
def choose_mixture(facts: Facts | None, params: Content) -> dict[str, Any] | None:
    """Judging tasks with generated problems, else null."""
    if not is_generated(params["data"]["source"]):
        return None
    longest = 192 if facts is None else facts.positions // 2
    return {"judge": 0.1, "critique": 0.0, "revise": 0.0, "max_prompt_tokens": longest}


@rule("data.max_prompt_tokens", 96)
@rule("data.mixture.max_prompt_tokens", 192)
def choose_prompt_tokens(facts: Facts, _: Content) -> int:
    """Half of the positions."""
    return facts.positions // 2


@rule("data.max_completion_tokens", 64)
def choose_completion_tokens(facts: Facts, _: Content) -> int:
    """The other half."""
    return facts.positions - facts.positions // 2


@rule("studies.search.*.max_new_tokens", 16)
def choose_search_step_tokens(facts: Facts, _: Content) -> int:
    """Of a step: a quarter of an answer."""
    return max(1, facts.answer_tokens // 4)


@rule("*.max_new_tokens", 32, "ours; 8192: Luo et al. 2025 (DeepScaleR), first stage")
def choose_new_tokens(facts: Facts, _: Content) -> int:
    """An answer: twice the longest solution, rounded up to 64s, at least 256; 8192 more to think.

    1024 without solutions. At most 7/8 of the positions after the longest prompt.
    """
    return facts.answer_tokens


@rule("sft.batch_size", 8)
def choose_sft_batch_size(facts: Facts, _: Content) -> int:
    """About 100 updates an epoch, as a power of two from 8 to 128."""
    return 2 ** max(3, min(7, int(math.log2(max(1, facts.demonstrations / 100)))))


@rule("*.prompts_per_step", 64)
def choose_prompts_per_step(facts: Facts, _: Content) -> int:
    """64, or all train prompts where there are fewer."""
    return min(64, facts.train_prompts)


def choose_num_steps(facts: Facts, params: Content, *, method: str) -> int:
    """One pass over the train prompts, 200 at most."""
    return min(200, math.ceil(facts.train_prompts / params[method]["prompts_per_step"]))


for _method, _embedded in {"ppo": 12, "grpo": 32}.items():
    _words = "One pass over the train prompts, 200 at most"
    rule(f"{_method}.num_steps", _embedded, OURS, _words)(partial(choose_num_steps, method=_method))


def choose_learning_rate(facts: Facts, params: Content, *, at_1b: float, highest: float) -> float:
    """Learning rate of a model of P parameters, to two digits; LoRA: times 10.

    min(at_1b * max(1/2, sqrt(1e9 / P)), highest)
    """
    scaled = at_1b * max(0.5, math.sqrt(1e9 / facts.parameters))
    return float(f"{min(scaled, highest) * (10 if params['lora']['rank'] else 1):.1e}")


for _pattern, _highest, _at_1b, _source in (
    ("sft.optim.learning_rate", 1.5e-3, 2e-5, ZEPHYR),
    ("ppo.optim.learning_rate", 5e-5, 1e-6, "verl's GSM8K example"),
    ("ppo.value_optim.learning_rate", 3e-4, 5e-6, "Dai et al. 2024 (Safe RLHF)"),
    ("presets.cold_start.learning_rate", 3e-4, 2e-5, ZEPHYR),
    ("presets.rejection_sampling.learning_rate", 5e-4, 2e-5, ZEPHYR),
    ("presets.pretraining.learning_rate", 1.5e-3, 2e-5, ZEPHYR),
    ("presets.process.optim.learning_rate", 1e-3, 1e-5, "as reward models"),
    ("presets.*.optim.learning_rate", 5e-4, 1e-5, "Ouyang et al. 2022: 9e-6 at 6 B"),
    ("presets.*.learning_rate", 5e-4, 2e-5, ZEPHYR),
):
    _range = f"from {_at_1b / 2:g} to {_highest:g}; LoRA: × 10"
    rule(_pattern, _highest, _source, f"{_at_1b:g} × sqrt(1e9 / parameters), {_range}")(
        partial(choose_learning_rate, at_1b=_at_1b, highest=_highest)
    )


SIZES = (3.3e5, 1.35e8, 7e9)
"""Parameters of the models whose rates are known: the embedded one, SmolLM2, published ones."""


def interpolate_learning_rate(facts: Facts, params: Content, *, rates: Sequence[float]) -> float:
    """Learning rate between those of models of `SIZES` parameters; LoRA: times 10.

    Linear in the logarithms of size and rate; beyond the ends that of the end.
    """
    size = min(max(facts.parameters, SIZES[0]), SIZES[-1])
    place = next(place for place, largest in enumerate(SIZES[1:]) if size <= largest)
    share = math.log(size / SIZES[place]) / math.log(SIZES[place + 1] / SIZES[place])
    rate = rates[place] * (rates[place + 1] / rates[place]) ** share
    return float(f"{rate * (10 if params['lora']['rank'] else 1):.1e}")


for _section, _rates, _source in (
    ("dpo", (1e-4, 1e-5, 5e-7), f"studies/smollm2; {ZEPHYR}"),
    ("grpo", (2e-4, 3e-5, 1e-6), "studies/smollm2; Shao et al. 2024 (DeepSeekMath)"),
):
    _known = f"{', '.join(f'{rate:g}' for rate in _rates)} at 0.33 M, 135 M, 7 B parameters"
    rule(
        f"{_section}.optim.learning_rate", _rates[0], _source,
        f"{_known}, log-linear between; LoRA: × 10",
    )(partial(interpolate_learning_rate, rates=_rates))  # fmt: skip


@rule("presets.*.overlong_buffer", 8, DAPO)
def choose_overlong_buffer(_: Facts, params: Content) -> int:
    """A fifth of grpo.max_new_tokens."""
    return max(1, params["grpo"]["max_new_tokens"] // 5)


@rule("presets.*.buffer", 8, DAPO)
def choose_component_buffer(facts: Facts, _: Content) -> int:
    """A fifth of an answer."""
    return max(1, facts.answer_tokens // 5)


@rule("presets.*.per", 32)
def choose_length_penalty_unit(facts: Facts, _: Content) -> int:
    """An answer."""
    return facts.answer_tokens


@rule("presets.*.target", 16)
def choose_length_target(facts: Facts, _: Content) -> int:
    """Half of the longest solution; without solutions a quarter of an answer."""
    length = facts.completion_tokens
    return max(1, length // 2 if length else facts.answer_tokens // 4)


def choose_request_tokens(facts: Facts, params: Content, *, reply: int) -> int:
    """Longest prompt, two samples and 512 tokens about them; room is left for the `reply`."""
    room = min(facts.positions - reply, facts.positions * 7 // 8)
    longest_sample = max(split["max_new_tokens"] for split in params["sampling"].values())
    return min(max(1, room), facts.prompt_tokens + 2 * longest_sample + 512)


@rule("presets.revision.max_prompt_tokens", 192)
def choose_revision_prompt_tokens(facts: Facts, params: Content) -> int:
    """The longest prompt, two samples and 512 tokens; at most 7/8 of the positions.

    At most all but an answer.
    """
    return choose_request_tokens(facts, params, reply=facts.answer_tokens)


@rule("*.max_prompt_tokens", 240)
def choose_judge_prompt_tokens(facts: Facts, params: Content) -> int:
    """The longest prompt, two samples and 512 tokens; at most 7/8 of the positions.

    At most all but 256.
    """
    return choose_request_tokens(facts, params, reply=256)


@rule("*.min_option_mass", 0.5, "Lee et al. 2023 (RLAIF)")
def choose_min_option_mass(_: Facts, __: Content) -> float:
    """0: the options are compared with each other alone."""
    return 0.0


@rule("*.style", "short")
def choose_judge_style(facts: Facts, _: Content) -> str:
    """full with a chat template, else short."""
    return "full" if facts.has_chat_template else "short"


@rule("*.max_tokens", 256)
@rule("presets.processbench.max_tokens", 8192)
@rule("presets.math_aps.max_tokens", 4096)
@rule("presets.math_shepherd.max_tokens", 2048)
@rule("presets.prm800k.max_tokens", 2048)
def choose_file_row_tokens(facts: Facts, _: Content) -> int:
    """All positions, 8192 at most."""
    return min(facts.positions, 8192)


class Resolved(NamedTuple):
    """An `auto` that was replaced."""

    key: str
    pattern: str
    value: Any


def resolve(
    content: Content, facts: Facts | None, params: Content | None = None, *, strict: bool = True
) -> tuple[dict[str, Any], list[Resolved]]:
    """`content` with every `auto` replaced, and a list of the replacements.

    Args:
        content: keys of params.yaml, or of `presets` or `studies`.
        facts: None: nothing is measured yet, or params.yaml names no model.
        params: params.yaml, where `content` is a part of it or another file.
        strict: False: an `auto` without a rule is left as it is.

    Raises:
        ValueError: `model.path` is set and not measured yet; no rule, or one that lacks a key.
    """
    params = content if params is None else params
    facts = None if is_embedded(params) else facts
    resolved: list[Resolved] = []

    def walk(value: Any, key: str, sections: Content, only: Sequence[str] = ("*",)) -> Any:
        if isinstance(value, Mapping):
            prefix = f"{key}." if key else ""
            items = value.items()
            return {name: walk(item, f"{prefix}{name}", sections, only) for name, item in items}
        if value != AUTO or _matches(key, DECIDED_LATER) or not _matches(key, only):
            return value
        pattern = next((pattern for pattern in RULES if fnmatchcase(key, pattern)), None)
        if pattern is None:
            if strict:
                raise ValueError(f"{key}: {NO_RULE}")
            return value
        resolved.append(Resolved(key, pattern, _apply_rule(RULES[pattern], key, facts, sections)))
        return resolved[-1].value

    terms = walk(params, "", params, DECIDED_FIRST)
    resolved.clear()
    return walk(content, "", terms), resolved


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _apply_rule(rule: Rule, key: str, facts: Facts | None, params: Content) -> Any:
    if is_embedded(params) and rule.embedded is not None:
        return rule.embedded
    if facts is None and not is_embedded(params):
        raise ValueError(
            f"{key}: auto depends on what prepare_data measures of model.path, found no "
            f"data/prompts/facts.json of that model. Run `dvc repro prepare_data`."
        )
    try:
        return rule.function(facts, params)  # pyright: ignore[reportArgumentType]
    except (ArithmeticError, KeyError, TypeError) as error:
        raise ValueError(
            f"{key}: auto follows from other keys, of which one is missing or wrong ({error}): "
            f"correct that one, or write a value in the place of auto."
        ) from error


def is_generated(source: Any) -> bool:
    """Whether the problems are generated, so that more is known of them than of files."""
    return isinstance(source, Mapping) and source.get("kind") == "word_problems"


def is_embedded(params: Content) -> bool:
    """Whether params.yaml names no model, so that the embedded one is trained from scratch."""
    model = params.get("model")
    return not isinstance(model, Mapping) or model.get("path") is None
