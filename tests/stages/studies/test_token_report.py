import pytest

from stages.studies import token_report

RESOLVED = {
    "first": "grpo", "second": "dpo", "value": 0.031, "low": 0.012, "high": 0.05, "p": 0.001,
    "p_holm": 0.003, "resolved": True, "degrees": 4.0, "seed_deviation": 0.01, "detectable": 0.02,
}  # fmt: skip
UNRESOLVED = RESOLVED | {
    "second": "ppo", "value": 0.004, "low": -0.01, "high": 0.018, "p_holm": 0.4,
    "resolved": False, "more_problems": 1234, "more_seeds": 6,
}  # fmt: skip
LEVELS = {"mean": {"value": 0.5, "low": 0.4, "high": 0.6}}
LEVELS |= {"greedy": LEVELS["mean"]}


def verdict(*pairs, num_seeds=3):
    names = list(dict.fromkeys(row[side] for row in pairs for side in ("first", "second")))
    gains = [RESOLVED | {"first": "sft", "second": name} for name in names]
    return {
        "num_seeds": num_seeds, "num_problems": 614, "confidence": 0.95, "power": 0.8,
        "baseline": "sft", "tokens": 1_000_000, "budgets": names,
        "policies": {
            name: {
                "mean": {"value": 0.9 - place / 10, "low": 0.1, "high": 0.9},
                "greedy": LEVELS["greedy"],
            }
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


def test_a_resolved_difference_is_a_plain_sentence():
    assert token_report.describe_pair(RESOLVED, verdict(RESOLVED)) == (
        "**grpo beats dpo** by 3.1 points [1.2, 5.0] at equal tokens (p = 0.003 by Holm)."
    )


def test_an_unresolved_one_says_what_it_would_take():
    assert token_report.describe_pair(UNRESOLVED, verdict(UNRESOLVED)) == (
        "The difference between grpo and ppo is **not resolved**: 0.4 points [-1.0, 1.8] (p = 0.4 "
        "by Holm). To resolve a true difference of 0.4 points with 80% power, 1,234 more problems "
        "would be needed with 3 seeds; with these problems, 6 more seeds."
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"more_problems": None}, "No number of problems would resolve"),
        ({"more_seeds": None}, "no number of seeds would do"),
        ({"more_problems": 0, "more_seeds": 0}, "should resolve a true difference"),
        ({"seed_deviation": None, "more_seeds": None}, "of other seeds one seed says nothing"),
        ({"low": 0.001}, "its interval by itself excludes 0"),
    ],
)
def test_what_is_not_known_is_said(changes, words):
    assert words in token_report.describe_pair(UNRESOLVED | changes, verdict(UNRESOLVED))


def test_a_difference_of_0_needs_no_number():
    row = {key: value for key, value in UNRESOLVED.items() if not key.startswith("more_")}
    said = token_report.describe_pair(row | {"value": 0.0, "low": 0.0, "high": 0.0}, verdict(row))
    assert said.endswith("None was found, and no experiment shows that there is none.")


def test_policies_are_ranked_only_where_every_two_are_resolved():
    other = RESOLVED | {"first": "ppo", "second": "dpo"}
    first = RESOLVED | {"second": "ppo"}
    every = verdict(first, RESOLVED, other)
    every["policies"] |= {
        name: {"mean": {"value": value}} for name, value in (("dpo", 0.1), ("ppo", 0.2))
    }
    assert token_report.describe_ranking(every) == "Ranking: grpo > ppo > dpo."
    some = verdict(UNRESOLVED, RESOLVED, other)
    assert token_report.describe_ranking(some).startswith("No full ranking: ")
    assert "grpo above dpo" in token_report.describe_ranking(some)
    none = verdict(UNRESOLVED)
    assert token_report.describe_ranking(none) == "No full ranking: no pair is resolved."


def test_a_loss_against_the_baseline_is_negative():
    row = RESOLVED | {"first": "sft", "second": "ppo"}
    assert token_report.format_gain(row, "ppo") == "**-3.1 [-5.0, -1.2]**"
    assert token_report.format_gain(row, "sft") == "**+3.1 [+1.2, +5.0]**"


@pytest.mark.parametrize(
    ("num_seeds", "words"),
    [(1, "nothing of another training run"), (2, "train three or more"), (3, "93 to 97 times")],
)
def test_the_text_says_what_the_intervals_are_about(num_seeds, words):
    text = token_report.render_report(verdict(RESOLVED, num_seeds=num_seeds))
    assert words in text
    assert ("train three or more" in text) == (num_seeds == 2)
    assert "# grpo against dpo" in text
    assert "spent: 1,000,000 to 1,000,001" in text
    assert "| grpo, 0 | 1 | 2 | 3 | 1,000,000 | +1.2 % |" in text
