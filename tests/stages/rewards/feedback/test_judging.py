import pydantic
import pytest
from judged_rows import RuleChooser, completion, pair, prompt

from stages.records.pools import Completion
from stages.rewards.feedback import judging
from stages.rewards.feedback.judging import LabelRule
from stages.rewards.feedback.principles import CORRECT
from stages.rewards.feedback.prompts import Prompts
from stages.sampler import NUM_EARLY


def pool(texts: str, cut: str = "") -> list[Completion]:
    return [
        completion(text, index, ids=[ord(text)], cut=text in cut)
        for index, text in enumerate(texts)
    ]


def test_pairs_are_of_different_finished_texts():
    result = judging.sample_pairs(pool("xxyzw", cut="w"), max_pairs=9, seed=1)
    assert {frozenset((a.completion, b.completion)) for a, b in result} == {
        frozenset("xy"), frozenset("xz"), frozenset("yz"),
    }  # fmt: skip
    assert {row.index for pair in result for row in pair} == {0, 2, 3}


def test_no_pair_comes_twice_and_no_more_than_asked_for():
    result = judging.sample_pairs(pool("abcdef"), max_pairs=7, seed=3)
    assert len({frozenset((a.index, b.index)) for a, b in result}) == 7


def test_neither_position_belongs_to_the_earlier_completion():
    result = [judging.sample_pairs(pool("ab"), max_pairs=1, seed=seed)[0] for seed in range(200)]
    assert 70 < sum(a.index == 0 for a, _ in result) < 130


def test_a_pool_of_one_text_gives_nothing_and_the_seed_decides():
    assert judging.sample_pairs(pool("aaa"), max_pairs=3, seed=0) == []
    drawn = judging.sample_pairs(pool("abcdef"), max_pairs=3, seed=0)
    assert drawn == judging.sample_pairs(pool("abcdef"), max_pairs=3, seed=0)
    assert drawn != judging.sample_pairs(pool("abcdef"), max_pairs=3, seed=1)


PROMPTS = Prompts(style="short", constitution="correct")
RULE = LabelRule(
    labels="soft", min_option_mass=0.5, min_confidence=0.0, inconsistent="keep", clamp=None
)


def judged(rule, pairs, mass=0.9):
    return judging.judge_pairs(RuleChooser(rule, mass), [pairs], PROMPTS, RULE, "train")


def test_a_judge_that_hardly_answers_is_noticed_early_and_every_message_is_asked_once(caplog):
    chooser = RuleChooser(lambda _first, _second: 0.5, mass=0.3)
    counts = []
    caplog.handler.addFilter(lambda _: counts.append(len(chooser.messages)) or True)
    pairs = [pair(f"A{number}", f"B{number}", principle=0) for number in range(40)]
    free = RULE.model_copy(update={"min_option_mass": 0.0})
    judging.judge_pairs(chooser, [pairs], PROMPTS, free, "train")
    assert counts == [NUM_EARLY]
    assert len(set(chooser.messages)) == len(chooser.messages) == 80
    assert "0.300 on the first 64 messages of the train pairs" in caplog.messages[0]
    judging.judge_pairs(chooser, [pairs[:32]], PROMPTS, free, "train")
    judging.judge_pairs(chooser, [pairs], PROMPTS, free, "heldout")
    assert len(counts) == 1, "not where these are all, nor a second time"


def test_each_pair_is_read_in_both_orders_with_one_principle():
    chooser = RuleChooser(lambda _first, _second: 0.5)
    judging.judge_pairs(chooser, [[pair("AAA", "BBB", principle=1)]], PROMPTS, RULE, "train")
    forward, backward = chooser.messages
    assert forward.index("AAA") < forward.index("BBB")
    assert backward.index("BBB") < backward.index("AAA")
    assert f"Judge {CORRECT[1].name}: 3 + 4?" in forward
    assert f"Judge {CORRECT[1].name}: 3 + 4?" in backward


def test_a_verdict_holds_both_readings_and_their_mean_by_hand():
    def rule(first: str, second: str) -> float:
        return {("A", "B"): 0.9, ("B", "A"): 0.7}[first, second]

    (verdict,), cost = judged(rule, [pair("A", "B")])
    assert (verdict.p12, verdict.p21, verdict.gap) == (0.9, 0.7, 0.6)
    assert verdict.probability == pytest.approx(0.6)
    assert (verdict.option_mass, verdict.prompt_version) == (0.9, "short-1")
    assert (verdict.index_a, verdict.index_b, verdict.dropped) == (0, 1, None)
    assert cost == {"read_tokens": 20, "generated_tokens": 2}


def test_an_order_that_was_not_read_drops_the_pair_and_says_so():
    (verdict,), cost = judged(lambda first, _: None if first == "A" else 0.9, [pair("A", "B")])
    assert verdict.dropped == "too_long"
    assert (verdict.p12, verdict.p21, verdict.probability) == (None, None, None)
    assert cost["read_tokens"] == 10


def test_a_judge_that_does_not_answer_with_an_option_is_a_parse_failure():
    (verdict,), _ = judged(lambda _first, _second: 0.9, [pair("A", "B")], mass=0.2)
    assert (verdict.dropped, verdict.option_mass) == ("parse_failure", 0.2)


def test_what_is_asked_of_a_problem_does_not_depend_on_the_others():
    def problem(name: str):
        return prompt(name), [completion(text, i, name) for i, text in enumerate("xyzw")]

    both = judging.choose_pairs([problem("a"), problem("b")], PROMPTS, max_pairs=2, seed=4)
    alone = judging.choose_pairs([problem("b")], PROMPTS, max_pairs=2, seed=4)
    assert both[2:] == alone
    assert len(both) == 4


def test_all_principles_are_drawn_and_none_without_a_constitution():
    drawn = {PROMPTS.draw_principle(seed) for seed in range(60)}
    assert drawn == set(range(len(CORRECT)))
    free = Prompts(style="full", constitution="none")
    assert free.draw_principle(0) is None
    assert "Choose the better one." in free.message("q", "a", "b", None)


def test_the_full_style_says_the_principle_in_a_sentence():
    full = Prompts(style="full", constitution="correct")
    assert CORRECT[2].compare in full.message("q", "a", "b", 2)


def test_chunks_leave_nothing_out():
    chunks = judging.split_chunks([pair("A", "B")] * 1100)
    assert [len(chunk) for chunk in chunks] == [512, 512, 76]


def test_a_judge_without_a_verdict_on_the_first_part_is_not_asked_the_others():
    parts = [[pair(f"A{i}", f"B{i}") for i in range(judging.MIN_COMPARISONS)]] * 3
    chooser = RuleChooser(lambda _first, _second: 0.9, mass=0.2, first_token="<think>")
    with pytest.raises(
        ValueError, match=r"0 are longer.*in 8 it.*begins with '<think>'.*think fir"
    ):
        judging.judge_pairs(chooser, parts, PROMPTS, RULE, "train")
    assert len(chooser.messages) == 2 * judging.MIN_COMPARISONS
    with pytest.raises(ValueError, match="first 8 pairs: 8 are longer than it may read, and in 0"):
        judging.judge_pairs(
            RuleChooser(lambda _first, _second: None), parts, PROMPTS, RULE, "train"
        )


def test_one_verdict_in_the_first_part_is_enough_to_go_on():
    first = [pair("A", "B"), *[pair("C", "D")] * judging.MIN_COMPARISONS]
    second = [pair("C", "D")] * judging.MIN_COMPARISONS
    chooser = RuleChooser(lambda first, _: None if first in "CD" else 0.9)
    verdicts, _ = judging.judge_pairs(chooser, [first, second], PROMPTS, RULE, "train")
    assert [verdict.dropped for verdict in verdicts] == [None] + ["too_long"] * 16


def rule(**changes: object) -> LabelRule:
    return LabelRule(**(RULE.model_dump() | {"min_confidence": 0.1} | changes))


@pytest.mark.parametrize(
    ("p12", "p21", "mass", "changes", "reason"),
    [
        (0.9, 0.1, 0.9, {}, None),
        (0.9, 0.1, 0.49, {}, "parse_failure"),
        (0.9, 0.1, 0.5, {}, None),
        (0.9, 0.8, 0.9, {}, "low_confidence"),  # label 0.55
        (0.9, 0.8, 0.9, {"min_confidence": 0.0}, None),
        (0.5, 0.5, 0.9, {"min_confidence": 0.0}, None),  # a tie, kept where nothing is asked
        (0.5, 0.5, 0.9, {"min_confidence": 0.0, "labels": "hard"}, "tie"),
        (0.7, 0.7, 0.9, {"labels": "hard"}, "tie"),  # not merely unsure
        (0.7, 0.7, 0.9, {"labels": "hard", "inconsistent": "drop"}, "inconsistent"),
        (0.500002, 0.5, 0.9, {"min_confidence": 0.0, "labels": "hard"}, None),
        (0.7, 0.5, 0.9, {}, None),  # label 0.6, and 0.6 - 0.5 < 0.1 in floats
        (0.9, 0.6, 0.9, {}, None),  # inconsistent, label 0.65
        (0.9, 0.6, 0.9, {"inconsistent": "drop"}, "inconsistent"),
        (0.9, 0.6, 0.1, {"inconsistent": "drop"}, "parse_failure"),
    ],
)
def test_which_pairs_are_dropped_and_why(p12, p21, mass, changes, reason):
    assert rule(**changes).reason_to_drop(p12, p21, mass) == reason


def test_a_label_is_kept_or_made_sure_or_clamped():
    assert rule().probability(0.83) == 0.83
    assert rule(labels="hard").probability(0.83) == 1.0
    assert rule(clamp=(0.4, 0.6)).probability(0.83) == 0.6
    assert rule(clamp=(0.4, 0.6)).probability(0.55) == 0.55


@pytest.mark.parametrize("clamp", [(0.6, 0.4), (0.5, 0.6), (0.1, 0.4)])
def test_bounds_that_are_not_around_a_half_are_refused(clamp):
    with pytest.raises(pydantic.ValidationError, match=r"bounds around 0\.5"):
        rule(clamp=clamp)


FREE = Prompts(style="short", constitution="none")


def labelled(rule, asked, **changes):
    label_rule = LabelRule(**(RULE.model_dump() | changes))
    verdicts, _ = judging.judge_pairs(RuleChooser(rule), [asked], FREE, label_rule, "train")
    return judging.make_preferences(asked, verdicts, label_rule)


def prefers_b(first: str, _second: str) -> float:
    return 0.8 if first == "B" else 0.1


def test_the_preferred_side_is_chosen_with_its_averaged_probability():
    (row,) = labelled(prefers_b, [pair("A", "B")])
    # P(A) = (0.1 + 1 - 0.8) / 2 = 0.15
    assert (row.chosen, row.rejected, row.source) == ("B", "A", "ai")
    assert row.probability == pytest.approx(0.85)
    assert (row.prompt_ids, row.id) == ([5], "a")


def test_hard_labels_are_sure_and_clamped_ones_are_not():
    assert labelled(prefers_b, [pair("A", "B")], labels="hard")[0].probability == 1.0
    assert labelled(prefers_b, [pair("A", "B")], clamp=(0.4, 0.6))[0].probability == 0.6


def test_of_a_tie_a_is_chosen_with_one_half():
    (row,) = labelled(lambda _first, _second: 0.7, [pair("A", "B")])
    assert (row.chosen, row.probability) == ("A", 0.5)


def test_a_tie_is_never_made_sure():
    pairs = [pair("A", "B"), pair("C", "D")]
    rows = labelled(
        lambda first, _: 0.7 if first in "AB" else float(first == "C"), pairs, labels="hard"
    )
    assert [(row.chosen, row.probability) for row in rows] == [("C", 1.0)]
    with pytest.raises(ValueError, match=r"'tie': 2.*soft keeps ties"):
        labelled(lambda _first, _second: 0.7, pairs, labels="hard")


def test_dropped_pairs_are_left_out_and_none_left_is_an_error_with_the_reasons():
    pairs = [pair("A", "B"), pair("C", "D")]
    rows = labelled(lambda first, _: None if first in "AB" else 0.9, pairs)
    assert [row.chosen for row in rows] == ["C"]
    with pytest.raises(ValueError, match=r"2 pairs .*'low_confidence': 2.*loosen"):
        labelled(lambda _first, _second: 0.7, pairs, min_confidence=0.1)


def test_right_answers_and_lengths_by_problem_and_index():
    correct, num_tokens = judging.correctness_and_lengths(
        [pair("3 + 4 = 7\n#### 7", "#### 9"), pair("#### 7", "x", "b")]
    )
    assert correct == {("a", 0): True, ("a", 1): False, ("b", 0): True, ("b", 1): False}
    assert num_tokens == {("a", 0): 7, ("a", 1): 2, ("b", 0): 2, ("b", 1): 1}
