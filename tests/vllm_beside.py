"""A run of GRPO whose sampler is vLLM, with `staleness`: a process of its own, that can be killed.

    python tests/vllm_beside.py <folder of the run> <checkpoint> <rank of LoRA>

It goes on from the state in its folder. Each step is a line, and so are the weights in the end.
"""

import hashlib
import json
import sys
from pathlib import Path

import presets
import torch
from tiny_checkpoints import CPU, EOS, compute
from tiny_rollouts import OPTIM, decode, even_share, weights

from stages.engines.vllm_policy import PolicySampler
from stages.loops import rl, rollouts
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.rollouts import RlModels, Task
from stages.loops.state import State
from stages.models import device, policy, row_policy
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig
from stages.records.lines import to_json_line
from stages.records.problems import Prompt
from stages.rewards.completion_rewards import CompletionRewards

NUM_STEPS, STALENESS = 5, 2
SIZES = {"num_steps": NUM_STEPS, "prompts_per_step": 4, "group_size": 4, "temperature": 1.0,
         "max_new_tokens": 6, "num_checkpoints": 0, "optim": OPTIM}  # fmt: skip
SHARED = [1 + n % 90 for n in range(140)]
"""What prompts begin with: more than a block of vLLM's cache, of which they take it then."""
PROMPTS = [
    Prompt(id=f"p{n}", task="solve", question="", prompt="", prompt_ids=[*SHARED, 2 + n], answer="")
    for n in range(8)
]


def main(folder: Path, checkpoint: Path, rank: int) -> None:
    """Run it, or the rest of it."""
    rollouts.MAX_TRUNCATED_STEPS = 100
    numerics = compute(row_tokens=0)
    device.setup(numerics)
    model = policy.load_policy(checkpoint, numerics, CPU)
    without_adapters = row_policy.add_adapters(model, LoraConfig(rank=rank, alpha=16), 0)
    sampler = PolicySampler(
        policy=model, source=(checkpoint, None), compute=numerics, max_length=160, num_trained=1
    )
    reference = Policy(policy.load_policy(checkpoint, numerics, CPU, trained=False), numerics, EOS)
    models = RlModels(
        policy=Policy(model, numerics, EOS, without_adapters),
        reference=reference, sampler=sampler, decode=decode,
    )  # fmt: skip
    task = Task(
        prompts=PROMPTS,
        reward=lambda batch: CompletionRewards(totals=even_share(batch.texts)),
        check_answers=None,
    )
    method = presets.method(staleness=STALENESS)
    settings = Settings(config=GroupRlConfig(**SIZES), method=method, seed=0)
    state = State.load(folder / "state") if (folder / "state").exists() else State()
    for step in rl.train(models, task, rl.make_schedule(task, settings), settings, state):
        state.save(folder / "state")
        metrics = {name: float(value).hex() for name, value in step.metrics.items()}
        print(json.dumps([step.index, metrics, [*map(to_json_line, step.rows)]]), flush=True)
    print(json.dumps(hashlib.sha256(weights(model).numpy().tobytes()).hexdigest()), flush=True)
    sampler.close()


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
