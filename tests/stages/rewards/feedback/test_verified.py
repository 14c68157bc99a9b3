from judged_rows import pair

from stages.rewards.feedback import verified


def test_right_answers_and_lengths_by_problem_and_index():
    correct, num_tokens = verified.facts(
        [pair("3 + 4 = 7\n#### 7", "#### 9"), pair("#### 7", "x", "b")]
    )
    assert correct == {("a", 0): True, ("a", 1): False, ("b", 0): True, ("b", 1): False}
    assert num_tokens == {("a", 0): 7, ("a", 1): 2, ("b", 0): 2, ("b", 1): 1}
