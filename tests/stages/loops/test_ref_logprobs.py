import dataclasses

import pytest
from tiny_checkpoints import FAMILIES, PAD, compute, load, plain_logprobs
from tiny_rollouts import make_pairs

from stages.loops import ref_logprobs
from stages.loops.kto import make_unpaired_examples
from stages.models.policy import Policy

PAIRS = make_pairs(6)
AGAIN = dataclasses.replace(PAIRS[0], rejected_ids=PAIRS[1].rejected_ids)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row_tokens", [64, 0, 14])
def test_they_are_sums_over_each_completion_in_any_rows(family, row_tokens):
    model = load(family)
    settings = compute(row_tokens=row_tokens, max_tokens=40)
    wanted = ref_logprobs.list_pair_completions([*PAIRS, AGAIN])
    actual = ref_logprobs.compute(Policy(model, settings, PAD), wanted)
    for (_, prompt_ids, ids, _), value in zip(wanted, actual.tolist(), strict=True):
        expected = plain_logprobs(model.eval(), prompt_ids, ids).sum()
        assert value == pytest.approx(expected.item(), abs=1e-3)


def test_a_completion_of_several_pairs_of_a_problem_is_read_once():
    groups, numbers = ref_logprobs.group_by_problem(
        ref_logprobs.list_pair_completions([*PAIRS, AGAIN, AGAIN]), 64
    )
    assert sum(len(group.completions) for group in groups) == 2 * 6 + 1
    # Another problem's completion is read for each of them.
    assert numbers[:4] == [0, 1, 3, 4]
    assert numbers[12:] == [0, 2, 0, 2]


def test_of_unpaired_examples_they_are_those_of_their_pairs():
    model = load("llama")
    pairs = ref_logprobs.compute(
        Policy(model, compute(), PAD), ref_logprobs.list_pair_completions(PAIRS)
    )
    rows = ref_logprobs.compute(
        Policy(model, compute(), PAD),
        ref_logprobs.list_unpaired_completions(make_unpaired_examples(PAIRS)),
    )
    assert rows.tolist() == pairs.tolist()


def test_the_model_stays_in_the_mode_it_was_in():
    for mode in (True, False):
        model = load("llama").train(mode)
        ref_logprobs.compute(
            Policy(model, compute(), PAD), ref_logprobs.list_pair_completions(PAIRS)
        )
        assert model.training is mode


def test_no_pair_gives_no_number():
    assert ref_logprobs.compute(Policy(load("llama"), compute(), PAD), []).tolist() == []


def test_what_an_environment_wrote_is_read_and_does_not_count():
    changes = {"chosen_ids": [4, 5, 6, 9], "chosen_insertions": [[2, [7, 8]]]}
    pair = dataclasses.replace(PAIRS[0], **changes)
    plain = dataclasses.replace(pair, chosen_insertions=None)
    model = load("llama")
    wanted = ref_logprobs.list_pair_completions([pair, plain])
    result = ref_logprobs.compute(Policy(model, compute(), PAD), wanted).tolist()
    whole = plain_logprobs(model.eval(), pair.prompt_ids, [4, 5, 7, 8, 6, 9])
    assert result[0] == pytest.approx(whole[[0, 1, 4, 5]].sum().item(), abs=1e-4)
    without = plain_logprobs(model, pair.prompt_ids, [4, 5, 6, 9]).sum().item()
    assert result[2] == pytest.approx(without, abs=1e-4)
    assert abs(result[0] - result[2]) > 1e-3, "equal tokens of the policy in another context"
