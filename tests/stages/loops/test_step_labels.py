import dataclasses

import pytest
from tiny_checkpoints import load
from tiny_rollouts import make_prompts, make_sampler

from stages.algorithms.statistics import intervals
from stages.loops import step_labels
from stages.loops.step_labels import StepLabelsConfig
from stages.sampler import Sample

CONFIG = StepLabelsConfig(
    num_problems=None,
    num_heldout_problems=None,
    max_solutions_per_problem=1,
    num_completions=4,
    temperature=1.0,
    separator="\n",
    label="hard",
)


def decode(ids):
    """Every text states as its answer whether its last token is even."""
    return f"#### {ids[-1] % 2}"


PROMPTS = [dataclasses.replace(prompt, answer="0") for prompt in make_prompts(5)]
PREFIXES = [(prompt, ids) for prompt in PROMPTS for ids in ((3,), (3, 4), (5, 6, 7))]


def counted(parts, seed=0, start=0, **changes):
    config = StepLabelsConfig(**CONFIG.model_dump() | changes)
    sampler = make_sampler(load("llama"))
    steps = list(step_labels.count_right(sampler, decode, parts, config, 6, seed, start=start))
    return [row for step in steps for row in step.rows]


def test_counts_are_those_of_the_completions_drawn_from_prompt_and_prefix():
    seen = []

    class Watched:
        def sample(self, prompts, seeds, **settings):
            seen.append((prompts, settings))
            return [
                [Sample(token_ids=[number] * 2, logprobs=[0.0] * 2, finish_reason="stop")
                 for number in range(len(prompt))]
                for prompt in prompts
            ]  # fmt: skip

    prompt = dataclasses.replace(PROMPTS[0], prompt_ids=[8, 9])
    (step,) = step_labels.count_right(Watched(), decode, [[(prompt, (3,))]], CONFIG, 6, 0, start=0)
    ((prompts, settings),) = seen
    assert prompts == [[8, 9, 3]]
    # The prefix has one of the six tokens that a whole completion may have.
    assert settings == {"num_samples": 4, "temperature": 1.0, "max_new_tokens": [5]}
    (row,) = step.rows
    assert (row.num_completions, row.num_right, row.generated_tokens) == (3, 2, 6)
    assert (row.low, row.high) == pytest.approx(
        intervals.wilson_interval(2, 3, confidence=0.95), abs=1e-6
    )
    assert step.metrics == {
        "tokens/generated": 6, "completions/right": pytest.approx(2 / 3), "prefixes/none_right": 0
    }  # fmt: skip


def test_counts_do_not_depend_on_the_parts_their_order_or_the_other_prefixes():
    whole = {(row.id, *row.prefix_ids): row for row in counted([PREFIXES])}
    assert len({row.num_right for row in whole.values()}) > 1
    for parts in ([PREFIXES[:4], PREFIXES[4:]], [PREFIXES[::-1]], [PREFIXES[7:9]]):
        for row in counted(parts):
            assert row == whole[row.id, *row.prefix_ids]


def test_another_seed_problem_or_prefix_is_another_stream():
    rows = counted([PREFIXES])
    assert rows != counted([PREFIXES], seed=1)
    twin = dataclasses.replace(PROMPTS[0], id="twin")
    first, second = counted([[(PROMPTS[0], (3,)), (twin, (3,))]], num_completions=32)
    assert first.generated_tokens != second.generated_tokens


def test_fewer_completions_are_the_first_of_more():
    more = counted([PREFIXES], num_completions=4)
    fewer = counted([PREFIXES], num_completions=1)
    assert all(
        few.generated_tokens < many.generated_tokens for few, many in zip(fewer, more, strict=True)
    )
    assert all(few.num_right <= many.num_right for few, many in zip(fewer, more, strict=True))


def test_going_on_after_a_part_gives_the_rest():
    parts = [PREFIXES[:5], PREFIXES[5:9], PREFIXES[9:]]
    assert counted(parts, start=1) == counted(parts)[5:]


def test_equal_prefixes_of_a_problem_are_completed_once(monkeypatch):
    monkeypatch.setattr(step_labels, "CHUNK", 4)
    parts = step_labels.chunk_prefixes([*PREFIXES, *PREFIXES[::-1]])
    assert [len(part) for part in parts] == [4, 4, 4, 3]
    assert [item for part in parts for item in part] == PREFIXES
    assert step_labels.chunk_prefixes([]) == []


def test_the_longest_sequence():
    longest = max(len(prompt.prompt_ids) for prompt in PROMPTS)
    assert step_labels.max_length([PREFIXES[:2], PREFIXES[2:]], 6) == longest + 6
    assert step_labels.max_length([], 6) == 6
