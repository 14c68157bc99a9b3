"""An environment as a stage: what it writes, and what is refused before anything plays in it."""

from dataclasses import replace

import pytest
import stage_inputs
from tiny_rollouts import make_prompts

from stages import environment
from stages.config import read_yaml
from stages.environments import definition, lookup_table
from stages.environments.definition import EnvironmentPreset
from stages.records import lines
from stages.rows import DATA, PROMPTS

STARTS = {"train": 3, "dev": 2, "test": 1}
OUTPUT = DATA / "environments/new"
DIGESTS = DATA / "own/calculator"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The digests of the environment's file, and problems."""
    data = read_yaml()["data"] | {
        "mixture": None,
        "max_prompt_tokens": 9,
        "max_completion_tokens": 9,
    }
    monkeypatch.chdir(tmp_path)
    DIGESTS.parent.mkdir(parents=True)
    DIGESTS.write_text("{}")
    return data


def run(data, on="own/calculator", **preset):
    stage_inputs.configure(preset, data=data)
    words = ("--by", "own", "--preset", "mine", "--from", "base", "--on", on)
    environment.main("environment_own", "new", *words)
    return definition.read_environment(OUTPUT)


def test_rows_of_its_own_have_numbers_that_no_two_splits_share(folder):
    file = run(folder, starts=STARTS, options={"largest": 30})
    assert (file.own, file.packages, file.preset.options) == ("calculator", {}, {"largest": 30})
    rows = [row for split in STARTS for row in definition.read_rows(OUTPUT, split)]
    assert [row["id"] for row in rows] == [
        "train-0",
        "train-1",
        "train-2",
        "dev-0",
        "dev-1",
        "test-0",
    ]
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4, 5]
    DIGESTS.write_text("{ }")
    assert run(folder, starts=STARTS).own_digest != file.own_digest


def test_another_file_to_look_up_makes_another_environment(folder, tmp_path):
    """What plays in it runs again."""
    (DIGESTS.parent / "lookup").write_text("{}")
    (tmp_path / "data/raw").mkdir()
    options = {"path": "data/raw/rivers.csv", "key": "river", "value": "length"}
    digests = []
    for length in (1, 2):
        lookup_table.read_table.cache_clear()
        rows = "".join(f"r{i},{i + length}\n" for i in range(60))
        (tmp_path / "data/raw/rivers.csv").write_text("river,length\n" + rows)
        digests.append(run(folder, on="own/lookup", starts=STARTS, options=options).files)
    assert [list(files) for files in digests] == [["data/raw/rivers.csv"]] * 2
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    ("template", "prompt"), [("{question}\n", "{}\n"), ("{question}\n", "<u>{}</u>")]
)
def test_rows_of_problems_have_the_message_that_the_prompt_has(template, prompt):
    (example,) = make_prompts(1)
    row = replace(example, question="2 + 2?", prompt=prompt.format("2 + 2?"), answer="4")
    lines.write_lines(PROMPTS / "dev.jsonl", [row])
    preset = EnvironmentPreset(starts="prompts")
    message = "2 + 2?" if "<u>" in prompt else "2 + 2?\n"
    expected = {"id": row.id, "question": "2 + 2?", "answer": "4", "message": message}
    assert environment.list_starts("dev", preset, template) == [expected]
    with pytest.raises(ValueError, match="whose prompt is a conversation"):
        environment.list_starts("dev", preset, "Solve: {question}")


def test_options_that_it_does_not_take_are_refused(folder):
    with pytest.raises(ValueError, match=r"calculator\.py: expected the preset's options"):
        run(folder, starts=STARTS, options={"digts": 2})
    assert not OUTPUT.exists()
