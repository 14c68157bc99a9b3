import json
from typing import Any

import pytest

from stages.records.preferences import RawPreference
from stages.records.problems import BadRow
from stages.sources import preference_files
from stages.sources.preference_files import PairColumns

PAIR = {"prompt": "Why?", "chosen": "a", "rejected": "b"}
TWO = {"prompt": "Why?", "response_0": "a", "response_1": "b"}
SHP = {"history": "Why?", "human_ref_A": "a", "human_ref_B": "b", "score_A": 5, "score_B": 2}


@pytest.fixture
def read(tmp_path):
    def read(row: dict[str, Any], *ignore: str, **columns: str) -> Any:
        path = tmp_path / "f.jsonl"
        path.write_text(json.dumps(row))
        (result,) = preference_files.read_preferences(path, PairColumns(**columns), ignore)
        return result

    return read


def sides(chosen: object, rejected: object, *names: str) -> dict[str, Any]:
    return {name: value for what in names for name, value in
            ((what.format("chosen"), chosen), (what.format("rejected"), rejected))}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        (sides(4, 5, "scores_{}"), "contradiction"), (sides("4", "5", "{}Score"), "contradiction"),
        (sides(1, 3, "{}_helpfulness"), "contradiction"),
        (sides(1, 3, "{}_overall_quality"), "contradiction"),
        (sides(2, 1, "{}_rank"), "contradiction"), (sides(0, 9, "{}_votes"), "contradiction"),
        (sides(1, 3, "{}_safety_score", "{}-quality"), "contradiction"),
        (sides(False, True, "is_{}_correct"), "contradiction"),
        (sides("False", "True", "{}_correct"), "contradiction"),
        (sides(900, 1100, "{}_elo"), "contradiction"),
        ({"chosen_is_valid": False}, "marked as invalid"), ({"valid": 0}, "marked as invalid"),
        (sides(4, 4, "ratings_{}"), "tie"), (sides(4, "?", "score_{}"), "no score"),
        ({"score_diff": -0.2}, "contradiction"), ({"rating difference": "-1"}, "contradiction"),
        ({"delta": -2}, "contradiction"), ({"gap": "0"}, "tie"), ({"status": "tie"}, "tie"),
        ({"Verdict": "Draw"}, "tie"), ({"score_delta": 0}, "tie"),
        ({"is_tie": True}, "tie"), ({"Tie": "yes"}, "tie"),
        ({"winner_tie": 1}, "tie"), ({"bothEqual": "true"}, "tie"),
    ],
)  # fmt: skip
def test_what_contradicts_a_pair_is_quarantined_and_may_be_ignored(read, more, kind):
    bad = read(PAIR | more)
    assert isinstance(bad, BadRow)
    assert bad.reason.partition(":")[0] == kind
    assert f"ignore: [{', '.join(more)}]" in bad.reason or len(more) > 1
    assert isinstance(read(PAIR | more, *more), RawPreference)


def test_columns_that_name_both_sides_of_an_answer_are_a_pair(read):
    row = {"instruction": "Why?", **sides("a", "b", "{}_response"), **sides(5, 2, "{}_rating")}
    assert read(row) == read({"prompt": "Why?", "chosen": "a", "rejected": "b"})
    assert read(row | {"chosen_rating": 1}).reason.startswith("contradiction")


@pytest.mark.parametrize(
    "more",
    [
        sides(True, True, "{}_correct"), sides(True, False, "{}_is_valid"),
        {"rejected_is_invalid": True},
        sides(5, 4, "scores_{}"), sides(1, 2, "{}_rank"), sides(4, 4, "{}_helpfulness"),
        sides(1, 3, "{}_length"), sides(1, 3, "num_ratings_{}"), sides(1, 3, "{}_score_std"),
        sides(None, 3, "{}_score"), sides("m", "n", "{}_model"), sides("m", "n", "{}_reward"),
        sides(1, 3, "{}_helpfulness") | sides(3, 1, "{}_correctness"),
        sides(1, 3, "{}_helpfulness") | sides(3, 1, "score_{}"), {"score_chosen": 1},
        {"score_diff": 0.2}, {"delta": 2}, {"delta": "text"}, {"status": "swapped"},
        {"preferred": "chosen"}, {"preference_id": 7}, {"preferred_language": "en"},
        {"is_tie": False}, {"is_tie": None}, {"seconds_difference": -5},
        {"language": "en", "agreement_id": 3, "confidence": None},
        sides(1000, 1200, "{}_model_elo"), sides(0.3, 0.6, "{}_model_win_rate"),
        {"judge_reasoning": "The first is right."},
        sides(0.1, 0.9, "{}_toxicity_score"), sides(1, 3, "{}_hallucination_score"),
        {"unit": "Unit 3: verbs", "error": "calculation"},
    ],
)  # fmt: skip
def test_what_contradicts_nothing_leaves_a_pair_as_it_is(read, more):
    assert read(PAIR | more) == read(PAIR)


@pytest.mark.parametrize(
    "more",
    [
        {"preference_strength": 2}, {"confidence": 0.5}, {"strength": "slightly better"},
        {"agreement": 0.6}, {"annotator_confidence": "3"}, {"Confidence score": 1},
        {"overall_preference": 1}, {"labels": 0}, {"conversation_history": ["x", "y"]},
        {"initial_reason_steps": "Step 1: 3*4=12."}, {"response_prefix": "So"},
        {"preferred": "rejected"},
        {"human_preferences": ["rejected", "chosen"]}, {"preference_label": -1}, {"better": "b"},
        {"is_chosen": False}, {"better_response_id": 1}, {"soft_label": 0.6}, {"win_rate": 0.4},
    ],
)  # fmt: skip
def test_what_is_not_read_beside_a_pair_is_refused_by_name(read, more):
    (name,) = more
    with pytest.raises(ValueError, match=rf"{name} carries meaning.*ignore: \[{name}\]"):
        read(PAIR | more)
    assert read(PAIR | more, name) == read(PAIR)


NUMBERED = {"prompt": "Why?", "response_1": "a", "response_2": "b"}
LETTERED = {"prompt": "Why?", "response_a": "a", "response_b": "b"}


@pytest.mark.parametrize(
    ("row", "more"),
    [
        (NUMBERED | {"winner": 1}, {"rating_1": 2, "rating_2": 4}),
        (NUMBERED | {"winner": "2"}, {"response_1_score": 4, "response_2_score": 2}),
        (NUMBERED | {"preference": -1}, {"response_1_correct": False, "response_2_correct": True}),
        (LETTERED | {"winner": "b"}, {"score_a": None, "aScore": "4", "bScore": "2"}),
        (LETTERED | {"winner": "a"}, {"votes_a": 1, "votes_b": 3}),
        (LETTERED | {"winner": "a"}, {"rank_a": 2, "rank_b": 1}),
        (LETTERED | {"winner": "a"}, {"a_is_valid": False, "b_is_valid": True}),
        (TWO | {"better_response_id": 1}, {"reward_0": 0.3, "reward_1": -0.2}),
        ({"question": "Why?", "response_j": "a", "response_k": "b"}, {"score_j": 1, "score_k": 4}),
    ],
)  # fmt: skip
def test_ratings_of_two_answers_may_contradict_their_comparison(read, row, more):
    bad = read(row | more)
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith("contradiction: ")
    same = read(row)
    assert read(row | more, *more) == same
    better_first = dict(zip(more, reversed(more.values()), strict=True))
    assert isinstance(same, RawPreference)
    assert "score_a" in more or read(row | better_first) == same


@pytest.mark.parametrize(
    "more",
    [
        {"rating_1": 3, "rating_2": 3}, {"rating_1": "?", "rating_2": 3}, {"rating_2": 3},
        {"annotator_1_score": 1, "annotator_2_score": 3}, {"num_votes_1": 1, "num_votes_2": 3},
        {"criterion_1_score": 1, "criterion_2_score": 3}, {"user_1_rating": 1, "user_2_rating": 3},
        {"model_1_elo": 1000, "model_2_elo": 1200},
        {"length_1": 1, "length_2": 3}, {"helpfulness_1": 1, "helpfulness_2": 3, "safety_1": 2,
                                         "safety_2": 1},
    ],
)  # fmt: skip
def test_what_does_not_contradict_a_comparison_leaves_it_as_it_is(read, more):
    assert read(NUMBERED | {"winner": 1} | more) == read(NUMBERED | {"winner": 1})


@pytest.mark.parametrize("strength", [3, "3", "slightly"])
def test_a_strength_without_a_sign_is_refused_beside_a_winner(read, strength):
    row = {"prompt": "Why?", "response_1": "a", "response_2": "b", "winner": "response_1"}
    with pytest.raises(ValueError, match="preference_strength carries meaning"):
        read(row | {"preference_strength": strength})
    signed = read(row | {"preference_strength": "-2"})
    assert (signed.chosen, signed.rejected) == ("a", "b")
    assert read(row | {"preference_strength": "2"}, "preference_strength") == signed


def test_a_difference_of_two_answers_without_scores_has_no_known_sign(read):
    row = {"prompt": "Why?", "response_a": "a", "response_b": "b"}
    with pytest.raises(ValueError, match="score_diff carries meaning"):
        read(row | {"winner": "a", "score_diff": 2})
    assert read(row | {"score_a": 3, "score_b": 1, "score_diff": 2}).chosen == "a"


def test_two_standards_that_differ_are_refused_until_one_is_named(read):
    row = TWO | {"better_response_id": 0, "safer_response_id": 1}
    with pytest.raises(ValueError, match=r"prefers 0 and 'safer_response_id' 1: say which"):
        read(row)
    assert read(row, "safer_response_id").chosen == "a"
    columns = {"prompt": "prompt", "a": "response_0", "b": "response_1"}
    safer = columns | {"winner": "safer_response_id"}
    assert read(row, "better_response_id", **safer).chosen == "b"
    with pytest.raises(ValueError, match="'safer_response_id' prefers 1 and 'better_response_id'"):
        read(row, **safer)
    for same in ({"safer_response_id": "0"}, {"safer_response_id": None}):
        assert read(row | same).chosen == "a"


@pytest.mark.parametrize(
    ("label", "reason"),
    [(0, "contradiction"), ("0", "contradiction"), (2, "no label"), (1, None), (None, None)],
)
def test_the_label_of_shp_agrees_with_its_scores(read, label, reason):
    result = read(SHP | {"labels": label})
    if reason is None:
        assert (result.chosen, result.rejected) == ("a", "b")
    else:
        assert result.reason.partition(":")[0] == reason
        assert read(SHP | {"labels": label}, "labels").chosen == "a"
    assert read(SHP | {"labels": 0, "score_A": 1}).chosen == "b"


def test_rendered_answers_are_quarantined_as_in_demonstrations(read):
    for row in (
        PAIR | {"chosen": "yes<|im_end|>"},
        {"chosen": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes",
         "rejected": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nno"},
    ):  # fmt: skip
        bad = read(row, **({} if "prompt" in row else {"chosen": "chosen", "rejected": "rejected"}))
        assert bad.reason.startswith("a rendered ")


def test_every_column_that_may_hold_the_prompt_is_named_at_once(read):
    row = {"chosen": "The sea is blue", "rejected": "The sea is red", "task": "Write", "aim": "x y"}
    with pytest.raises(ValueError, match=r"ignore: \[task, aim\]"):
        read(row)
    assert isinstance(read(row, "task", "aim"), RawPreference)
    spoken = {"chosen": "USER: hi ASSISTANT: yes", "rejected": "USER: hi ASSISTANT: no"}
    assert "rendered" in read(spoken | {"title": "Hello"}).reason
