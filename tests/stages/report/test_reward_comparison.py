import numpy as np
import pytest

from stages.records import lines
from stages.records.pools import ScoredPrompt
from stages.report import reward_comparison, sections, tables
from stages.report.experiment import Experiment
from stages.report.transcripts import Transcripts

SEEDS, NUM_PROMPTS = [0, 1, 2], 30


def write(folder, policy: str, seed: int, shift: float, *, scale: float = 1.0, scorers=("people",)):
    stream = np.random.default_rng(seed)
    base = stream.normal(size=(NUM_PROMPTS, 4))
    rows = [
        ScoredPrompt(
            id=str(at),
            scores={name: (scale * (item + shift)).tolist() for name in scorers},
            truncation_rate=0.0,
            mean_tokens=5.0 + shift,
        )
        for at, item in enumerate(base)
    ]
    lines.write_lines(folder / f"{policy}/{seed}/per_problem.jsonl", rows)


def read(folder, *policies: str, seeds=SEEDS):
    return reward_comparison.read_scored_results(folder, policies, seeds, 0.95)


def test_wins_are_of_all_pairs_and_ties_are_half():
    rewards, others = np.array([[[1.0, 2.0]]]), np.array([[[1.0, 0.0]]])
    # 1 against 1: half, 1 against 0, 2 against 1, 2 against 0
    assert reward_comparison.win_rates(rewards, others).tolist() == [[3.5 / 4]]
    assert reward_comparison.win_rates(others, rewards).tolist() == [[0.5 / 4]]
    assert reward_comparison.win_rates(rewards, rewards).tolist() == [[0.5]]


def test_a_shift_of_all_scores_is_found_and_wins_know_no_scale(tmp_path):
    for seed in SEEDS:
        for policy, shift in (("sft", 0.0), ("dpo", 0.5)):
            # each seed's model has a scale of its own
            write(tmp_path, policy, seed, shift, scale=1.0 + seed)
    metrics = reward_comparison.compare_by_rewards(read(tmp_path, "sft", "dpo"))
    gain = metrics["gains"]["reward/people"]["dpo"]
    assert gain["value"] == pytest.approx(0.5 * (1 + 2 + 3) / 3)
    assert list(gain["seeds"].values()) == pytest.approx([0.5, 1.0, 1.5])
    assert metrics["policies"]["sft"]["wins/people"]["value"] == 0.5
    assert metrics["policies"]["sft"]["reward/people"]["low"] < 0
    won = list(metrics["policies"]["dpo"]["wins/people"]["seeds"].values())
    unscaled = [read_wins(seed) for seed in SEEDS]
    assert won == pytest.approx(unscaled, abs=1e-6)
    said = " ".join(metrics["verdict"])
    assert "this is what the reward models prefer" in said
    assert "dpo scores +1.000" in said


def read_wins(seed: int) -> float:
    rewards = np.random.default_rng(seed).normal(size=(1, NUM_PROMPTS, 4))
    return float(reward_comparison.win_rates(rewards + 0.5, rewards).mean())


def test_one_seed_tests_nothing_and_without_a_reward_nothing_is_said(tmp_path):
    for policy, shift in (("sft", 0.0), ("dpo", 0.5)):
        write(tmp_path / "one", policy, 0, shift)
        write(tmp_path / "none", policy, 0, shift, scorers=())
    metrics = reward_comparison.compare_by_rewards(read(tmp_path / "one", "sft", "dpo", seeds=[0]))
    assert metrics["gains"]["reward/people"]["dpo"]["significant"] is None
    assert "no verdict over seeds" in metrics["verdict"][1]
    assert "untested" in metrics["verdict"][2]
    none = reward_comparison.compare_by_rewards(read(tmp_path / "none", "sft", "dpo", seeds=[0]))
    assert none["gains"] == {}
    (said,) = none["verdict"]
    assert "nothing tells which policy is better" in said
    assert [row["tokens"] for row in tables.tabulate_lengths(none)] == ["5.0", "5.5"]


def test_the_tables_hold_scores_as_they_are_and_wins_in_per_cent(tmp_path):
    for seed in SEEDS:
        for policy, shift in (("sft", 0.0), ("dpo", 0.5)):
            write(tmp_path, policy, seed, shift)
    metrics = reward_comparison.compare_by_rewards(read(tmp_path, "sft", "dpo"))
    sft, dpo = tables.tabulate_rewards(metrics, "people")
    assert sft["over sft"] == tables.NOTHING
    assert dpo["over sft"].startswith("0.500 [")
    assert sft["wins against sft, %"].startswith("50.0 [")
    metrics |= {"quality": {}, "costs": {"policies": {}, "rows": {}}}
    metrics["costs"]["policies"] = {
        name: {"rows": [], "generated_tokens": 0, "trained_tokens": 0, "flops": 0}
        for name in ("sft", "dpo")
    }
    experiment = Experiment(facts={}, methods=[])
    transcripts = Transcripts(rule="", disagreements=[], groups={})
    first, *rest = sections.drop_empty(
        sections.build_reward_sections(metrics, experiment, transcripts, [])
    )
    assert first.title == "Policies"
    assert tables.tabulate_rewards(metrics, "people") == first.blocks[0].rows
    # without methods, curves, transcripts, labels and rewards
    assert [section.title for section in rest] == ["Costs"]


def test_other_prompts_are_refused(tmp_path):
    write(tmp_path, "sft", 0, 0.0)
    write(tmp_path, "dpo", 0, 0.0)
    path = tmp_path / "dpo/0/per_problem.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ValueError, match="same prompts in the same order"):
        read(tmp_path, "sft", "dpo", seeds=[0])
