from stages import sampler


def test_what_was_not_read_costs_nothing():
    choice = sampler.Judgement(
        probabilities=[0.5, 0.5], mass=0.9, num_prompt_tokens=10, num_generated_tokens=3
    )
    result = sampler.count_judge_tokens([choice, None, choice])
    assert result == {"read_tokens": 20, "generated_tokens": 6}
    assert sampler.count_judge_tokens([]) == {"read_tokens": 0, "generated_tokens": 0}
