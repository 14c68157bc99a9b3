"""The gradient of a whole optimizer step of every loop and preset, and what it logs, written out.

A row at a time by transformers' own logits: no batch, no mask, no shared prompt. Of reinforcement
learning two optimizer steps of one rollout batch: the first, and one after the weights have moved,
while another policy than the old one has sampled. A new preset is a case without a line here.
"""

import importlib
import math
import pkgutil
from dataclasses import dataclass
from typing import get_args

import every_loop
import presets
import pytest
import rl_by_hand
import torch
from every_loop import FORWARD_KL, KIND, NUM_ROWS, PAIRS, RL, STEP_ID, Setup
from pairs_by_hand import pair_loss
from rl_by_hand import CHOICES, Completion, Rewarded
from tiny_checkpoints import EOS, plain_logprobs
from tiny_rollouts import decode, even_share, make_demonstrations, make_pairs, make_prompts
from torch.nn.functional import logsigmoid

from stages import loops
from stages.loops import kto, rollouts
from stages.loops.method import HYPERPARAMETERS, OWN, Method
from stages.loops.state import State

TEMPERATURE, LIMIT = every_loop.SIZES["temperature"], every_loop.SIZES["max_new_tokens"]
# The checks of types within our code pick the items of a list at random.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")


@pytest.fixture(autouse=True)
def _any_gap(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_LOGPROB_GAP", 100.0)


TRAINS = {
    "kto.train", "preference.train", "process_reward.train", "reward.train",
    "reward.train_outcomes", "rl.train", "sft.train",
}  # fmt: skip
"""What `every_loop.START` calls."""


def test_every_function_that_trains_every_kind_of_loss_and_every_loop_has_a_case():
    names = [module.name for module in pkgutil.iter_modules(loops.__path__)]
    modules = {name: importlib.import_module(f"stages.loops.{name}") for name in names}
    functions = [
        f"{name}.{key}"
        for name, module in modules.items()
        for key, value in vars(module).items()
        if key.startswith("train") and getattr(value, "__module__", None) == module.__name__
    ]
    assert set(functions) == TRAINS, "add a loop to every_loop.START and ROLES, and here"
    assert set(KIND.values()) == set(every_loop.START) == set(every_loop.ROLES)
    assert {KIND[name] for name in every_loop.ONE_EACH} == set(every_loop.START)
    assert {presets.loss(name).kind for name in presets.PREFERENCE} == presets.LOSSES


# --- Loops over rows: the loss, and what is logged


def log_prob(model, prompt, ids):
    return plain_logprobs(model, list(prompt), list(ids))


def mean(values):
    return sum(values) / len(values)


def sft_loss(models, _):
    rows = make_demonstrations(NUM_ROWS)
    loss = -torch.cat(
        [log_prob(models["policy"], row.prompt_ids, row.completion_ids) for row in rows]
    ).mean()
    return loss, {"loss/nll": loss}


def forward_kl_loss(models, name):
    terms, teacher = [], FORWARD_KL[name]
    for row in make_demonstrations(NUM_ROWS):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        q, p = (
            (models[role](ids).logits[0, len(row.prompt_ids) - 1 : -1] / teacher.temperature)
            for role in ("policy", "teacher")
        )
        p = p.detach().log_softmax(-1)
        terms.append((p.exp() * (p - q.log_softmax(-1))).sum(-1))
    likelihood, _ = sft_loss(models, name)
    divergence = torch.cat(terms).mean()
    loss = divergence + teacher.likelihood_coef * likelihood
    return loss, {"loss/forward_kl": divergence, "loss/nll": likelihood}


def preference_loss(models, name):
    preset, losses, margins, logs = presets.loss(name), [], [], []
    for pair in PAIRS:
        sides = [pair.chosen_ids, pair.rejected_ids]
        lengths = [len(ids) for ids in sides]
        new, ref = (
            [log_prob(models[role], pair.prompt_ids, ids).sum() for ids in sides]
            for role in ("policy", "reference")
        )
        ref = [x.detach() for x in ref]
        loss, margin = pair_loss(preset.kind, preset, *new, ref, lengths)
        turned, _ = pair_loss(preset.kind, preset, *new[::-1], ref[::-1], lengths[::-1])
        losses.append(pair.probability * loss + (1 - pair.probability) * turned)
        margins.append(margin)
        logs.append([*new, new[0] - ref[0], new[1] - ref[1]])
    names = ("logprobs/chosen", "logprobs/rejected", "log_ratios/chosen", "log_ratios/rejected")
    metrics = {metric: mean([row[i] for row in logs]) for i, metric in enumerate(names)}
    metrics |= {"margin/mean": mean(margins), "margin/accuracy": mean([m > 0 for m in margins])}
    lengths = [len(pair.chosen_ids) + len(pair.rejected_ids) for pair in PAIRS]
    return mean(losses), {
        **metrics,
        "loss/preference": mean(losses),
        "tokens/trained": sum(lengths),
    }


def kto_loss(models, name):
    rows, preset = kto.make_unpaired_examples(make_pairs(NUM_ROWS // 2)), presets.loss(name)

    def log_ratio(row, other):
        new, ref = (
            log_prob(models[role], row.prompt_ids, other.completion_ids).sum()
            for role in ("policy", "reference")
        )
        return new - ref.detach()

    neighbours = zip(rows, [*rows[1:], rows[0]], strict=True)
    point = mean([log_ratio(a, b).detach() for a, b in neighbours if a.id != b.id]).clamp(min=0)
    losses, right, sides = [], [], {True: [], False: []}
    for row in rows:
        ratio = log_ratio(row, row)
        sign = 1 if row.desirable else -1
        weight = preset.desirable_weight if row.desirable else preset.undesirable_weight
        losses.append(weight * (1 - torch.sigmoid(sign * preset.beta * (ratio - point))))
        right.append((ratio > point) == row.desirable)
        sides[row.desirable].append(ratio)
    return mean(losses), {
        "kl/reference_point": point, "margin/accuracy": mean(right),
        "loss/preference": mean(losses), "log_ratios/chosen": mean(sides[True]),
        "log_ratios/rejected": mean(sides[False]),
    }  # fmt: skip


def score(model, prompt, ids):
    hidden = model.base_model(torch.tensor([[*prompt, *ids]])).last_hidden_state
    return model.score(hidden)[0, -1, 0]


def cross_entropy(logit, label):
    return -label * logsigmoid(logit) - (1 - label) * logsigmoid(-logit)


def reward_loss(models, _):
    losses, gaps = [], []
    for pair in PAIRS:
        chosen, rejected = (
            score(models["reward"], pair.prompt_ids, ids)
            for ids in (pair.chosen_ids, pair.rejected_ids)
        )
        gap = chosen - rejected
        p = pair.probability
        loss = cross_entropy(gap - every_loop.MARGIN * (2 * p - 1), p)
        losses.append(loss + every_loop.CENTRING * (chosen + rejected) ** 2)
        sign = (p > 0.5) - (p < 0.5)
        gaps.append(sign * gap)
    return mean(losses), {
        "loss/bradley_terry": mean(losses), "pairs/margin": mean(gaps),
        "pairs/accuracy": mean([gap > 0 for gap in gaps]),
    }  # fmt: skip


def outcome_loss(models, _):
    loss, right, probability, total = 0.0, 0.0, 0.0, 0.0
    for row in (row for rows in every_loop.make_problems() for row in rows):
        logit = score(models["reward"], row.prompt_ids, row.completion_ids)
        loss = loss + row.weight * cross_entropy(logit, float(row.right)) / NUM_ROWS
        right += row.weight * float((logit > 0) == row.right)
        probability, total = probability + row.weight * logit.sigmoid(), total + row.weight
    return loss, {
        "loss/outcome": loss, "outcomes/accuracy": right / total,
        "outcomes/probability": probability / total,
    }  # fmt: skip


def process_loss(models, _):
    losses, right = [], []
    for row in every_loop.make_solutions():
        ids = list(row.prompt_ids)
        for step, label in zip(row.step_ids, row.labels, strict=True):
            ids += [*step, STEP_ID]
            if label is not None:
                bad, good = models["process"](torch.tensor([ids])).logits[0, -1].log_softmax(-1)
                losses.append(-label * good - (1 - label) * bad)
                right.append((good >= bad) == (label >= 0.5))
    return mean(losses), {
        "loss/step_labels": mean(losses), "steps/accuracy": mean(right),
        "steps/labelled": len(losses),
    }  # fmt: skip


LOSSES = {
    "sft": sft_loss, "forward_kl": forward_kl_loss, "preference": preference_loss, "kto": kto_loss,
    "reward": reward_loss, "outcome": outcome_loss, "process": process_loss,
}  # fmt: skip


def differentiate(loss, models):
    """Gradient of a loss by the weights that are trained, in the order of `Setup.trained`."""
    trained = [m for role, m in models.items() if role not in every_loop.FROZEN]
    parameters = [p for model in trained for p in model.parameters()]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = zip(parameters, gradients, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])


def assert_logged(metrics, expected, tolerance):
    for name, value in expected.items():
        number = float(torch.as_tensor(value).detach())
        assert metrics[name] == pytest.approx(number, rel=tolerance, abs=tolerance), name


@pytest.mark.parametrize("name", [name for name in KIND if name not in RL])
def test_the_gradient_of_a_step_over_rows_is_that_of_its_definition(name):
    setup = Setup(name, is_exact=True)
    step, (update,) = setup.take_updates()
    with every_loop.default_dtype(torch.float64):
        loss, metrics = LOSSES[KIND[name]](setup.models, name)
        expected = differentiate(loss, setup.models)
    assert expected.any()
    assert (update.gradient - expected).abs().max() <= 1e-9 * expected.abs().max()
    assert_logged(step.metrics, metrics, 1e-6)


# --- Reinforcement learning


@dataclass
class Reader:
    """What models say of a completion or episode: at each token that the policy sampled."""

    prompt: list[int]
    ids: list[int]
    places: list[int]
    """Of the sampled tokens in `ids`, those of an environment between them aside."""

    def logits(self, model, prompt=None):
        prompt = self.prompt if prompt is None else prompt
        logits = model(torch.tensor([[*prompt, *self.ids]])).logits[0] / TEMPERATURE
        return logits[[len(prompt) + place - 1 for place in self.places]].log_softmax(-1)

    def log_probs(self, model, prompt=None):
        tokens = torch.tensor([self.ids[place] for place in self.places])
        return self.logits(model, prompt).gather(-1, tokens[:, None])[:, 0]

    def entropies(self, model):
        logs = self.logits(model)
        return -(logs.exp() * logs).sum(-1)

    def values(self, model):
        hidden = model.base_model(torch.tensor([[*self.prompt, *self.ids]])).last_hidden_state
        return model.score(hidden)[0, [len(self.prompt) + p - 1 for p in self.places], 0]


def read(row, prompts):
    if row.episode is None:
        return Reader(prompts[row.id], row.completion_ids, [*range(len(row.completion_ids))])
    spans = row.episode["sampled"]
    places = [place for span in spans for place in range(*span)]
    return Reader(row.episode["prompt_ids"], row.episode["token_ids"], places)


@torch.no_grad()
def greedy_reward(model, prompt):
    ids = []
    while len(ids) < LIMIT and EOS not in ids:
        ids.append(int(model(torch.tensor([[*prompt, *ids]])).logits[0, -1].argmax()))
    return math.exp(even_share([decode(ids)])[0])


def reward_by_hand(row, reader, setup, greedy):
    """The game's reward: even tokens, and in some methods each token; of episodes, each turn's."""
    method = setup.method
    tokens = [reader.ids[place] for place in reader.places]
    steps = {}
    if row.episode is not None:
        *earlier, total = row.episode["rewards"]
        lengths = [end - start for start, end in row.episode["sampled"]]
        for turn, paid in enumerate(earlier):
            steps[sum(lengths[: turn + 1]) - 1] = paid
    else:
        total = math.exp(even_share([decode(tokens)])[0])
        if every_loop.has_step_rewards(method):
            steps = {i: float(torch.tensor(float(t)).sin()) for i, t in enumerate(tokens)}
    if method.overlong_buffer is not None:
        over = len(tokens) - (LIMIT - method.overlong_buffer)
        total -= method.overlong_penalty * min(1.0, max(0.0, over / method.overlong_buffer))
    return Rewarded(row.id, total, [], steps, greedy=greedy.get(row.id, 0.0))


class ByHand:
    """Experience and updates of a step of reinforcement learning."""

    def __init__(self, setup, rows, first, coefs):
        """`first`: the models before the first update; `coefs`: weights of both divergences."""
        method = setup.method
        sampled = setup.sampled if setup.drift else first["policy"]
        self.setup, self.method, self.rows, self.coefs = setup, method, rows, coefs
        prompts = {prompt.id: prompt.prompt_ids for prompt in make_prompts(NUM_ROWS)}
        self.readers = [read(row, prompts) for row in rows]
        other = first.get("reference", first.get("teacher"))

        def shown(row):
            ids = prompts[row.id]
            return [*ids, EOS, *ids] if method.teacher_reads_solution else None

        with torch.no_grad():
            self.sampler = [r.log_probs(sampled).tolist() for r in self.readers]
            self.old = [r.log_probs(first["policy"]).tolist() for r in self.readers]
            self.other = [
                reader.log_probs(other, shown(row)).tolist()
                for row, reader in zip(rows, self.readers, strict=True)
            ]
            self.values = [
                reader.values(first["value"]).tolist() if "value" in first else []
                for reader in self.readers
            ]
        cut = [row.finish_reason == "length" for row in rows]
        self.in_loss = [not (is_cut and method.truncation != "penalise") for is_cut in cut]
        in_baseline = self.in_loss if method.truncation == "exclude" else [True] * len(rows)
        greedy = {}
        if method.advantage == "greedy_baseline":
            greedy = {row.id: greedy_reward(sampled, prompts[row.id]) for row in rows}
        self.rewarded = []
        for i, (row, reader) in enumerate(zip(rows, self.readers, strict=True)):
            rewarded = reward_by_hand(row, reader, setup, greedy)
            gaps = [a - b for a, b in zip(self.sampler[i], self.other[i], strict=True)]
            coef = coefs[0] if method.kl == "reward" else 0.0
            estimates = [rl_by_hand.k(method.kl_estimator, torch.tensor(gap)) for gap in gaps]
            rewarded.penalties = [coef * float(x) for x in estimates]
            rewarded.values, rewarded.teacher = self.values[i], [-gap for gap in gaps]
            has_values = method.advantage == "gae"
            rewarded.counted = self.in_loss[i] if has_values else in_baseline[i]
            self.rewarded.append(rewarded)
        self.advantages = rl_by_hand.advantages(self.rewarded, method)
        self.targets = [
            rl_by_hand.value_targets(row, method) if row.values else [] for row in self.rewarded
        ]
        every = method.trains_on_zero_advantages() or method.advantage == "gae"
        self.used = [
            inside and (every or any(row))
            for row, inside in zip(self.advantages, self.in_loss, strict=True)
        ]
        lengths = zip(self.old, self.in_loss, strict=True)
        self.num_tokens = sum(len(old) for old, inside in lengths if inside)

    def update(self, models):
        """Loss of an optimizer step and what it logs, by the weights before it."""
        method, rows = self.method, []
        for i, reader in enumerate(self.readers):
            rows.append(
                Completion(
                    new=list(reader.log_probs(models["policy"])), old=torch.tensor(self.old[i]),
                    sampler=torch.tensor(self.sampler[i]), ref=torch.tensor(self.other[i]),
                    entropies=list(reader.entropies(models["policy"])),
                    advantages=torch.tensor(self.advantages[i]), right=bool(self.rows[i].correct),
                    counts=self.in_loss[i],
                )
            )  # fmt: skip
        kl, old_kl = self.coefs
        loss, clipped = rl_by_hand.policy_loss(rows, method, kl=kl, old_kl=old_kl, length=LIMIT)
        used = [row for row, is_used in zip(rows, self.used, strict=True) if is_used]
        metrics = {"loss/policy": loss, "clip_fraction": sum(clipped)}
        tokens = [
            (new, old, sampler, entropy)
            for row in used
            for new, old, sampler, entropy in zip(
                row.new, row.old, row.sampler, row.entropies, strict=True
            )
        ]
        metrics["clip_fraction"] = sum(clipped) / len(tokens)
        metrics["entropy"] = mean([entropy for *_, entropy in tokens])
        metrics["kl/old"] = mean([rl_by_hand.k("k3", old - new) for new, old, *_ in tokens])
        gaps = [abs(sampler - old) for _, old, sampler, _ in tokens]
        metrics["sampling/logprob_gap"] = mean(gaps)
        if "value" in models:
            values = [reader.values(models["value"]) for reader in self.readers]
            numbers = zip(values, self.values, self.targets, self.in_loss, strict=True)
            clip = method.value_clip
            losses = [rl_by_hand.value_loss(*row, clip) for *row, inside in numbers if inside]
            metrics["loss/value"] = sum(losses) / self.num_tokens
            loss = loss + method.value_coef * metrics["loss/value"]
        return loss, {name: float(torch.as_tensor(x).detach()) for name, x in metrics.items()}

    def logged_before(self):
        """What is logged of rollouts, rewards and divergences."""
        rewards = [row.total + sum(row.steps.values()) for row in self.rewarded]
        lengths = [len(old) for old in self.old]
        gaps = [
            a - b
            for xs, ys in zip(self.sampler, self.other, strict=True)
            for a, b in zip(xs, ys, strict=True)
        ]
        trained = sum(n for n, used in zip(lengths, self.used, strict=True) if used)
        metrics = {
            "reward/mean": mean(rewards), "reward/std": rl_by_hand.variance(rewards) ** 0.5,
            "reward/accuracy": mean([row.correct for row in self.rows]),
            "length/mean": mean(lengths), "tokens/trained": 2 * trained,
            "length/truncated": mean([row.finish_reason == "length" for row in self.rows]),
            "kl/coef": self.coefs[0],
        }  # fmt: skip
        if self.method.has_teacher:
            metrics["kl/teacher"] = mean(gaps)
        else:
            metrics["kl/k1"] = mean(gaps)
            metrics["kl/k3"] = mean([rl_by_hand.k("k3", torch.tensor(gap)) for gap in gaps])
            metrics["kl/sequence"] = sum(gaps) / len(self.rows)
        flat = [
            [x for row, inside in zip(rows, self.in_loss, strict=True) if inside for x in row]
            for rows in (self.targets, self.values)
        ]
        if flat[0]:
            metrics["value/explained_variance"] = rl_by_hand.explained_variance(*flat)
        else:
            metrics["advantage/zero_share"] = mean([not any(row) for row in self.advantages])
        return metrics


# A share of the largest gradient: rewards and log-probs of the sampler are float32.
TOLERANCE = 2e-6


OFTEN_ENDS = {"ends": frozenset(range(EOS, 7))}
EXTRA = {
    "masked": ("dr_grpo", {"truncation": "mask", **OFTEN_ENDS}),
    "excluded": ("grpo_trl", {"truncation": "exclude", **OFTEN_ENDS}),
    "excluded, with values": ("ppo_process", {"truncation": "exclude", **OFTEN_ENDS}),
    "k3 in the reward": ("rloo", {"kl_estimator": "k3"}),
    "entropy": ("maxrl", {"entropy_coef": 0.1}),
    "likelihood": ("dapo", {"positive_nll_coef": 0.2, "truncation": "mask", **OFTEN_ENDS}),
    "teacher, reward and divergence": ("opd", {"reward_coef": 0.5}),
    "half of the value loss": ("ppo_strong_kl", {"value_coef": 0.5, "value_lam": 0.5}),
    "weight of steps": ("grpo_process", {"step_weight": 0.5, "ddof": 0, "eps": 0.1}),
    "divisor n": ("grpo_deepseekmath", {"ddof": 0, "eps": 0.1}),
    "deviation of the batch": ("grpo_deepseekmath", {"advantage": "batch_std", "eps": 0.1}),
    "discount": (
        "reinforce_pp", {"gamma": 0.9, "whiten_eps": 0.1, "truncation": "exclude", **OFTEN_ENDS}
    ),
    "discount, with values": ("ppo_instructgpt", {"gamma": 0.9, "lam": 0.8, "value_lam": 0.5}),
    "not whitened": ("vapo", {"whiten_eps": None, "gamma": 0.95}),
}  # fmt: skip
"""Choices that no preset makes -> the preset that they change."""


COMBINED = {
    f"choices {number}": (
        "grpo_deepseekmath",
        {key: x for rows in CHOICES.values() for key, x in rows[number % len(rows)].items()},
    )
    for number in range(max(map(len, CHOICES.values())))
}
"""Each value of each choice of the objective, beside values of the others."""


def test_every_value_of_every_choice_of_the_objective_is_a_row():
    for choice, rows in CHOICES.items():
        values = {*HYPERPARAMETERS.get(choice, get_args(Method.model_fields[choice].annotation))}
        assert {row[choice] for row in rows} == values - {"auto", OWN}
    assert HYPERPARAMETERS.keys() <= CHOICES.keys() | {"advantage", "truncation"}
    cases = [every_loop.one_optimizer_step(name) for name in RL]
    cases += [presets.method(name).model_copy(update=changes) for name, changes in EXTRA.values()]
    for choice in ("advantage", "truncation"):
        assert {getattr(method, choice) for method in cases} | {OWN} >= {*HYPERPARAMETERS[choice]}


def check_rollout_batch(name, drift, **changes):
    """Coefficients are not those of the method, as after steps in which they have adapted."""
    changes["num_epochs"] = 2
    if drift and every_loop.one_optimizer_step(name).correction == "none":
        changes = {"correction": "token_truncated", "correction_cap": 1.2} | changes
    setup = Setup(name, is_exact=True, drift=drift, **changes)
    method = setup.method
    coefs = [0.0 if method.kl == "none" else 1.5 * method.kl_coef, 0.7 * method.old_kl_coef]
    state = State(numbers={"coefs": coefs})
    # Micro-batches of which not all are as wide as the longest completion.
    step, updates = setup.take_updates(distance=0.01, state=state, max_tokens=24)
    assert len(updates) == 2
    with every_loop.default_dtype(torch.float64):
        by_hand = ByHand(setup, step.rows, updates[0].models, coefs)
        logged = []
        for update in updates:
            loss, metrics = by_hand.update(update.models)
            expected = differentiate(loss, update.models)
            assert expected.any()
            gap = (update.gradient - expected).abs().max()
            assert gap <= TOLERANCE * expected.abs().max()
            logged.append(metrics)
        expected = {key: mean([metrics[key] for metrics in logged]) for key in logged[0]}
        if method.surrogate == "kl_penalty":
            expected["kl/old_after"] = by_hand.update(setup.models)[1]["kl/old"]
    assert_logged(step.metrics, expected | by_hand.logged_before(), 1e-5)
    assert expected["kl/old"] > 1e-5
    return expected


@pytest.mark.parametrize("name", RL)
def test_the_gradients_of_a_rollout_batch_are_those_of_its_definition(name):
    check_rollout_batch(name, drift=0.03)


@pytest.mark.parametrize("name", RL)
@pytest.mark.slow
def test_they_are_where_the_old_policy_has_sampled(name):
    check_rollout_batch(name, drift=0.0)


@pytest.mark.parametrize("case", [*EXTRA, *COMBINED])
def test_they_are_with_a_choice_that_no_preset_makes(case):
    name, changes = (EXTRA | COMBINED)[case]
    metrics = check_rollout_batch(name, drift=0.03, **changes)
    # Both sides of every clip.
    assert (
        0 < metrics["clip_fraction"] < 1
        or case in EXTRA
        or (changes["surrogate"] in ("reinforce", "kl_penalty"))
    )
