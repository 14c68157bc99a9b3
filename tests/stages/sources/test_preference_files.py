import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stages.records import transcripts
from stages.records.preferences import Preference, RawLabelled, RawPreference
from stages.records.problems import BadRow, Turn
from stages.sources import conversations, preference_files, problem_files
from stages.sources.preference_files import PairColumns, read_pair, split_pairs
from stages.sources.problem_files import SourceReport
from stages.sources.quarantine import FileLimits, RejectedError
from stages.sources.splitting import opening


def opened(question: str, *more: Turn) -> tuple[RawPreference, Preference]:
    raw = RawPreference(
        turns=(Turn("user", question), *more),
        plain_prompt=question,
        plain_lead="",
        chosen="a",
        rejected="b",
        probability=1.0,
        line=1,
        file="mine.jsonl",
    )
    row = Preference(
        id=question,
        prompt=question,
        prompt_ids=[],
        chosen="a",
        chosen_ids=[],
        rejected="b",
        rejected_ids=[],
        probability=1.0,
        source="human",
    )
    return raw, row


def test_the_share_is_met_and_every_pair_is_on_one_side():
    sides = split_pairs([opened(f"{i}?") for i in range(4000)], 0.1)
    assert sum(len(rows) for rows in sides.values()) == 4000
    # four standard deviations of a binomial count are 76
    assert abs(len(sides["heldout"]) - 400) < 76


def test_a_side_does_not_depend_on_the_other_pairs():
    everything = [opened(f"{i}?") for i in range(500)]
    held = {row.id for row in split_pairs(everything, 0.2)["heldout"]}
    some = split_pairs(everything[::-3], 0.2)
    assert {row.id for row in some["heldout"]} <= held
    assert not {row.id for row in some["train"]} & held


def test_all_lengths_of_a_conversation_and_all_spellings_of_a_question_are_on_one_side():
    said = Turn("assistant", "Hm"), Turn("user", "And?")
    for i in range(50):
        short, long, loud = opened(f"say {i}"), opened(f"say {i}", *said), opened(f"SAY  {i} ")
        assert opening(short[0].turns) == opening(long[0].turns) == opening(loud[0].turns)
    rows = [opened(f"say {i}", *turns) for i in range(50) for turns in ((), said)]
    held = [row.id for row in split_pairs(rows, 0.3)["heldout"]]
    assert all(held.count(name) == 2 for name in held)


def test_a_question_under_several_system_messages_opens_alike():
    raw, _ = opened("Hi")
    assert opening((Turn("system", "Be brief."), *raw.turns)) == opening(raw.turns) == "hi"


def test_a_conversation_that_the_assistant_opens_is_known_by_what_was_asked():
    hello, said = Turn("assistant", "Hello!"), Turn("assistant", "Hm")
    turns = [(hello, Turn("user", f"say {i}")) for i in range(2)]
    first, second = (opening(turn) for turn in turns)
    assert first != second
    longer = (*turns[0], said, Turn("user", "And?"))
    assert opening(longer) == first == "hello! say 0"


def test_an_empty_side_is_refused():
    with pytest.raises(ValueError, match=r"1 rows leave .* empty"):
        split_pairs([opened("Hi")], 0.5)


COLUMNS = PairColumns(prompt="prompt", chosen="chosen", rejected="rejected", probability="label")
ROW = {"prompt": "2+2?\n", "chosen": "4", "rejected": " 5", "label": 0.75}


def read_one(
    fields: Mapping[str, Any], columns: PairColumns, ignore: Sequence[str] = ()
) -> RawPreference:
    return read_pair(fields, 7, "mine.jsonl", columns, ignore)


def test_prompt_and_answers_are_taken_as_they_are():
    pair = read_one(ROW, COLUMNS)
    assert (pair.plain_prompt, pair.plain_lead) == ("2+2?\n", "")
    assert (pair.chosen, pair.rejected, pair.probability) == ("4", " 5", 0.75)
    assert pair.turns == (Turn("user", "2+2?"),)


def test_an_answer_that_is_less_likely_the_better_one_is_the_rejected_one():
    pair = read_one(ROW | {"label": 0.25}, COLUMNS)
    assert (pair.chosen, pair.rejected, pair.probability) == (" 5", "4", 0.75)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": ""}, "no prompt"),
        ({"prompt": None}, "no prompt"),
        ({"prompt": 3}, "no conversation"),
        ({"chosen": None}, "missing answer"),
        ({"label": "yes"}, "no probability"),
        ({"label": 1.5}, "no probability"),
        ({"label": float("nan")}, "no probability"),
        ({"label": None}, "no probability"),
        ({"label": 0.5}, "tie"),
        ({"chosen": " \n"}, "empty answer"),
        ({"chosen": ""}, "empty answer"),
        ({"rejected": " 4\n"}, "equal answers"),
        ({"score_chosen": 1, "score_rejected": 2}, "contradiction"),
        ({"score_chosen": 7.5, "score_rejected": 7.5}, "tie"),
        ({"chosen_avg_rating": 3.5, "rejected_avg_rating": 4.0}, "contradiction"),
        ({"chosen_reward": -2, "rejected_reward": -1}, "contradiction"),
        ({"chosen_rating": "4", "rejected_rating": "4.0"}, "tie"),
    ],
)
def test_a_bad_field_is_refused(change, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        read_one(ROW | change, COLUMNS)


@pytest.mark.parametrize("scores", [(1, 2), (2, 2)])
def test_scores_that_are_ignored_contradict_nothing(scores):
    row = ROW | dict(zip(("score_chosen", "score_rejected"), scores, strict=True))
    assert (
        read_one(row, COLUMNS, ["score_chosen", "score_rejected"]).chosen
        == read_one(ROW, COLUMNS).chosen
    )


WHOLE = PairColumns(chosen="chosen", rejected="rejected")
OPEN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Is it 4?\n\nAssistant:"
TURNS = (Turn("user", "Hi"), Turn("assistant", "Hello"), Turn("user", "Is it 4?"))


def pair_of(chosen: Any, rejected: Any) -> RawPreference:
    return read_one({"chosen": chosen, "rejected": rejected}, WHOLE)


def test_the_last_turn_is_the_answer_and_the_others_are_the_prompt():
    pair = pair_of(f"{OPEN} Yes. ", f"{OPEN} No.")
    assert pair.turns == TURNS
    assert (pair.chosen, pair.rejected) == ("Yes.", "No.")
    assert (pair.plain_prompt, pair.plain_lead) == (OPEN, " ")
    assert (pair.probability, pair.line, pair.file) == (1.0, 7, "mine.jsonl")


def test_what_is_rendered_is_parsed_again():
    assert conversations.parse_transcript(transcripts.render_transcript(TURNS) + " Yes") == [
        *TURNS,
        Turn("assistant", "Yes"),
    ]
    later = (Turn("user", "Hi"), Turn("system", "Be brief."))
    assert transcripts.render_transcript(later) == "\n\nHuman: Hi\n\nBe brief.\n\nAssistant:"
    assert transcripts.render_transcript((Turn("system", "Be brief."), Turn("user", "Hi"))) == (
        "Be brief.\n\nHuman: Hi\n\nAssistant:"
    )


def test_a_name_inside_a_line_or_a_paragraph_of_the_answer_is_text():
    pair = pair_of(f"{OPEN} Human: no.\n\nYes: Human: 4.\nAssistant: ok", f"{OPEN} No.")
    assert pair.chosen == "Human: no.\n\nYes: Human: 4.\nAssistant: ok"


SYSTEM, HI = {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi "}


def says(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        (f"{OPEN} Yes", "\n\nHuman: Hi\n\nAssistant: No", "no common prompt"),
        (f"{OPEN} Yes", f"{OPEN.replace('Hi', 'Ho')} No", "no common prompt"),
        (f"{OPEN} Yes\n\nHuman: Why?", f"{OPEN} Yes\n\nHuman: How?", "no answer"),
        (
            "\n\nHuman: Hi\n\nAssistant: a\n\nAssistant: Yes",
            "\n\nHuman: Hi\n\nAssistant: a\n\nAssistant: No",
            "no question",
        ),
        ("Yes", "No", "no common prompt"),
        ([], [], "no conversation"),
        ([HI, {"role": "tool", "content": "x"}, says("Yes")], [HI, says("No")], "tools"),
        ([HI, "Yes"], [HI, says("No")], "no message"),
        ([HI, says(None)], [HI, says("No")], "empty content"),
        ([HI, says(4)], [HI, says("No")], "wrong type"),
        ([HI, says("\ud800")], [HI, says("No")], "not Unicode"),
        ([SYSTEM, HI, says("Yes")], [HI, says("No")], "no common prompt"),
        ([HI, HI], [HI, says("No")], "no answer"),
        ([says("Yes")], [says("No")], "no question"),
    ],
)
def test_pairs_that_share_other_than_all_but_the_answer_are_refused(chosen, rejected, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        pair_of(chosen, rejected)


def test_the_shared_messages_are_the_prompt_wherever_they_stand():
    whole = {"chosen": [SYSTEM, HI, says("Yes")], "rejected": [SYSTEM, HI, says("No")]}
    apart = {"prompt": [SYSTEM, HI], "chosen": [says("Yes")], "rejected": [says("No")]}
    twice = whole | {"prompt": [SYSTEM, HI]}
    beside = {"prompt": "Hi", "s": "Be brief.", "chosen": [says("Yes")], "rejected": "No"}
    prompt = WHOLE.model_copy(update={"prompt": "prompt"})
    pair = read_one(whole, WHOLE)
    assert pair.turns == (Turn("system", "Be brief."), Turn("user", "Hi"))
    assert (pair.chosen, pair.rejected) == ("Yes", "No")
    assert pair.plain_prompt == "Be brief.\n\nHuman: Hi\n\nAssistant:"
    assert read_one(apart, prompt) == pair == read_one(twice, prompt)
    assert read_one(beside, prompt.model_copy(update={"system": "s"})) == pair


@pytest.fixture
def read(tmp_path):
    def read(*rows: Mapping[str, Any], **columns: str) -> list[Any]:
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return list(preference_files.read_preferences(path, PairColumns(**columns), []))

    return read


def compared(rows: list[Any]) -> list[tuple[str, str]]:
    return [(row.chosen, row.rejected) for row in rows if isinstance(row, RawPreference)]


TWO = {"prompt": "2+2?", "a": "4", "b": "5"}
NAMES = {"prompt": "prompt", "a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("columns", "values", "expected"),
    [
        ({"winner": "w"}, {"w": "a"}, ("4", "5")), ({"winner": "w"}, {"w": "model_b"}, ("5", "4")),
        ({"winner": "w"}, {"w": 2}, ("5", "4")), ({"winner": "w"}, {"w": "tie"}, "tie"),
        ({"winner": "w"}, {"w": "c"}, "no winner"), ({"winner": "w"}, {"w": "A>A"}, "no winner"),
        ({"winner": "w"}, {"w": "[[A<<B]]"}, ("5", "4")), ({"winner": "w"}, {"w": "A=B"}, "tie"),
        ({"winner": "w"}, {"w": "A>B"}, ("4", "5")),
        ({"preference": "p"}, {"p": -2}, ("4", "5")), ({"preference": "p"}, {"p": 1}, ("5", "4")),
        ({"preference": "p"}, {"p": 0}, "tie"), ({"preference": "p"}, {"p": None}, "no score"),
        ({"score_a": "x", "score_b": "y"}, {"x": 3, "y": 2.5}, ("4", "5")),
        ({"score_a": "x", "score_b": "y"}, {"x": "1", "y": "7"}, ("5", "4")),
    ],
)  # fmt: skip
def test_two_answers_are_ordered_by_a_winner_a_preference_or_scores(
    read, columns, values, expected
):
    (row,) = read(TWO | values, **NAMES, **columns)
    if isinstance(expected, str):
        assert isinstance(row, BadRow)
        assert row.reason.startswith(f"{expected}: ")
    else:
        assert compared([row]) == [expected]


def test_of_a_list_every_two_answers_of_different_rank_are_a_pair(read):
    ranked = read({"prompt": "?", "all": ["a", "b", "c"]}, prompt="prompt", answers="all")
    assert compared(ranked) == [("a", "b"), ("a", "c"), ("b", "c")]
    row = {"prompt": "?", "all": [{"t": "a", "s": 1}, {"t": "b", "s": 3}, {"t": "c", "s": 1}]}
    scored = read(row, prompt="prompt", answers="all.t", scores="all.s")
    assert compared(scored) == [("b", "a"), ("b", "c")]


def test_rated_answers_of_one_prompt_are_compared_wherever_they_stand(read):
    rows = [{"prompt": prompt, "response": f"{prompt}{score}", "score": score}
            for score in (1, 3) for prompt in "xy"]  # fmt: skip
    assert compared(read(*rows)) == [("x3", "x1"), ("y3", "y1")]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("criterion", "helpful", "toxic"), ("Aspect", "style", "truth"), ("max_score", 5, 10),
     ("rating_scale", "1-5", "1-10")],
)  # fmt: skip
def test_scores_of_several_criteria_or_scales_are_not_compared(tmp_path, read, name, first, second):
    rows = [{"prompt": "?", "response": "a", "score": 4, name: first},
            {"prompt": "?", "response": "b", "score": 7, name: second}]  # fmt: skip
    with pytest.raises(ValueError, match=rf"row 2: .*'{name}' .*ignore: \[{name}\]"):
        read(*rows)
    path = tmp_path / "mine.jsonl"
    pairs = list(preference_files.read_preferences(path, PairColumns(), [name]))
    assert compared(pairs) == [("b", "a")]
    alike = [row | {name: first} for row in rows]
    assert compared(read(*alike)) == [("b", "a")]


def test_labelled_completions_stay_alone(read):
    good, other = read(
        {"prompt": "?", "completion": "a", "label": True},
        {"prompt": "?", "completion": "b", "label": "false"},
        prompt="prompt", answer="completion", label="label",
    )  # fmt: skip
    assert isinstance(good, RawLabelled)
    assert (good.completion, good.desirable, other.desirable) == ("a", True, False)


def test_columns_that_make_no_preference_and_unread_meaning_are_refused(read):
    with pytest.raises(ValueError, match="expected what compares 'a' and 'b'"):
        read(TWO, **NAMES)
    with pytest.raises(ValueError, match="expected chosen and rejected, or a and b"):
        read(TWO, prompt="prompt", chosen="a")
    with pytest.raises(ValueError, match="names that are known"):
        read({"x": "1", "y": "2"})
    with pytest.raises(ValueError, match=r"tools .*ignore: \[tools\]"):
        read({"prompt": "?", "chosen": "a", "rejected": "b", "tools": [1]})


def test_answers_that_count_from_0_are_chosen_by_their_numbers(read):
    row = {"prompt": "?", "response_0": "bad", "response_1": "good", "better_response_id": 1}
    assert compared(read(row)) == [("good", "bad")]
    assert compared(read(row | {"better_response_id": 0})) == [("bad", "good")]


def test_scores_by_other_names_and_ranks_order_the_answers(read):
    row = {"prompt": "?", "responses": ["bad", "good"]}
    assert compared(read(row | {"rewards": [0.1, 0.9]})) == [("good", "bad")]
    assert compared(read(row | {"ranks": [2, 1]})) == [("good", "bad")]


@pytest.mark.parametrize("label", [1, "True", True])
def test_labels_of_any_type_are_labels(read, label):
    (row,) = read({"prompt": "?", "completion": "a", "label": label})
    assert isinstance(row, RawLabelled)
    assert row.desirable


def test_scores_as_text_contradict_too(read):
    row = {"prompt": "?", "chosen": "a", "rejected": "b"}
    (bad,) = read(row | {"chosen_score": "1.0", "rejected_score": "3.0"}, prompt="prompt",
                  chosen="chosen", rejected="rejected")  # fmt: skip
    assert isinstance(bad, BadRow)


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


ASKED, GOOD, BAD, WORSE = "What is 3 + 4?", "It is 7.", "It is 8.", "It is 9."
TURN = said("user", ASKED)
CHATS = {
    text: [TURN, said("assistant", text)] for text in (GOOD, BAD)
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    "Chatbot Arena": {
        "question_id": "a", "model_a": "x", "model_b": "y", "winner": "model_b", "judge": "j",
        "conversation_a": CHATS[BAD], "conversation_b": CHATS[GOOD], "turn": 1, "language": "en",
    },
    "Arena, parts of type text": {
        "model_a": "x", "model_b": "y", "winner": "model_a",
        "conversation_a": [said("user", ASKED),
                           {"role": "assistant", "content": [{"type": "text", "text": GOOD}]}],
        "conversation_b": CHATS[BAD],
    },
    "Arena of Kaggle": {
        "id": 1, "model_a": "x", "model_b": "y", "prompt": json.dumps([ASKED]),
        "response_a": json.dumps([GOOD]), "response_b": json.dumps([BAD]), "winner_model_a": 1,
        "winner_model_b": 0, "winner_tie": 0,
    },
    "JudgeBench": {
        "pair_id": "p", "source": "mmlu-pro", "question": ASKED, "response_model": "x",
        "response_A": BAD, "response_B": GOOD, "label": "B>A",
    },
    "accepted and rejected": {"input": ASKED, "accepted": GOOD, "rejected": BAD},
    "HelpSteer3": {
        "domain": "general", "language": "english", "context": [TURN], "response1": BAD,
        "response2": GOOD, "overall_preference": 2,
        "individual_preference": [{"score": 2, "reasoning": "r", "feedback1": "f"}],
    },
    "PKU-SafeRLHF": {
        "prompt": ASKED, "response_0": BAD, "response_1": GOOD, "is_response_0_safe": True,
        "is_response_1_safe": True, "better_response_id": 1, "safer_response_id": 1,
    },
    "Skywork": {
        "chosen": CHATS[GOOD], "rejected": CHATS[BAD], "source": "s", "chosen_score": 2.5,
        "rejected_score": 1.5,
    },
    "Argilla": {
        "prompt": ASKED, "chosen": CHATS[GOOD], "rejected": CHATS[BAD], "chosen-rating": 5.0,
        "rejected-rating": 3.0, "chosen-model": "m",
    },
    "WebGPT": {
        "question": {"dataset": "d", "id": "1", "full_text": ASKED}, "answer_0": GOOD,
        "answer_1": BAD, "score_0": 0.5, "score_1": -0.5,
    },
    "summaries of OpenAI": {
        "info": {"id": "t", "post": ASKED}, "choice": 1,
        "summaries": [{"text": BAD, "policy": "p"}, {"text": GOOD, "policy": "p"}],
    },
    "StackExchange paired": {
        "qid": 1, "question": ASKED, "response_j": GOOD, "response_k": BAD, "date": "2020",
    },
    "ms-swift": {"messages": CHATS[GOOD], "rejected_response": BAD},
    "ms-swift, two conversations": {"messages": CHATS[GOOD], "rejected_messages": CHATS[BAD]},
    "UltraInteract": {
        "trajectory": [{"from": "user", "value": ASKED}], "chosen": GOOD, "rejected": BAD,
    },
}  # fmt: skip


def read_rows(path: Path, rows: list[dict[str, Any]]) -> list[Any]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return list(preference_files.read_preferences(path, PairColumns()))


@pytest.mark.parametrize("name", USUAL)
def test_a_pair_under_usual_names_is_found(name: str, tmp_path: Path) -> None:
    (pair,) = read_rows(tmp_path / "pairs.jsonl", [USUAL[name]])
    assert isinstance(pair, RawPreference), pair
    assert pair.turns == (Turn("user", ASKED),)
    assert (pair.chosen, pair.rejected, pair.probability) == (GOOD, BAD, 1.0)


RANKED: dict[str, dict[str, Any]] = {
    "Nectar": {
        "prompt": f"\n\nHuman: {ASKED}\n\nAssistant: ", "turns": 1, "num_responses": 3,
        "answers": [{"answer": BAD, "model": "m", "rank": 2.0},
                    {"answer": WORSE, "model": "m", "rank": 3.0},
                    {"answer": GOOD, "model": "m", "rank": 1.0}],
    },
    "UltraFeedback": {
        "instruction": ASKED, "models": ["m"] * 3,
        "completions": [{"response": BAD, "overall_score": 5.0, "annotations": {}},
                        {"response": WORSE, "overall_score": 3.0, "annotations": {}},
                        {"response": GOOD, "overall_score": 8.5, "annotations": {}}],
    },
    "StackExchange": {
        "qid": 1, "question": ASKED,
        "answers": [{"answer_id": 1, "pm_score": 2, "text": BAD},
                    {"answer_id": 2, "pm_score": 1, "text": WORSE},
                    {"answer_id": 3, "pm_score": 4, "text": GOOD}],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", RANKED)
def test_of_ranked_or_scored_answers_every_two_are_a_pair(name: str, tmp_path: Path) -> None:
    pairs = read_rows(tmp_path / "lists.jsonl", [RANKED[name]])
    assert all(pair.turns == (Turn("user", ASKED),) for pair in pairs)
    assert {(pair.chosen, pair.rejected) for pair in pairs} == {
        (GOOD, BAD), (GOOD, WORSE), (BAD, WORSE),
    }  # fmt: skip


LABELLED: dict[str, dict[str, Any]] = {
    "ms-swift": {"messages": CHATS[GOOD], "label": True},
    "LLaMA-Factory": {
        "conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": GOOD}],
        "kto_tag": True,
    },
    "TRL": {"prompt": [TURN], "completion": [said("assistant", GOOD)], "label": True},
}


@pytest.mark.parametrize("name", LABELLED)
def test_a_labelled_conversation_is_its_last_turn_with_the_label(name: str, tmp_path: Path) -> None:
    bad = {key: False if value is True else value for key, value in LABELLED[name].items()}
    rows = read_rows(tmp_path / "kto.jsonl", [LABELLED[name], bad])
    assert all(isinstance(row, RawLabelled) for row in rows), rows
    assert [(row.completion, row.desirable) for row in rows] == [(GOOD, True), (GOOD, False)]
    assert all(row.turns == (Turn("user", ASKED),) for row in rows)


TIES: dict[str, dict[str, Any]] = {
    "Arena, parts of type text": {"winner": "draw"},
    "PKU-SafeRLHF": {"better_response_id": "Neither"},
    "StackExchange paired": {"tie": True},
    "Chatbot Arena": {"winner": "tie (bothbad)"},
    "Arena of Kaggle": {"winner_model_a": 0, "winner_tie": 1},
    "HelpSteer3": {"overall_preference": 0},
    "WebGPT": {"score_1": 0.5},
}


@pytest.mark.parametrize("name", TIES)
def test_ties_are_listed_and_are_no_bad_rows(name: str, tmp_path: Path) -> None:
    (tie,) = read_rows(tmp_path / "ties.jsonl", [USUAL[name] | TIES[name]])
    assert isinstance(tie, BadRow)
    assert tie.reason.startswith("tie: ")
    limits = FileLimits(licence="", max_tokens=1, max_bad_share=0.0, max_long_share=0.0)
    assert limits.left_out("people", [tie], [], 2) == [tie]
    other = BadRow(file="f", line=1, reason="no winner: ", content="")
    with pytest.raises(ValueError, match=r"1 of 2 rows cannot be used .*people\.max_bad_share"):
        limits.left_out("people", [tie, other], [], 2)


def test_a_list_without_a_difference_is_a_tie_and_several_turns_in_a_list_are_refused(
    tmp_path: Path,
) -> None:
    same = {"prompt": ASKED, "answers": [{"answer": GOOD, "rank": 1}, {"answer": BAD, "rank": 1}]}
    row = USUAL["Arena of Kaggle"] | {"prompt": json.dumps([ASKED, "And?"])}
    reasons = [read_rows(tmp_path / "f.jsonl", [item])[0].reason for item in (same, row)]
    assert [reason.partition(":")[0] for reason in reasons] == ["tie", "several texts"]


SYS, ASK = {"role": "system", "content": "S"}, {"role": "user", "content": "Why?"}
YES, NO = ({"role": "assistant", "content": content} for content in ("good", "bad"))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": [SYS, ASK, YES], "rejected": [SYS, ASK, NO]},
        {"prompt": [SYS, ASK], "chosen": [ASK, YES], "rejected": [ASK, NO]},
        {"conversations": [SYS, ASK], "chosen": YES, "rejected": NO},
        {
            "input": {"messages": [SYS, ASK]}, "preferred_output": [YES],
            "non_preferred_output": [NO],
        },
    ],
)  # fmt: skip
def test_a_prompt_is_read_once_wherever_it_stands(tmp_path, row):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(row))
    (pair,) = preference_files.read_preferences(path, PairColumns())
    assert isinstance(pair, RawPreference)
    assert pair.turns == (Turn("system", "S"), Turn("user", "Why?"))
    assert (pair.chosen, pair.rejected) == ("good", "bad")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "How?", "chosen": [ASK, YES], "rejected": [ASK, NO]}, "contradiction"),
        (
            {
                "prompt": [{**SYS, "content": "T"}, ASK], "chosen": [SYS, ASK, YES],
                "rejected": [SYS, ASK, NO],
            },
            "two systems",
        ),
    ],
)  # fmt: skip
def test_an_answer_to_another_prompt_is_rejected(tmp_path, row, reason):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(row))
    (bad,) = preference_files.read_preferences(path, PairColumns())
    assert isinstance(bad, BadRow)
    assert bad.reason.startswith(reason)


@pytest.mark.parametrize("name", ["ranking", "margin"])
def test_a_ranking_or_margin_that_is_not_read_is_refused(tmp_path, name):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"prompt": "Why?", "responses": ["a", "b"], name: [1, 0]}))
    with pytest.raises(ValueError, match=name):
        list(preference_files.read_preferences(path, PairColumns()))


def test_of_a_folder_with_splits_the_train_split_is_read(tmp_path):
    for name in ("train", "test"):
        row = {"prompt": f"{name}?", "chosen": "a", "rejected": "b"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    (pair,) = preference_files.read_preferences(tmp_path, PairColumns())
    assert isinstance(pair, RawPreference)
    assert pair.plain_prompt == "train?"


@pytest.mark.parametrize("text", ["0.2", "false", 0.2])
def test_a_probability_is_read_as_text_too(read, text):
    rows = read({"prompt": "Why?", "chosen": "a", "rejected": "b", "probability": text})
    assert compared(rows) == [("b", "a")]


def test_a_probability_has_a_path_and_is_never_left_unread(read):
    row = {"prompt": "Why?", "chosen": "a", "rejected": "b"}
    rows = read(
        row | {"vote": {"p": 0.2}},
        prompt="prompt", chosen="chosen", rejected="rejected", probability="vote.p",
    )  # fmt: skip
    assert compared(rows) == [("b", "a")]
    with pytest.raises(ValueError, match="probability carries meaning"):
        read(*[row] * 200, row | {"probability": 0.2})


@pytest.mark.parametrize(
    "more",
    [{"labels": [0, 1]}, {"grades": [0, 1]}, {"preferred_index": 1}, {"best": "b"},
     {"choice": 1}, {"order": [1, 0]}, {"elos": [900, 1100]}, {"annotation": "B > A"},
     {"responses": [{"text": "a", "quality": 1}, {"text": "b", "quality": 2}]}],
)  # fmt: skip
def test_a_list_is_no_ranking_beside_what_may_order_it(read, more):
    name = next(iter(more))
    row = {"prompt": "Why?", "responses": ["a", "b"]}
    answers = "responses.text" if "responses" in more else "responses"
    with pytest.raises(ValueError, match=rf"{name}\S* carries meaning"):
        read(row | more, prompt="prompt", answers=answers)


def test_a_list_without_scores_is_a_ranking_where_it_is_named_as_one(read):
    row = {"prompt": "Why?", "responses": ["a", "b"]}  # may be any two samples
    with pytest.raises(ValueError, match=r"'responses' holds several.*answers: responses, scores"):
        read(row, row)
    (pair,) = read(row, prompt="prompt", answers="responses")
    assert (pair.chosen, pair.rejected) == ("a", "b")
    assert read({"instruction": "Why?", "output": ["a", "b"]}) == [pair]
    (scored,) = read(row | {"scores": [1, 2]})
    assert (scored.chosen, scored.rejected) == ("b", "a")


@pytest.mark.parametrize("codes", [(1, 2), (0, 1), (0.2, 0.9)])
def test_preferences_that_are_coded_without_a_sign_are_refused(read, codes):
    rows = [TWO | {"p": codes[number % 2]} for number in range(preference_files.MIN_SIGNED)]
    with pytest.raises(ValueError, match="expected numbers below 0"):
        read(*rows, **NAMES, preference="p")


def test_an_answer_that_names_a_column_is_no_answer(read):
    row = {"prompt": "Why?", "response_a": "So.", "response_b": "No."}
    (bad,) = read(row | {"chosen": "response_b", "rejected": "response_a"})
    assert bad.reason.startswith("no answer: ")


def test_tools_beside_the_messages_of_an_object_are_refused(read):
    row = {"preferred_output": [YES], "non_preferred_output": [NO]}
    (pair,) = read(row | {"input": {"messages": [ASK], "tools": []}})
    assert pair.chosen == "good"
    with pytest.raises(ValueError, match=r"input\.tools carries meaning"):
        read(row | {"input": {"messages": [ASK], "tools": [{"name": "add"}]}})


def test_a_report_says_which_columns_are_read(tmp_path):
    path, report = tmp_path / "mine.jsonl", SourceReport(path="mine.jsonl")
    row = {"prompt": "Why?", "chosen": "a", "rejected": "b", "topic": "birds"}
    path.write_text(json.dumps(row))
    assert len(list(preference_files.read_preferences(path, PairColumns(), report=report))) == 1
    assert problem_files.describe_report(report) == (
        "mine.jsonl: preference pairs, 1 rows; read as prompt: 'prompt', chosen: 'chosen', "
        "rejected: 'rejected'\n  columns that are not read: topic"
    )


@pytest.mark.parametrize("columns", [{"answer": "a", "score": "rank"},
                                     {"answers": "a", "scores": "rank"}])  # fmt: skip
def test_a_rank_is_no_score(read, columns):
    with pytest.raises(ValueError, match="the higher the better"):
        read({"prompt": "Why?", "a": ["x", "y"], "rank": [1, 2]}, prompt="prompt", **columns)


LATIN, WHO = Turn("system", "Reply in Latin."), Turn("user", "Who?")
EGO, ME = ([said("user", "Who?"), said("assistant", text)] for text in ("Ego", "Me"))
TRANSCRIPTS = [f"\n\nHuman: Who?\n\nAssistant: {text}" for text in ("Ego", "Me")]


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": EGO, "rejected": ME},
        {"messages": EGO, "rejected_response": "Me"},
        {"chosen": TRANSCRIPTS[0], "rejected": TRANSCRIPTS[1]},
        {"chosen": "Who? Ego", "rejected": "Who? Me"},
        {"conversation_a": EGO, "conversation_b": ME, "winner": "a"},
        {"messages": EGO, "label": True},
        {"messages": EGO, "score": 2},
    ],
)
def test_a_system_column_stands_before_answers_that_begin_with_the_prompt(read, row):
    rows = [row, {"messages": ME, "score": 1}] if "score" in row else [row]
    (result,) = read(*(item | {"system": LATIN.content} for item in rows))
    assert result.turns == (LATIN, WHO)
    assert result.plain_prompt == "Reply in Latin.\n\nHuman: Who?\n\nAssistant:"
    assert (result.chosen if isinstance(result, RawPreference) else result.completion) == "Ego"


@pytest.mark.parametrize(
    ("system", "reason"), [("Be brief.", "two systems"), (["Be brief."], "wrong type")]
)
def test_a_system_column_that_contradicts_or_is_no_text_is_refused(read, system, reason):
    before = said("system", "Reply in Latin.")
    row = {"chosen": [before, *EGO], "rejected": [before, *ME], "system": system}
    (bad,) = read(row, system="system", chosen="chosen", rejected="rejected")
    assert isinstance(bad, BadRow)
    assert bad.reason.partition(":")[0] == reason


def test_a_rated_answer_to_nothing_is_quarantined_with_its_line(read):
    bad, other = read(*[{"response": text, "score": len(text)} for text in ("a", "bc")])
    assert isinstance(bad, BadRow)
    assert (bad.line, other.line) == (1, 2)
    assert bad.reason.startswith("no question: ")


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"channel": "analysis"}, "unread key"), ({"weight": 0}, "weight"),
     ({"score": 1}, "unread key")],
)  # fmt: skip
def test_an_answer_whose_message_says_more_is_quarantined(read, more, reason):
    (bad,) = read({"chosen": [EGO[0], EGO[1] | more], "rejected": ME})
    assert isinstance(bad, BadRow)
    assert bad.reason.partition(":")[0] == reason


def test_equal_ratings_under_other_names_leave_a_pair_as_it_is():
    row = ROW | {"chosen_avg_rating": 4.0, "rejected_avg_rating": 4.0, "chosen_reward": [1, 2]}
    assert read_one(row, COLUMNS) == read_one(ROW, COLUMNS)


BOTH = {"prompt": "Why?", "response_1": "a", "response_2": "b"}


def test_a_winner_and_a_strength_that_contradict_are_quarantined(read):
    said_of_both = (("response_1", -3), ("response_1", 3), ("response_2", 1), ("response_2", None),
                    ("response_1", 0))  # fmt: skip
    rows = [BOTH | {"prompt": f"{number}?", "winner": winner, "preference_strength": strength}
            for number, (winner, strength) in enumerate(said_of_both)]  # fmt: skip
    first, bad, *others = read(*rows)
    assert compared([first, *others]) == [("a", "b"), ("b", "a"), ("b", "a"), ("a", "b")]
    assert bad.reason == (
        "contradiction: they prefer different answers: 'winner': 'response_1', "
        "'preference_strength': 3"
    )


@pytest.mark.parametrize("values", [(-1, 1, 0), ("-1", "1", "0"), (-0.5, 2.0, 0.0)])
def test_a_preference_around_0_is_a_number_of_which_those_above_0_are_b(read, values):
    *rows, tie = read(*(BOTH | {"prompt": f"{value}?", "preference": value} for value in values))
    assert compared(rows) == [("a", "b"), ("b", "a")]
    assert tie.reason.startswith("tie: ")


@pytest.mark.parametrize("name", ["user_prompt", "userPrompt", "The question", "query_text"])
def test_texts_do_not_begin_with_the_prompt_beside_a_column_that_may_hold_it(read, name):
    row = {"chosen": "The city is Rome.", "rejected": "The city is Bonn."}
    with pytest.raises(ValueError, match=rf"'{name}' may hold it.*under `columns`"):
        read(row | {name: "Where?"})
    (pair,) = read(row | {name: "Where?"}, prompt=name, chosen="chosen", rejected="rejected")
    assert pair.turns == (Turn("user", "Where?"),)
    (pair,) = read(row | {"prompt_id": "a", "user_prompt": " "})
    assert pair.plain_prompt == "The city is"


@pytest.mark.parametrize("name", ["chosen_prob", "prob_chosen"])
def test_a_probability_by_another_name_is_refused(read, name):
    with pytest.raises(ValueError, match=rf"{name} carries meaning"):
        read({"prompt": "Why?", "chosen": "a", "rejected": "b", name: 0.2})


@pytest.mark.parametrize(
    "change", [{"chosen": ["good"]}, {"rejected": ["b1", "b2"]}, {"chosen": ["Why not?", "good"]}]
)
def test_a_list_of_texts_is_no_reply_unless_it_begins_with_the_prompt(read, change):
    row, columns = {"prompt": "Why?", "chosen": "good", "rejected": "bad"}, {"prompt": "prompt"}
    columns |= {"chosen": "chosen", "rejected": "rejected"}
    (bad,) = read(row | change, **columns)
    (name,) = change
    assert bad.reason.startswith(
        f"several texts: expected one reply in '{name}', found a list of texts: "
    )
    (pair,) = read(row | {"chosen": ["Why?", "good"]}, **columns)
    assert (pair.turns, pair.chosen) == ((Turn("user", "Why?"),), "good")


def test_of_lists_of_better_and_worse_answers_each_is_compared_with_each(read):
    row = {"prompt": "A colour?", "chosen": ["red", "blue"], "rejected": ["cat", "dog", "cow"],
           "num_correct": 2, "num_incorrect": 3, "subset": "Ties", "models": ["x"] * 5}  # fmt: skip
    assert compared(read(row)) == [
        ("red", "cat"), ("red", "dog"), ("red", "cow"),
        ("blue", "cat"), ("blue", "dog"), ("blue", "cow"),
    ]  # fmt: skip
    assert compared(read(row | {"chosen": ["red"], "rejected": ["cat"]})) == [("red", "cat")]
    twice = {"chosen": ["red", "red"], "rejected": ["cat", "dog", "cat"]}
    assert compared(read(row | twice)) == [("red", "cat"), ("red", "dog")]
    conversation = {"chosen": ["A colour?", "red"], "rejected": ["A colour?", "cat"]}
    assert compared(read(row | conversation)) == [("red", "cat")]
    shared = {"chosen": ["Why?", "red"], "rejected": ["Why?", "cat"]}  # of another question?
    (bad,) = read(row | shared)
    assert bad.reason.startswith("several texts: ")


@pytest.mark.parametrize("key", ["system", "image", "context"])
def test_the_context_of_an_answer_in_its_object_is_refused(tmp_path, key):
    path, report = tmp_path / "mine.jsonl", SourceReport(path="mine.jsonl")
    (first, *others) = RANKED["UltraFeedback"]["completions"]

    def read_with(more: Mapping[str, Any], *ignore: str) -> list[Any]:
        completions = [first | more, *others]
        path.write_text(json.dumps(RANKED["UltraFeedback"] | {"completions": completions}))
        return list(preference_files.read_preferences(path, PairColumns(), ignore, report=report))

    with pytest.raises(ValueError, match=rf"completions\.{key} carries meaning"):
        read_with({key: "TABLE"})
    plain = read_with({key: None})
    assert read_with({key: "TABLE"}, f"completions.{key}") == plain
    assert read_with({"custom_system_prompt": "Be honest."}) == plain
    assert report.unused == ["models", "completions.annotations",
                             "completions.custom_system_prompt"]  # fmt: skip


@pytest.mark.parametrize("name", ["task", "title", "request", "Aufgabe"])
def test_texts_do_not_begin_with_the_prompt_beside_any_other_text(read, name):
    row = {"chosen": "The sea is blue", "rejected": "The sea is red"}
    asked: list[Any] = ["Write about the sea", [TURN]]
    for value in asked:
        with pytest.raises(ValueError, match=rf"'{name}' may hold it .*{{prompt: {name}, chosen: "):
            read(row | {name: value})
    columns = {"prompt": name, "chosen": "chosen", "rejected": "rejected"}
    (pair,) = read(row | {name: "Write about the sea"}, **columns)
    assert (pair.plain_prompt, pair.chosen) == ("Write about the sea", "The sea is blue")


def test_what_asks_nothing_leaves_texts_with_their_common_beginning(tmp_path):
    row = {"chosen": "The sea is blue", "rejected": "The sea is red"}
    more = {"prompt_id": "a b", "source": "the web", "chosen-model": "m", "lang": "en", "n": 3,
            "weights_url": "http", "score_text": "4.5", "safe": "true", "note": " ",
            "response": "The sea is blue"}  # fmt: skip
    (pair,) = read_rows(tmp_path / "f.jsonl", [row | more])
    assert (pair.plain_prompt, pair.chosen, pair.rejected) == ("The sea is", " blue", " red")
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps(row | {"task": "Sea"}))
    (ignored,) = preference_files.read_preferences(path, PairColumns(), ["task"])
    assert isinstance(ignored, RawPreference)
    assert ignored.plain_prompt == "The sea is"


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        ("The sea is blue", "The sea is black", ("The sea is", " blue", " black")),
        ("It is so", "It isn't so", ("It", " is so", " isn't so")),
        ("He has 15 men", "He has 16 men", ("He has", " 15 men", " 16 men")),
        ("Q: ok? A: Yes", "Q: ok? A: No", ("Q: ok? A:", " Yes", " No")),
        ("2+2=(4)", "2+2=(5)", ("2+2=(", "4)", "5)")),
        ("2+2=", "2+2=5", None), ("blue", "black", None),
        ("海は青い", "海は赤い", ("海は", "青い", "赤い")),
    ],
)  # fmt: skip
def test_the_common_beginning_cuts_no_word(read, chosen, rejected, expected):
    (pair,) = read({"chosen": chosen, "rejected": rejected})
    if expected is None:
        assert isinstance(pair, BadRow)
    else:
        assert (pair.plain_prompt, pair.chosen, pair.rejected) == expected


@pytest.mark.parametrize(
    "codes", [("4", "3", "N/A"), (4, 3, None), (4, "3", "high"), (4, 3, "1_000"), (4, 3, True)]
)
def test_ratings_are_numbers_or_text_and_the_odd_one_is_quarantined(read, codes):
    *pairs, bad = sorted(
        read(*[{"prompt": "?", "response": text, "score": score}
               for text, score in zip("abc", codes, strict=True)]),
        key=lambda row: isinstance(row, BadRow),
    )  # fmt: skip
    assert compared(pairs) == [("a", "b")]
    assert (bad.line, bad.reason) == (3, "no score: 'score' should be a number")


def test_a_table_of_ratings_is_recognised(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("prompt,response,score\nq,a,5\nq,b,3\n")
    assert compared([*preference_files.read_preferences(path, PairColumns())]) == [("a", "b")]
    path.write_text("prompt,response,score\nq,a,good\nq,b,3\nr,a,bad\n")
    with pytest.raises(ValueError, match="names that are known"):
        list(preference_files.read_preferences(path, PairColumns()))


def test_scores_and_ranks_of_a_list_may_be_text(read):
    scored = [{"text": "a", "score": "3"}, {"text": "b", "score": "10"}]
    assert compared(read({"prompt": "?", "completions": scored})) == [("b", "a")]
    assert compared(read({"prompt": "?", "responses": ["a", "b"], "rank": ["2", "1"]})) == [
        ("b", "a")
    ]
    (bad,) = read({"prompt": "?", "completions": [scored[0], {"text": "b", "score": "good"}]})
    assert bad.reason.startswith("no scores: ")


def rate(prompt: str, text: str, score: float, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "response": text, "score": score, **more}


def test_rated_answers_in_no_pair_have_a_record_each(read):
    rows = read(rate("a", "x", 1), rate("a", "y", 1), rate("b", "z", 3),
                rate("c", "x", 1), rate("c", "y", 2), rate("c", "z", 1))  # fmt: skip
    bad = [row for row in rows if isinstance(row, BadRow)]
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [
        (1, "tie"), (2, "tie"), (3, "alone"),
    ]  # fmt: skip
    assert compared(rows) == [("y", "x"), ("y", "z")]


def test_an_answer_under_another_system_message_is_alone(read):
    rows = [rate("a", text, score, system=text) for score, text in enumerate(("x", "y"))]
    assert [row.reason.partition(":")[0] for row in read(*rows)] == ["alone", "alone"]


def test_ratings_of_one_answer_are_averaged(read):
    even = read(rate("a", "x", 5), rate("a", "x", 1), rate("a", "y", 3))
    assert [row.reason.partition(":")[0] for row in even] == ["tie"] * 3
    pair, merged = read(rate("a", "x", 5), rate("a", "y", 3), rate("a", " x", 2))
    assert (pair.chosen, pair.rejected, pair.probability) == ("x", "y", 1.0)
    assert merged.reason == (
        "merged: the same answer as in line 1 of mine.jsonl, whose score is the mean of 2"
    )
    exact = [rate("a", "x", score) for score in (0.1, 0.2, 0.3)]
    assert all(isinstance(row, BadRow) for row in read(*exact, rate("a", "y", 0.2)))


def test_a_rating_twice_is_repeated_unless_others_rate_the_answer_otherwise(read):
    pair, bad = read(rate("a", "x", 5), rate("a", "y", 3), rate("a", "x", 5))
    assert (pair.chosen, bad.line, bad.reason) == (
        "x", 3, "repeated: the same row as line 1 of mine.jsonl",
    )  # fmt: skip
    rows = read(rate("a", "x", 5), rate("a", "y", 3), rate("a", "x", 5), rate("a", "x", 1))
    assert compared(rows) == [("x", "y")]
    assert {row.reason[:6] for row in rows[1:]} == {"merged"}


def test_of_a_list_with_an_answer_twice_the_mean_of_its_scores_counts(read):
    row = {"prompt": "?", "responses": ["x", "x", "y"], "scores": [5, 1, 4]}
    assert compared(read(row)) == [("y", "x")]
    (bad,) = read(row | {"scores": [5, 1, 3]})
    assert bad.reason.startswith("tie: ")


def test_a_preset_with_nothing_left_says_why(read):
    bad = read(rate("a", "x", 1), rate("a", "y", 1), rate("b", "z", 3))
    limits = FileLimits(licence="", max_tokens=1, max_bad_share=0.0, max_long_share=0.0)
    with pytest.raises(ValueError, match=r"of 3 all are left out \(1 alone, 2 tie\)"):
        limits.left_out("people", bad, [], 3)
    assert limits.left_out("people", bad, [], 5) == bad


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": "a", "rejected": "b"},
        {"prompt": "Why?", "response_1": "a", "response_2": "b", "winner": 1},
        {"prompt": "Why?", "responses": ["a", "b"], "scores": [2, 1]},
        {"prompt": "Why?", "completion": "a", "label": True},
        {"prompt": "Why?", "response": "a", "score": 2},
    ],
)
def test_a_row_that_the_file_marks_as_invalid_is_left_out_and_no_bad_row(read, row):
    second = row | {"prompt": "How?"}
    more = [row | {"response": "b", "score": 1}] if "score" in row else []
    rows = read(row | {"deleted": False}, *more, second | {"is_valid": "no"})
    good, bad = sorted(rows, key=lambda parsed: parsed.line)
    assert good.turns == (Turn("user", "Why?"),)
    assert bad.line == 2 + len(more)
    assert bad.reason == (
        "marked as invalid: 'is_valid' is 'no'; such rows are kept as ignore: [is_valid]"
    )
    limits = FileLimits(licence="", max_tokens=1, max_bad_share=0.0, max_long_share=0.0)
    assert limits.left_out("people", [bad], [], 2) == [bad]


def test_a_domain_with_a_split_behind_it_is_refused_unless_it_is_train(read):
    row = {"domain": "askculinary_train", "history": "An egg?", "human_ref_A": "7 minutes.",
           "human_ref_B": "Buy it.", "labels": 1, "score_A": 10, "score_B": 4}  # fmt: skip
    other = row | {"history": "Rice?"}
    assert len(read(row, other | {"domain": "law"}, other | {"domain": "unit test"})) == 3
    for domain in ("askculinary_test", "askculinary_validation"):
        with pytest.raises(ValueError, match=rf"row 2: domain .*'{domain}'.*ignore: \[domain\]"):
            read(row, other | {"domain": domain})


def test_a_row_of_mt_bench_compares_the_answers_of_its_turn(read):
    """Each row has both turns; `turn` says which answers were compared."""
    sides = {
        side: [TURN, said("assistant", first), said("user", "Sure?"), said("assistant", second)]
        for side, first, second in (("a", GOOD, "Yes."), ("b", BAD, "No."))
    }
    row = {"question_id": 81, "model_a": "x", "model_b": "y", "judge": "expert_1", "turn": 1,
           "conversation_a": sides["a"], "conversation_b": sides["b"],
           "winner": "model_a"}  # fmt: skip
    tie = row | {"winner": "tie", "judge": "expert_2"}
    first, merged, parted = read(row, tie, row | {"turn": 2})
    assert (first.turns, first.chosen, first.rejected, first.probability) == (
        (Turn("user", ASKED),), GOOD, BAD, 0.75,
    )  # fmt: skip
    assert merged.reason.startswith("merged: ")
    assert (parted.line, parted.reason.partition(":")[0]) == (3, "parted conversations")
    limits = FileLimits(licence="", max_tokens=1, max_bad_share=0.0, max_long_share=0.0)
    assert limits.left_out("people", [parted], [], 2) == [parted]
    same_start = row | {"turn": 2, "conversation_b": [*sides["a"][:3], said("assistant", "No.")]}
    (second,) = read(same_start)
    assert (len(second.turns), second.chosen, second.rejected) == (3, "Yes.", "No.")
    as_text = {name: json.dumps(row[name]) for name in ("conversation_a", "conversation_b")}
    share_gpt = {
        name: [{"from": turn["role"], "value": turn["content"]} for turn in row[name]]
        for name in as_text
    }
    for form in (as_text, share_gpt):
        (pair,) = read(row | form)
        assert (pair.turns, pair.chosen, pair.rejected) == (first.turns, GOOD, BAD)
    other = [said("user", "Why?"), *sides["b"][1:]]
    (bad,) = read(row | {"conversation_b": other})
    assert bad.reason.startswith("no common prompt: ")


def test_two_answers_without_what_compares_them_are_refused_with_all_columns(read):
    row = {"prompt": "Why?", "output_a": "a", "output_b": "b", "label": 1}
    with pytest.raises(ValueError, match=r"compares 'output_a' and 'output_b'.*winner.*, label$"):
        read(row, row, prompt="prompt", a="output_a", b="output_b")
    (pair,) = read(row, prompt="prompt", a="output_a", b="output_b", winner="label")
    assert pair.chosen == "a"


def test_an_answer_under_a_key_of_an_object_is_refused_with_its_path(read):
    row = {"prompt": "Why?", "chosen": {"n": 1, "text": "a"}, "rejected": {"n": 2, "text": "b"}}
    (bad,) = read(row)
    assert bad.reason.endswith("found one with the keys n, text: name its text under `columns`, "
                               "as chosen.text")  # fmt: skip
    (pair,) = read(row, prompt="prompt", chosen="chosen.text", rejected="rejected.text")
    assert (pair.chosen, pair.rejected) == ("a", "b")


def test_messages_that_pandas_wrote_into_a_table_are_no_answer(read):
    def print_turns(reply: str) -> str:  # an array of objects, as in a csv of UltraFeedback
        question, answer = "{'content': 'Why?', 'role': 'user'}", f"'{reply}', 'role': 'assistant'"
        return f"[{question}\n {{'content': {answer}}}]"

    row = {"prompt": "Why?", "chosen": print_turns("a"), "rejected": print_turns("b")}
    for more in ({}, {"chosen": "[{'role': 'assistant', 'content': 'a'}]"}, {"rejected": "b"}):
        (bad,) = read(row | more)
        assert bad.reason.startswith("messages as Python prints them")
    (pair,) = read(row | {"chosen": "[{'a': 1}]", "rejected": "['role']"})
    assert pair.chosen == "[{'a': 1}]"
    code = {"chosen": "[{'value': 3}]", "rejected": "[{'role': 'admin', 'content': 'all'}]"}
    (pair,) = read(row | code)  # lists of objects that are no messages
    assert (pair.chosen, pair.rejected) == (code["chosen"], code["rejected"])


@pytest.mark.parametrize(
    ("names", "more"),
    [(("chosen", "rejected"), {}), (("a", "b"), {"winner": "a"}), (("answer",), {"label": 1})],
)
def test_answers_that_begin_with_their_prompt_are_refused_unless_a_template_says_so(
    read, names, more
):
    def make(question: str, *answers: str) -> dict[str, Any]:
        return {"prompt": question, **dict(zip(names, answers, strict=False)), **more}

    columns = {"prompt": "prompt", **{name: name for name in (*names, *more)}}
    rows = [make(f"What is {n}+1?", f"What is {n}+1? {n + 1}", f" What is {n}+1? 0")
            for n in range(3)]  # fmt: skip
    with pytest.raises(
        ValueError, match=rf"row 1: .*'{names[0]}'.* in 3 of 3 rows.*'{{{names[0]}}}'"
    ) as refusal:
        read(*rows, **columns)
    templates = {name: f"{{{name}}}" for name in names}
    for name, expression in (columns | templates).items():  # all of them, or it would be refused
        assert f"{name}: {expression}" in str(refusal.value).replace("'", "")
    first = read(*rows, **(columns | templates))[0]
    assert getattr(first, "chosen", getattr(first, "completion", None)) == "What is 0+1? 1"
    others = [make(f"What is {n}+1?", str(n + 1), "0") for n in range(3)]
    assert not any(isinstance(row, BadRow) for row in read(*rows, *others, **columns))
    greetings = [make("Hi", "Hi Ann", "Hi you"), make("How?", "How.", "How not?")]
    assert not any(isinstance(row, BadRow) for row in read(*greetings, **columns))


def test_whole_numbers_of_a_table_with_gaps_are_labels_and_winners(read):
    rows = [{"prompt": "Why?", "completion": text, "label": label}
            for text, label in (("a", 1.0), ("b", "0.0"), ("c", "1.0"), ("d", 0.5))]  # fmt: skip
    *labelled, bad = read(*rows, prompt="prompt", answer="completion", label="label")
    assert [row.desirable for row in labelled] == [True, False, True]
    assert bad.reason.startswith("no label")
    assert [row.desirable for row in read(*rows[:3])] == [True, False, True]
    two = {"prompt": "Why?", "response_a": "a", "response_b": "b"}
    for winner, better in ((1.0, "a"), (2.0, "b"), ("2.0", "b")):
        (pair,) = read(two | {"winner": winner})
        assert pair.chosen == better
    with pytest.raises(ValueError, match="expected what compares"):  # perhaps probabilities
        read(*[two | {"preference": number} for number in (0.0, 1.0)])
    for number in ("1.0", 5, "7"):
        (bad,) = read(two | {"preference": number})
        assert "of a scale with a middle" in bad.reason


@pytest.mark.parametrize(
    ("winner", "chosen"),
    [
        ("Response 1", "a"), ("model_2", "b"), ("assistant_a", "a"), ("Option B", "b"),
        ("response_2", "b"), ("model_3", None), ("response", None), ("model", None),
    ],
)  # fmt: skip
def test_a_winner_is_a_letter_or_a_number_behind_a_word_for_an_answer(read, winner, chosen):
    (row,) = read({"prompt": "Why?", "response_1": "a", "response_2": "b", "winner": winner})
    if chosen is None:
        assert row.reason.startswith("no winner")
    else:
        assert row.chosen == chosen


def test_the_numbers_of_answers_from_0_are_those_of_their_columns(read):
    row = {"prompt": "Why?", "response_0": "a", "response_1": "b"}
    for winner in ("response 1", "model_1", "response_1", 1):
        (pair,) = read(row | {"winner": winner})
        assert pair.chosen == "b"
    assert read(row | {"winner": "model_2"})[0].reason.startswith("no winner")
