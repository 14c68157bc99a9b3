"""The embedded model comes near GRPO's policy by the forward KL on that policy's completions."""

import presets
import pytest
from learning.conftest import DATA, MAX_NEW_TOKENS, SEED, Embedded, gain

from stages.engines import transformers as engine
from stages.loops import epochs, rollout_rewards, rollouts, sft
from stages.loops.rollouts import RolloutConfig
from stages.loops.sft import SftConfig, SftPreset, Teacher
from stages.models import model_tokenizer, policy
from stages.models.policy import Policy
from stages.records.problems import Demonstration

pytestmark = [pytest.mark.learning, pytest.mark.rotating]
TEACHER = DATA / f"policies/grpo/model/{SEED}"
NUM_PROMPTS, NUM_SAMPLES = 320, 4
OPTIM = {"learning_rate": 1e-3, "warmup_share": 0.05, "schedule": "cosine", "weight_decay": 0.01,
         "max_grad_norm": 1.0}  # fmt: skip
SIZES = SftConfig(num_epochs=1, batch_size=8, optim=OPTIM)


@pytest.fixture(scope="module")
def teacher(embedded: Embedded) -> Policy:
    model = policy.load_policy(TEACHER, embedded.compute, embedded.load().device, trained=False)
    return Policy(model, embedded.compute, model_tokenizer.pad_id(embedded.tokenizer))


def draw(embedded: Embedded, teacher: Policy) -> list[Demonstration]:
    """The teacher's completions of train prompts, right or wrong."""
    drawn = rollouts.sample_rollouts(
        engine.make_sampler(teacher.model, embedded.tokenizer, max_batch=1024),
        model_tokenizer.make_decode(embedded.tokenizer),
        embedded.train[:NUM_PROMPTS],
        step=0,
        seed=7,
        group_size=NUM_SAMPLES,
        config=RolloutConfig(temperature=1.0, max_new_tokens=MAX_NEW_TOKENS),
    )
    return [
        Demonstration(
            id=f"{i}", task="solve", prompt="", prompt_ids=drawn.prompt(i).prompt_ids,
            completion="", completion_ids=sample.token_ids,
        )
        for i, sample in enumerate(drawn.samples)
    ]  # fmt: skip


def test_forward_kl(embedded, teacher):
    preset = SftPreset.model_validate(presets.CONTENT["forward_kl"])
    rows, model = draw(embedded, teacher), embedded.load()
    start = rollout_rewards.check_answers(embedded.draw(model))
    settings = preset.override(SIZES)
    schedule = epochs.batches(len(rows), settings.num_epochs, settings.batch_size, 1)
    student, taught = Policy(model, embedded.compute, teacher.pad_id), preset.teacher
    assert taught is not None
    steps = sft.train(
        student, rows, schedule, settings, teacher=Teacher(policy=teacher, loss=taught)
    )
    divergences = [step.metrics["loss/forward_kl"] for step in steps]
    result = gain(rollout_rewards.check_answers(embedded.draw(model)), start)
    first, last = (sum(part) / 20 for part in (divergences[:20], divergences[-20:]))
    print(f"\nforward_kl: KL from the teacher {first:.3f} to {last:.3f} in {len(divergences)} "
          f"steps, accuracy {result[0]:+.3f} [{result[1]:+.3f}, {result[2]:+.3f}]")  # fmt: skip
    assert last < first
    assert result[1] > 0
