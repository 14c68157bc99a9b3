"""What `auto` stands for, by one table; stages/README.md shows it.

A key -> the embedded model's value, and for a model of yours (`model.path`) a rule: a pure function
of what prepare_data measures (`Facts`) and of what params.yaml says of LoRA, the engine, the source
and the key's own method, which are among what DVC watches for every stage that reads such a key;
and of `sampling`, for judges, who read what it made.

Rates: published ones, most of them of models of 7 billion parameters, are taken for 1 billion and
scaled by sqrt(1e9 / parameters), down to a half. At the size of the embedded model this comes
within a factor of four of what was measured to be good for it. The scaling is ours.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Content = Mapping[str, Any]
"""Of params.yaml."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What was measured of a model that has a path, and of the data in its tokens."""

    parameters: int
    positions: int
    has_chat_template: bool
    prompt_tokens: int = 1
    """Longest prompt of any split."""
    completion_tokens: int = 1
    """Longest demonstration that solves a problem, the end token included."""
    train_prompts: int = 1
    demonstrations: int = 1
    thinks: bool = False
    """Whether the chat template has the model think before it answers."""

    @property
    def answer(self) -> int:
        """Tokens of a completion: twice the longest solution, in 64s, 256 at least; and a thought.

        An eighth of what follows the longest prompt is left free, for step tokens.
        """
        room = max(1, (self.positions - self.prompt_tokens) * 7 // 8)
        solution = max(256, 64 * math.ceil(2 * self.completion_tokens / 64))
        return min(room, solution + 8192 * self.thinks)

    @property
    def row(self) -> int:
        """A prompt and an answer."""
        return self.prompt_tokens + self.answer


Function = Callable[[Facts, Content], Any]


class Rule(NamedTuple):
    """A row of the table."""

    embedded: Any
    """With `model.path: null`; None: the rule, which needs no facts."""
    of_facts: Function
    words: str
    source: str


def positions(embedded: int) -> Rule:
    """Longest row of a file of other people's."""
    return Rule(embedded, lambda f, _: min(f.positions, 8192), "all positions, 8192 at most", OURS)


def rate(embedded: float, at_1b: float, source: str) -> Rule:
    """A learning rate: that at a billion parameters, scaled, at most the embedded model's."""

    def of_facts(facts: Facts, given: Content) -> float:
        scaled = at_1b * max(0.5, math.sqrt(1e9 / facts.parameters))
        return float(f"{min(scaled, embedded) * (10 if given['lora']['rank'] else 1):.1e}")

    words = f"{at_1b:g} × sqrt(1e9 / parameters), from {at_1b / 2:g} to {embedded:g}; LoRA: × 10"
    return Rule(embedded, of_facts, words, source)


def one_pass(facts: Facts, section: Content) -> int:
    """Steps that ask each train prompt once, 200 at most."""
    return min(200, math.ceil(facts.train_prompts / section["prompts_per_step"]))


def mixture(facts: Facts | None, given: Content) -> dict[str, Any] | None:
    """Judging, which the generated problems alone can teach."""
    if given["data"]["source"]["kind"] != "word_problems":
        return None
    longest = 192 if facts is None else facts.positions // 2
    return {"judge": 0.1, "critique": 0.0, "revise": 0.0, "max_prompt_tokens": longest}


def request(facts: Facts, given: Content, written: int) -> int:
    """A question with two samples and 512 tokens about them; room is left for what is written."""
    room = min(facts.positions - written, facts.positions * 7 // 8)
    sampled = max(one[LIMIT] for one in given["sampling"].values())
    return min(max(1, room), facts.prompt_tokens + 2 * sampled + 512)


def side_by_side(facts: Facts, _given: Content) -> int:
    """A power of two: as many as keep 2^17 positions in the cache, from 16 to 1024."""
    return 2 ** max(4, min(10, int(math.log2(2**17 / facts.row))))


def updates(facts: Facts, _given: Content) -> int:
    """A power of two: about a hundred updates an epoch, from 8 to 128."""
    return 2 ** max(3, min(7, int(math.log2(max(1, facts.demonstrations / 100)))))


OURS = "ours"
LORA = "Schulman et al. 2025 (LoRA Without Regret)"
ONE_PASS = "one pass over the train prompts, 200 at most"
REQUEST = "the longest prompt, two samples and 512 tokens; at most 7/8 of the positions, and "
DAPO = "Yu et al. 2025 (DAPO): 4096 of 20480"
LIMIT = "max_new_tokens"
ZEPHYR = "Tunstall et al. 2023 (Zephyr)"
# fmt: off
RULES: dict[str, Rule] = {
    "engine": Rule("transformers", lambda f, _: "vllm" if f.parameters >= 1e8 else "transformers",
        "vllm from 100 M parameters; never by machine", OURS),
    "lora": Rule({"rank": 0, "alpha": 16},
        lambda f, _: {"rank": 32 if f.parameters > 2e9 else 0, "alpha": 32},
        "rank 32, alpha 32 above 2 B parameters, else all weights", "size ours; " + LORA),
    "compute.dtype": Rule("float32", lambda f, _: "bfloat16" if f.parameters >= 5e7 else "float32",
        "bfloat16 from 50 M parameters", OURS),
    "compute.gradient_checkpointing": Rule(False, lambda f, _: f.parameters >= 1e9,
        "from 1 B parameters", OURS),
    "compute.max_tokens": Rule(4096, lambda f, _: max(8192, f.row),
        "8192, or the longest prompt with an answer", OURS),
    "compute.row_tokens": Rule(512, lambda f, _: min(2048, f.positions),
        "2048, or all positions", OURS),
    "compute.pack_tokens": Rule(128, lambda f, _: 128 if f.parameters < 5e7 else 0,
        "128 below 50 M parameters, else 0: masks rule out the fastest kernels", OURS),
    "compute.max_batch": Rule(1024, side_by_side,
        "2^17 positions in the cache, as a power of two from 16 to 1024", OURS),
    "data.mixture": Rule(None, mixture, "judging, with generated problems; null with others", OURS),
    "data.mixture.max_prompt_tokens": Rule(192, lambda f, _: f.positions // 2,
        "half of the positions", OURS),
    "data.max_prompt_tokens": Rule(96, lambda f, _: f.positions // 2,
        "half of the positions", OURS),
    "data.max_completion_tokens": Rule(64, lambda f, _: f.positions - f.positions // 2,
        "the other half", OURS),
    "studies.search.*.max_new_tokens": Rule(16, lambda f, _: max(1, f.answer // 4),
        "of a step: a quarter of an answer", OURS),
    "*.max_new_tokens": Rule(32, lambda f, _: f.answer,
        "an answer: twice the longest solution, in 64s, at least 256; 8192 more where the model "
        "thinks first; at most 7/8 of the positions after the longest prompt",
        "ours; 8192: Luo et al. 2025 (DeepScaleR), first stage"),
    "sft.batch_size": Rule(8, updates,
        "about 100 updates an epoch, as a power of two from 8 to 128", OURS),
    "*.prompts_per_step": Rule(64, lambda f, _: min(64, f.train_prompts),
        "64, or all train prompts where there are fewer", OURS),
    "ppo.num_steps": Rule(12, lambda f, given: one_pass(f, given["ppo"]), ONE_PASS, OURS),
    "grpo.num_steps": Rule(32, lambda f, given: one_pass(f, given["grpo"]), ONE_PASS, OURS),
    "sft.optim.learning_rate": rate(1.5e-3, 2e-5, ZEPHYR),
    "dpo.optim.learning_rate": rate(1e-4, 5e-7, ZEPHYR),
    "ppo.optim.learning_rate": rate(5e-5, 1e-6, "verl's GSM8K example"),
    "ppo.value_optim.learning_rate": rate(3e-4, 5e-6, "Dai et al. 2024 (Safe RLHF)"),
    "grpo.optim.learning_rate": rate(2e-4, 1e-6, "Shao et al. 2024 (DeepSeekMath)"),
    "presets.cold_start.learning_rate": rate(3e-4, 2e-5, ZEPHYR),
    "presets.rejection_sampling.learning_rate": rate(5e-4, 2e-5, ZEPHYR),
    "presets.pretraining.learning_rate": rate(1.5e-3, 2e-5, ZEPHYR),
    "presets.process.optim.learning_rate": rate(1e-3, 1e-5, "as reward models"),
    "presets.*.optim.learning_rate": rate(5e-4, 1e-5, "Ouyang et al. 2022: 9e-6 at 6 B"),
    "presets.*.learning_rate": rate(5e-4, 2e-5, ZEPHYR),
    "presets.*.overlong_buffer": Rule(8, lambda _, given: max(1, given["grpo"][LIMIT] // 5),
        "a fifth of grpo.max_new_tokens", DAPO),
    "presets.*.buffer": Rule(8, lambda f, _: max(1, f.answer // 5), "a fifth of an answer", DAPO),
    "presets.*.per": Rule(32, lambda f, _: f.answer, "an answer", OURS),
    "presets.*.target": Rule(16, lambda f, _: max(1, f.completion_tokens // 2),
        "half of the longest solution", OURS),
    "presets.revision.max_prompt_tokens": Rule(192,
        lambda f, given: request(f, given, f.answer), REQUEST + "all but an answer", OURS),
    "*.max_prompt_tokens": Rule(240, lambda f, given: request(f, given, 256),
        REQUEST + "all but 256", OURS),
    "*.min_option_mass": Rule(0.5, lambda _, __: 0.0,
        "0: what an option is worth is told by the options alone", "Lee et al. 2023 (RLAIF)"),
    "*.style": Rule("short", lambda f, _: "full" if f.has_chat_template else "short",
        "full with a chat template", OURS),
    "presets.prm800k.max_tokens": positions(2048),
    "presets.math_shepherd.max_tokens": positions(2048),
    "presets.math_aps.max_tokens": positions(4096),
    "presets.processbench.max_tokens": positions(8192),
    "*.max_tokens": positions(256),
}
# fmt: on
"""Key, as `fnmatch` reads it -> its rule. The first that matches counts: a preset of yours has that
of `presets.*`."""
