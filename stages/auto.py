"""Values of `auto` in params.yaml, presets.yaml and the studies' params.yaml, by a table of rules.

stages/README.md shows the table. A rule has the value for the embedded model and, for the model of
`model.path`, a function of the measurements of prepare_data (`Facts`) and of params.yaml: LoRA,
engine, source, the key's own method and, for judges, who read the samples, `sampling`. Every stage
that reads such a key depends on these keys, on `data/prompts` (the facts) and on this file. A value
in place of `auto` overrides the rule.

Published learning rates, most of them for 7 billion parameters, are treated as rates for 1 billion
and scaled by sqrt(1e9 / parameters), but not below a half. For the embedded model the result is
within a factor of four of a rate that was measured to be good. At 135 million parameters it moved
neither DPO nor GRPO (studies/smollm2), so theirs are interpolated between three sizes: the embedded
model's, 135 million and 7 billion. Both rules are ours.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from stages.config import AUTO, NO_RULE

DECIDED_LATER = (
    "*.step_token", "*.correction", "compute.compile", "compute.gradient_checkpointing",
)  # fmt: skip
"""Keys whose `auto` is resolved where it is used, by the tokenizer, the engine or the device."""
DECIDED_FIRST = ("lora", "engine", "*.max_new_tokens", "*.prompts_per_step")
"""Keys of params.yaml that other rules depend on."""

Content = Mapping[str, Any]
"""Content of params.yaml or presets.yaml, or of a part of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Measurements of a model that has a path, and of the data in its tokens: facts.json."""

    parameters: int
    positions: int
    has_chat_template: bool
    prompt_tokens: int = 1
    """Longest prompt of any split."""
    completion_tokens: int = 0
    """Longest demonstration that solves a problem, end token included; 0: fewer than 1 % of the
    problems have one."""
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
        """Length of the longest prompt with an answer."""
        return self.prompt_tokens + self.answer_tokens


UNMEASURED = Facts(
    parameters=10**9, positions=4096, has_chat_template=True, prompt_tokens=512,
    completion_tokens=512, train_prompts=7000, demonstrations=7000,
)  # fmt: skip
"""Placeholder where only types matter: `stages.plan --check` before prepare_data has run."""


class Rule(NamedTuple):
    """A line of the table of rules."""

    embedded: Any
    """Value with `model.path: null`; None: that of the function, which then needs no facts."""
    function: Callable[[Facts, Content], Any]
    """Function of the facts and of params.yaml."""
    description: str
    source: str = "ours"


DAPO = "Yu et al. 2025 (DAPO): 4096 of 20480"
ZEPHYR = "Tunstall et al. 2023 (Zephyr)"
SIZES = (3.3e5, 1.35e8, 7e9)
"""Parameters of the models whose rates are known: the embedded one, SmolLM2, published ones."""


def round_rate(rate: float, params: Content) -> float:
    """Learning rate rounded to two digits; ten times as high for LoRA."""
    return float(f"{rate * (10 if params['lora']['rank'] else 1):.1e}")


def scale_rate(highest: float, at_1b: float, source: str) -> Rule:
    """Learning rate min(at_1b * max(1/2, sqrt(1e9 / parameters)), highest)."""

    def choose(facts: Facts, params: Content) -> float:
        scaled = at_1b * max(0.5, math.sqrt(1e9 / facts.parameters))
        return round_rate(min(scaled, highest), params)

    words = f"{at_1b:g} × sqrt(1e9 / parameters), from {at_1b / 2:g} to {highest:g}; LoRA: × 10"
    return Rule(highest, choose, words, source)


def interpolate_rate(rates: Sequence[float], source: str) -> Rule:
    """Rule: log-linear interpolation of `rates` at `SIZES` parameters; constant beyond the ends."""

    def choose(facts: Facts, params: Content) -> float:
        size = min(max(facts.parameters, SIZES[0]), SIZES[-1])
        place = next(place for place, largest in enumerate(SIZES[1:]) if size <= largest)
        share = math.log(size / SIZES[place]) / math.log(SIZES[place + 1] / SIZES[place])
        return round_rate(rates[place] * (rates[place + 1] / rates[place]) ** share, params)

    known = f"{', '.join(f'{rate:g}' for rate in rates)} at 0.33 M, 135 M, 7 B parameters"
    return Rule(rates[0], choose, f"{known}, log-linear between; LoRA: × 10", source)


def choose_mixture(facts: Facts | None, params: Content) -> dict[str, Any] | None:
    """Judging tasks if the problems are generated, else None."""
    source = params["data"]["source"]
    if not isinstance(source, Mapping) or source.get("kind") != "word_problems":
        return None  # files say less about their problems
    longest = 192 if facts is None else facts.positions // 2
    return {"judge": 0.1, "critique": 0.0, "revise": 0.0, "max_prompt_tokens": longest}


def fit_request(reply: Callable[[Facts], int]) -> Callable[[Facts, Content], int]:
    """Longest prompt, two samples and 512 tokens about them; leaves room for the `reply`."""

    def choose(facts: Facts, params: Content) -> int:
        room = min(facts.positions - reply(facts), facts.positions * 7 // 8)
        longest_sample = max(split["max_new_tokens"] for split in params["sampling"].values())
        return min(max(1, room), facts.prompt_tokens + 2 * longest_sample + 512)

    return choose


def choose_target(facts: Facts, _: Content) -> int:
    """Target length of a length reward."""
    length = facts.completion_tokens
    return max(1, length // 2 if length else facts.answer_tokens // 4)


def one_pass(method: str) -> Callable[[Facts, Content], int]:
    """Steps of a pass over the train prompts."""
    return lambda f, p: min(200, math.ceil(f.train_prompts / p[method]["prompts_per_step"]))


def limit_row(facts: Facts, _: Content) -> int:
    """Longest row of a file, in tokens."""
    return min(facts.positions, 8192)


def power_of_two(low: int, high: int, number: float) -> int:
    """2^floor(log2(number)), with its exponent between `low` and `high`."""
    return 2 ** max(low, min(high, int(math.log2(number))))


ROW = limit_row, "All positions, 8192 at most"
PASS = "One pass over the train prompts, 200 at most"
REQUEST = (
    "The longest prompt, two samples and 512 tokens; at most 7/8 of the positions. At most all but"
)
ANSWER = (
    "An answer: twice the longest solution, rounded up to 64s, at least 256; 8192 more to think. "
    "1024 without solutions. At most 7/8 of the positions after the longest prompt"
)
RULES: dict[str, Rule] = {
    "engine": Rule("transformers", lambda f, _: "vllm" if f.parameters >= 1e8 else "transformers",
        "vllm from 100 M parameters, whatever the machine"),
    "lora": Rule({"rank": 0, "alpha": 16},
        lambda f, _: {"rank": 32 if f.parameters > 2e9 else 0, "alpha": 32},
        "Rank 32, alpha 32 above 2 B parameters, else all weights",
        "size ours; Schulman et al. 2025 (LoRA Without Regret)"),
    "compute.dtype": Rule("float32", lambda f, _: "bfloat16" if f.parameters >= 5e7 else "float32",
        "bfloat16 from 50 M parameters"),
    "compute.max_tokens": Rule(4096, lambda f, _: max(8192, f.row_tokens),
        "8192, or the longest prompt with an answer if longer"),
    "compute.row_tokens": Rule(512, lambda f, _: min(2048, f.positions) if f.shares_rows else 0,
        "2048, or all positions; 0 with sliding windows, or attention without PyTorch's masks"),
    "compute.pack_tokens": Rule(128,
        lambda f, _: 128 if f.parameters < 5e7 and f.shares_rows else 0,
        "128 below 50 M parameters, else 0: masks rule out the fastest kernels; 0 if row_tokens is",
    ),
    "compute.max_batch": Rule(1024, lambda f, _: power_of_two(4, 10, 2**17 / f.row_tokens),
        "2^17 positions in the cache, as a power of two from 16 to 1024"),
    "data.mixture": Rule(None, choose_mixture,
        "Judging tasks with generated problems, else null"),
    "data.mixture.max_prompt_tokens": Rule(192, lambda f, _: f.positions // 2,
        "Half of the positions"),
    "data.max_prompt_tokens": Rule(96, lambda f, _: f.positions // 2, "Half of the positions"),
    "data.max_completion_tokens": Rule(64, lambda f, _: f.positions - f.positions // 2,
        "The other half"),
    "studies.search.*.max_new_tokens": Rule(16, lambda f, _: max(1, f.answer_tokens // 4),
        "Of a step: a quarter of an answer"),
    "*.max_new_tokens": Rule(32, lambda f, _: f.answer_tokens, ANSWER,
        "ours; 8192: Luo et al. 2025 (DeepScaleR), first stage"),
    "sft.batch_size": Rule(8, lambda f, _: power_of_two(3, 7, max(1, f.demonstrations / 100)),
        "About 100 updates an epoch, as a power of two from 8 to 128"),
    "*.prompts_per_step": Rule(64, lambda f, _: min(64, f.train_prompts),
        "64, or all train prompts where there are fewer"),
    "ppo.num_steps": Rule(12, one_pass("ppo"), PASS),
    "grpo.num_steps": Rule(32, one_pass("grpo"), PASS),
    "sft.optim.learning_rate": scale_rate(1.5e-3, 2e-5, ZEPHYR),
    "ppo.optim.learning_rate": scale_rate(5e-5, 1e-6, "verl's GSM8K example"),
    "ppo.value_optim.learning_rate": scale_rate(3e-4, 5e-6, "Dai et al. 2024 (Safe RLHF)"),
    "presets.cold_start.learning_rate": scale_rate(3e-4, 2e-5, ZEPHYR),
    "presets.rejection_sampling.learning_rate": scale_rate(5e-4, 2e-5, ZEPHYR),
    "presets.pretraining.learning_rate": scale_rate(1.5e-3, 2e-5, ZEPHYR),
    "presets.process.optim.learning_rate": scale_rate(1e-3, 1e-5, "as reward models"),
    "presets.*.optim.learning_rate": scale_rate(5e-4, 1e-5, "Ouyang et al. 2022: 9e-6 at 6 B"),
    "presets.*.learning_rate": scale_rate(5e-4, 2e-5, ZEPHYR),
    "dpo.optim.learning_rate": interpolate_rate((1e-4, 1e-5, 5e-7), f"studies/smollm2; {ZEPHYR}"),
    "grpo.optim.learning_rate": interpolate_rate((2e-4, 3e-5, 1e-6),
        "studies/smollm2; Shao et al. 2024 (DeepSeekMath)"),
    "presets.*.overlong_buffer": Rule(8, lambda _, p: max(1, p["grpo"]["max_new_tokens"] // 5),
        "A fifth of grpo.max_new_tokens", DAPO),
    "presets.*.buffer": Rule(8, lambda f, _: max(1, f.answer_tokens // 5),
        "A fifth of an answer", DAPO),
    "presets.*.per": Rule(32, lambda f, _: f.answer_tokens, "An answer"),
    "presets.*.target": Rule(16, choose_target,
        "Half of the longest solution; without solutions a quarter of an answer"),
    "presets.revision.max_prompt_tokens": Rule(192, fit_request(lambda f: f.answer_tokens),
        f"{REQUEST} an answer"),
    "*.max_prompt_tokens": Rule(240, fit_request(lambda _: 256), f"{REQUEST} 256"),
    "*.min_option_mass": Rule(0.5, lambda _, __: 0.0,
        "0: the options are compared with each other alone", "Lee et al. 2023 (RLAIF)"),
    "*.style": Rule("short", lambda f, _: "full" if f.has_chat_template else "short",
        "full with a chat template, else short"),
    "presets.prm800k.max_tokens": Rule(2048, *ROW),
    "presets.math_shepherd.max_tokens": Rule(2048, *ROW),
    "presets.math_aps.max_tokens": Rule(4096, *ROW),
    "presets.processbench.max_tokens": Rule(8192, *ROW),
    "*.max_tokens": Rule(256, *ROW),
}  # fmt: skip
"""Pattern of keys for `fnmatch` -> its rule, a function of (f) facts and (p) params.yaml. The first
match counts: a preset of yours has the rule of `presets.*`."""


class Resolved(NamedTuple):
    """Replacement of an `auto`."""

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
        params: params.yaml, if `content` is a part of it or another file.
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


def is_embedded(params: Content) -> bool:
    """Whether params.yaml names no model, so that the embedded one is trained from scratch."""
    model = params.get("model")
    return not isinstance(model, Mapping) or model.get("path") is None
