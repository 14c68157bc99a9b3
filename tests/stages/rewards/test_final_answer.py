import pytest
from cpu_time import cpu_seconds

from stages.records.problems import THOUGHTS, Prompt
from stages.rewards.answer_checker import solves_problem
from stages.rewards.final_answer import answer_statements, extract_answer, strip_thinking


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("3 + 4 = 7\n#### 7", "7"),
        ("####7", "7"),
        (r"so \boxed{7}.", "7"),
        (r"so $\boxed{\frac{3}{4}}$.", r"\frac{3}{4}"),
        (r"\boxed 7", "7"),
        ("<answer> 7 </answer>", "7"),
        ("The answer is 7.", "7"),
        ("The final answer is: 7 dollars", "7 dollars"),
        ("The answer is 3.5. Well done.", "3.5"),
        (r"The answer is $\boxed{7}$.", "7"),
        (r"\boxed{The answer is 7}", "7"),
        (r"\boxed{\text{The answer is } 7}", "7"),
        (r"\boxed{\text{The answer is } \frac{1}{7}}", r"\frac{1}{7}"),
        ("<answer>#### 7</answer>", "7"),
        ("<answer>The answer is 7</answer>", "7"),
        ("<answer>7 < 8</answer>", "7 < 8"),
        ("#### 7 < 8", "7 < 8"),
        ("#### 7</s>", "7"),
        ("#### 7<|im_end|>", "7"),
        ("The answer is 7, because 3 + 4 = 7.", "7"),
        ("The answer is Tuesday.", "Tuesday"),
        ("The correct option is B", "B"),
        ("So the best choice is **(C)**.", "**(C)**"),
        (r"so $\fbox{7}$.", "7"),
        ("### Answer\n7", "7"),
        ("#### Final Answer\n\n7\n\nI hope this helps.", "7"),
        ("**Answer:**\n$$7$$", "7$$"),
        ("**Final Answer**\n\\boxed{7}", "7"),
        ("Answer:\n7", "7"),
    ],
)
def test_each_form_of_a_final_answer_is_found(completion: str, answer: str) -> None:
    assert extract_answer(completion) == answer


def test_the_last_statement_wins_whatever_its_form() -> None:
    assert extract_answer("#### 1\n#### 2") == "2"
    assert extract_answer(r"\boxed{1} but The answer is 2") == "2"
    assert extract_answer("The answer is 2, so \\boxed{1}\n<answer>3</answer>") == "3"
    assert extract_answer("#### 5\n#### none") == "none"


@pytest.mark.parametrize(
    "completion", ["", "42", "####", "####\n", r"\boxed{", r"\boxed{}", "<answer>5", "##### 5"]
)
def test_no_statement_or_an_empty_or_open_one_gives_nothing(completion: str) -> None:
    assert extract_answer(completion) is None


def test_an_empty_statement_after_a_good_one_does_not_hide_it() -> None:
    assert extract_answer("#### 5\n####\n") == "5"


def test_all_statements_are_listed_from_the_last() -> None:
    assert list(answer_statements("#### 1\n\\boxed{2}\nThe answer is 3.")) == ["3", "2", "1"]


def test_text_made_to_be_slow_is_not() -> None:
    texts = [
        "\\boxed{" * 50_000,
        "####\n" * 50_000,
        "The answer is " * 50_000,
        "<answer>" * 9999,
    ]
    assert cpu_seconds(lambda: [extract_answer(text) for text in texts]) < 0.5


@pytest.mark.parametrize(
    "prose",
    [
        "I am sure that this answer is correct.",
        "The answer is right.",
        "So the final answer is as above",
        "My answer is well-founded, isn't it",
    ],
)
def test_a_sentence_about_the_answer_does_not_hide_it(prose: str) -> None:
    for statement in (r"\boxed{7}.", "#### 7\n", "<answer>7</answer>", "The answer is 7."):
        assert extract_answer(f"{statement} {prose}") == "7"


def test_a_second_answer_in_a_sentence_does() -> None:
    assert extract_answer(r"\boxed{7}. No, the answer is 8") == "8"
    assert extract_answer(r"\boxed{7}. The answer is not 7") == "not 7"


@pytest.mark.parametrize(
    "completion",
    ["Answer:\nFirst we add all of the numbers.", "### Answer key\n7", "Answer\n7", "### Answer\n"],
)
def test_prose_below_a_label_and_a_word_that_is_no_heading_state_nothing(completion: str) -> None:
    assert extract_answer(completion) is None
    assert extract_answer(f"#### 6\n{completion}") == "6"


def test_a_form_within_a_sentence_or_below_a_label_is_one_statement() -> None:
    for completion in (r"The answer is $\boxed{7}$.", "Answer:\n#### 7", r"**Answer:** \boxed{7}"):
        assert list(answer_statements(completion)) == ["7"]
    assert list(answer_statements(r"The answer is 6, or \boxed{7}.")) == ["7", r"6, or \boxed{7}"]


def test_only_the_listed_forms_are_read() -> None:
    by_form = {
        "hash": "#### 1", "boxed": r"\boxed{2}", "tag": "<answer>3</answer>",
        "sentence": "The answer is 4.", "label": "Answer: 5", "Result:": "Result: 6",
    }  # fmt: skip
    text = "\n".join(by_form.values())
    for number, form in enumerate(by_form, start=1):
        assert list(answer_statements(text, [form])) == [str(number)]
    assert list(answer_statements(text, ["Result:", "hash"])) == ["6", "1"]
    assert list(answer_statements(text)) == ["5", "4", "3", "2", "1"]


def test_a_tag_is_no_content() -> None:
    assert extract_answer("#### 5\n#### <eos>") == "5"


def test_what_stands_in_a_thinking_block_states_nothing():
    assert extract_answer("<think>\n#### 6\n</think>\n\n#### 7") == "7"
    assert extract_answer("<think>\n#### 6\n</think>\n\nI do not know.") is None
    # a template has begun it in the prompt
    assert extract_answer("so \\boxed{6}\n</think>\n\n#### 7") == "7"
    # cut before its end
    assert extract_answer("<think>\n#### 6\n") is None
    assert extract_answer("#### 6\n<think> is that so?") is None
    assert extract_answer("<think>a</think>#### 7\n<think> or #### 9") == "7"
    assert strip_thinking("no thinking, #### 6") == "no thinking, #### 6"
    assert list(answer_statements("<think>#### 1</think>#### 2\n#### 3")) == ["3", "2"]


@pytest.mark.parametrize(("begin", "end"), THOUGHTS.items())
def test_nothing_before_the_end_of_a_thought_counts_however_it_is_spelled(begin, end):
    assert extract_answer(f"{begin}\n#### 6\n{end}\n\n#### 7") == "7"
    assert extract_answer(f"#### 6\n{end}\n\nI do not know.") is None
    assert extract_answer(f"{begin}\n#### 6\n") is None
    assert extract_answer(f"#### 6\n{begin} is that so?") is None
    prompt = Prompt(
        id="a", task="", question="", prompt=f"Why?{begin}\n", prompt_ids=[], answer="6"
    )
    assert extract_answer(prompt.whole("\n#### 6")) is None
    assert not solves_problem(prompt, "\n#### 6")
    assert solves_problem(prompt, f"\n#### 5 {end} #### 6")
