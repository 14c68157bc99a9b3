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
from stage_inputs import OPTIM, PRESETS, ROOT, SECTIONS, SEED, SEEDS

from stages import rows, train_rl
from stages.engines import loading
from stages.loops import overlap, rollouts
from stages.loops.rollouts import Rollout
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
pytestmark = pytest.mark.usefixtures("stage_world")


def train(method, on, preset=None, start="sft", seeds=(SEED,), rank=0, **sizes):
    """metrics.json of a seed, and the metrics of its steps."""
    preset = PRESETS["sft"] if preset is None else preset
    words = stage_inputs.make_words(f"train_{method}", on, start)
    sections = {method: SECTIONS[method] | sizes, "lora": {"rank": rank, "alpha": 16}}
    stage_inputs.run_stage(f"train_{method}", words, preset, seeds, **sections)
    return stage_inputs.metrics(TRAINING), stage_inputs.read_steps(TRAINING / "history.jsonl")


def load_weights(folder):
    return load_file(folder / "model.safetensors")


def are_equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first | second)


def test_a_preset_or_row_takes_the_place_of_the_section_and_no_epoch_leaves_a_policy_as_it_is():
    preset = PRESETS["sft"] | {"num_epochs": 1, "num_demonstrations": 4}
    metrics, history = train("sft", "demonstrations", preset, num_epochs=20)
    assert (metrics["demonstrations"], len(history)) == (4, 1)
    words = stage_inputs.make_words("train_sft", "demonstrations", "sft")
    stage_inputs.run_stage("train_sft", [*words, "--num_epochs", "0"], PRESETS["sft"])
    metrics = stage_inputs.metrics(TRAINING)
    assert (metrics["trained_tokens"], "final_loss" in metrics) == (0, False)
    written = load_weights(POLICY / f"model/{SEED}")
    assert are_equal(written, load_weights(rows.locate_policy("sft", SEED)))


@pytest.mark.parametrize("loss", [SIGMOID, KTO], ids=["sigmoid", "kto"])
def test_training_of_adapters_on_preferences_starts_from_the_reference(loss):
    _, history = train("dpo", "pairs/old", loss, rank=2, batch_size=10)
    for side in ("chosen", "rejected"):
        assert history[0][f"log_ratios/{side}"] == pytest.approx(0, abs=1e-4)
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
    _, history = train("dpo", "pairs/old", loss | {"token_budget": budget}, optim=optim)
    spent = [step["tokens/trained"] for step in history]
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


@pytest.mark.parametrize(("shares", "is_warned"), [((1, 1), True), ((1, 0.5), False), ((), False)])
def test_advantages_that_were_all_zero_are_warned_of(shares, is_warned, caplog):
    train_rl.warn_without_advantages([{"advantage/zero_share": share} for share in shares])
    assert bool(caplog.messages) == is_warned


def test_adapters_of_the_teacher_itself_do_not_diverge_from_it(endless):
    sizes = {"rank": 4, "group_size": 1, "num_steps": 1}
    _, history = train("grpo", "policies/sft", PRESETS["opd"], **sizes)
    assert history[0]["kl/teacher"] == pytest.approx(0, abs=1e-5)


def test_of_prompts_only_those_with_a_solution_are_learned_by_self_distillation(endless):
    path = DATA / "demonstrations/demonstrations.jsonl"
    shown = [row for row in lines.read_lines(path, Demonstration) if row.id != "train-1"]
    lines.write_lines(path, shown)
    train("grpo", "demonstrations", PRESETS["self_distillation"])
    drawn = lines.read_lines(TRAINING / "rollouts.jsonl", Rollout)
    assert {row.id for row in drawn} == {f"train-{n}" for n in (0, 2, 3, 4)}


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


def run_with_gpus(names, samplers):
    """Outputs of a training by PPO; what was done, whether in the first process, on which GPU.

    The GPUs are only names: torch sees none.
    """
    environment = {
        "CUDA_VISIBLE_DEVICES": names, overlap.SAMPLERS: samplers, "PYTHONPATH": str(ROOT),
        "POSTTRAIN_CHECKPOINT_SECONDS": "0",
    }  # fmt: skip
    words = ["train_ppo", *stage_inputs.make_words("train_ppo", "rewards/rule")]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], env=os.environ | environment,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
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


@pytest.mark.slow
def test_on_two_gpus_a_process_forked_before_all_else_samples_the_same_bits():
    """With vLLM: tests/stages/loops/test_staleness.py."""
    preset = PPO | {"value_init": "policy", "staleness": 1}
    stage_inputs.configure(preset, **SECTIONS | {"lora": {"rank": 4, "alpha": 16}})
    expected, alone = run_with_gpus("0", "0")
    assert {place[1:] for place in alone} == {(True, "0")}
    actual, places = run_with_gpus("0,1", "1")
    assert actual == expected
    # Reward and value model are of no use to the process that samples.
    assert places == {("sampler", False, "1"), ("sampler", True, "0"), ("sample", False, "1"),
                      ("reward", True, "0"), ("value", True, "0")}  # fmt: skip
