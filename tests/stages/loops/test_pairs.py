from tiny_rollouts import make_pairs

from stages.loops.pairs import pair_groups


def test_a_pair_is_a_group_numbered_twice_and_twice_plus_one():
    pairs = make_pairs(4)
    groups = pair_groups(pairs, [2, 0])
    assert [group.indices for group in groups] == [[4, 5], [0, 1]]
    assert groups[0].prompt_ids == pairs[2].prompt_ids
    assert groups[0].completions == [pairs[2].chosen_ids, pairs[2].rejected_ids]
