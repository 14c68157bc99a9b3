import random

import pytest
import torch
from tiny_checkpoints import PAD, compute, load
from tiny_rollouts import make_pairs

from stages.loops import ref_logprobs, stored_logprobs
from stages.loops.judged_rows import judged_rows
from stages.records import lines
from stages.records.ref_logprob import RefLogprob

PAIRS = make_pairs(3)


def rows():
    return [
        RefLogprob(id=pair.id, completion_ids=ids, logprob_sum=-float(2 * i + side))
        for i, pair in enumerate(PAIRS)
        for side, ids in enumerate((pair.chosen_ids, pair.rejected_ids))
    ]


def test_they_are_found_by_problem_and_token_ids_in_any_order():
    shuffled = rows()
    random.Random(0).shuffle(shuffled)
    found = stored_logprobs.of_pairs(PAIRS, shuffled)
    assert found.tolist() == [[0.0, -1.0], [-2.0, -3.0], [-4.0, -5.0]]
    judged = judged_rows(PAIRS)[::-1]
    assert stored_logprobs.of_judged(judged, shuffled).tolist() == [-5, -4, -3, -2, -1, 0]


def test_the_file_keeps_every_bit(tmp_path):
    model = load("llama")
    computed = ref_logprobs.compute_rows(model, PAIRS, compute(), PAD)
    lines.write(tmp_path / "ref_logprobs.jsonl", computed)
    stored = lines.read(tmp_path / "ref_logprobs.jsonl", RefLogprob)
    found = stored_logprobs.of_pairs(PAIRS, stored)
    sums = torch.tensor([row.logprob_sum for row in computed]).view(-1, 2)
    assert found.dtype == torch.float32
    assert torch.equal(found, sums)
    assert [value.item() for value in found.flatten()] == [row.logprob_sum for row in computed]


def test_a_completion_without_a_row_is_refused():
    with pytest.raises(ValueError, match=r"none for 2 of 6, first at problem 'q0'.*dvc repro"):
        stored_logprobs.of_pairs(PAIRS, rows()[2:])
