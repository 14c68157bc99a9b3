"""SFT, DPO and reinforcement learning without the pipeline: your model, texts and reward.

    rows = [{"prompt": f"1 plus {n} is", "completion": f" {1 + n}."} for n in range(9)]
    for step in library.sft(model, tokenizer, rows, num_epochs=2):
        print(step.index, step.metrics["loss/nll"])

    rows = [{"prompt": "1 plus 1 is", "chosen": " 2.", "rejected": " 2 or so."}]
    for step in library.dpo(model, tokenizer, rows, preset="dpo_low_beta"):
        print(step.index, step.metrics["margin/accuracy"])

    reward = lambda prompt, completion: float(completion.endswith("."))
    settings = {"preset": "dr_grpo", "num_steps": 2, "max_new_tokens": 16}
    for step in library.grpo(model, tokenizer, prompts, reward, **settings):
        print(step.index, step.metrics["reward/mean"])

Each trains the model in place. A killed run can be resumed, with the same result bit by bit:

    state = library.State.load("folder")
    for step in library.grpo(model, tokenizer, prompts, reward, **settings, state=state):
        state.save("folder")

In an environment (`stages/environments/environment.py`) over several turns, `prompts` are the rows
that episodes start from, and the environment computes the rewards:

    limits = EpisodeLimits(max_turns=2, max_turn_tokens=8, max_tokens=48)
    for step in library.grpo(model, tokenizer, rows, environment=Game, limits=limits, num_steps=2):
        print(step.index, step.metrics["episode/success"])

Needs neither DVC nor MLflow nor Prefect. `stages.algorithms` needs only tensors.
"""

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import auto
from stages.config import AUTO, PRESETS_PATH, Params, error_messages, read_yaml
from stages.engines import transformers as engine
from stages.environments import checks
from stages.environments.environment import Environment
from stages.environments.limits import EpisodeLimits
from stages.loops import episodes, epochs, preference, ref_logprobs, rl
from stages.loops.episodes import EnvironmentRow, Player
from stages.loops.method import GroupMethod, GroupRlConfig, Method, Settings
from stages.loops.preference import KTO, PreferenceConfig, PreferencePreset
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.sft import SftConfig
from stages.loops.sft import train as train_sft
from stages.loops.state import State
from stages.loops.work import Step
from stages.models import model_tokenizer, policy, prompting, rope_limit
from stages.models.device import COMPUTE, ComputeConfig, setup
from stages.models.policy import Policy
from stages.models.turn_rendering import TurnRenderer
from stages.optim import OptimConfig
from stages.own_modules import check_arguments
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.rewards.completion_rewards import (
    CompletionRewards,
    check_finite,
    score_each,
)

PRESETS = Path(__file__).parents[1] / PRESETS_PATH
LIMITS = EpisodeLimits()


def sft(  # noqa: PLR0913
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, str]],
    *,
    num_epochs: int = 1,
    batch_size: int = 8,
    learning_rate: float = 1e-5,
    seed: int = 0,
    compute: ComputeConfig = COMPUTE,
    state: State | None = None,
) -> Iterator[Step]:
    """Supervised fine-tuning of `model`, in place; one step per optimizer step.

    The loss is the mean of -log p over the completion tokens of a step, the end token included.

    Args:
        model, tokenizer, seed, compute, state: as of `grpo`.
        rows: each with texts under `prompt`, as the model is to read it (with its chat template
            applied), and `completion`, as it is to write it; both are joined as they stand. The
            begin and end tokens of the tokenizer are added.
        num_epochs, batch_size: passes over the rows, and rows per optimizer step.
        learning_rate: constant, after a warm-up over a twentieth of the steps.

    Raises ValueError as `grpo` does, and for a row without these texts.
    """
    if num_epochs == 0:  # which the pipeline allows
        raise ValueError("num_epochs: expected a number above 0, found 0: nothing would be learned")
    sizes = {"num_epochs": num_epochs, "batch_size": batch_size}
    config = configure(SftConfig, **sizes, optim=make_optim(learning_rate))
    inner, state = begin(model, state, "sft", compute)
    prompts, (completions,) = encode_rows(rows, ("completion",), inner, tokenizer)
    examples = [
        Demonstration(
            id=prompt.id, task="", prompt=prompt.prompt, prompt_ids=prompt.prompt_ids,
            completion=row["completion"], completion_ids=ids,
        )
        for row, prompt, ids in zip(rows, prompts, completions, strict=True)
    ]  # fmt: skip
    schedule = epochs.batches(len(rows), num_epochs, batch_size, seed)
    learner = make_policy(inner, tokenizer, compute)
    yield from train_sft(learner, examples, schedule, config, state)


def dpo(  # noqa: PLR0913
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, str]],
    *,
    preset: str = "dpo",
    num_epochs: int = 1,
    batch_size: int = 8,
    learning_rate: float = 1e-6,
    seed: int = 0,
    compute: ComputeConfig = COMPUTE,
    state: State | None = None,
) -> Iterator[Step]:
    """Train `model` in place on preference pairs, by DPO or a relative; one step per update.

    The reference is the model as it is passed: its log-probs are computed before the first step.

    Args:
        model, tokenizer, seed, compute, state: as of `grpo`.
        rows: each with texts under `prompt`, `chosen` and `rejected`; see `sft`.
        preset: an entry of presets.yaml with a loss of pairs: `train: dpo`, except `kto`.
        num_epochs, batch_size, learning_rate: see `sft`.

    Raises ValueError as `grpo` does, and for a row without these texts.
    """
    optim, sizes = make_optim(learning_rate), {"num_epochs": num_epochs, "batch_size": batch_size}
    config = configure(PreferenceConfig, **sizes, optim=optim, num_checkpoints=0)
    loss = load_loss(preset)
    inner, state = begin(model, state, f"dpo {preset}", compute)
    prompts, (chosen, rejected) = encode_rows(rows, ("chosen", "rejected"), inner, tokenizer)
    pairs = [
        Preference(
            id=prompt.id, prompt=prompt.prompt, prompt_ids=prompt.prompt_ids, chosen=row["chosen"],
            chosen_ids=chosen_ids, rejected=row["rejected"], rejected_ids=rejected_ids,
            probability=1.0, source="",
        )
        for row, prompt, chosen_ids, rejected_ids in zip(
            rows, prompts, chosen, rejected, strict=True
        )
    ]  # fmt: skip
    learner = make_policy(inner, tokenizer, compute)
    ref = ref_logprobs.compute(learner, ref_logprobs.list_pair_completions(pairs)).view(-1, 2)
    lengths = [len(pair.chosen_ids) + len(pair.rejected_ids) for pair in pairs]
    schedule = preference.make_schedule(lengths, loss, config, seed)
    yield from preference.train(learner, pairs, ref, schedule, loss, config, state)


def grpo(  # noqa: PLR0913
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str] | Sequence[EnvironmentRow],
    reward: Callable[[str, str], float] | None = None,
    *,
    environment: Callable[[], Environment] | None = None,
    limits: EpisodeLimits = LIMITS,
    preset: str = "grpo_deepseekmath",
    num_steps: int = 100,
    prompts_per_step: int = 8,
    group_size: int = 8,
    max_new_tokens: int = 256,
    learning_rate: float = 1e-6,
    seed: int = 0,
    compute: ComputeConfig = COMPUTE,
    state: State | None = None,
) -> Iterator[Step]:
    """Train `model` in place, with a frozen copy as the reference; one step per rollout batch.

    Sets torch to deterministic algorithms and one thread, for the whole process, and switches the
    model's dropout off.

    Args:
        model, tokenizer: a causal language model of transformers, its weights in float32; or a
            model of peft, of which only the adapters (such as LoRA) are trained.
        prompts: texts, as the model is to read them (with its chat template applied). The begin
            token of the tokenizer is added where it is missing. In an environment: rows that
            `Environment.start` takes, an `id` in each or in none.
        reward: prompt and completion -> what the completion is worth. None in an environment. The
            prompt is one of `prompts`, so that it can look up an answer: `answers[prompt]`.
        environment: function that makes the environment of an episode, such as its class.
        limits: of episodes in an environment.
        preset: an entry of presets.yaml with `train: grpo`.
        num_steps, prompts_per_step, group_size, max_new_tokens: see `GroupRlConfig`. In an
            environment the lengths are those of `limits`.
        learning_rate: constant, after a warm-up over a twentieth of the steps.
        seed: for the order of prompts and for sampling.
        compute: see `ComputeConfig`; `gradient_checkpointing` is true or false here.
        state: state to resume from; changed with each step. `model` is then the one of the first
            start, before any step, since a copy of it is the reference.

    Raises ValueError for weights that are not finite or not in float32, for a preset that needs
    more than a reward, and for a state that began from another model or by another method.
    """
    if environment is not None:
        max_new_tokens = limits.max_sampled_tokens()
    method = load_method(preset, max_new_tokens)
    if method.positive_nll_coef and environment is None:
        raise ValueError(
            f"positive_nll_coef of the preset {preset} is the weight of right completions, and a "
            f"function says of none that it is right: remove it"
        )
    config = configure(
        GroupRlConfig, num_steps=num_steps, prompts_per_step=prompts_per_step,
        group_size=group_size, temperature=1.0, max_new_tokens=max_new_tokens, num_checkpoints=0,
        optim=make_optim(learning_rate),
    )  # fmt: skip
    inner, state = begin(model, state, f"grpo {preset}", compute)
    task = make_task(prompts, reward, environment, limits, inner, tokenizer)
    settings = Settings(config=config, method=method, seed=seed)
    models = make_models(inner, tokenizer, compute)
    yield from rl.train(models, task, rl.make_schedule(task, settings), settings, state)


ConfigT = TypeVar("ConfigT", bound=Params)


def configure(config: type[ConfigT], **arguments: Any) -> ConfigT:
    """A configuration of these arguments; a ValueError with a line for each wrong one."""
    try:
        return config.model_validate(arguments)
    except ValidationError as error:
        raise ValueError("\n".join(error_messages(error.errors(), arguments))) from None


def make_optim(learning_rate: float) -> OptimConfig:
    """AdamW with a constant rate after a warm-up over a twentieth of the steps."""
    return configure(
        OptimConfig, learning_rate=learning_rate, warmup_share=0.05, schedule="constant",
        weight_decay=0.0, max_grad_norm=1.0,
    )  # fmt: skip


def begin(
    model: nn.Module, state: State | None, method: str, compute: ComputeConfig
) -> tuple[PreTrainedModel, State]:
    """The transformers model in `model`, and the state to resume from, or a new one.

    A ValueError for an `auto` that only the pipeline decides.
    """
    if compute.gradient_checkpointing == AUTO:
        raise ValueError(
            "compute.gradient_checkpointing: expected true or false, found auto, which the "
            "pipeline decides by a forecast of its stage: pass true or false"
        )
    inner, state = get_inner_model(model), state or State()
    check_start(inner, state, method)
    return inner, state


def make_policy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, compute: ComputeConfig
) -> Policy:
    """Policy of the model, for training."""
    prepared = policy.prepare_model(model, compute, setup(compute))
    return Policy(prepared, compute, model_tokenizer.pad_id(tokenizer))


def encode_rows(
    rows: Sequence[Mapping[str, str]],
    keys: Sequence[str],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[list[Prompt], list[list[list[int]]]]:
    """Prompts of rows, and for each key the token ids of its completions, with the end token.

    A ValueError for a row without a text under `prompt` and each of `keys`, or of more tokens than
    the model has positions.
    """
    if not rows:
        raise ValueError("expected rows to learn from, found none")
    specials = prompting.answer_special_texts(tokenizer)
    for number, row in enumerate(rows):
        texts = row if isinstance(row, Mapping) else {}
        for key in ("prompt", *keys):
            if not isinstance(text := texts.get(key), str) or (key in keys and not text.strip()):
                raise ValueError(
                    f"rows[{number}]: expected a text under each of prompt, {', '.join(keys)}, "
                    f"found {row!r:.200}"
                )
            if key in keys and (reason := prompting.find_special_token(specials, text)):
                raise ValueError(
                    f"rows[{number}]: {key}: {reason}: leave it out; the end token is added"
                )
    prompts = make_prompts([row["prompt"] for row in rows], model, tokenizer)
    end, size = model_tokenizer.end_id(tokenizer), get_vocabulary_size(model)
    completions = list[list[list[int]]]()
    for key in keys:
        written = prompting.tokenize_continuation([row[key] for row in rows], tokenizer)
        completions.append([[*ids, end] for ids in written])
        name = model.config.name_or_path or "the model"
        model_tokenizer.check_ids(completions[-1], tokenizer, size, name)
    limit = rope_limit.get_num_positions(model.config)
    for number, (prompt, *ids) in enumerate(zip(prompts, *completions, strict=True)):
        length = len(prompt.prompt_ids) + max(map(len, ids))
        if not prompt.prompt_ids:
            raise ValueError(f"rows[{number}]: expected a prompt of at least one token, found none")
        if limit is not None and length > limit:
            raise ValueError(
                f"rows[{number}]: prompt and completion take {length} tokens, the model has "
                f"{limit} positions: shorten the row, or leave it out"
            )
    return prompts, completions


def get_vocabulary_size(model: PreTrainedModel) -> int:
    """Number of token embeddings of the model."""
    return model.config.get_text_config(decoder=True).vocab_size


def check_start(model: PreTrainedModel, state: State, method: str) -> None:
    """Record the start in `state`; a ValueError if it has one of another model, function or preset.

    The reference is a copy of the model at the start; other weights would change what the KL is
    measured from. `method`: the function and preset, to which the optimizer's moments and the order
    of rows belong. A state that was saved without a digest passes.
    """
    digest, ignored = hashlib.sha256(method.encode()), tuple(_list_random_adapters(model))
    for name, value in sorted(model.state_dict().items()):
        if name.startswith(ignored):
            continue
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    if state.step and state.start not in (None, digest.hexdigest()):
        raise ValueError(
            f"state, after {state.step} steps, began from another model than the one passed, or by "
            f"another function or preset: pass the same ones as at first, the model as it was "
            f"before training, or pass no state to start anew from this model"
        )
    state.start = digest.hexdigest()


def _list_random_adapters(model: PreTrainedModel) -> Iterator[str]:
    """Prefixes of names of weights that peft draws at random when it adds an adapter.

    LoRA's B is not among them: it is zero in a new adapter, so that A changes nothing, and nonzero
    in a trained one.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer  # slow, and seldom needed

    for path, module in model.named_modules():
        if isinstance(module, BaseTunerLayer):
            for name in module.adapter_layer_names:
                if name not in ("lora_B", "lora_embedding_B"):
                    yield f"{path}.{name}."


def make_task(
    prompts: Sequence[str] | Sequence[EnvironmentRow],
    reward: Callable[[str, str], float] | None,
    environment: Callable[[], Environment] | None,
    limits: EpisodeLimits,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> Task:
    """Task from texts and a reward, or from rows and an environment; a ValueError for a mixture."""
    if (reward is None) == (environment is None):
        problem = "neither" if reward is None else "both"
        raise ValueError(f"expected a reward or an environment, found {problem}")
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    rows = [row for row in prompts if isinstance(row, Mapping)]
    if len(prompts) != len(texts if environment is None else rows):
        kinds = sorted({type(prompt).__name__ for prompt in prompts})
        raise ValueError(
            f"expected prompts that are texts, or in an environment rows (mappings), found "
            f"{', '.join(kinds)}: pass one kind; for a conversation, the text that "
            f"`tokenizer.apply_chat_template` makes, with tokenize=False"
        )
    if environment is not None:
        player = Player(factory=environment, renderer=TurnRenderer(tokenizer), limits=limits)
        starts = [{"id": str(i), **row} for i, row in enumerate(rows)]
        task = episodes.make_task(player, starts)
        checks.check_replay(environment, starts[: checks.NUM_ROWS], limits, seed=0)
        return task
    assert reward is not None
    check_arguments(reward, "reward", ("prompt", "completion"))

    def compute_rewards(batch: Rollouts) -> CompletionRewards:
        rewards = score_each(batch, lambda prompt, text: reward(prompt.question, text))
        check_finite(rewards, batch, "the reward")
        return rewards

    texts_read = make_prompts(texts, model, tokenizer)
    return Task(prompts=texts_read, reward=compute_rewards, check_answers=None)


def make_models(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, compute: ComputeConfig
) -> RlModels:
    """The model as a policy, its sampler, and a frozen copy as the reference."""
    device, reference = setup(compute), copy.deepcopy(model)
    return RlModels(
        policy=make_policy(model, tokenizer, compute),
        reference=Policy(policy.prepare_model(reference, compute, device, trained=False), compute),
        sampler=engine.make_sampler(model, tokenizer, max_batch=compute.max_batch),
        decode=model_tokenizer.make_decode(tokenizer),
    )


def get_inner_model(model: nn.Module) -> PreTrainedModel:
    """The model of transformers, or the one inside a model of peft, with adapters in its layers.

    A ValueError for any other model, and for weights that are not finite or not in float32.
    """
    inner: Any = model
    if not isinstance(model, PreTrainedModel):
        config = getattr(model, "active_peft_config", None)
        if config is None or config.is_prompt_learning:
            raise ValueError(
                f"expected a model of transformers, or one of peft with adapters in its layers "
                f"such as LoRA's, found {type(model).__name__}"
                f"{' with ' + config.peft_type.value if config else ''}. Load another."
            )
        inner = inner.get_base_model()
    if inner.dtype != torch.float32:
        raise ValueError(
            f"expected weights in float32, found {inner.dtype}: steps of a small learning rate are "
            f"lost in its rounding. Load with dtype=torch.float32 and set compute.dtype instead."
        )
    for name, parameter in inner.named_parameters():
        if not parameter.isfinite().all():
            raise ValueError(
                f"expected finite weights, found NaN or infinity in {name}: load the model again"
            )
    return inner


def make_prompts(
    texts: Sequence[str], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> list[Prompt]:
    """Prompts from texts, tokenized as in the pipeline; `question` is the user's text."""
    start = prompting.get_text_start(tokenizer)
    starting = [text if text.startswith(start) else start + text for text in texts]
    token_ids, name = prompting.tokenize(starting, tokenizer), model.config.name_or_path
    size = get_vocabulary_size(model)
    model_tokenizer.check_ids(token_ids, tokenizer, size, name or "the model")
    return [
        Prompt(id=str(i), task="", question=text, prompt=prompt, prompt_ids=ids, answer=None)
        for i, (text, prompt, ids) in enumerate(zip(texts, starting, token_ids, strict=True))
    ]


def load_method(preset: str, max_new_tokens: int) -> Method:
    """An entry of presets.yaml that learns from one reward per completion; else a ValueError.

    Lengths that are `auto` follow from `max_new_tokens`, as in the pipeline.
    """
    params = {"model": {"path": "the user's"}, "grpo": {"max_new_tokens": max_new_tokens}}
    content = {"presets": {preset: read_yaml(PRESETS).get(preset)}}
    entry = auto.resolve(content, auto.UNMEASURED, params, strict=False)[0]["presets"][preset]
    with suppress(ValidationError):
        method: Method = TypeAdapter(GroupMethod).validate_python(entry)
        if method.advantage not in ("step_zscore", "teacher"):
            return method.for_engine("transformers")
    raise ValueError(
        f"expected a preset of GRPO that learns from one reward per completion, such as "
        f"dr_grpo, found '{preset}': pass one of those that stages/README.md lists"
    )


def load_loss(preset: str) -> PreferencePreset:
    """An entry of presets.yaml with a loss of preference pairs; else a ValueError."""
    with suppress(ValidationError):
        loss = PreferencePreset.model_validate(read_yaml(PRESETS).get(preset))
        if loss.kind != KTO:
            return loss
    raise ValueError(
        f"expected a preset of DPO with a loss of pairs, such as simpo, found "
        f"'{preset}': pass one of those that stages/README.md lists"
    )
