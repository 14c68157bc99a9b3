"""Trainings of policies as stages: SFT, DPO and its relatives, GRPO and PPO."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import stage_inputs
import torch
from process_groups import list_group
from safetensors.torch import load_file, save_file
from stage_inputs import OPTIM, OTHER_SEED, PRESETS, ROOT, SECTIONS, SEED, SEEDS
from tiny_checkpoints import BLOCKS
from transformers import LlamaConfig, LlamaForCausalLM
from vllm_installed import needs_vllm

from stages import rows, train_rl
from stages.engines import loading
from stages.loops import overlap, rollouts
from stages.loops.rollouts import Rollout
from stages.models import model_tokenizer
from stages.records import lines
from stages.records.preferences import UnpairedExample
from stages.records.problems import Demonstration
from stages.rewards import reward_file
from stages.rows import DATA

POLICY = DATA / "policies/new"
TRAINING = POLICY / f"training/{SEED}"
PPO = PRESETS["ppo_instructgpt"] | {"num_minibatches": 2}
SIGMOID = {"kind": "sigmoid", "beta": 0.1, "label_smoothing": 0.0}
KTO = {"kind": "kto", "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0}
FORWARD_KL = PRESETS["sft"] | {"teacher": {"temperature": 1.0, "likelihood_coef": 0.0}}
pytestmark = pytest.mark.usefixtures("stage_world")


def train(method, on, preset=None, start="sft", seeds=(SEED,), rank=0, engine="transformers",
          **sizes):  # fmt: skip
    """metrics.json of a seed, and the metrics of its steps."""
    preset = PRESETS["sft"] if preset is None else preset
    words = stage_inputs.make_words(f"train_{method}", on, start)
    sections = {method: SECTIONS[method] | sizes, "lora": {"rank": rank, "alpha": 16}}
    stage_inputs.run_stage(f"train_{method}", words, preset, seeds, engine=engine, **sections)
    return stage_inputs.metrics(TRAINING), stage_inputs.read_steps(TRAINING / "history.jsonl")


def load_weights(folder):
    return load_file(folder / "model.safetensors")


def are_equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first | second)


def test_sft_learns_each_demonstration_in_each_epoch_of_section_or_preset():
    metrics, history = train("sft", "demonstrations", num_epochs=20)
    path = DATA / "demonstrations/demonstrations.jsonl"
    num_tokens = sum(len(row.completion_ids) for row in lines.read_lines(path, Demonstration))
    assert (metrics["demonstrations"], len(history)) == (8, 20 * 2)
    assert metrics["trained_tokens"] == 20 * num_tokens
    assert metrics["work"]["policy"]["trained"]["outputs"] == 20 * num_tokens
    # of the last twentieth of 40 steps
    last = [step["loss/nll"] for step in history[-2:]]
    assert metrics["final_loss"] == pytest.approx(sum(last) / 2) != history[0]["loss/nll"]
    preset = PRESETS["sft"] | {"num_epochs": 1, "num_demonstrations": 4}
    metrics, history = train("sft", "demonstrations", preset, num_epochs=20)
    assert (metrics["demonstrations"], len(history)) == (4, 1)


def test_sft_of_no_epoch_leaves_a_policy_as_it_is_and_random_weights_are_of_the_seed():
    metrics, _ = train("sft", "demonstrations", num_epochs=0)
    assert (metrics["trained_tokens"], "final_loss" in metrics) == (0, False)
    written = load_weights(POLICY / f"model/{SEED}")
    assert are_equal(written, load_weights(rows.locate_policy("sft", SEED)))
    train("sft", "demonstrations", start="base", seeds=SEEDS, num_epochs=0)
    assert not are_equal(*(load_weights(POLICY / f"model/{seed}") for seed in SEEDS))
    train("sft", "demonstrations", start="base", seeds=(OTHER_SEED, SEED)[1:], num_epochs=0)
    assert not (POLICY / f"model/{OTHER_SEED}").exists(), "a seed that params.yaml has no more"


def test_sft_learns_from_the_successes_of_episodes_alone():
    metrics, _ = train("sft", "episodes/games", num_epochs=1)
    # Of each start one of three is a success, and the policy wrote two of its three tokens.
    assert (metrics["demonstrations"], metrics["trained_tokens"]) == (2, 4)
    assert metrics["work"]["policy"]["trained"]["positions"] == 2 * 4


def test_forward_kl_is_measured_from_the_teacher_beside_the_completions():
    words = stage_inputs.make_words("label_teacher", "pools/old", "teacher")
    stage_inputs.run_stage("label_teacher", words, {"max_samples_per_problem": 2}, SEEDS)
    metrics, history = train("sft", "pairs/new", FORWARD_KL, num_epochs=3)
    assert metrics["demonstrations"] == 2 * 4
    assert metrics["work"]["teacher"]["read"]["outputs"] == metrics["trained_tokens"]
    assert metrics["work"]["teacher"]["trained_parameters"] == 0
    assert history[0]["loss/forward_kl"] > 0.1
    assert metrics["final_forward_kl"] == history[-1]["loss/forward_kl"]
    _, itself = train("sft", "pairs/new", FORWARD_KL, start="teacher")
    assert itself[0]["loss/forward_kl"] == pytest.approx(0, abs=1e-6)


def lose_teacher():
    shutil.rmtree(DATA / f"pairs/new/{OTHER_SEED}/model")


def learn_other_words(place=f"pairs/new/{SEED}/model"):
    other = model_tokenizer.train_tokenizer(["Other words are learned here."] * 9, 700)
    (DATA / place / "tokenizer.json").unlink()  # it may be a second name of another
    other.save_pretrained(DATA / place)


@pytest.mark.parametrize(
    ("edit", "mentions"), [(lose_teacher, "by: teacher"), (learn_other_words, "vocabulary")]
)
def test_forward_kl_without_a_teacher_of_its_vocabulary_is_refused(edit, mentions):
    words = stage_inputs.make_words("label_teacher", "pools/old", "teacher")
    stage_inputs.run_stage("label_teacher", words, {"max_samples_per_problem": 2}, SEEDS)
    edit()
    with pytest.raises(ValueError, match=mentions):
        train("sft", "pairs/new", FORWARD_KL, seeds=SEEDS)
    assert not POLICY.exists()


@pytest.mark.parametrize(
    ("loss", "rows_of_epoch"), [(SIGMOID, 5), ({"kind": "orpo", "lam": 0.5}, 5), (KTO, 10)],
    ids=["sigmoid", "orpo", "kto"],
)  # fmt: skip
def test_preferences_are_learned_in_batches_of_which_the_smaller_last_ones_count(
    loss, rows_of_epoch
):
    optim = OPTIM | {"learning_rate": 3e-3}
    metrics, history = train("dpo", "pairs/old", loss, num_epochs=4, optim=optim)
    assert metrics["completions" if loss is KTO else "pairs"] == rows_of_epoch
    assert metrics["steps"] == len(history) == 4 * -(-rows_of_epoch // 3)
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in history)
    (checkpoint,) = (TRAINING / "checkpoints").iterdir()
    assert checkpoint.name == f"step-{len(history) // 2:04d}"
    assert not are_equal(load_weights(checkpoint), load_weights(POLICY / f"model/{SEED}"))
    assert metrics["final_chosen_log_ratio"] > metrics["final_rejected_log_ratio"]


@pytest.mark.parametrize("rank", [0, 2], ids=["whole", "adapters"])
@pytest.mark.parametrize("loss", [SIGMOID, KTO], ids=["sigmoid", "kto"])
def test_training_on_preferences_starts_from_the_reference(loss, rank):
    metrics, history = train("dpo", "pairs/old", loss, rank=rank, batch_size=10)
    for side in ("chosen", "rejected"):
        assert history[0][f"log_ratios/{side}"] == pytest.approx(0, abs=1e-4)
    # Each completion is read once more, before the first step.
    assert metrics["work"]["policy"]["read"]["outputs"] >= metrics["trained_tokens"] / 2
    if loss is KTO:  # its reference point too: the KL of a policy that is the reference
        assert history[0]["kl/reference_point"] == pytest.approx(0, abs=1e-4)


def test_kto_learns_from_completions_that_people_labelled():
    examples = [
        UnpairedExample(id=str(n), prompt_ids=[5], completion_ids=[6, 7 + n], desirable=n > 1)
        for n in range(4)
    ]
    lines.write_lines(DATA / "pairs/people/train_labelled.jsonl", examples)
    assert train("dpo", "pairs/people", KTO, num_epochs=1)[0]["completions"] == 4


@pytest.mark.parametrize(("loss", "budget"), [(SIGMOID, 1), (KTO, 200)], ids=["pairs", "kto"])
def test_a_budget_of_tokens_takes_the_place_of_epochs(loss, budget):
    optim = OPTIM | {"schedule": "linear"}
    _, whole = train("dpo", "pairs/old", loss, optim=optim, num_epochs=6)
    metrics, history = train("dpo", "pairs/old", loss | {"token_budget": budget}, optim=optim)
    spent = [step["tokens/trained"] for step in history]
    assert spent == [step["tokens/trained"] for step in whole][: len(spent)]
    assert metrics["trained_tokens"] == sum(spent)
    assert sum(spent[:-1]) < budget <= sum(spent)
    # the rate falls to 0 over these steps, not over those of the epochs
    assert history[-1]["optim/learning_rate"] == pytest.approx(1e-2 / len(history))


PAYER = """
from stages.environments.environment import Reply
class Payer:
    def start(self, row, seed):
        return [{"role": "user", "content": "1 + 1 = ?"}], None
    def step(self, message):
        return Reply(reward=1.0 + len(message["content"]), done=True)
"""


@pytest.fixture
def endless(monkeypatch):
    """Nothing in these games rewards ending an answer."""
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)


@pytest.mark.parametrize(("method", "preset", "num_each"), [
    ("grpo", PRESETS["grpo_deepseekmath"], 4), ("ppo", PPO, 2),
], ids=["grpo", "ppo"])  # fmt: skip
def test_rl_writes_its_rollouts_and_their_numbers(method, preset, num_each, endless):
    metrics, history = train(method, "rewards/scorer", preset)
    drawn = list(lines.read_lines(TRAINING / "rollouts.jsonl", Rollout))
    assert len(history) == metrics["steps"] == 3
    assert len(drawn) == 3 * 4 * num_each
    assert metrics["generated_tokens"] == sum(len(row.completion_ids) for row in drawn)
    assert metrics["trained_tokens"] == sum(step["tokens/trained"] for step in history)
    for number, step in enumerate(history):
        rewards = [row.reward for row in drawn if row.step == number]
        assert step["reward/mean"] == pytest.approx(sum(rewards) / len(rewards), abs=1e-5)
        right = [row.correct for row in drawn if row.step == number]
        assert step["reward/accuracy"] == pytest.approx(sum(right) / len(right))
    # The reference is the policy as it was, and frozen.
    assert history[0]["kl/k1"] == pytest.approx(0, abs=1e-5)
    assert abs(history[-1]["kl/k1"]) > 1e-5
    models = {"policy", "reference", "scorer"} | ({"value"} if method == "ppo" else set())
    assert set(metrics["work"]) == models
    (checkpoint,) = (TRAINING / "checkpoints").iterdir()
    assert checkpoint.name == "step-0002"  # of 3 steps and 1 checkpoint
    weights = [load_weights(path) for path in (rows.locate_policy("sft", SEED), checkpoint,
                                               POLICY / f"model/{SEED}")]  # fmt: skip
    assert not any(are_equal(weights[i], weights[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize(("shares", "is_warned"), [((1, 1), True), ((1, 0.5), False), ((), False)])
def test_advantages_that_were_all_zero_are_warned_of(shares, is_warned, caplog):
    train_rl.warn_without_advantages([{"advantage/zero_share": share} for share in shares])
    assert bool(caplog.messages) == is_warned


@pytest.mark.parametrize(("method", "on", "preset", "sizes", "mentions"), [
    ("ppo", "rewards/rule", PPO, {}, "value_init"),
    ("grpo", "rewards/rule", PRESETS["grpo_process"], {}, "process model"),
    ("ppo", "rewards/scorer", PPO, {"prompts_per_step": 1}, "num_minibatches"),
    ("grpo", "policies/teacher", PRESETS["opd"], {}, "vocabulary"),
], ids=["value", "process", "minibatches", "vocabulary"])  # fmt: skip
def test_what_rl_cannot_learn_from_is_refused_before_any_work(method, on, preset, sizes, mentions):
    learn_other_words(f"policies/teacher/model/{OTHER_SEED}")
    with pytest.raises(ValueError, match=mentions):
        train(method, on, preset, seeds=SEEDS, **sizes)
    assert not POLICY.exists()


@pytest.mark.parametrize("rank", [0, 4], ids=["whole", "adapters"])
def test_a_policy_is_distilled_from_another_or_from_itself_with_solutions(rank, endless):
    preset = PRESETS["opd"]
    metrics, history = train("grpo", "policies/teacher", preset, rank=rank, group_size=1)
    assert set(metrics["work"]) == {"policy", "teacher"}
    assert history[0]["kl/teacher"] > 0.1
    _, itself = train("grpo", "policies/sft", preset, rank=rank, group_size=1)
    assert itself[0]["kl/teacher"] == pytest.approx(0, abs=1e-5)
    path = DATA / "demonstrations/demonstrations.jsonl"
    shown = [row for row in lines.read_lines(path, Demonstration) if row.id != "train-1"]
    lines.write_lines(path, shown)
    metrics, history = train("grpo", "demonstrations", PRESETS["self_distillation"], rank=rank)
    assert set(metrics["work"]) == {"policy", "teacher"}
    assert abs(history[0]["kl/teacher"]) > 1e-5, "it has another prompt"
    drawn = lines.read_lines(TRAINING / "rollouts.jsonl", Rollout)
    assert {row.id for row in drawn} == {row.id for row in shown} & {
        row.id for row in stage_inputs.make_prompts("train")}  # fmt: skip


@pytest.fixture
def payer(stage_world, monkeypatch):
    """File of an environment of the user's, as far as imports can tell."""
    package = importlib.import_module("stages.environments.own")
    monkeypatch.setattr(package, "__path__", [str(stage_world)])
    monkeypatch.delitem(sys.modules, "stages.environments.own.payer", raising=False)
    stage_inputs.write_environment(own="payer", max_turn_tokens=12)
    (stage_world / "payer.py").write_text(PAYER)
    return stage_world / "payer.py"


def test_an_environment_whose_episodes_share_state_is_refused_before_training(payer):
    shared = PAYER.replace("return [{", "Payer.seed = seed; return [{")
    payer.write_text(shared.replace("1.0 + len", "Payer.seed % 97 + len"))
    with pytest.raises(ValueError, match=r"answers differently.*row 'train-.*reward"):
        train("grpo", "environments/sums", PRESETS["dr_grpo"], seeds=SEEDS)
    assert not POLICY.exists()


@pytest.mark.usefixtures("payer", "endless")
def test_in_an_environment_its_limits_take_the_place_of_the_longest_completion():
    preset = PRESETS["dr_grpo"]  # its loss is divided by the longest completion
    sizes = {"num_steps": 1, "prompts_per_step": 2}
    histories = [
        train("grpo", "environments/sums", preset, max_new_tokens=number, **sizes)
        for number in (6, 60)
    ]
    assert histories[0] == histories[1]
    (step,) = histories[0][1]
    assert step.get("optim/grad_norm", 0) > 0, step
    assert "episode/turns" in step


@pytest.mark.parametrize(("method", "preset", "expected"), [
    ("ppo", PPO, 2), ("grpo", PRESETS["grpo_deepseekmath"], 1),
], ids=["ppo", "grpo"])  # fmt: skip
def test_memory_is_left_for_the_moments_of_each_model_that_is_trained(
    method, preset, expected, monkeypatch, endless
):
    numbers, real = [], loading.make_policy_sampler

    def watch(engine, num_trained, *models, **settings):
        numbers.append(num_trained)
        return real(engine, num_trained, *models, **settings)

    monkeypatch.setattr(loading, "make_policy_sampler", watch)
    train(method, "rewards/scorer", preset, num_steps=1)
    assert numbers == [expected]


@pytest.mark.parametrize("value_init", ["reward_model", "policy"])
def test_the_value_model_starts_as_the_first_member_of_an_ensemble_or_with_a_head_of_zeros(
    value_init, monkeypatch
):
    path = reward_file.model_path(DATA / "rewards/scorer", SEED)
    shutil.rmtree(path)
    for member in range(2):
        stage_inputs.make_scorer(SEED, member).save_pretrained(path / str(member))

    def capture(models, *_):
        save_file({"head": models.value.model.score.weight.detach()}, "head.safetensors")
        raise ValueError("captured")

    monkeypatch.setattr(train_rl.rl, "train", capture)
    with pytest.raises(ValueError, match="captured"):
        train("ppo", "rewards/scorer", PPO | {"value_init": value_init})
    first = load_weights(path / "0")["score.weight"]
    expected = first if value_init == "reward_model" else torch.zeros_like(first)
    assert torch.equal(load_file("head.safetensors")["head"], expected)


def write_wide_policy():
    """vLLM computes no attention of narrower heads on a CPU."""
    shape = BLOCKS | {"hidden_size": 128, "num_attention_heads": 4, "initializer_range": 0.1}
    shape |= {"vocab_size": len(stage_inputs.make_tokenizer())}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(rows.locate_policy("sft", SEED))


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("rank", [0, 4], ids=["whole", "adapters"])
@pytest.mark.parametrize(("method", "preset"), [
    ("grpo", PRESETS["grpo_deepseekmath"]), ("ppo", PPO | {"value_init": "policy"}),
], ids=["grpo", "ppo"])  # fmt: skip
def test_vllm_draws_from_the_policy_as_it_learns(method, preset, rank, endless):
    write_wide_policy()
    gaps, written = {}, {}
    for engine in ("transformers", "vllm", "vllm"):
        _, history = train(method, "rewards/scorer", preset, rank=rank, engine=engine)
        gaps[engine] = [step["sampling/logprob_gap"] for step in history]
        weights = load_weights(POLICY / f"model/{SEED}")
        result = (TRAINING / "rollouts.jsonl").read_bytes(), weights
        before = written.setdefault(engine, result)
        assert before[0] == result[0], "the same bits twice"
        assert are_equal(before[1], weights)
    assert max(gaps["vllm"] + gaps["transformers"]) < 2e-5
    start = load_weights(rows.locate_policy("sft", SEED))
    name = "model.layers.0.mlp.up_proj.weight"
    # As far as a step of this rate goes: a stale copy would be noticed.
    assert (written["vllm"][1][name] - start[name]).abs().max() > 1e-3


PROGRAM = """
import os
from stages import train_rl
from stages.engines import loading
from stages.loops import rollout_rewards, rollouts
from stages.models import scalar_head
from stages.runtime import process

def note(what):
    with open("noted", "a") as file:
        file.write(f"{what} {os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")

def noting(function, what):
    def noted(*words, **settings):
        note(what)
        return function(*words, **settings)
    return noted

def make(*words, **settings):
    note("sampler")
    sampler = make_policy_sampler(*words, **settings)
    sampler.sample = noting(sampler.sample, "sample")
    return sampler

scalar_head.init_scalar_model = noting(scalar_head.init_scalar_model, "value")
rollout_rewards.load_reward = noting(rollout_rewards.load_reward, "reward")
make_policy_sampler, loading.make_policy_sampler = loading.make_policy_sampler, make
rollouts.MAX_TRUNCATED_STEPS = 100
process.run(train_rl.main)
"""


def run_with_gpus(names, samplers, method):
    """Outputs of the stage; what was done, whether in the first process, and on which GPU.

    The GPUs are only names: torch sees none.
    """
    environment = {
        "CUDA_VISIBLE_DEVICES": names, overlap.SAMPLERS: samplers, "PYTHONPATH": str(ROOT),
        "POSTTRAIN_CHECKPOINT_SECONDS": "0",
    }  # fmt: skip
    entry = f"train_{method}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, entry, *stage_inputs.make_words(entry, "rewards/rule")],
        env=os.environ | environment, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert list_group(process.pid) == []
    files = [TRAINING / "history.jsonl", TRAINING / "rollouts.jsonl",
             *POLICY.glob("model/*/*.safetensors")]  # fmt: skip
    noted = [line.split() for line in Path("noted").read_text().splitlines()]
    Path("noted").unlink()
    places = {(what, int(pid) == process.pid, gpu) for what, pid, gpu in noted}
    return [path.read_bytes() for path in files], places


def prepare_overlap(engine, method, rank):
    """Inputs of a stage with a preset of `staleness` 1."""
    write_wide_policy()
    preset = PRESETS["grpo_deepseekmath"] if method == "grpo" else PPO | {"value_init": "policy"}
    sections = {"lora": {"rank": rank, "alpha": 16}, "engine": engine}
    stage_inputs.configure(preset | {"staleness": 1}, **SECTIONS | sections)


@pytest.mark.parametrize(("engine", "method", "rank"), [
    pytest.param("transformers", "ppo", 4, marks=pytest.mark.slow),
    pytest.param("vllm", "grpo", 4, marks=[needs_vllm, pytest.mark.vllm]),
])  # fmt: skip
def test_on_two_gpus_a_process_forked_before_all_else_samples_the_same_bits(engine, method, rank):
    prepare_overlap(engine, method, rank)
    expected, alone = run_with_gpus("0", "0", method)
    assert {place[1:] for place in alone} == {(True, "0")}
    actual, places = run_with_gpus("0,1", "1", method)
    assert actual == expected
    # Reward and value model are of no use to the process that samples.
    assert places == {("sampler", False, "1"), ("sampler", True, "0"), ("sample", False, "1"),
                      ("reward", True, "0"), ("value", True, "0")} - (
        {("value", True, "0")} if method == "grpo" else set())  # fmt: skip
