"""What a row says is in memory, against what the entry points load."""

import json

import pytest
import stage_inputs
import studied_run
import torch
from studied_run import ROOT
from tiny_checkpoints import COMPUTE, CPU, PAD, checkpoint, compute, load
from tiny_rollouts import OPTIM, make_prompts

from stages import params, train_grpo, train_ppo
from stages.algorithms.memory.shape import from_config, states
from stages.loops import rollouts
from stages.models import model_tokenizer, scalar_head
from stages.models import policy as checkpoints
from stages.params import PARAMS_PATH, PRESETS_PATH
from stages.records import lines
from stages.rewards import reward_file
from stages.rewards.reward_file import RewardFile
from stages.rows import DATA, PROMPTS, model
from stages.studies import memory

SHAPE = from_config(load("llama").config.to_dict())
PRESETS = params.read(ROOT / PRESETS_PATH)
ROWS = {
    "preference": {"by": "preference", "preset": "several", "from": "sft", "on": "pairs/verifier"},
    "rule": {"by": "rule", "preset": "rule", "from": "base", "on": "prompts"},
}
SIZES = {
    "num_steps": 1, "prompts_per_step": 1, "temperature": 1.0, "max_new_tokens": 4, "optim": OPTIM,
    "num_checkpoints": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def pipeline(tmp_path, monkeypatch):
    """A random policy, an ensemble of two reward models, prompts; torch is left as it was."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    monkeypatch.chdir(tmp_path)
    # Random policies rarely end an answer.
    monkeypatch.setattr(rollouts, "MAX_CUT_STEPS", 100)
    stage_inputs.write_policy("sft", 0)
    folder = DATA / "rewards/preference"
    words = model_tokenizer.load(model("sft", 0))
    for number in range(2):
        member = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU, head_seed=number)
        checkpoints.save(member, words, folder / f"0/model/{number}")
    reward_file.write(folder, reward_file.of_model("preference"))
    (DATA / "rewards/rule").mkdir()
    rule = reward_file.of_model("preference").model_dump() | {"kind": "rule", "model": None}
    rule["composition"] = PRESETS["rule"]
    reward_file.write(DATA / "rewards/rule", RewardFile.model_validate(rule))
    lines.write(PROMPTS / "train.jsonl", make_prompts(4))
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("module", "preset", "reward"),
    [
        (train_ppo, "ppo_instructgpt", "preference"),
        (train_ppo, "vapo", "preference"),
        (train_grpo, "grpo_deepseekmath", "rule"),
        (train_grpo, "dapo", "preference"),
    ],
)
def test_a_job_lists_the_models_that_the_entry_point_loads(
    monkeypatch, module, preset, reward, rank
):
    loaded = []
    read = checkpoints.read_checkpoint

    def watch(*args, **kwargs):
        loaded.append(read(*args, **kwargs))
        return loaded[-1]

    for module_of in (checkpoints, scalar_head):
        monkeypatch.setattr(module_of, "read_checkpoint", watch)
    method = module.__name__.removeprefix("stages.train_")
    own = {"samples_per_prompt": 2, "value_optim": OPTIM} if method == "ppo" else {"group_size": 2}
    chosen = PRESETS[preset] | {"num_minibatches": 1}
    if preset == "dapo":
        chosen |= {"sampling": "fixed", "overlong": None}
    content = {
        "seeds": [0], "compute": COMPUTE, "lora": {"rank": rank, "alpha": 4},
        "model": params.read(ROOT / PARAMS_PATH)["model"], method: SIZES | own,
    }  # fmt: skip
    studied_run.write_yaml(PARAMS_PATH, content)
    studied_run.write_yaml(PRESETS_PATH, {preset: chosen})
    row = {"train": method, "preset": preset, "from": "sft", "on": f"rewards/{reward}"}
    words = [word for key, value in row.items() for word in (f"--{key}", value)]
    module.main("tried", *words)

    presets = PRESETS | {preset: chosen, "several": PRESETS["bradley_terry"] | {"members": 2}}
    expected = memory.of_row(content | {"rewards": ROWS}, presets, row)
    assert len(loaded) == sum(one.count for one in expected)
    # The parameters that the entry point itself wrote down, and those in memory, adapters included.
    text = (DATA / "policies/tried/training/0/metrics.json").read_text(encoding="utf-8")
    done = json.loads(text)["work"]
    sizes = {one.role: states(SHAPE, one, rank) for one in expected}
    told = {role: (own["parameters"], own["trained"]) for role, own in sizes.items()}
    assert {role: (one["parameters"], one["trained_parameters"]) for role, one in done.items()} == (
        told
    )
    # Saving merged the policy's adapters: it is as it was loaded.
    assert sum(p.numel() for model in loaded for p in model.parameters()) == sum(
        every - (trained if rank and role == "policy" else 0)
        for role, (every, trained) in told.items()
    )
