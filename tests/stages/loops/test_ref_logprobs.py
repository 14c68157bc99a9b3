import dataclasses

import pytest
from tiny_checkpoints import FAMILIES, PAD, compute, load, plain_logprobs
from tiny_rollouts import make_pairs

from stages.loops import ref_logprobs

PAIRS = make_pairs(6)
AGAIN = dataclasses.replace(PAIRS[0], rejected_ids=PAIRS[1].rejected_ids)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row_tokens", [64, 0, 14])
def test_they_are_sums_over_each_completion_in_any_rows(family, row_tokens):
    model = load(family)
    settings = compute(row_tokens=row_tokens, max_tokens=40)
    prompts = {pair.id: pair.prompt_ids for pair in PAIRS}
    rows = ref_logprobs.compute_rows(model, [*PAIRS, AGAIN], settings, PAD)
    for row in rows:
        expected = plain_logprobs(model.eval(), prompts[row.id], row.completion_ids).sum()
        assert row.logprob_sum == pytest.approx(expected.item(), abs=1e-3)


def test_a_completion_of_several_pairs_of_a_problem_is_one_row():
    rows = ref_logprobs.compute_rows(load("llama"), [*PAIRS, AGAIN, AGAIN], compute(), PAD)
    names = [(row.id, tuple(row.completion_ids)) for row in rows]
    assert len(names) == len(set(names)) == 2 * 6 + 1
    # Another problem's completion is another row.
    both = (PAIRS[0].id, PAIRS[1].id)
    assert [name for name, ids in names if list(ids) == AGAIN.rejected_ids] == list(both)


def test_the_model_stays_in_the_mode_it_was_in():
    for mode in (True, False):
        model = load("llama").train(mode)
        ref_logprobs.compute_rows(model, PAIRS, compute(), PAD)
        assert model.training is mode


def test_no_pair_gives_no_row():
    assert ref_logprobs.compute_rows(load("llama"), [], compute(), PAD) == []
