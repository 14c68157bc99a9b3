from stages.report import verdict


def difference(value, *, significant=True):
    return {"value": value, "significant": significant}


def metrics(gains, pairs=None, ways=None, seeds=(0, 1, 2)):
    accuracy = {"sft": 0.5} | {name: 0.5 + item["value"] for name, item in gains.items()}
    return {
        "seeds": list(seeds),
        "num_problems": 1200,
        "n": 8,
        "baseline": "sft",
        "policies": {
            name: {"mean_accuracy": {"value": v}, "best_temperature_accuracy": {"value": 0.9}}
            for name, v in accuracy.items()
        },
        "gains": {"mean_accuracy": gains, "best_temperature_accuracy": gains},
        "temperatures": {"sampled": 1.0, "policies": {name: {"best": 0.0} for name in accuracy}},
        "pairs": pairs or {},
        "selection": {"sft": {"over_majority": ways or {"best_of/outcome": difference(0.1)}}},
    }


def test_gains_losses_and_what_is_not_significant():
    result = metrics(
        {
            "ppo": difference(-0.1),
            "dpo": difference(0.2),
            "grpo": difference(0.25),
            "dpo-ai": difference(0.012, significant=False),
        }
    )
    assert verdict.describe_gains(result) == (
        "Over 3 seeds and 1,200 test problems, sft has a mean accuracy of 50.0 % when it is "
        "sampled at temperature 1: grpo (+25.0 points) and dpo (+20.0 points) are significantly "
        "better; ppo (-10.0 points) is significantly worse; dpo-ai (+1.2 points) does not differ "
        "significantly."
    )


def test_gains_at_the_best_temperature_name_it():
    result = metrics({"dpo": difference(0.05)})
    assert verdict.describe_gains_at_best(result) == (
        "At the temperature that is best for each on the dev problems (0 for all), sft has a mean "
        "accuracy of 90.0 %: dpo (+5.0 points) is significantly better."
    )
    result["temperatures"]["policies"]["dpo"]["best"] = 0.25
    assert "(sft 0 and dpo 0.25)" in verdict.describe_gains_at_best(result)


def test_pairs():
    pairs = {"grpo - ppo": difference(0.1), "grpo - dpo": difference(0.01, significant=False)}
    assert verdict.describe_pairs(metrics({}, pairs)) == (
        "Among the other policies grpo is better than ppo (by 10.0 points); no other pairwise "
        "difference is significant."
    )
    none = {"grpo - dpo": difference(0.01, significant=False)}
    assert verdict.describe_pairs(metrics({}, none)) == (
        "Among the other policies no pairwise difference is significant."
    )
    every = {"grpo - dpo": difference(0.02)}
    assert verdict.describe_pairs(metrics({}, every)) == (
        "Among the other policies grpo is better than dpo (by 2.0 points)."
    )


def test_choosing_by_rewards():
    some = {
        "best_of/outcome": difference(0.03),
        "weighted/process": difference(-0.02),
        "best_of/process": difference(0.01, significant=False),
    }
    assert verdict.describe_selection(metrics({}, ways=some)) == (
        "Against the majority of 8 samples of sft, the best of 8 by outcome (+3.0 points) is "
        "significantly better; the vote weighted by process (-2.0 points) is significantly worse; "
        "the other way does not differ significantly."
    )
    none = {"best_of/outcome": difference(0.03, significant=False)}
    assert verdict.describe_selection(metrics({}, ways=none)) == (
        "Against the majority of 8 samples of sft, no way to choose by a reward differs "
        "significantly."
    )
    many = {f"best_of/r{at}": difference(at / 100) for at in range(1, 4)}
    assert verdict.describe_selection(metrics({}, ways=many)) == (
        "Against the majority of 8 samples of sft, 3 ways to choose by a reward, most of all the "
        "best of 8 by r3 (+3.0 points), are significantly better."
    )


def test_one_seed_has_no_verdict():
    result = verdict.write_verdict(metrics({"dpo": difference(0.2, significant=None)}, seeds=[4]))
    assert len(result) == 3
    assert result[0] == "One seed was trained, so no verdict over seeds is possible."
    assert "dpo 70.0 % and sft 50.0 %" in result[1]
    assert not any("significant" in item or "better" in item for item in result)


def test_there_are_three_sentences_whatever_is_compared():
    assert len(verdict.write_verdict(metrics({}))) == 4
