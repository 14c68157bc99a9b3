"""The most that a training step of each loop holds, in live tensor bytes, on any shape."""

import gc
from collections.abc import Iterator

import presets
import torch
from live_memory import LiveMemory
from tiny_checkpoints import CPU, EOS, PAD, compute
from tiny_rollouts import OPTIM, decode
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from stages.algorithms.ensemble import mean
from stages.algorithms.memory.prediction import (
    Decoding,
    Job,
    MicroBatch,
    Precision,
    Prediction,
    predict,
)
from stages.algorithms.memory.shape import Shape, residents
from stages.engines.transformers import TransformersSampler
from stages.loops import group_rl, ppo, preference, reward, sft
from stages.loops.group_rl import GroupRlConfig
from stages.loops.ppo import PpoConfig
from stages.loops.preference import PreferenceConfig
from stages.loops.reward import RewardConfig
from stages.loops.rl_run import of_model
from stages.loops.rollouts import Actor, Task
from stages.loops.sft import SftConfig
from stages.loops.work import Step
from stages.models import policy
from stages.models import start as models_start
from stages.models.device import ComputeConfig
from stages.models.scalar_head import Ensemble
from stages.models.start import LoraConfig
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.rewards.judged import Judged

EMBEDDED = Shape(
    hidden=192, layers=2, heads=6, kv_heads=6, head_dim=32, intermediate=512, vocab=900, tied=True
)
"""The model of `params.yaml`."""
BIGGER = Shape(
    hidden=512, layers=8, heads=8, kv_heads=4, head_dim=64, intermediate=1408, vocab=4000, tied=True
)
PROMPT, COMPLETION, SAMPLES = 40, 24, 4
SHARED = PROMPT + SAMPLES * COMPLETION


def build(shape: Shape, head: str, settings: ComputeConfig, rank: int) -> torch.nn.Module:
    torch.manual_seed(0)
    kind = LlamaForCausalLM if head == "language_model" else LlamaForSequenceClassification
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=256,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
        num_labels=1,
    )
    model = policy.prepare(kind._from_config(config, attn_implementation="sdpa"), settings, CPU)
    models_start.attach(model, LoraConfig(rank=max(rank, 0), alpha=16), 0)
    return model


def completion(number: int) -> list[int]:
    return [*(2 + (number + i) % 30 for i in range(COMPLETION - 1)), EOS]


def prompt(number: int) -> list[int]:
    return [2 + (7 * number + i) % 30 for i in range(PROMPT)]


def demonstrations(number: int) -> list[Demonstration]:
    return [
        Demonstration(
            id=str(i), task="solve", prompt="", prompt_ids=prompt(i), completion="",
            completion_ids=completion(i),
        )
        for i in range(number)
    ]  # fmt: skip


def pairs(number: int) -> list[Preference]:
    return [
        Preference(
            id=str(i), prompt="", prompt_ids=prompt(i), chosen="", chosen_ids=completion(i),
            rejected="", rejected_ids=completion(i + 1), probability=1.0, source="verifier",
        )
        for i in range(number)
    ]  # fmt: skip


def prompts(number: int) -> list[Prompt]:
    return [
        Prompt(id=str(i), task="solve", question="", prompt="", prompt_ids=prompt(i), answer="")
        for i in range(number)
    ]


class Measured:
    """A loop on fresh models, its memory watched; `predicted` is what the planner says of it."""

    def __init__(
        self,
        method: str,
        shape: Shape,
        *,
        rank: int = 0,
        rows: int = 8,
        preset: dict[str, object] | None = None,
        **changes: object,
    ) -> None:
        self.preset = preset or {}
        self.settings = compute(row_tokens=256, max_batch=64, **changes)
        self.method, self.shape, self.rank = method, shape, rank
        scorer = "reward_model" if method == "ppo" else "none"
        self.residents = residents(method, scorer=scorer)
        self.models = {
            one.role: build(shape, one.head, self.settings, rank if one.trained else 0)
            for one in self.residents
        }
        # Two micro-batches of `rows` rows in an optimizer step.
        self.rows = rows
        per_row = {"sft": 1, "dpo": 2, "reward_model": 2}.get(method, SAMPLES)
        self.row = PROMPT + per_row * COMPLETION
        self.settings = self.settings.model_copy(update={"max_tokens": rows * self.row})
        self.batch = MicroBatch(
            positions=rows * self.row,
            row=self.row,
            outputs=rows * (per_row * COMPLETION if method != "reward_model" else per_row),
            shared=per_row > 1,
        )

    def predicted(self) -> Prediction:
        online = self.method in ("ppo", "grpo")
        return predict(
            Job(
                shape=self.shape,
                residents=self.residents,
                batch=self.batch,
                how=Precision(
                    width=2 if self.settings.dtype == "bfloat16" else 4,
                    checkpointing=self.settings.gradient_checkpointing,
                    rank=self.rank,
                ),
                decoding=Decoding(
                    rows=2 * self.rows * SAMPLES, samples=SAMPLES, prompt=PROMPT, new=COMPLETION
                )
                if online
                else None,
            )
        )

    def peak(self) -> int:
        """Of the second optimizer step, when moments exist."""
        gc.collect()
        held = [t for m in self.models.values() for t in (*m.parameters(), *m.buffers())]
        low = self.settings.dtype == "bfloat16"
        with (
            torch.autocast("cpu", torch.bfloat16, enabled=low, cache_enabled=False),
            LiveMemory(held) as live,
        ):
            steps = self.steps()
            next(steps)
            gc.collect()
            live.peak = live.live
            self.between = live.live
            next(steps)
        return live.peak

    def steps(self) -> Iterator[Step]:
        number, settings = 2 * self.rows, self.settings
        schedule = [list(range(number))] * 2
        common = {"num_epochs": 1, "batch_size": number, "optim": OPTIM}
        model = self.models.get("policy", self.models.get("reward"))
        match self.method:
            case "sft":
                config = SftConfig(**common)
                return sft.train(model, demonstrations(number), schedule, config, settings, PAD)
            case "dpo":
                loss = presets.loss("dpo")
                reference = torch.full((number, 2), -50.0)
                config = PreferenceConfig(**common, num_checkpoints=0)
                return preference.train(
                    model, pairs(number), reference, schedule, loss, config, settings, PAD
                )
            case "reward_model":
                config = RewardConfig(**common, centring=0.01, margin=0.0)
                return reward.train(model, pairs(number), schedule, config, settings, PAD)
            case _:
                return self.online(schedule)

    def online(self, schedule: list[list[int]]) -> Iterator[Step]:
        model, settings = self.models["policy"], self.settings
        actor = Actor(
            policy=model,
            reference=self.models["reference"],
            # No token ends a completion: all are as long as they may be.
            sampler=TransformersSampler(
                model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=2 * self.rows * SAMPLES
            ),
            decode=decode,
            pad_id=PAD,
            compute=settings,
        )
        sizes = {
            "num_steps": 2, "prompts_per_step": 2 * self.rows, "temperature": 1.0,
            "max_new_tokens": COMPLETION, "num_checkpoints": 0, "optim": OPTIM,
        }  # fmt: skip
        if self.method == "grpo":

            def lengths(drawn: object) -> Judged:
                return Judged(totals=[float(sum(s.token_ids) % 7) for s in drawn.samples])

            task = Task(prompts=prompts(2 * self.rows), reward=lengths, correct=None)
            config = GroupRlConfig(**sizes, group_size=SAMPLES)
            chosen = presets.group_rl("grpo_deepseekmath", **self.preset)
            return group_rl.train(actor, task, schedule, config, chosen, 0)
        scorer = Ensemble(members=[self.models["scorer"]], aggregate=mean)
        task = Task(
            prompts=prompts(2 * self.rows),
            reward=lambda drawn: of_model(scorer, drawn, settings, PAD),
            correct=None,
        )
        config = PpoConfig(**sizes, samples_per_prompt=SAMPLES, value_optim=OPTIM)
        chosen = presets.ppo("ppo_instructgpt", **{"num_minibatches": 1} | self.preset)
        return ppo.train(actor, self.models["value"], task, schedule, config, chosen, 0)
