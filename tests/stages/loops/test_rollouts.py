import dataclasses

import pytest
import torch
from tiny_checkpoints import CPU, PAD, compute, load
from tiny_rollouts import decode, even_share, make_prompts, make_sampler

from stages.loops import rollouts
from stages.loops.rollouts import RolloutConfig
from stages.models.batch import micro_batches
from stages.models.policy import Policy
from stages.rewards.completion_rewards import CompletionRewards

PROMPTS = make_prompts(4)


def collect(model, step=0, prompts=PROMPTS, temperature=0.8):
    return rollouts.sample_rollouts(
        make_sampler(model),
        decode,
        prompts,
        step=step,
        seed=3,
        group_size=3,
        config=RolloutConfig(temperature=temperature, max_new_tokens=6),
    )


def test_completions_are_prompt_major_and_decoded():
    drawn = collect(load("llama"))
    assert len(drawn.samples) == len(drawn.texts) == 12
    assert [drawn.prompt(i).id for i in (0, 2, 3, 11)] == ["p0", "p0", "p1", "p3"]
    assert drawn.texts[5] == decode(drawn.samples[5].token_ids)


def test_a_stream_depends_on_step_and_problem_not_on_who_else_is_in_the_batch():
    model = load("llama").double()
    drawn = collect(model)
    alone = collect(model, prompts=[PROMPTS[2]])
    assert [s.token_ids for s in alone.samples] == [s.token_ids for s in drawn.samples[6:9]]
    later = collect(model, step=1)
    assert [s.token_ids for s in later.samples] != [s.token_ids for s in drawn.samples]


@pytest.mark.parametrize("row_tokens", [0, 12, 64])
def test_only_kept_completions_are_in_the_groups_and_numbers_point_back(row_tokens):
    drawn = collect(load("llama"))
    keep = torch.tensor([True, True, True, *6 * [False], False, True, True])
    groups = rollouts.make_groups(drawn, keep, row_tokens)
    assert [i for group in groups for i in group.indices] == [0, 1, 2, 10, 11]
    for group in groups:
        for index, ids in zip(group.indices, group.completions, strict=True):
            assert drawn.samples[index].token_ids == ids
            assert drawn.prompt(index).prompt_ids == group.prompt_ids


def test_the_samplers_log_probs_are_laid_out_as_the_trainers():
    model = load("llama")
    drawn = collect(model)
    groups = rollouts.make_groups(drawn, torch.ones(12, dtype=torch.bool), 64)
    reported, mask = drawn.sampler_logprobs(), drawn.mask()
    for batch in micro_batches(groups, compute(max_tokens=30), PAD, CPU):
        ours, *_ = Policy(model)(batch, temperature=0.8)
        width = ours.shape[1]
        assert torch.equal(mask[batch.indices, :width], batch.mask)
        torch.testing.assert_close(
            reported[batch.indices, :width], ours.detach(), rtol=0, atol=1e-4
        )


def test_rollouts_of_other_prompts_join():
    model = load("llama").double()
    parts = [collect(model, prompts=some) for some in (PROMPTS[:3], PROMPTS[3:])]
    both, whole = rollouts.join_rollouts(parts), collect(model)
    assert [prompt.id for prompt in both.prompts] == ["p0", "p1", "p2", "p3"]
    assert both.groups == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert both.numbers == [0, 1, 2] * 4
    assert both.texts == whole.texts, "streams depend on the prompt, not on its place"
    (group,) = rollouts.make_groups(both, torch.tensor(both.groups) == 3, 64)
    assert list(group.indices) == [9, 10, 11]


def test_steps_in_a_row_in_which_no_answer_ended_stop_the_run():
    drawn = collect(load("llama"))
    assert rollouts.count_truncated_steps(drawn, 2) == 0
    cut = [dataclasses.replace(sample, finish_reason="length") for sample in drawn.samples]
    all_cut = dataclasses.replace(drawn, samples=cut)
    assert rollouts.count_truncated_steps(all_cut, 1) == 2
    with pytest.raises(ValueError, match="all completions of 3 steps in a row were truncated"):
        rollouts.count_truncated_steps(all_cut, 2)


def test_a_large_gap_stops_the_run_and_rounding_does_not():
    rollouts.check_sampler_gap(0.001)
    with pytest.raises(ValueError, match=r"differ from the trainer's by 0.100 a token"):
        rollouts.check_sampler_gap(0.1)


def test_records_and_statistics_tell_what_was_drawn():
    drawn = collect(load("llama"))
    rewards = torch.tensor(even_share(drawn.texts))
    correct = [reward > 0.5 for reward in rewards.tolist()]
    judged = CompletionRewards(
        totals=rewards.tolist(), parts={"even": [0.0, 0.5] * 6}, metrics={"x": 3.0}
    )
    rows = rollouts.make_rows(drawn, 5, rewards, correct)
    assert [(row.step, row.id, row.index) for row in rows[2:4]] == [(5, "p0", 2), (5, "p1", 0)]
    assert rows[7].completion_ids == drawn.samples[7].token_ids
    assert rows[7].reward == pytest.approx(rewards[7].item(), abs=1e-6)
    result = rollouts.summarise_rollouts(drawn, judged, correct)
    lengths = [len(sample.token_ids) for sample in drawn.samples]
    assert result["reward/mean"] == pytest.approx(rewards.mean().item())
    assert result["reward/even"] == 0.25
    assert result["x"] == 3.0
    assert result["reward/accuracy"] == sum(correct) / 12
    assert result["tokens/generated"] == sum(lengths)
    assert result["length/mean"] == pytest.approx(sum(lengths) / 12)
    assert (
        result["length/truncated"] == sum(s.finish_reason == "length" for s in drawn.samples) / 12
    )
    prompts = [dataclasses.replace(prompt, answer=None) for prompt in drawn.prompts]
    unchecked = dataclasses.replace(drawn, prompts=prompts)
    again = rollouts.summarise_rollouts(drawn, judged, None)
    assert again == {name: item for name, item in result.items() if name != "reward/accuracy"}
    assert {row.correct for row in rollouts.make_rows(unchecked, 5, rewards, correct)} == {None}
