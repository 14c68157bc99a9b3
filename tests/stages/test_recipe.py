"""What an entry is made from, and in which order."""

from pathlib import Path

import pytest

from stages import lineage, params, recipe
from stages.recipe import Recipe
from stages.reports import costs

PARAMS = Path(params.__file__).parents[1] / "params.yaml"


@pytest.fixture(scope="module")
def recipes():
    found = params.read(PARAMS)["recipes"]
    return {name: Recipe.model_validate(one) for name, one in found.items()}


def test_the_entry_that_makes_a_folder():
    assert recipe.maker("train_sft/sft/policy") == "train_sft/sft"
    assert recipe.maker("select_demonstrations/sft") == "select_demonstrations/sft"
    assert recipe.maker("prepare_data/tokenizer") == recipe.maker("prepare_data") == "prepare_data"


def test_a_lineage_is_everything_needed_in_an_order_in_which_it_can_be_made(recipes):
    reads = lineage.inputs(recipes["dpo_ppo_grpo"])
    assert lineage.lineage("train_ppo/ppo", reads) == [
        "prepare_data",
        "train_sft/sft",
        "sample_candidates/sft-preference",
        "sample_candidates/sft-dev",
        "label_preferences/sft",
        "train_reward_model/sft-0",
        "train_ppo/ppo",
    ]


def test_who_names_an_ensemble_needs_each_of_its_members_and_no_other_reward_model(recipes):
    reads = lineage.inputs(recipes["comparison"])
    assert lineage.lineage("train_ppo/ppo", reads) == [
        "prepare_data",
        "train_sft/sft",
        "sample_candidates/sft-preference",
        "sample_candidates/sft-dev",
        "label_preferences/sft",
        "train_reward_model/sft-0",
        "train_reward_model/sft-1",
        "train_reward_model/sft-2",
        "train_ppo/ppo",
    ]


def test_an_entry_that_needs_itself_is_refused():
    with pytest.raises(ValueError, match=r"^a -> b -> a$"):
        lineage.lineage("c", {"c": ["a"], "a": ["b"], "b": ["a"]})


def test_a_policy_costs_what_it_learned_from_beyond_the_baseline(recipes):
    assert costs.paid(recipes["dpo_ppo_grpo"]) == {
        "sft": ["train_sft/sft"],
        "dpo": ["sample_candidates/sft-preference", "compute_ref_logprobs/sft", "train_dpo/dpo"],
        "ppo": ["sample_candidates/sft-preference", "train_reward_model/sft-0", "train_ppo/ppo"],
        "grpo": ["train_grpo/grpo"],
    }
    assert costs.paid(recipes["iterative_dpo"])["dpo-2"] == [
        "sample_candidates/sft-preference",
        "compute_ref_logprobs/sft",
        "train_dpo/dpo-1",
        "sample_candidates/dpo-1-preference",
        "compute_ref_logprobs/dpo-1",
        "train_dpo/dpo-2",
    ]
    assert costs.paid(recipes["r1"])["grpo-2"] == [
        "train_sft/cold",
        "train_grpo/grpo-1",
        "sample_candidates/grpo-1-train",
        "train_sft/rft",
        "train_grpo/grpo-2",
    ]


def test_labels_and_ensembles_are_paid_by_who_learned_from_them(recipes):
    paid = costs.paid(recipes["comparison"])
    pool = "sample_candidates/sft-preference"
    assert paid == {
        "sft": ["train_sft/sft"],
        "dpo": [pool, "compute_ref_logprobs/sft", "train_dpo/dpo"],
        "dpo-ai": [
            pool, "judge_preferences/ai", "compute_ref_logprobs/ai", "train_dpo/dpo-ai",
        ],
        "dpo-constitution": [
            pool, "revise_answers/constitution", "compute_ref_logprobs/constitution",
            "train_dpo/dpo-constitution",
        ],
        "ppo": [pool, *(f"train_reward_model/sft-{n}" for n in range(3)), "train_ppo/ppo"],
        "grpo": ["train_grpo/grpo"],
    }  # fmt: skip


def test_the_baseline_comes_first_and_rollouts_are_those_of_ppo_and_grpo(recipes):
    assert next(iter(recipe.evaluated(recipes["r1_zero"]).items())) == ("base", "train_sft/base")
    found = dict(recipe.rollout_entries(recipes["offline_then_online"]))
    assert found == {"dpo-ppo": "train_ppo/dpo-ppo", "dpo-grpo": "train_grpo/dpo-grpo"}


def test_the_order_of_entries_changes_nothing(recipes):
    """DVC hashes a mapping without its order: what a stage writes may not depend on it."""
    plan = recipes["comparison"]
    tables = {name: value for name, value in plan if isinstance(value, dict)}
    turned = plan.model_copy(
        update={name: dict(reversed(table.items())) for name, table in tables.items()}
    )
    assert list(recipe.evaluated(turned).items()) == list(recipe.evaluated(plan).items())
    assert list(recipe.rollout_entries(turned)) == list(recipe.rollout_entries(plan))
    assert next(iter(recipe.evaluated(turned))) == "sft"
