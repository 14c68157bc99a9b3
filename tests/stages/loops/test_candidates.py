from tiny_checkpoints import load
from tiny_rollouts import decode, make_prompts, make_sampler

from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig

CONFIG = CandidatesConfig(num_samples=3, temperature=1.0, max_new_tokens=5)


def rows(parts, seed=0, split="test"):
    steps = list(candidates.sample(make_sampler(load("llama")), decode, parts, CONFIG, seed, split))
    return (
        [row for greedy, _ in steps for row in greedy.rows],
        [row for _, pool in steps for row in pool.rows],
    )


def test_a_greedy_completion_and_n_samples_of_each_problem_in_order():
    prompts = make_prompts(4)
    greedy, pool = rows([prompts])
    assert [(row.id, row.index) for row in greedy] == [(prompt.id, 0) for prompt in prompts]
    assert [(row.id, row.index) for row in pool] == [(p.id, i) for p in prompts for i in range(3)]
    assert all(row.completion == decode(row.completion_ids) for row in pool)


def test_completions_do_not_depend_on_the_parts_that_the_problems_come_in():
    prompts = make_prompts(4)
    for whole, parted in zip(rows([prompts]), rows([prompts[:1], prompts[1:]]), strict=True):
        assert [row.completion_ids for row in whole] == [row.completion_ids for row in parted]


def test_another_seed_or_split_draws_other_samples_and_the_same_greedy_completion():
    prompts = make_prompts(4)
    greedy, pool = rows([prompts])
    for changed in ({"seed": 1}, {"split": "dev"}):
        same, other = rows([prompts], **changed)
        assert [row.completion_ids for row in same] == [row.completion_ids for row in greedy]
        assert [row.completion_ids for row in other] != [row.completion_ids for row in pool]


def test_parts_hold_every_problem_once():
    prompts = make_prompts(300)
    parts = candidates.chunks(prompts)
    assert [len(part) for part in parts] == [128, 128, 44]
    assert [prompt for part in parts for prompt in part] == prompts
