"""Labels by a function of the user's: both orders, as a judge's, and what is no probability."""

import math

import pytest
import stage_inputs
from stage_inputs import DATA, PRESETS, SEED

from stages import label_own
from stages.own_modules import load_own_module
from stages.records import lines
from stages.records.preferences import Preference, Verdict
from stages.records.problems import Prompt

PROMPT = Prompt(
    id="p", task="solve", question="1 + 1?", prompt="1 + 1?", prompt_ids=[1], answer="2"
)


@pytest.fixture
def run(tmp_path, monkeypatch, torch_settings):
    stage_inputs.copy_world(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(prefer=None, **rule):
        module = load_own_module("rewards", "brevity")
        monkeypatch.setattr(module, "prefer", prefer or module.prefer)
        preset = PRESETS["own_pairs"]
        words = ["new", "--by", "own/brevity", "--preset", "mine", "--from", "base"]
        stage_inputs.run_stage(
            "label_own", [*words, "--on", "pools/old"],
            preset | {"rule": preset["rule"] | rule},
        )  # fmt: skip
        folder = DATA / f"pairs/new/{SEED}"
        pairs, verdicts = (
            list(lines.read_lines(folder / name, kind))
            for name, kind in (("train.jsonl", Preference), ("verdicts.jsonl", Verdict))
        )
        return pairs, verdicts

    return run


def test_the_shorter_completion_of_a_pair_is_chosen(run):
    pairs, verdicts = run()
    assert pairs
    assert all(len(pair.chosen) < len(pair.rejected) for pair in pairs)
    assert {(pair.source, pair.probability) for pair in pairs} == {("own", 1.0)}
    assert {verdict.prompt_version for verdict in verdicts} == {"own/brevity"}
    assert {verdict.dropped for verdict in verdicts} <= {None, "low_confidence"}
    assert all(verdict.gap == 0 for verdict in verdicts)


def test_a_labeller_that_prefers_what_stands_first_decides_nothing(run):
    with pytest.raises(ValueError, match="low_confidence"):
        run(lambda prompt, first, second: 0.9)
    with pytest.raises(ValueError, match="inconsistent"):
        run(lambda prompt, first, second: 0.9, inconsistent="drop")


@pytest.mark.parametrize("value", [1.5, -0.1, math.nan, None, "good", []])
def test_what_is_no_probability_is_refused_with_its_problem(value):
    with pytest.raises(ValueError, match=r"prefer.*'p', completions 'a' and 'b'"):
        label_own.ask_labeller(lambda *_: value, PROMPT, "a", "b")
