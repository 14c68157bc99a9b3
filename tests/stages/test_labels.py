"""Labels of episodes, by an endpoint and by a function of the user's, and what gives none.

What each kind writes on the usual inputs is in every_stage.yaml.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import stage_inputs
from option_server import serve
from ruamel.yaml import YAML
from stage_inputs import PRESETS, SEED, make_episode, write_answers

from stages import label_own, rows
from stages.engines import openai_endpoint
from stages.own_modules import load_own_module
from stages.records import lines
from stages.records.episodes import EPISODES
from stages.records.preferences import Preference, Verdict
from stages.records.steps import StepLabels
from stages.rows import DATA

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
PAIRS = DATA / f"pairs/new/{SEED}"
STEPS = DATA / f"steps/new/{SEED}"
pytestmark = pytest.mark.usefixtures("stage_world")


def label(by, preset, on="pools/old", start="sft", **sections):
    """metrics.json of a row of `pairs`."""
    words = stage_inputs.make_words(f"label_{by}", on, start)
    stage_inputs.run_stage(f"label_{by}", words, preset, **sections)
    return stage_inputs.metrics(PAIRS)


def read_rows(name, kind, folder=PAIRS):
    return list(lines.read_lines(folder / f"{name}.jsonl", kind))


def read_pairs(side="train"):
    return read_rows(side, Preference)


@pytest.mark.parametrize("case", TABLES["episodes"], ids=lambda case: case["it"])
def test_episodes_of_a_start_are_paired_by_what_they_were_paid(case):
    episodes = [
        make_episode(index, reward, start, (*ending, "done")[0])
        for start, played in case["starts"].items()
        for index, (reward, *ending) in enumerate(played)
    ]
    lines.write_lines(DATA / f"episodes/games/{SEED}" / EPISODES, episodes)
    metrics = label("episodes", {"max_pairs_per_start": 2}, "episodes/games")
    pairs = read_pairs()
    assert [[pair.chosen_ids[0], pair.rejected_ids[0]] for pair in pairs] == case["pairs"]
    assert metrics == {"starts": len(case["starts"]), "pairs": len(pairs)}
    # the policy wrote two of three tokens; the environment's stands before the second
    assert {(*pair.chosen_ids[1:], *pair.rejected_ids[1:]) for pair in pairs} == {(30, 30)}
    assert pairs[0].chosen_insertions == pairs[0].rejected_insertions == [[1, [20]]]


def test_no_pair_need_be_held_out():
    write_answers("train", {"a": "45"})
    write_answers("heldout", {"d": "5678"})
    label("verifier", {"max_pairs_per_problem": 2})
    assert (len(read_pairs()), read_pairs("heldout")) == (1, [])


@pytest.mark.parametrize(("inconsistent", "reason"), [("keep", "low_conf"), ("drop", "inconsist")])
def test_a_labeller_that_prefers_what_stands_first_decides_nothing(
    inconsistent, reason, monkeypatch
):
    module = load_own_module("rewards", "brevity")
    monkeypatch.setattr(module, "prefer", lambda prompt, first, second: 0.9)
    words = ["new", "--by", "own/brevity", "--preset", "mine", "--from", "base"]
    rule = PRESETS["own_pairs"]["rule"] | {"inconsistent": inconsistent}
    with pytest.raises(ValueError, match=reason):
        stage_inputs.run_stage("label_own", [*words, "--on", "pools/old"],
                               PRESETS["own_pairs"] | {"rule": rule})  # fmt: skip


@pytest.mark.parametrize("value", [1.5, -0.1, math.nan, None, "good", []])
def test_what_is_no_probability_is_refused_with_its_problem(value):
    prompt = replace(stage_inputs.make_prompts("train", 1)[0], id="p")
    with pytest.raises(ValueError, match=r"prefer.*'p', completions 'a' and 'b'"):
        label_own.ask_labeller(lambda *_: value, prompt, "a", "b")


JUDGE = {
    "style": "short", "constitution": "correct", "reasoning": None, "max_pairs_per_problem": 3,
    "injection_pairs": 0, "rule": {"labels": "soft", "min_option_mass": 0.0, "min_confidence": 0.0,
                                   "inconsistent": "keep", "clamp": None},
}  # fmt: skip
ENDPOINT = {"kind": "endpoint", "model": "m", "revision": "2026-11", "api": "chat",
            "top_logprobs": 20}  # fmt: skip


@pytest.fixture
def server(monkeypatch):
    """An endpoint that prefers 4, with a favour for the first place; problems with 4 and others."""
    write_answers("train", dict.fromkeys("abcd", "4589"))
    write_answers("heldout", dict.fromkeys("ef", "4589"))
    with serve() as server:
        monkeypatch.setenv(openai_endpoint.URL, server.url)
        server.tokens = lambda message: (
            {"1": 0.8, "2": 0.1} if "1: #### 4" in message else {"1": 0.4, "2": 0.5}
        )
        yield server


def test_an_endpoint_judges_and_a_second_run_sends_it_nothing(server):
    preset = JUDGE | {"judge": ENDPOINT}
    metrics = label("judge", preset, start="base")
    files, num_requests = stage_inputs.read_files(PAIRS), len(server.requests)
    assert label("judge", preset, start="base") == metrics
    assert stage_inputs.read_files(PAIRS) == files
    assert len(server.requests) == num_requests
    verdicts = read_rows("verdicts", Verdict)
    assert len(verdicts) == len(read_pairs()) + len(read_pairs("heldout"))
    assert metrics["train"]["agreement"]["averaged"]["value"] == 1.0
    assert metrics["generated_tokens"] == 2 * len(verdicts)  # counted, cached or not
    assert metrics["judge"] == ENDPOINT


STEPS_PRESET = {
    "num_problems": None, "num_heldout_problems": 2, "max_solutions_per_problem": 2,
    "num_completions": 0, "temperature": 1.0, "separator": "\n", "label": "soft",
    "audit": {"thresholds": [0.5], "num_bootstrap": 100, "confidence": 0.95},
}  # fmt: skip
QUESTION = "Anna has 3 apples. She buys 4 more. She finds 2 more. How many apples now?"
SOLUTIONS = ("3 + 4 = 7\n7 + 2 = 9\n#### 9", "3 + 4 = 7\n7 + 2 = 10\n#### 10")


def test_without_completions_the_labels_are_the_truth_and_no_model_is_read():
    for side, name in (("train", "a"), ("heldout", "b")):
        ids = list(stage_inputs.encode(f"{name} {QUESTION}"))
        prompt = replace(stage_inputs.make_prompts("train", 1)[0], id=name, question=QUESTION,
                         prompt_ids=ids, answer="9")  # fmt: skip
        drawn = [stage_inputs.make_completion(name, i, text) for i, text in enumerate(SOLUTIONS)]
        stage_inputs.write_side(side, [prompt], drawn)
    (rows.locate_policy("sft", SEED) / "model.safetensors").unlink()
    words = stage_inputs.make_words("steps_completions", "pools/old")
    stage_inputs.run_stage("steps_completions", words, STEPS_PRESET)
    metrics = stage_inputs.metrics(STEPS)
    labels = [(row.labels, row.true_labels) for row in read_rows("train", StepLabels, STEPS)]
    assert labels == [([1.0, 1.0, 1.0], [True] * 3), ([1.0, 0.0, 0.0], [True, False, False])]
    assert (metrics["generated_tokens"], metrics["train"]["audit"]) == (0, {})
    assert (STEPS / "prefixes.jsonl").read_bytes() == b""
