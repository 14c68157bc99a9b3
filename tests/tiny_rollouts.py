"""A token game for the loops: prompts and records in token ids, no text, no tokenizer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from tiny_checkpoints import EOS, PAD, compute, load, random_ids
from transformers import PreTrainedModel

from stages.engines.transformers import TransformersSampler
from stages.loops import rl
from stages.loops.epochs import endless_batches
from stages.loops.method import GroupRlConfig, Method, PpoConfig, Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.state import State
from stages.loops.work import Step
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.rewards.completion_rewards import CompletionRewards
from stages.sampler import Sample

OPTIM = {
    "learning_rate": 1e-2, "warmup_share": 0.0, "schedule": "constant", "weight_decay": 0.0,
    "max_grad_norm": 1.0,
}  # fmt: skip
SIZES = {"num_steps": 1, "prompts_per_step": 4, "temperature": 0.9, "max_new_tokens": 6,
         "num_checkpoints": 0, "optim": OPTIM}  # fmt: skip


def decode(token_ids: Sequence[int]) -> str:
    return " ".join(map(str, token_ids))


def make_prompts(number: int) -> list[Prompt]:
    generator = torch.Generator().manual_seed(7)
    text = {"task": "solve", "question": "", "prompt": "", "answer": ""}
    return [
        Prompt(id=f"p{i}", prompt_ids=random_ids(generator, 2 + i % 4), **text)
        for i in range(number)
    ]


def make_demonstrations(number: int) -> list[Demonstration]:
    generator = torch.Generator().manual_seed(8)
    text = {"task": "solve", "prompt": "", "completion": ""}
    rows = []
    for i in range(number):
        prompt_ids = random_ids(generator, 2 + i % 4)
        ids = [*random_ids(generator, 1 + 3 * i % 7), EOS]
        rows.append(Demonstration(id=f"d{i}", prompt_ids=prompt_ids, completion_ids=ids, **text))
    return rows


def make_pairs(number: int, probability: float = 1.0) -> list[Preference]:
    """Chosen completions hold even tokens, rejected ones odd tokens."""
    generator, rows = torch.Generator().manual_seed(9), []
    text = {"prompt": "", "chosen": "", "rejected": "", "source": "verifier"}
    for i in range(number):
        prompt_ids = random_ids(generator, 2 + i % 4)
        drawn = [2 * (token // 2) for token in random_ids(generator, 3 + i % 3)]
        sides = [[*drawn, EOS], [*(token + 1 for token in drawn[1:]), EOS]]
        rows.append(
            Preference(
                id=f"q{i}", prompt_ids=prompt_ids, chosen_ids=sides[0], rejected_ids=sides[1],
                probability=probability, **text,
            )
        )  # fmt: skip
    return rows


def make_sampler(
    model: PreTrainedModel, ends: frozenset[int] = frozenset([EOS])
) -> TransformersSampler:
    return TransformersSampler(model=model, eos_ids=ends, pad_id=PAD, max_batch=64)


def draws(num_rows: int, num_steps: int, batch_size: int, seed: int) -> list[list[int]]:
    """The first `num_steps` batches of prompts."""
    return list(islice(endless_batches(num_rows, batch_size, seed), num_steps))


def make_rollouts(lengths: Sequence[int], groups: Sequence[int]) -> Rollouts:
    """Completions of these numbers of tokens, which do not matter."""
    samples = [
        Sample(token_ids=[2] * length, logprobs=[0.0] * length, finish_reason="stop")
        for length in lengths
    ]
    return Rollouts(
        prompts=[], groups=list(groups), numbers=[0] * len(samples), samples=samples,
        texts=[""] * len(samples),
    )  # fmt: skip


def even_share(texts: Sequence[str]) -> list[float]:
    """The trivial task: the share of a completion's tokens that are even."""
    rows = [[int(token) for token in text.split()] for text in texts]
    return [sum(token % 2 == 0 for token in row) / len(row) for row in rows]


def make_models(
    model: PreTrainedModel, settings: ComputeConfig | None = None, **changes: Any
) -> RlModels:
    """A policy to train, the initial one as the reference, and what samples from it."""
    settings = settings or compute()
    models = {
        "policy": Policy(model, settings, PAD), "sampler": make_sampler(model), "decode": decode,
    }  # fmt: skip
    if "reference" not in changes:
        models["reference"] = Policy(load("llama"), settings, PAD)
    return RlModels(**models | changes)


def make_task(
    num_prompts: int = 8,
    reward: Callable[[Rollouts], list[float] | CompletionRewards] | None = None,
) -> Task:
    """The game of even tokens, or another reward in it; right is what is even throughout."""

    def judge(batch: Rollouts) -> CompletionRewards:
        rewards = even_share(batch.texts) if reward is None else reward(batch)
        return (
            rewards if isinstance(rewards, CompletionRewards) else CompletionRewards(totals=rewards)
        )

    return Task(
        prompts=make_prompts(num_prompts),
        reward=judge,
        check_answers=lambda batch: [share == 1 for share in even_share(batch.texts)],
    )


def weights(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def make_settings(method: Method, **sizes: Any) -> Settings:
    """Four prompts a step with four completions each, of six tokens at most."""
    content = SIZES | sizes
    size = content.pop("size", 4)
    if method.advantage == "gae":
        config = PpoConfig(**{"value_optim": OPTIM} | content, samples_per_prompt=size)
    else:
        config = GroupRlConfig(**content, group_size=size)
    return Settings(config=config, method=method, seed=0)


def train(
    schedule: Iterable[Sequence[int]],
    method: Method,
    model: PreTrainedModel | None = None,
    *,
    reward: Callable[[Rollouts], Any] | None = None,
    state: State | None = None,
    sizes: Mapping[str, Any] | None = None,
    **models: Any,
) -> Iterator[Step]:
    """Steps of reinforcement learning in the game of even tokens, or with another reward."""
    settings = make_settings(method, **sizes or {})
    learner = make_models(load("llama") if model is None else model, **models)
    return rl.train(learner, make_task(8, reward), schedule, settings, state)


def pay_all_but_p0(batch: Rollouts) -> list[float]:
    """The game's reward, of which the first prompt's completions have none."""
    shares = enumerate(even_share(batch.texts))
    return [share * (batch.prompt(i).id != "p0") for i, share in shares]
