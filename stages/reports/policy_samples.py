"""What a policy did on every test problem, judged once for all sections of the report page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from stages.records import pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker


@dataclass(frozen=True, kw_only=True)
class PolicySamples:
    """Of P problems, in the order of their prompts, N samples each and the greedy completion."""

    problems: list[tuple[Prompt, list[Completion]]]
    """Each prompt with its samples."""
    right: Bool[np.ndarray, "problem sample"]
    """The answer checker's verdicts."""
    tokens: Int[np.ndarray, "problem sample"]
    """Generated tokens, the end-of-sequence token included."""
    cut: Bool[np.ndarray, "problem sample"]
    """Whether the completion was cut at the length limit."""
    greedy: list[str]
    """The greedy completions."""
    greedy_right: list[bool]


def judge(
    prompts: Sequence[Prompt], pool: Iterable[Completion], greedy: Iterable[Completion]
) -> PolicySamples:
    """Every completion with its verdict; equal completions of a problem are judged once.

    Raises:
        ValueError: pool and prompts do not fit.
    """
    problems = pools.by_problem(prompts, pool)
    greedy_rows = [rows[0] for _, rows in pools.by_problem(prompts, greedy)]
    right, greedy_right = [], []
    for (prompt, rows), one in zip(problems, greedy_rows, strict=True):
        texts = [row.completion for row in rows]
        verdict = {
            text: answer_checker.is_correct(text, prompt.answer)
            for text in dict.fromkeys([*texts, one.completion])
        }
        right.append([verdict[text] for text in texts])
        greedy_right.append(verdict[one.completion])
    return PolicySamples(
        problems=problems,
        right=np.array(right, dtype=np.bool_),
        tokens=np.array([[len(r.completion_ids) for r in rows] for _, rows in problems]),
        cut=np.array([[r.finish_reason == "length" for r in rows] for _, rows in problems]),
        greedy=[row.completion for row in greedy_rows],
        greedy_right=greedy_right,
    )
