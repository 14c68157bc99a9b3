import json
from pathlib import Path

import pytest

from stages.sources import other_problems

SHARED = Path(__file__).parents[4] / "shared/data"
SVAMP = {
    "question": ["Body", "Question"],
    "answer": "Answer",
    "num_problems": 1000,
    "max_bad_share": 0.0,
}
GSM_HARD = {"question": ["input"], "answer": "target", "num_problems": 1319, "max_bad_share": 0.0}


def test_parts_are_joined_and_the_answer_may_be_a_number(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [{"a": "Ann has 3.", "b": "How many?", "c": 3.0}, {"a": "So?", "b": "Eh?", "c": "1,2"}]
    path.write_text("\n".join(map(json.dumps, rows)))
    config = other_problems.Config(
        question=["a", "b"], answer="c", num_problems=9, max_bad_share=0.5
    )
    (problem,) = other_problems.problems(path, config)
    assert (problem.id, problem.question, problem.answer) == (
        "mine-000001",
        "Ann has 3. How many?",
        "3.0",
    )
    strict = config.model_copy(update={"max_bad_share": 0.4})
    with pytest.raises(ValueError, match="line 2"):
        other_problems.problems(path, strict)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
@pytest.mark.parametrize(
    ("file", "config", "question", "answer"),
    [
        ("svamp/SVAMP.json.gz", SVAMP, "How much do you have to pay", "51.0"),
        ("gsm_hard/gsmhardv2.jsonl.gz", GSM_HARD, "Janet", "-9867630.0"),
    ],
)
def test_every_row_of_svamp_and_gsm_hard_is_a_problem(file, config, question, answer):
    found = other_problems.problems(SHARED / file, other_problems.Config(**config))
    assert len(found) == config["num_problems"]
    assert question in found[0].question
    assert found[0].answer == answer
