"""Tokens and operations of a small plan, worked by hand."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import presets

from stages.algorithms.flops import Matrices
from stages.config import PRESETS_PATH, read_yaml
from stages.planning import workload
from stages.planning.stage import Data, Plan, Stage, list_scorers
from stages.records.problems import Demonstration, Prompt
from stages.sources.data_summary import DataSummary

ROOT = Path(__file__).parents[3]
CONTENT = read_yaml(ROOT / "params.yaml")
PRESETS = read_yaml(ROOT / PRESETS_PATH)
ROWS = {table: CONTENT[table] for table in ("policies", "pools", "pairs", "steps", "rewards")}
MODEL = Matrices(body=100, output=10, trained_body=100, trained_output=10)
SHOWN = Demonstration(
    id="a", task="solve", prompt="", prompt_ids=[5] * 30, completion="", completion_ids=[6] * 20
)
DATA = Data(
    prompts={"train": 50, "preference": 40, "dev": 10, "test": 20}, demonstrations=50, prompt=30.0,
    completion=20.0, completion_lines=3.5, longest=(30, 20), example=SHOWN,
)  # fmt: skip
LIMIT, MAX_BATCH = 25, 64
SAMPLING = {
    name: settings | {"max_new_tokens": LIMIT} for name, settings in CONTENT["sampling"].items()
}
CONTENT |= {
    "seeds": [0, 1], "sampling": SAMPLING, "compute": CONTENT["compute"] | {"max_batch": MAX_BATCH},
}  # fmt: skip
PLAN = Plan(content=CONTENT, presets=PRESETS, rows=ROWS, data=DATA)


def stage(entry_point, words, **config):
    return Stage(name="x@y", entry_point=entry_point, words=words, config=SimpleNamespace(**config))


def test_demonstrations():
    sizes = SimpleNamespace(num_epochs=3)
    preset = SimpleNamespace(num_demonstrations=None, teacher=None, override=lambda _: sizes)
    result = workload.forecast_work(stage("train_sft", {}, preset=preset, sft=sizes), PLAN, MODEL)
    assert result.tokens == 2 * 3 * 50 * 20
    assert result.operations == 2 * 6 * 3 * 50 * (100 * 50 + 10 * 20)


def test_a_teacher_of_demonstrations_reads_all_that_its_pool_has():
    words, sizes = {"on": "pairs/taught", "from": "sft"}, SimpleNamespace(num_epochs=3)
    preset = SimpleNamespace(num_demonstrations=None, teacher={}, override=lambda _: sizes)
    pairs = {"taught": {"by": "teacher", "preset": "teacher", "on": "pools/sft"}}
    each = CONTENT["sampling"]["preference"]["num_samples"]
    for limit, kept in ((None, each), (2, 2)):
        presets_here = PRESETS | {"teacher": {"max_samples_per_problem": limit}}
        plan = replace(PLAN, presets=presets_here, rows=ROWS | {"pairs": pairs})
        result = workload.forecast_work(
            stage("train_sft", words, preset=preset, sft=sizes), plan, MODEL
        )
        assert result.tokens == 2 * 3 * 40 * kept * 20
        # Forward and backward of the policy are 6 operations a number, forward of the teacher 2.
        assert result.operations == 2 * 8 * 3 * 40 * kept * (100 * 50 + 10 * 20)


def test_samples_share_their_prompt():
    sampling = CONTENT["sampling"]
    num_samples, dev = sampling["preference"]["num_samples"], sampling["heldout"]["num_samples"]
    result = workload.forecast_work(
        stage("pool", {"from": "sft", "split": "preference"}), PLAN, MODEL
    )
    assert result.tokens == 2 * 20 * (40 * num_samples + 10 * dev)
    body = 100 * (40 * (30 + 20 * num_samples) + 10 * (30 + 20 * dev))
    assert result.operations == 2 * 2 * (body + 10 * 20 * (40 * num_samples + 10 * dev))


def test_a_pool_reads_its_prompts_and_samples_the_rest():
    sampling = CONTENT["sampling"]
    num_samples, dev = sampling["preference"]["num_samples"], sampling["heldout"]["num_samples"]
    result = workload.forecast_work(
        stage("pool", {"from": "sft", "split": "preference"}), PLAN, MODEL
    )
    assert result.forward == 2 * 2 * 100 * 30 * (40 + 10)
    assert result.sampled == 2 * 2 * (100 + 10) * 20 * (40 * num_samples + 10 * dev)
    assert result.trained == 0


def test_grpo_samples_reads_and_trains():
    sizes = SimpleNamespace(
        num_steps=3, prompts_per_step=5, completions_per_prompt=4, max_new_tokens=LIMIT
    )
    words = {"on": "rewards/rule", "from": "sft", "train": "grpo"}
    online = stage("train_grpo", words, preset=presets.method("grpo_deepseekmath"), grpo=sizes)
    result = workload.forecast_work(online, PLAN, MODEL)
    of_body, of_output = 15 * 100, 15 * 10 * 4 * 20
    assert result.sampled == 2 * 2 * (of_body * 4 * 20 + of_output)
    # The prompts before sampling; all of them again by the reference.
    assert result.forward == 2 * 2 * (of_body * 30 + of_body * (30 + 4 * 20) + of_output)
    assert result.trained == 2 * 6 * (of_body * (30 + 4 * 20) + of_output)
    assert result.operations == result.sampled + result.forward + result.trained
    # Three steps of two seeds: 20 rows are one batch.
    assert result.steps == 2 * 3 * LIMIT


def test_samples_of_both_splits_at_every_temperature():
    content = PLAN.content | {"temperatures": {"tried": [0.25, 0.5], "num_samples": 3}}
    result = workload.forecast_work(stage("sample", {}), replace(PLAN, content=content), MODEL)
    # 16 and 4 as sampled, the greedy one, and 3 at each of two temperatures.
    assert result.tokens == 2 * 20 * (20 * (16 + 1 + 6) + 10 * (4 + 1 + 6))
    # Batches of 64 rows hold 4 test problems with 16 samples, and all of everything else.
    assert result.steps == 2 * LIMIT * ((5 + 1 + 2) + (1 + 1 + 2))


def test_half_of_the_problems_make_pairs():
    words = {"on": "pairs/verifier", "from": "sft"}
    sizes = SimpleNamespace(num_epochs=1)
    result = workload.forecast_work(stage("train_dpo", words, dpo=sizes), PLAN, MODEL)
    each = PRESETS["verifier"]["max_pairs_per_problem"]
    assert result.tokens == 2 * 0.5 * 40 * each * 40


def test_an_outcome_model_may_leave_out_problems_without_both_kinds():
    words = {"on": "pools/sft", "from": "sft"}
    for weight, share in ((0.0, 0.5), (0.1, 1.0)):
        preset = SimpleNamespace(max_per_problem=4, one_class_weight=weight, num_epochs=1)
        result = workload.forecast_work(stage("reward_outcome", words, preset=preset), PLAN, MODEL)
        assert result.tokens == 2 * share * 40 * 4 * 20


def test_a_judge_chooses_between_any_two():
    words = {"on": "pairs/judge", "from": "sft"}
    result = workload.forecast_work(
        stage("train_dpo", words, dpo=SimpleNamespace(num_epochs=1)), PLAN, MODEL
    )
    assert result.tokens == 2 * 40 * PRESETS["judge"]["max_pairs_per_problem"] * 40
    two = CONTENT["sampling"] | {"preference": {"num_samples": 2}}  # make one pair
    plan = replace(PLAN, content=PLAN.content | {"sampling": two})
    result = workload.forecast_work(
        stage("train_dpo", words, dpo=SimpleNamespace(num_epochs=1)), plan, MODEL
    )
    assert result.tokens == 2 * 40 * 1 * 40


def test_episodes_are_half_as_long_as_they_may_be():
    preset = {"starts": "prompts", "max_turns": 2, "max_turn_tokens": 10, "num_episodes": 3}
    environments = {"game": {"by": "own", "preset": "mine", "on": "own/x"}}
    plan = replace(PLAN, presets={"mine": preset}, rows={"environments": environments})
    words = {"on": "environments/game", "from": "sft", "split": "test"}
    result = workload.forecast_work(stage("play_policy", words), plan, MODEL)
    assert result.tokens == 2 * 20 * 3 * 10
    assert result.operations == 2 * 2 * 20 * (100 * (30 + 3 * 10) + 10 * 3 * 10)
    assert result.steps == 2 * 2 * 10  # one batch of 60 rows, two turns of at most 10 tokens


def test_each_step_of_a_solution_but_the_last_is_completed():
    """Two seeds; 4 problems and 10 held-out ones, 2 solutions of 3.5 lines, 5 completions."""
    preset = SimpleNamespace(num_problems=4, max_solutions_per_problem=2, num_completions=5)
    words = {"from": "sft", "on": "pools/sft"}
    result = workload.forecast_work(stage("steps_completions", words, preset=preset), PLAN, MODEL)
    num_prefixes = 14 * 2 * 2.5
    assert result.tokens == 2 * num_prefixes * 5 * 10
    assert result.forward == 2 * 2 * 100 * num_prefixes * (30 + 10)
    # 70 prefixes, of which 12 fit into a batch
    assert result.steps == 2 * 6 * LIMIT
    preset.num_completions = 0
    truth = workload.forecast_work(stage("steps_completions", words, preset=preset), PLAN, MODEL)
    assert (truth.tokens, truth.operations, truth.steps) == (0, 0, 0)


def test_a_teacher_reads_in_place_of_a_reference_and_more_where_it_is_shown_solutions():
    sizes = SimpleNamespace(
        num_steps=3, prompts_per_step=5, completions_per_prompt=1, max_new_tokens=LIMIT
    )

    def operations(name, on):
        words = {"on": on, "from": "sft", "train": "grpo"}
        online = stage("train_grpo", words, preset=presets.method(name), grpo=sizes)
        return workload.forecast_work(online, PLAN, MODEL).operations

    alone = operations("dr_grpo", "rewards/rule")
    assert operations("opd", "policies/grpo") == alone
    shown = operations("self_distillation", "demonstrations")
    assert shown - alone == 2 * 2 * 15 * 100 * (30 + 20)


def test_a_stale_batch_is_read_once_more_where_the_reward_has_log_probs_in_it():
    sizes = SimpleNamespace(
        num_steps=3, prompts_per_step=5, completions_per_prompt=1, max_new_tokens=LIMIT
    )
    words = {"on": "rewards/rule", "from": "sft", "train": "grpo"}

    def operations(name, staleness):
        method = presets.method(name, staleness=staleness)
        online = stage("train_grpo", words, preset=method, grpo=sizes)
        return workload.forecast_work(online, PLAN, MODEL).operations

    assert operations("dr_grpo", 2) == operations("dr_grpo", 0)
    # The first batch is of the weights that learn from it.
    more = 2 * 2 * (3 - 1) * 5 * (100 * (30 + 20) + 10 * 20)
    assert operations("rloo", 2) - operations("rloo", 0) == more


def test_an_evaluation_reads_its_samples_with_every_model_of_rewards():
    """Two seeds, 20 problems, and three models: `rule` is none, an ensemble of two is two."""
    rows = {"preference": {"by": "preference", "preset": "two", "on": "pairs/verifier"},
            "outcome": {"by": "outcome", "preset": "outcome", "on": "pools/sft"},
            "rule": {"by": "rule", "preset": "rule", "on": "prompts"}}  # fmt: skip
    plan = replace(PLAN, rows=ROWS | {"rewards": rows}, presets=PRESETS | {"two": {"members": 2}})
    result = workload.forecast_work(stage("evaluate", {}), plan, MODEL)
    num_samples = CONTENT["sampling"]["test"]["num_samples"]
    assert result.forward == result.operations == 2 * 2 * 3 * 20 * 100 * (30 + 20 * num_samples)
    del rows["preference"], rows["outcome"]
    assert workload.forecast_work(stage("evaluate", {}), plan, MODEL).operations == 0


def test_a_stage_without_a_model_takes_nothing():
    assert workload.forecast_work(stage("label_verifier", {}), PLAN, MODEL).operations == 0


def test_an_endpoint_computes_elsewhere():
    preset = SimpleNamespace(judge=SimpleNamespace(kind="endpoint"), max_pairs_per_problem=3)
    words = {"on": "pools/sft"}
    result = workload.forecast_work(stage("label_judge", words, preset=preset), PLAN, MODEL)
    assert (result.tokens, result.operations) == (0, 0)


def test_a_judge_reads_its_request_both_orders_held_out_pairs_and_attacks(monkeypatch):
    request = SimpleNamespace(message=lambda *_: 80 * "x", draw_principle=lambda _: None)
    monkeypatch.setattr(workload, "Prompts", lambda **_: request)
    preset = SimpleNamespace(
        judge=SimpleNamespace(kind="policy"), style="full", constitution="none", reasoning=None,
        max_pairs_per_problem=3, injection_pairs=24,
    )  # fmt: skip
    words = {"on": "pools/sft"}
    result = workload.forecast_work(stage("label_judge", words, preset=preset), PLAN, MODEL)
    # Of 40 problems and 10 of dev three pairs each; 11 attacks and a control on 24 of those.
    messages = 2 * (3 * 40 + 3 * 10 + 12 * 24)
    assert result.forward == 2 * 2 * messages * (100 * (20 + 30 + 2 * 20) + 10)
    preset.reasoning = SimpleNamespace(max_new_tokens=50)
    result = workload.forecast_work(stage("label_judge", words, preset=preset), PLAN, MODEL)
    assert result.tokens == 2 * messages * 50
    assert result.steps == 2 * -(-messages // MAX_BATCH) * 50
    assert result.forward == 2 * 2 * messages * 100 * (20 + 30 + 2 * 20)


def test_which_models_a_reward_asks():
    assert list_scorers("rewards/rule", PLAN) == ()
    assert list_scorers("rewards/preference", PLAN) == ("reward",)
    assert list_scorers("rewards/process", PLAN) == ("process",)


def test_lengths_of_prepared_rows():
    prompt = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1] * 10, answer="")
    summary = DataSummary()
    summary.add_prompt("train", prompt)
    alone = workload.summarise_data(summary)
    summary.add_demonstration(SHOWN)
    result = workload.summarise_data(summary)
    assert result.prompts == {"train": 1, "preference": 0, "dev": 0, "test": 0}
    assert (result.prompt, result.completion, result.longest) == (10.0, 20.0, (30, 20))
    assert (alone.demonstrations, alone.completion, alone.example) == (0, 256.0, None)
