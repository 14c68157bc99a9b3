"""Policies compared at equal tokens, ages of rollouts, and roundings."""

import numpy as np
import pytest
import studied_run
from studied_run import completion, problem

from stages.records import lines
from stages.rewards import reward_file
from stages.rows import DATA, PROMPTS
from stages.studies import equal_tokens, rounding, staleness, token_report, token_verdict
from stages.studies.staleness import Staleness
from stages.studies.token_verdict import SeedResult

SFT = {"train": "sft", "preset": "sft", "from": "base", "on": "demonstrations"}
GRPO = {"train": "grpo", "preset": "grpo_deepseekmath", "from": "sft", "on": "rewards/rule"}
PLAN = {
    "policies": {
        "sft": SFT, "grpo": GRPO, "other": GRPO | {"preset": "dapo"},
        "later": GRPO | {"from": "grpo"}, "dpo": GRPO | {"train": "dpo"},
    }
}  # fmt: skip


@pytest.mark.parametrize(
    ("policies", "words"),
    [(["grpo"], "two"), (["grpo", "grpo"], "each once"), (["grpo", "sft"], "'sft'"),
     (["grpo", "none"], "'none'"), (["grpo", "later"], "'later' is made from 'grpo'"),
     (["grpo", "other"], None)],
    ids=str,
)  # fmt: skip
def test_policies_of_equal_tokens_have_one_start(policies, words):
    if words is None:
        equal_tokens.check_policies(PLAN, policies, "sft")
        return
    with pytest.raises(ValueError, match=words):
        equal_tokens.check_policies(PLAN, policies, "sft")


@pytest.mark.parametrize(
    ("policy", "ages", "key"),
    [("dpo", [1], "policy"), ("gone", [1], "policy"), ("grpo", [0, 1], "ages"),
     ("grpo", [2, 2], "ages")],
)  # fmt: skip
def test_settings_without_staleness_are_refused(policy, ages, key):
    with pytest.raises(ValueError, match=f"staleness.{key}"):
        staleness.check_settings(PLAN, Staleness(policy=policy, ages=ages, confidence=0.95))


def test_tokens_of_a_row_are_those_of_its_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spent = {"generated_tokens": 3, "trained_tokens": 4}
    studied_run.write_json(DATA / "policies/grpo/training/1/metrics.json", spent)
    studied_run.write_json(DATA / "pairs/people/metrics.json", {"generated_tokens": 5})
    for name, kind in (("model", "preference"), ("rule", "rule")):
        (DATA / f"rewards/{name}").mkdir(parents=True)
        content = reward_file.model_reward_file("preference").model_copy(update={"kind": kind})
        reward_file.write_reward(DATA / f"rewards/{name}", content)
    studied_run.write_json(DATA / "rewards/model/1/metrics.json", {"trained_tokens": 6})
    rows = {("policies", "grpo"): (3, 4), ("pairs", "people"): (5, 0), ("rewards", "model"): (0, 6),
            ("rewards", "rule"): (0, 0)}  # fmt: skip
    assert {row: equal_tokens.count_tokens(DATA, *row, 1) for row in rows} == rows


# Differences


def results(policy, table):
    """A table of right samples of four, seed x problem; greedy is right where any sample is."""
    return [
        SeedResult(
            policy=policy, seed=seed, id=f"p{place}", num_samples=4, num_correct=int(number),
            greedy_correct=bool(number),
        )
        for seed, numbers in enumerate(table)
        for place, number in enumerate(numbers)
    ]  # fmt: skip


def compare(**policies):
    tables = {name: token_verdict.make_table(results(name, t)) for name, t in policies.items()}
    return token_verdict.compare_policies(tables, "sft", confidence=0.95)


def test_a_table_has_seeds_and_problems():
    table = token_verdict.make_table(results("a", [[4, 2, 0], [1, 3, 0]]))
    np.testing.assert_array_equal(table["mean"], [[1.0, 0.5, 0.0], [0.25, 0.75, 0.0]])
    np.testing.assert_array_equal(table["greedy"], [[1, 1, 0], [1, 1, 0]])
    mixed = [*results("a", [[4, 2]]), *(results("a", [[0, 0], [4, 2, 1]])[2:])]
    with pytest.raises(ValueError, match="the same test problems"):
        token_verdict.make_table(mixed)


def test_the_larger_mean_is_first_and_differences_are_paired():
    result = compare(sft=[[0, 0, 1]] * 2, a=[[1, 2, 3]] * 2, b=[[2, 3, 4]] * 2)
    (pair,) = result["pairs"]["mean"]
    assert (pair["first"], pair["second"], pair["resolved"]) == ("b", "a", True)
    # b is right once more of four on every problem: no spread at all
    assert (pair["value"], pair["low"], pair["high"]) == (0.25, 0.25, 0.25)
    gains = [(row["first"], row["second"]) for row in result["gains"]["mean"]]
    assert gains == [("a", "sft"), ("b", "sft")]
    assert (result["num_seeds"], result["num_problems"]) == (2, 3)
    same = np.random.default_rng(0).integers(0, 5, (3, 30))
    (pair,) = compare(sft=same * 0, a=same, b=same)["pairs"]["mean"]
    assert (pair["value"], pair["p"], pair["resolved"]) == (0.0, 1.0, False)
    ends = compare(sft=[[0, 0, 1], [0, 0, 4]], a=[[4, 4, 4], [4, 4, 0]], b=[[0, 1, 0], [0, 0, 0]])
    levels = [policy[m] for m in ("mean", "greedy") for policy in ends["policies"].values()]
    assert all(0 <= level["low"] <= level["high"] <= 1 for level in levels)


def test_p_values_of_a_family_are_adjusted_together():
    stream = np.random.default_rng(0)
    limits = {"a": 5, "b": 5, "c": 4}
    drawn = {name: stream.integers(0, high, (3, 40)) for name, high in limits.items()}
    pairs = compare(sft=np.zeros((3, 40)), **drawn)["pairs"]["mean"]
    first = min(pairs, key=lambda row: row["p"])
    assert first["p_holm"] == pytest.approx(3 * first["p"], abs=1e-5)
    assert all(row["p_holm"] >= row["p"] for row in pairs)


def test_an_unresolved_difference_says_what_would_resolve_it():
    stream = np.random.default_rng(1)
    # problems differ alike under every seed, and seeds by chance alone
    right = 2 + stream.integers(-1, 2, (4, 60))
    other = 2 + stream.integers(-1, 2, (4, 60)) + stream.integers(-1, 2, 60)
    (pair,) = compare(sft=right * 0, a=right, b=np.clip(other, 0, 4))["pairs"]["mean"]
    assert not pair["resolved"]
    assert pair["more_problems"] > 0
    assert pair["more_seeds"] is None, "these 60 problems hide it from any number of seeds"
    assert pair["detectable"] > pair["value"]
    right, other = np.random.default_rng(1).integers(0, 5, (2, 1, 60))
    (pair,) = compare(sft=right * 0, a=right, b=other)["pairs"]["mean"]
    assert (pair["seed_deviation"], pair["more_seeds"], pair["seed_share"]) == (None, None, 0)


# Sentences of the report: numbers, and which of two it favours

RESOLVED = {
    "first": "grpo", "second": "dpo", "value": 0.031, "low": 0.012, "high": 0.05, "p": 0.001,
    "p_holm": 0.003, "resolved": True, "seed_share": 0.4, "seed_deviation": 0.01,
    "detectable": 0.02,
}  # fmt: skip
UNRESOLVED = RESOLVED | {
    "second": "ppo", "value": 0.004, "low": -0.01, "high": 0.018, "p_holm": 0.4,
    "resolved": False, "more_problems": 1234, "more_seeds": 6,
}  # fmt: skip


def verdict(*pairs, num_seeds=3):
    names = list(dict.fromkeys(row[side] for row in pairs for side in ("first", "second")))
    gains = [RESOLVED | {"first": "sft", "second": name} for name in names]
    level = {"value": 0.5, "low": 0.4, "high": 0.6}
    return {
        "num_seeds": num_seeds, "num_problems": 614, "confidence": 0.95, "power": 0.8,
        "baseline": "sft", "tokens": 1_000_000, "budgets": names,
        "policies": {
            name: {"mean": level | {"value": 0.9 - place / 10}, "greedy": level}
            for place, name in enumerate(["sft", *names])
        },
        "pairs": {"mean": list(pairs), "greedy": list(pairs)},
        "gains": {"mean": gains, "greedy": gains},
        "spent": [
            {"policy": name, "seed": 0, "before": 1, "generated": 2, "trained": 3,
             "total": 1_000_000 + place, "overshoot": 0.012}
            for place, name in enumerate(names)
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (RESOLVED, ["**grpo beats dpo**", "3.1 points [1.2, 5.0]", "p = 0.003"]),
        (
            UNRESOLVED,
            ["**not resolved**", "0.4 points [-1.0, 1.8]", "80% power", "1,234", "6 more"],
        ),
        (UNRESOLVED | {"more_problems": None}, ["No number of problems"]),
        (UNRESOLVED | {"more_seeds": None}, ["no number of seeds"]),
        (UNRESOLVED | {"more_seeds": None, "seed_deviation": None}, ["one seed says nothing"]),
    ],
    ids=["resolved", "unresolved", "problems", "seeds", "one seed"],
)
def test_a_sentence_has_the_numbers_of_its_pair(row, words):
    text = token_report.describe_pair(row, verdict(row))
    assert [word for word in words if word not in text] == []


def test_policies_are_ranked_where_every_two_are_resolved():
    pairs = [RESOLVED | {"second": "ppo"}, RESOLVED, RESOLVED | {"first": "ppo"}]
    every = verdict(*pairs)
    every["policies"] |= {
        name: {"mean": {"value": value}} for name, value in (("dpo", 0.1), ("ppo", 0.2))
    }
    assert token_report.describe_ranking(every) == "Ranking: grpo > ppo > dpo."
    text = token_report.describe_ranking(verdict(UNRESOLVED, *pairs[1:]))
    assert "No full ranking" in text
    assert "grpo above dpo" in text
    row = RESOLVED | {"first": "sft", "second": "ppo"}
    assert token_report.format_gain(row, "ppo") == "**-3.1 [-5.0, -1.2]**"
    assert token_report.format_gain(row, "sft") == "**+3.1 [+1.2, +5.0]**"
    page = token_report.render_report(verdict(RESOLVED))
    assert "| grpo, 0 | 1 | 2 | 3 | 1,000,000 | +1.2 % |" in page


# Ages of rollouts


def ages(*shares):
    """Of each age two seeds and four problems; problems differ, ages by their share."""
    problems = np.array([[0.0, 0.2, 0.4, 0.6], [0.1, 0.2, 0.4, 0.5]])
    return {
        age: {"mean": problems + share, "greedy": problems}
        for age, share in zip((0, 1, 4), shares, strict=True)
    }


def test_each_age_is_compared_with_the_newest_weights():
    metrics = staleness.compare_ages(ages(0.1, 0.2, 0.05), confidence=0.95)
    assert metrics["ages"]["0"]["mean"]["value"] == pytest.approx(0.4)
    assert metrics["ages"]["4"]["mean"]["value"] == pytest.approx(0.35)
    more, less = (metrics["differences"]["mean"][age] for age in ("1", "4"))
    assert (more["first"], more["second"], more["value"]) == ("1", "0", pytest.approx(0.1))
    assert (less["first"], less["second"], less["value"]) == ("0", "4", pytest.approx(0.05))
    assert metrics["differences"]["greedy"]["1"]["value"] == 0
    metrics |= {"policy": "grpo", "num_seeds": 2, "tokens": {"0": 1000, "1": 1000, "4": 2000}}
    (line,) = [x for x in staleness.render_report(metrics).splitlines() if x.startswith("| 4 |")]
    assert "-5.0 [-5.0, -5.0] *" in line


def test_accuracies_of_ages_end_at_100_percent():
    almost = np.array([[1.0, 1.0, 1.0, 0.9]] * 2)
    tables = {age: {"mean": almost, "greedy": np.ones((2, 4))} for age in (0, 1)}
    age = staleness.compare_ages(tables, confidence=0.95)["ages"]["1"]
    # problems add 0.025 to the standard error, what is rare 0.1 sqrt(3) / 4: 0.05 in all, and t of
    # 3 degrees is 3.182; it would end at 1.134
    assert age["mean"] == pytest.approx({"value": 0.975, "low": 0.8159, "high": 1.0}, abs=1e-4)
    # Wilson's interval of 4 of 4 at 95 %: 1 / (1 + 1.96^2 / 4) = 0.5101
    assert age["greedy"] == pytest.approx({"value": 1.0, "low": 0.5101, "high": 1.0}, abs=1e-4)


# Roundings


def test_spreads_between_roundings_and_seeds_by_hand():
    # of seed 0: 0.4, 0.6 (variance 0.02), of seed 1: 0.5, 0.5 (0): sqrt(0.01)
    # pinned: 0.4, 0.5 (0.005), native: 0.6, 0.5 (0.005): sqrt(0.005)
    spread = rounding.measure_spread(np.array([[0.4, 0.5], [0.6, 0.5]]))
    assert spread["between_roundings"] == pytest.approx(0.1)
    assert spread["between_seeds"] == pytest.approx(0.005**0.5, abs=1e-6)
    metrics = {"roundings": ["pinned", "native"], "seeds": [0, 1],
               "policies": {"sft": {"test": spread, "test_greedy": spread}}}  # fmt: skip
    assert "| sft | 10.00 | 7.07 | 40.0, 50.0 | 60.0, 50.0 |" in rounding.render_report(metrics)
    single = rounding.measure_spread(np.array([[0.4], [0.6]]))
    assert single["between_seeds"] is None
    assert single["between_roundings"] == pytest.approx(0.02**0.5, abs=1e-6)


def test_an_accuracy_is_the_share_of_right_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines.write_lines(PROMPTS / "test.jsonl", [problem("a"), problem("b")])
    texts = {"a": ("#### 7", "#### 8"), "b": ("#### 7", "#### 7")}
    rows = [completion(name, i, t, [1]) for name in "ab" for i, t in enumerate(texts[name])]
    lines.write_lines(tmp_path / "samples/sft/0/test.jsonl", rows)
    assert rounding.tabulate_accuracy([tmp_path], [0], "sft", "test").tolist() == [[0.75]]
