from collections.abc import Iterable, Sequence

import pytest

from stages.rewards.answer_forms import FORMS, UnlistedForms, check_form, find_requested

REQUESTS = {
    r"Please reason step by step, and put your final answer within \boxed{}.": {"boxed"},
    "The last line of your response should be of the form Answer: $Answer (without quotes) where "
    "$Answer is the answer to the problem.": {"Answer:"},
    "End with '#### <number>'.": {"hash"},
    "Write <think> .. </think> <answer> .. </answer>.": {"tag"},
    'Finish with "The answer is X".': {"sentence"},
    "Write 'Result: <number>' on the last line.": {"Result:"},
    'End your reply with "Final answer: ..."': {"Final answer:"},
    r"<answer>\boxed{5}</answer>": {"boxed", "tag"},
    "If the answer is even, say so. What is 3 + 4?": set(),
    "Question: What is 3 + 4?\nAnswer:": set(),
    "Solve: 3 + 4\n": set(),
    "Who wrote 'Answer to Job'?": set(),
}


@pytest.mark.parametrize("prompt", REQUESTS)
def test_what_form_a_prompt_asks_for(prompt: str) -> None:
    assert set(find_requested(prompt)) == REQUESTS[prompt]


def describe_unlisted(prompts: Iterable[str], forms: Sequence[str]) -> list[str]:
    unlisted = UnlistedForms(forms)
    for prompt in prompts:
        unlisted.add(prompt)
    return unlisted.describe()


def test_prompts_that_ask_for_a_form_that_is_not_read_are_counted_with_the_words_that_do() -> None:
    prompts = [*REQUESTS]
    assert describe_unlisted(prompts, [*FORMS, "Result:"]) == []
    (warning,) = describe_unlisted(prompts, FORMS)
    assert warning.startswith("1 of 12 prompts ask for an answer in the form 'Result:' (")
    warnings = describe_unlisted(prompts, ["hash", "tag", "sentence", "Final Answer:", "Result:"])
    assert len(warnings) == 2
    assert "within" in warnings[0]
    assert warnings[1].startswith("1 of 12 prompts ask for an answer in the form 'Answer:'")


@pytest.mark.parametrize(
    ("form", "hint"),
    [("box", "did you mean 'boxed'"), ("####", "hash"), ("Result", "ends with a colon"),
     (":", "ends with a colon"), ("a\nb:", "ends with a colon"), (f"{'a' * 60}:", "of your own")],
)  # fmt: skip
def test_what_is_no_form_is_refused(form: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        check_form(form)


def test_names_and_labels_with_a_colon_are_forms() -> None:
    for form in (*FORMS, "Result:", "结果："):
        assert check_form(form) == form
