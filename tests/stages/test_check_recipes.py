"""Each word of a recipe that names nothing is told, with what was meant."""

from copy import deepcopy
from pathlib import Path

import pytest

from stages import check_recipes, params

PARAMS = Path(params.__file__).parents[1] / "params.yaml"


@pytest.fixture
def content():
    """params.yaml with the recipe `comparison` alone, planned."""
    found = params.read(PARAMS)
    recipe = deepcopy(found["recipes"]["comparison"])
    return found | {"recipes": {"mine": recipe}, "plan": recipe}


def test_every_recipe_of_this_repository_is_right_and_the_plan_is_one_of_them():
    content = params.read(PARAMS)
    assert check_recipes.find_problems(content) == []
    assert content["plan"] in content["recipes"].values()


@pytest.mark.parametrize(
    ("stage", "name", "entry", "problem"),
    [
        (
            "train_dpo", "dpo", {"preset": "dpoo"},
            "train_dpo.dpo.preset: 'preference' has no entry 'dpoo'; did you mean 'dpo'?",
        ),
        (
            "train_dpo", "dpo", {"start": "train_sft/sfd/policy"},
            "train_dpo.dpo.start: there is no 'train_sft/sfd/policy'; did you mean "
            "'train_sft/sft/policy'?",
        ),
        (
            "train_reward_model", "sft-0", {"pairs": "sft"},
            "train_reward_model.sft-0.pairs: there is no 'sft'; there is judge_preferences/ai",
        ),
        (
            "score_candidates", "dpo-test", {"pool": "sft-dev"},
            "score_candidates.dpo-test.pool: expected a pool of the split 'test', found one of "
            "'dev'",
        ),
        (
            "train_process_reward", "sft", {"steps": "label_steps/sft-test"},
            "train_process_reward.sft.steps: expected steps of the split 'preference', found those "
            "of 'test'",
        ),
        (
            "train_process_reward", "sft", {"heldout": "label_steps/sft-preference"},
            "train_process_reward.sft.heldout: expected steps of the split 'dev', found those of "
            "'preference'",
        ),
        (
            "evaluate_process_reward", "sft", {"dev": "label_steps/sft-test"},
            "evaluate_process_reward.sft.dev: expected steps of the split 'dev', found those of "
            "'test'",
        ),
        (
            "evaluate_process_reward", "sft", {"test": "label_steps/sft-dev"},
            "evaluate_process_reward.sft.test: expected steps of the split 'test', found those of "
            "'dev'",
        ),
        (
            "evaluate_policy", "dpo", {"scores": "score_candidates/sft-test/scores"},
            "evaluate_policy.dpo.scores: 'score_candidates/sft-test/scores' is of the pool "
            "'sft-test', not 'dpo-test'",
        ),
        (
            "evaluate_policy", "dpo", {"aggregation": "no_choice"},
            "evaluate_policy.dpo.aggregation: 'score_candidates/dpo-test/scores' has scores of "
            "steps: name an entry of choose_aggregation",
        ),
        (
            "choose_aggregation", "sft", {"pool": "sft-test"},
            "choose_aggregation.sft.pool: expected a pool of the split 'dev', found one of 'test'",
        ),
        (
            "score_candidates", "sft-dev", {"process": "no_model"},
            "score_candidates.sft-dev: every model is no_model: name one, or take the entry out",
        ),
        (
            "score_candidates", "dpo-test", {"outcome": "train_reward_model/sft-0/reward_model"},
            "score_candidates.dpo-test.outcome: there is no "
            "'train_reward_model/sft-0/reward_model'",
        ),
        (
            "train_grpo", "grpo", {"scorer": "train_process_reward/none/process_model"},
            "train_grpo.grpo.scorer: there is no 'train_process_reward/none/process_model'",
        ),
        (
            "train_reward_model", "second",
            {
                "start": "train_sft/sft/policy", "pairs": "label_preferences/sft",
                "heldout": "label_preferences/sft", "ensemble": "sft", "member": 0, "flip": 0,
            },
            "train_reward_model.second.member: 'sft-0' is member 0 of the ensemble 'sft' too",
        ),
        (
            "sample_candidates", "dpo-test", {"split": "tset"},
            "sample_candidates.dpo-test.split: there is no 'tset'; did you mean 'test'?",
        ),
        (
            "train_grpo", "grpo", {"start": "prepare_data/tokenizer"},
            "train_grpo.grpo.start: model.path is null, and a random model earns no reward",
        ),
        (
            "train_grpo", "grpo", {"start": "a b"},
            "train_grpo.grpo.start: String should match pattern",
        ),
        (
            "train_sft", "dpo",
            {"preset": "sft", "start": "train_sft/sft/policy", "demonstrations": "prepare_data"},
            "train_dpo.dpo: train_sft has a policy of this name too",
        ),
        (
            "select_demonstrations", "sft", {"pool": "sft-dev", "split": "train"},
            "select_demonstrations.sft.pool: expected a pool of the split 'train', found one of "
            "'dev'",
        ),
        (
            "sample_candidates", "sft-dev", {"policy": "train_ppo/ppo/policy"},
            "entries that need each other: sample_candidates/sft-dev -> train_ppo/ppo",
        ),
        (
            "evaluate_checkpoints", "ppo", {"run": "train_sft/sft"},
            "evaluate_checkpoints.ppo.run: there is no 'train_sft/sft'",
        ),
        (
            "evaluate_checkpoints", "ppo", {"reference": "train_dpo/dpo/policy"},
            "evaluate_checkpoints.ppo.reference: train_ppo/ppo started from "
            "'train_sft/sft/policy': step 0 is that policy, write it here",
        ),
        (
            "evaluate_best_of_n", "sft", {"split": "test"},
            "evaluate_best_of_n.sft.split: there is no 'test'; there is dev, preference",
        ),
        (
            "evaluate_checkpoints", "ppo", {"split": "test"},
            "evaluate_checkpoints.ppo.split: there is no 'test'; there is dev, preference",
        ),
        (
            "evaluate_checkpoints", "ppo", {"reward_model": "assemble_ensembles/ensembles/sft"},
            "evaluate_checkpoints.ppo.reward_model: there is no 'assemble_ensembles/ensembles/sft'",
        ),
    ],
)  # fmt: skip
def test_one_problem(content, stage, name, entry, problem):
    content["plan"][stage].setdefault(name, {}).update(entry)
    found = [told for told in check_recipes.find_problems(content) if problem in told]
    assert len(found) == 1
    assert found[0].startswith("recipes.mine")


def test_imported_steps_may_be_used_for_anything(content):
    plan = content["plan"]
    plan["import_steps"] = {"own": {"source": "processbench", "file": "a.json"}}
    plan["train_process_reward"]["sft"]["heldout"] = "import_steps/own"
    plan["evaluate_process_reward"]["sft"]["dev"] = "import_steps/own"
    assert not [told for told in check_recipes.find_problems(content) if "split" in told]


MODEL = "train_reward_model/sft-0/reward_model"
PROCESS_MODEL = "train_process_reward/sft/process_model"


@pytest.mark.parametrize(
    ("stage", "entry", "problem"),
    [
        ("grpo", {"reward": "rulle"}, "reward: 'rewards' has no entry 'rulle'; did you mean"),
        ("grpo", {"reward": "model"}, "scorer: the reward 'model' asks a model: name one"),
        ("grpo", {"scorer": MODEL}, f"scorer: nothing reads '{MODEL}' here: write no_model"),
        (
            "grpo", {"reward": "model", "scorer": "train_sft/sft/policy"},
            "scorer: the reward 'model' asks a reward model or a process model for scores, and "
            "'train_sft/sft/policy' is a policy",
        ),
        ("grpo", {"reward": "judge"}, "scorer: the reward 'judge' asks a model: name one"),
        (
            "grpo", {"reward": "judge", "scorer": MODEL},
            f"scorer: the reward 'judge' asks a policy to compare completions, and '{MODEL}' is "
            "none",
        ),
        (
            "ppo", {"reward": "judge", "scorer": "train_sft/sft/policy"},
            "scorer: the value model of the preset 'ppo_instructgpt' starts from a reward model, "
            "and 'train_sft/sft/policy' is none: take value.init: policy",
        ),
        (
            "grpo", {"reward": "process_sum", "scorer": MODEL},
            "scorer: the reward 'process_sum' asks a process model for the scores of steps",
        ),
        (
            "grpo", {"reward": "rule_model", "scorer": PROCESS_MODEL},
            f"scorer: the reward 'rule_model' normalises the scores of '{PROCESS_MODEL}'",
        ),
        (
            "grpo", {"preset": "grpo_process", "reward": "model", "scorer": MODEL},
            f"scorer: the preset 'grpo_process' compares rewards of steps, and '{MODEL}' gives "
            "none",
        ),
        ("grpo", {"reward": "own"}, "own: the reward 'own' asks your own function: name its file"),
        ("grpo", {"own": "brevity"}, "own: the reward 'rule' does not ask 'brevity': write none"),
        (
            "grpo", {"reward": "rule_own", "own": "brevty"},
            "own: there is no 'brevty'; did you mean 'brevity'?",
        ),
        (
            "ppo", {"reward": "rule", "scorer": "no_model"},
            "scorer: the value model of the preset 'ppo_instructgpt' starts from a reward model: "
            "name one, or take value.init: policy",
        ),
    ],
)  # fmt: skip
def test_what_a_reward_needs_is_named_and_nothing_else(content, stage, entry, problem):
    content["plan"][f"train_{stage}"][stage].update(entry)
    (found,) = check_recipes.find_problems(content)
    assert found.startswith(f"recipes.mine.train_{stage}.{stage}.{problem}")


@pytest.mark.parametrize(
    ("stage", "entry"),
    [
        ("grpo", {"reward": "rule_own", "own": "brevity"}),
        ("grpo", {"reward": "rule_model", "scorer": MODEL}),
        ("grpo", {"preset": "grpo_process", "reward": "model", "scorer": PROCESS_MODEL}),
        ("grpo", {"preset": "grpo_process", "reward": "process_min", "scorer": PROCESS_MODEL}),
        ("ppo", {"reward": "rule"}),
        ("grpo", {"reward": "judge", "scorer": "train_sft/sft/policy"}),
        (
            "ppo",
            {"preset": "ppo_process", "reward": "judge", "scorer": "train_sft/sft/policy"},
        ),
    ],
)
def test_what_a_reward_or_a_value_model_reads_may_be_named(content, stage, entry):
    content["plan"][f"train_{stage}"][stage].update(entry)
    assert check_recipes.find_problems(content) == []


@pytest.mark.parametrize(
    ("kind", "judge", "told"),
    [
        ("policy", "no_model", "has kind: policy: name one, or kind: endpoint"),
        (
            "endpoint", "train_sft/sft/policy",
            "has kind: endpoint, which asks no model here: write no_model in place of "
            "'train_sft/sft/policy', or kind: policy",
        ),
    ],
)  # fmt: skip
def test_a_judge_of_another_kind_than_the_section_names(content, kind, judge, told):
    content["plan"]["judge_preferences"]["ai"]["judge"] = judge
    content["judge_preferences"]["judge"]["kind"] = kind
    place = "recipes.mine.judge_preferences.ai.judge"
    assert check_recipes.find_problems(content) == [f"{place}: judge_preferences.judge {told}"]


def test_a_stage_left_out_is_missing_and_a_plan_of_its_own_is_checked_too(content):
    content["plan"] = deepcopy(content["plan"])
    del content["plan"]["train_dpo"]
    content["plan"]["train_sfd"] = {}
    assert check_recipes.find_problems(content) == [
        "plan.train_dpo: missing; a stage without entries says {}",
        "plan.train_sfd: unknown key; remove it",
    ]
    content["recipes"] = None
    assert check_recipes.find_problems(content)[0] == (
        "recipes: expected a table of recipes, found None"
    )


def test_probes_are_of_a_policy_once_and_have_a_baseline(content):
    plan = content["plan"]
    entry = plan["probe_policy"].pop("sft")
    plan["probe_policy"]["dpo-ai"] = plan["probe_policy"]["dpo"] | {"pool": "dpo-ai-test"}
    plan["sample_candidates"]["dpo-ai-test"]["policy"] = "train_dpo/dpo/policy"
    assert check_recipes.find_problems(content) == [
        "recipes.mine.probe_policy.dpo-ai.policy: train_dpo/dpo/policy is probed as 'dpo' already, "
        "and has one model card",
        "recipes.mine.probe_policy: expected an entry 'sft', the baseline that others are compared "
        "with; found dpo, dpo-ai, dpo-constitution, ppo, grpo",
    ]
    del plan["probe_policy"]["dpo-ai"]
    plan["probe_policy"]["sft"] = entry
    assert check_recipes.find_problems(content) == []
