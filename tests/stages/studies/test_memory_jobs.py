"""What a plan says is in memory, against what the entry points load."""

import json
from pathlib import Path

import presets
import pytest
import torch
from ruamel.yaml import YAML
from stages.recipe import Recipe
from stages.recipe_entries import OnlineRl
from tiny_checkpoints import COMPUTE, CPU, PAD, checkpoint, compute, load
from tiny_rollouts import OPTIM, make_prompts
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from stages import train_grpo, train_ppo
from stages.algorithms.memory.prediction import numbers
from stages.algorithms.memory.shape import from_config
from stages.loops import rollouts
from stages.models import policy as checkpoints
from stages.models import scalar_head
from stages.records import lines
from stages.studies import memory_jobs

START, ENSEMBLE = "train_sft/sft/policy", "assemble_ensembles/ensembles/rm"
SHAPE = from_config(load("llama").config.to_dict())
PLAN = Recipe.model_validate(
    {name: {} for name in Recipe.model_fields}
    | {
        "train_reward_model": {
            f"rm-{i}": {
                "start": START, "pairs": "p", "heldout": "p", "ensemble": "rm", "member": i,
                "flip": 0,
            }
            for i in range(2)
        },
        "evaluate_policy": {
            "sft": {"pool": "p", "scores": "no_scores", "aggregation": "no_choice"}
        },
        "baseline": "sft",
    }
)  # fmt: skip


@pytest.fixture(autouse=True)
def pipeline(tmp_path, monkeypatch):
    """A random policy, an ensemble of two reward models, prompts; torch is left as it was."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    monkeypatch.chdir(tmp_path)
    # Random policies rarely end an answer.
    monkeypatch.setattr(rollouts, "MAX_CUT_STEPS", 100)
    data = Path("data")
    load("llama").save_pretrained(data / START)
    vocab = {"<pad>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, 32)}}
    words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocab, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="</s>",
    )
    words.save_pretrained(data / START)
    for number in range(2):
        model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU, head_seed=number)
        model.save_pretrained(data / ENSEMBLE / str(number))
    lines.write(train_ppo.PROMPTS, make_prompts(4))
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("module", "preset", "reward", "scorer"),
    [
        (train_ppo, "ppo_instructgpt", "model", ENSEMBLE),
        # The value model starts from a member, and nothing asks them for a score.
        (train_ppo, "vapo", "rule", ENSEMBLE),
        (train_grpo, "grpo_deepseekmath", "rule", "no_model"),
        (train_grpo, "dapo", "model", ENSEMBLE),
    ],
)
def test_a_job_lists_the_models_that_the_entry_point_loads(
    monkeypatch, module, preset, reward, scorer, rank
):
    loaded = []
    read = checkpoints.read_checkpoint

    def watch(*args, **kwargs):
        loaded.append(read(*args, **kwargs))
        return loaded[-1]

    monkeypatch.setattr(checkpoints, "read_checkpoint", watch)
    stage = module.__name__.removeprefix("stages.")
    sizes = {
        "num_steps": 1, "prompts_per_step": 1, "temperature": 1.0, "max_new_tokens": 4,
        "optim": OPTIM,
    }  # fmt: skip
    own = (
        {"samples_per_prompt": 2, "value_optim": OPTIM}
        if module is train_ppo
        else {"group_size": 2}
    )
    table = "ppo" if module is train_ppo else "group_rl"
    chosen = presets.CONTENT[table][preset] | {"num_minibatches": 1}
    if preset == "dapo":
        chosen |= {"sampling": {"kind": "fixed"}, "overlong": None}
    content = {
        "seed": 0, "compute": COMPUTE, "lora": {"rank": rank, "alpha": 4},
        "model": presets.CONTENT["model"], table: {preset: chosen},
        "ensemble": {"kind": "mean"}, "rewards": presets.CONTENT["rewards"],
        stage: {"num_checkpoints": 0, "token_budgets": {}, "loop": sizes | own},
    }  # fmt: skip
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)
    module.main("tried", preset, START, reward, scorer, "none")

    entry = OnlineRl(preset=preset, start=START, reward=reward, scorer=scorer, own="none")
    expected = memory_jobs.of_entry(content, PLAN, stage, entry)
    assert len(loaded) == sum(one.count for one in expected)
    # The parameters that the entry point itself wrote down, and those in memory, adapters included.
    text = (module.OUTPUT / "tried/metrics.json").read_text(encoding="utf-8")
    done = json.loads(text)["work"]
    told = {one.role: numbers(SHAPE, one, rank) for one in expected}
    assert {role: (one["parameters"], one["trained_parameters"]) for role, one in done.items()} == (
        told
    )
    # Saving merged the policy's adapters: it is as it was loaded.
    assert sum(p.numel() for model in loaded for p in model.parameters()) == sum(
        every - (trained if rank and role == "policy" else 0)
        for role, (every, trained) in told.items()
    )
