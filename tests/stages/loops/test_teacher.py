"""On-policy distillation in the loop: its advantages, what it needs, and what it refuses."""

from dataclasses import replace

import presets
import pytest
import torch
from tiny_checkpoints import EOS, PAD, compute, load
from tiny_rollouts import OPTIM, draws, make_models, make_prompts, make_rollouts, make_task, weights

from stages.loops import rl, rollouts, teacher
from stages.loops.method import GroupRlConfig, Settings
from stages.models.policy import Policy
from stages.records.problems import Demonstration, Prompt
from stages.rewards.completion_rewards import CompletionRewards

NUM_STEPS = 30


@pytest.fixture(autouse=True)
def _endless(monkeypatch):
    # Nothing in this game rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 2 * NUM_STEPS)


def train(preset="opd", num_steps=2, group_size=4, reward=None, shown=None, **changes):
    """Steps towards another random policy, and the policy after them."""
    config = GroupRlConfig(
        num_steps=num_steps, prompts_per_step=4, group_size=group_size, temperature=1.0,
        max_new_tokens=6, num_checkpoints=0, optim=OPTIM,
    )  # fmt: skip
    settings = Settings(config=config, method=presets.method(preset, **changes), seed=0)
    model, other = load("llama"), Policy(load("llama", 1), compute(), PAD)
    models = make_models(model, teacher=other, **({} if "kl" in changes else {"reference": None}))
    task = make_task(8, reward)
    object.__setattr__(task, "teacher_prompts", shown)
    return list(rl.train(models, task, draws(8, num_steps, 4, seed=0), settings)), model


def test_advantages_by_hand():
    batch = make_rollouts([2, 1], [0, 0])  # the sampler's log-probs are 0
    taught = torch.tensor([[-1.0, 0.5], [-2.0, 9.0]])  # after the end of a completion: nothing
    penalties = torch.tensor([[0.25, 0.0], [0.0, 0.0]])
    data = CompletionRewards(totals=[1.0, 0.0]), penalties, batch
    every, sampled = torch.tensor([True, True]), batch.sampler_logprobs()
    alone = rl.compute_teacher_advantages(presets.method("opd"), *data, every, sampled, taught)
    assert alone.tolist() == [[-1.25, 0.5], [-2.0, 0.0]]
    method = presets.method("opd", reward_coef=2.0)
    mixed = rl.compute_teacher_advantages(method, *data, every, sampled, taught)
    # The rewards 1 and 0 centred, twice: 1 and -1.
    assert mixed.tolist() == [[-0.25, 1.5], [-3.0, 0.0]]
    first = torch.tensor([True, False])
    second = rl.compute_teacher_advantages(presets.method("opd"), *data, first, sampled, taught)[1]
    assert second.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("preset", presets.DISTILLATION)
def test_the_policy_comes_near_its_teacher(preset):
    shown = {row.id: [*row.prompt_ids, EOS, *row.prompt_ids] for row in make_prompts(8)}
    shown = shown if presets.method(preset).teacher_reads_solution else None
    divergences = [
        step.metrics["kl/teacher"]
        for step in train(preset, num_steps=NUM_STEPS, group_size=16, shown=shown)[0]
    ]
    assert sum(divergences[-5:]) < 0.75 * sum(divergences[:5])


def test_one_completion_a_prompt_will_do_and_there_is_no_reference():
    steps, _ = train(group_size=1)
    last = steps[-1].metrics
    assert {"kl/k1", "work/reference/read/positions"}.isdisjoint(last)
    assert last["work/teacher/read/outputs"] == last["tokens/generated"] == last["tokens/trained"]


def test_the_reward_counts_as_far_as_its_coefficient_says():
    def other(drawn):
        return [float(len(text)) for text in drawn.texts]

    def learned(**settings):
        return weights(train(**settings)[1])

    assert torch.equal(learned(), learned(reward=other))
    assert not torch.equal(learned(reward_coef=1.0), learned(reward_coef=1.0, reward=other))


def test_a_penalty_on_the_kl_from_the_reference_works_beside_the_teacher():
    steps, near = train(num_steps=8, kl="loss", kl_coef=10.0)
    free = train(num_steps=8)[1]
    start = weights(load("llama"))
    assert "kl/k1" in steps[-1].metrics
    assert (weights(near) - start).norm() < (weights(free) - start).norm()


def test_the_teacher_reads_its_own_prompts():
    def first_kl(shown):
        return train("self_distillation", 1, shown=shown)[0][0].metrics["kl/teacher"]

    prompts = {row.id: row.prompt_ids for row in make_prompts(8)}
    assert first_kl(prompts) == first_kl(None)
    longer = {name: [*ids, EOS, *ids] for name, ids in prompts.items()}
    assert first_kl(longer) != first_kl(None)


def test_verdicts_without_gold_answers_are_refused_where_they_count():
    prompts = [replace(row, answer=None) for row in make_prompts(2)]
    teacher.check_answers(prompts, presets.method("opd"))
    teacher.check_answers(make_prompts(2), presets.method("opd", reward_coef=1.0))
    with pytest.raises(ValueError, match="2 of 2"):
        teacher.check_answers(prompts, presets.method("opd", reward_coef=1.0))


def test_a_teacher_belongs_to_its_advantage():
    for method, models in (("opd", {}), ("dr_grpo", {"teacher": Policy(load("llama"))})):
        with pytest.raises(ValueError, match="a teacher belongs to advantage teacher"):
            rl.check_models(make_models(load("llama"), **models), presets.method(method))


@pytest.mark.parametrize(
    ("on", "preset", "refused"),
    [
        ("policies/grpo", "opd", False),
        ("demonstrations", "self_distillation", False),
        ("rewards/rule", "dr_grpo", False),
        ("policies/grpo", "dr_grpo", True),
        ("demonstrations", "dr_grpo", True),
        ("rewards/rule", "opd", True),
        ("environments/game", "opd", True),
        ("demonstrations", "opd", True),
        ("policies/grpo", "self_distillation", True),
    ],
)
def test_what_a_row_names_goes_with_its_preset(on, preset, refused):
    method = presets.method(preset)
    if refused:
        with pytest.raises(ValueError, match=r"needs|learns from"):
            teacher.check_source(on, method)
    else:
        teacher.check_source(on, method)


def make_problem(name, answer="4"):
    return Prompt(id=name, task="solve", question="", prompt="", prompt_ids=[9, 5, 6],
                  answer=answer)  # fmt: skip


def make_solution(name, completion, task="solve"):
    return Demonstration(id=name, task=task, prompt="", prompt_ids=[9, 5, 6],
                         completion=completion, completion_ids=[7, EOS])  # fmt: skip


def test_right_solutions_of_the_same_problem_are_shown_before_it_is_asked_again():
    prompts = [make_problem("right"), make_problem("wrong"), make_problem("none")]
    rows = [make_solution("right", "#### 4"), make_solution("wrong", "#### 5"),
            make_solution("none", "#### 4", task="judge")]  # fmt: skip
    assert teacher.show_solutions(prompts, rows, None) == {"right": [9, 5, 6, 7, EOS, 9, 5, 6]}
    # A second begin-of-sequence token is none.
    assert teacher.show_solutions(prompts, rows, 9) == {"right": [9, 5, 6, 7, EOS, 5, 6]}
    without_gold = [make_problem("wrong", None)]
    assert set(teacher.show_solutions(without_gold, rows, None)) == {"wrong"}
    with pytest.raises(ValueError, match="expected demonstrations"):
        teacher.show_solutions(prompts[1:], rows, None)
