"""Every preference loss makes the embedded model better at problems it has not seen."""

from dataclasses import dataclass

import presets
import pytest
from learning.conftest import DATA, Embedded, gain
from pydantic import TypeAdapter
from stages.loops.choices.preference_loss import KtoLoss, PreferenceLoss
from stages.loops.judged_rows import judged_rows
from stages.records.ref_logprob import RefLogprob

from stages.loops import epochs, kto, preference, stored_logprobs
from stages.loops.preference import PreferenceConfig
from stages.models import model_tokenizer
from stages.records import lines
from stages.records.preferences import Preference
from stages.rewards import judged

pytestmark = pytest.mark.learning
NUM_STEPS, BATCH_SIZE = 40, 32
OPTIM = {"learning_rate": 1e-4, "warmup_share": 0.1, "schedule": "cosine", "weight_decay": 0.0,
         "max_grad_norm": 1.0}  # fmt: skip
CONFIG = PreferenceConfig(num_epochs=1, batch_size=BATCH_SIZE, optim=OPTIM)


@dataclass
class Learner:
    """The labelled pairs and what the reference thought of them."""

    pairs: list[Preference]
    stored: list[RefLogprob]


@pytest.fixture(scope="module")
def labelled(embedded: Embedded) -> Learner:
    pairs = lines.read(DATA / "label_preferences/sft/train.jsonl", Preference)
    stored = lines.read(DATA / "compute_ref_logprobs/sft/ref_logprobs.jsonl", RefLogprob)
    return Learner(list(pairs), list(stored))


@pytest.fixture(scope="module")
def start(embedded: Embedded):
    return judged.correct(embedded.draw(embedded.load()))


@pytest.mark.parametrize("name", presets.CONTENT["preference"])
def test_preference_loss(name, embedded, labelled, start):
    loss = TypeAdapter(PreferenceLoss).validate_python(presets.CONTENT["preference"][name])
    model, compute = embedded.load(), embedded.compute
    pad_id = model_tokenizer.pad_id(embedded.tokenizer)
    pairs, stored = labelled.pairs, labelled.stored
    if isinstance(loss, KtoLoss):
        rows = judged_rows(pairs)
        schedule = epochs.batches(len(rows), 1, BATCH_SIZE, 1)[:NUM_STEPS]
        ref = kto.reference(model, rows, stored, schedule, compute, pad_id)
        steps = kto.train(model, rows, ref, schedule, loss, CONFIG, compute, pad_id)
    else:
        schedule = epochs.batches(len(pairs), 1, BATCH_SIZE, 1)[:NUM_STEPS]
        ref = stored_logprobs.of_pairs(pairs, stored)
        steps = preference.train(model, pairs, ref, schedule, loss, CONFIG, compute, pad_id)
    history = [step.metrics for step in steps]
    found = gain(judged.correct(embedded.draw(model)), start)
    print(f"\n{name}: accuracy {found[0]:+.3f} [{found[1]:+.3f}, {found[2]:+.3f}], margin "
          f"accuracy {history[-1]['margin/accuracy']:.2f}, log-ratios "
          f"{history[-1].get('log_ratios/chosen', 0):+.2f} "
          f"{history[-1].get('log_ratios/rejected', 0):+.2f}")  # fmt: skip
    assert found[1] > 0
