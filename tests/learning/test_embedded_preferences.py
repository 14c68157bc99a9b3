"""Every preference loss makes the embedded model better at problems it has not seen."""

import presets
import pytest
from learning.conftest import PAIRS, Embedded, gain

from stages.loops import epochs, kto, preference, ref_logprobs, rollout_rewards
from stages.loops.preference import KTO, PreferenceConfig
from stages.models import model_tokenizer
from stages.models.policy import Policy
from stages.records import lines
from stages.records.preferences import Preference

pytestmark = [pytest.mark.learning, pytest.mark.rotating]
NUM_STEPS, BATCH_SIZE = 80, 32
OPTIM = {"learning_rate": 1e-4, "warmup_share": 0.1, "schedule": "cosine", "weight_decay": 0.0,
         "max_grad_norm": 1.0}  # fmt: skip
CONFIG = PreferenceConfig(num_epochs=1, batch_size=BATCH_SIZE, num_checkpoints=0, optim=OPTIM)


@pytest.fixture(scope="module")
def pairs(embedded: Embedded) -> list[Preference]:
    return list(lines.read_lines(PAIRS, Preference))


@pytest.fixture(scope="module")
def start(embedded: Embedded):
    return rollout_rewards.check_answers(embedded.draw(embedded.load()))


@pytest.mark.parametrize("name", presets.PREFERENCE)
def test_preference_loss(name, embedded, pairs, start):
    loss = presets.loss(name)
    model, compute = embedded.load(), embedded.compute
    pad_id = model_tokenizer.pad_id(embedded.tokenizer)
    if loss.kind == KTO:
        rows = kto.make_unpaired_examples(pairs)
        schedule = epochs.batches(len(rows), 1, BATCH_SIZE, 1)[:NUM_STEPS]
        ref = kto.compute_reference(Policy(model, compute, pad_id), rows, schedule)
        steps = kto.train(Policy(model, compute, pad_id), rows, ref, schedule, loss, CONFIG)
    else:
        schedule = epochs.batches(len(pairs), 1, BATCH_SIZE, 1)[:NUM_STEPS]
        wanted = ref_logprobs.list_pair_completions(pairs)
        ref = ref_logprobs.compute(Policy(model, compute, pad_id), wanted).view(-1, 2)
        steps = preference.train(Policy(model, compute, pad_id), pairs, ref, schedule, loss, CONFIG)
    history = [step.metrics for step in steps]
    result = gain(rollout_rewards.check_answers(embedded.draw(model)), start)
    print(f"\n{name}: accuracy {result[0]:+.3f} [{result[1]:+.3f}, {result[2]:+.3f}], margin "
          f"accuracy {history[-1]['margin/accuracy']:.2f}, log-ratios "
          f"{history[-1].get('log_ratios/chosen', 0):+.2f} "
          f"{history[-1].get('log_ratios/rejected', 0):+.2f}")  # fmt: skip
    assert result[1] > 0
