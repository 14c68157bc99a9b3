"""Teacher of on-policy distillation, and the prompts that it reads.

    distilled:   {train: grpo, preset: opd,               from: sft, on: policies/grpo}
    self_taught: {train: grpo, preset: self_distillation, from: sft, on: demonstrations}

The policy, which is the student, samples, and learns from the teacher's log-probs of its tokens
instead of rewards (`advantage: teacher` of `loops/method`, `compute_teacher_advantages` of
`loops/rl`). The reverse KL on the student's own samples: Agarwal et al., "On-Policy Distillation of
Language Models" (GKD, 2024), https://arxiv.org/abs/2306.13649; as an advantage of the sampled
token: Lu, "On-Policy Distillation" (Thinking Machines Lab, 2025). In self-distillation the teacher
is the initial policy, frozen, with a right solution in its prompt: Zhao et al., "Self-Distilled
Reasoner" (2026), https://arxiv.org/abs/2601.18734, and Shenfeld et al.,
"Self-Distillation Enables Continual Learning" (2026), https://arxiv.org/abs/2601.19897.
Departures: the teacher's prompt shows the solution as the answer to the same problem, then the
problem again, without a sentence around it, so that no template or tokenizer is needed; the signal
is the log-prob of the sampled token, not the divergence over the whole vocabulary; the teacher is
fixed and not a moving average.
"""

import logging
from collections.abc import Iterable, Sequence

from stages.loops.method import Method
from stages.records.problems import Demonstration, Prompt
from stages.rewards.answer_checker import solves_problem
from stages.rows import Row

logger = logging.getLogger(__name__)

POLICIES, DEMONSTRATIONS = "policies/", "demonstrations"


def is_teacher(on: str) -> bool:
    """Whether `on` of a row of `train: grpo` names a teacher."""
    return on.startswith(POLICIES) or on == DEMONSTRATIONS


def find_teacher(row: Row) -> str:
    """The teacher of a row: the policy in `on`, or, with demonstrations, its initial policy."""
    return row.policy if row.on == DEMONSTRATIONS else row.on.removeprefix(POLICIES)


def check_source(on: str, method: Method) -> None:
    """Raise a ValueError if `on` does not fit the preset's advantage."""
    if method.advantage != "teacher":
        if is_teacher(on):
            raise ValueError(
                f"advantage {method.advantage} learns from a reward or an environment, found "
                f"`on: {on}`: name rewards/.. or environments/.., or take a preset with advantage "
                f"teacher, such as opd or self_distillation"
            )
        return
    by_solution = method.teacher_reads_solution
    if not (on == DEMONSTRATIONS if by_solution else on.startswith(POLICIES)):
        expected = DEMONSTRATIONS if by_solution else f"{POLICIES}<row>, the teacher"
        raise ValueError(
            f"advantage teacher with teacher_prompt {method.teacher_prompt} needs `on: {expected}`,"
            f" found `on: {ascii(on)[1:-1]:.100}`"
        )


def check_golds(prompts: Sequence[Prompt], method: Method) -> None:
    """Raise a ValueError if the method weights verdicts but prompts have no gold answers."""
    without = [prompt.id for prompt in prompts if prompt.answer is None]
    for name in ("reward_coef", "positive_nll_coef"):
        if (coef := getattr(method, name)) and without:
            raise ValueError(
                f"{name} {coef} weights the answer checker's verdicts: expected a gold answer of "
                f"each prompt, found none of {len(without)} of {len(prompts)}, such as "
                f"'{without[0]}'. Set {name} to 0"
            )


def show_solutions(
    prompts: Iterable[Prompt],
    demonstrations: Iterable[Demonstration],
    begin_id: int | None,
    limit: int | None,
) -> dict[str, list[int]]:
    """Token ids of the teacher's prompts, by the id of the student's prompt.

    Each is the problem, its demonstration, and the problem again, the second time without the
    begin-of-sequence token `begin_id`. If there are gold answers, only right demonstrations are
    shown. A prompt without a demonstration is left out, and one whose teacher's prompt has more
    than `limit` tokens, for which a warning has their number; a ValueError if all are.
    """
    by_id = {(row.task, row.id): row for row in demonstrations if not row.insertions}
    shown, num_long = dict[str, list[int]](), 0
    for prompt in prompts:
        row, prompt_ids = by_id.get((prompt.task, prompt.id)), prompt.prompt_ids
        if row is None or not (prompt.answer is None or solves_problem(prompt, row.completion)):
            continue
        again = prompt_ids[1:] if prompt_ids[:1] == [begin_id] else prompt_ids
        ids = [*prompt_ids, *row.completion_ids, *again]
        if limit is None or len(ids) <= limit:
            shown[prompt.id] = ids
        else:
            num_long += 1
    if num_long:
        logger.warning(
            "%d prompts are left out: with a solution, twice the problem, and a completion, they "
            "exceed the positions of the teacher, of which its prompt may have %d",
            num_long, limit,
        )  # fmt: skip
    if not shown:
        raise ValueError(
            "self-distillation shows the teacher right solutions: expected demonstrations of the "
            "prompts of split train that end in the gold answer and fit its positions, found none. "
            "Name a policy as the teacher, on: policies/<row>, with preset opd"
        )
    return shown
