"""Rewards of rollouts: loading, scores of models, and what a method cannot learn from."""

from dataclasses import replace
from functools import partial

import judge_checkpoint
import presets
import pytest
import torch
from answers import NOTHING
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute, load
from tiny_rollouts import OPTIM, alone, decode, make_models, make_prompts, make_sampler, weights

from stages.algorithms.ensemble import mean, mean_minus_std, minimum
from stages.engines import transformers
from stages.loops import rl, rollouts
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.loops.rollout_rewards import check_reward, load_reward, score_completions, score_steps
from stages.loops.rollouts import RlModels, RolloutConfig, Rollouts, Task
from stages.models import model_tokenizer, policy, process_head, scalar_head
from stages.models.policy import Policy
from stages.models.policy_judge import option_tokens
from stages.models.process_head import ProcessHead, ProcessScorer
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rewards.composition import Composition, compose_rewards
from stages.rewards.feedback.prompts import judge_message
from stages.rewards.reward_file import RewardFile
from stages.sampler import Sample


def write(path, kinds, model=None, own=None, aggregate="mean", **settings):
    """A reward's folder: components of these kinds, each with a weight of 2."""
    body = {"weight": 2.0, "cap": None, "normalise": {"kind": "none"}}
    components = {kind: {"value": {"kind": kind, **settings}, **body} for kind in kinds}
    content = RewardFile(
        kind="rule",
        model=model,
        composition={"components": components, "combine": {"kind": "sum"}},
        aggregate={"kind": aggregate},
        own=own,
        own_digest=None,
    )
    path.mkdir(exist_ok=True)
    reward_file.write_reward(path, content)
    return path


@pytest.fixture(scope="module")
def models():
    return make_models(load("llama"), reference=None)


def sample(num_prompts, group_size):
    return rollouts.sample_rollouts(
        make_sampler(load("llama")), decode, make_prompts(num_prompts), step=0, seed=0,
        group_size=group_size, config=RolloutConfig(temperature=1.0, max_new_tokens=6),
    )  # fmt: skip


@pytest.fixture(scope="module")
def batch():
    return sample(2, 3)


def test_the_scorer_of_the_seed_is_asked_about_the_completions_at_hand(models, batch, tmp_path):
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU)
    torch.nn.init.normal_(model.score.weight, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(tmp_path / "3/model")
    scores = score_completions(alone(model), batch).totals
    assert len(set(scores)) > 1
    write(tmp_path, ("scorer", "answer"), model="reward")
    result = load_reward(tmp_path, 3, compute(), CPU, 6)(batch)
    assert result.totals == pytest.approx([2 * score for score in scores], rel=1e-5)
    assert result.parts["scorer"] == pytest.approx(scores, rel=1e-5)
    assert result.parts["answer"] == [0.0] * 6


def test_an_ensemble_is_asked_like_one_model_and_its_disagreement_is_logged(
    models, batch, tmp_path
):
    scores = []
    for seed in range(3):
        model = scalar_head.init_scalar_model(
            checkpoint("llama"), PAD, compute(), CPU, head_seed=seed
        )
        model.save_pretrained(tmp_path / f"0/model/{seed}")
        scores.append(score_completions(alone(model), batch).rewards())
    write(tmp_path, ["scorer"], model="reward", aggregate="min")
    result = load_reward(tmp_path, 0, compute(), CPU, 6)(batch)
    lowest = torch.stack(scores).amin(0)
    assert result.totals == pytest.approx((2 * lowest).tolist(), rel=1e-5)
    disagreement = torch.stack(scores).std(0, correction=0).mean().item()
    assert result.metrics["ensemble/disagreement"] == pytest.approx(disagreement, rel=1e-5)


def test_ones_own_function_is_loaded_by_its_file(models, batch, tmp_path, monkeypatch):
    monkeypatch.setattr(
        reward_file, "load_own_function", lambda word: lambda prompt, text: float(len(word))
    )
    write(tmp_path, ["own"], own="brevity")
    assert load_reward(tmp_path, 0, compute(), CPU, 6)(batch).totals == [14.0] * 6


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("scorer", "ask a model: expected model process or reward, found None"),
        ("own", "calls a function of yours: name its file, as `on: own/..`"),
    ],
)
def test_a_reward_without_what_it_asks_is_refused(kind, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        write(tmp_path, [kind])


def test_a_folder_that_is_no_reward_is_refused(models, tmp_path):
    with pytest.raises(ValueError, match=r"expected a reward in .*, found no reward\.json"):
        load_reward(tmp_path, 0, compute(), CPU, 6)


JUDGE = {"style": "short", "constitution": "none", "min_option_mass": 0.5}


@pytest.fixture
def judging(tmp_path):
    """Models, reward and prompts; policy and judge are one checkpoint."""
    path = judge_checkpoint.checkpoint()
    (tmp_path / "0").mkdir()
    (tmp_path / "0/model").symlink_to(path)
    tokenizer = model_tokenizer.load_tokenizer(path)
    model = policy.load_policy(path, compute(), CPU)
    models = RlModels(
        policy=Policy(model, compute(), model_tokenizer.pad_id(tokenizer)),
        reference=None,
        sampler=transformers.make_sampler(model, tokenizer, max_batch=64),
        decode=model_tokenizer.make_decode(tokenizer),
    )
    write(tmp_path, ["judge"], model="policy", **JUDGE)
    reward = load_reward(tmp_path, 0, compute(), CPU, 6)
    question = judge_checkpoint.QUESTION
    prompts = [
        Prompt(
            id=f"p{i}", task="solve", question=question, prompt=question,
            prompt_ids=tokenizer(question)["input_ids"], answer="7",
        )
        for i in range(2)
    ]  # fmt: skip
    return models, reward, prompts


def p_better(one: str, other: str) -> float:
    """P(one beats other), read off the checkpoint's own distribution, both orders averaged."""
    path = judge_checkpoint.checkpoint()
    model, tokenizer = (
        policy.load_policy(path, compute(), CPU),
        model_tokenizer.load_tokenizer(path),
    )
    ones, twos = option_tokens(tokenizer, ("1", "2"))

    def p_first(first: str, second: str) -> float:
        message = judge_message("short", judge_checkpoint.QUESTION, first, second, None)
        with torch.no_grad():
            logits = model(torch.tensor([tokenizer(message)["input_ids"]])).logits[0, -1]
        p = logits.softmax(-1)
        return float(p[ones].sum() / (p[ones].sum() + p[twos].sum()))

    return (p_first(one, other) + 1 - p_first(other, one)) / 2


def test_the_judge_is_the_policy_of_the_folder(judging):
    _, reward, prompts = judging
    best, worst = judge_checkpoint.ANSWERS[0], judge_checkpoint.ANSWERS[4]
    token = Sample(token_ids=[1], logprobs=[0.0], finish_reason="stop")
    answers = Rollouts(
        prompts=prompts, groups=[0, 0, 1, 1], numbers=[0, 1, 0, 1], samples=[token] * 4,
        texts=[best, worst, worst, best],
    )  # fmt: skip
    result = reward(answers)
    p = p_better(best, worst)
    assert p > 0.52, "it has learned to prefer the first of `ANSWERS` to the last"
    assert result.parts["judge"] == pytest.approx([p, 1 - p, 1 - p, p], abs=1e-5)
    assert result.totals == pytest.approx([2 * value for value in result.parts["judge"]])
    assert result.metrics["judge/no_answer"] == 0.0
    assert result.metrics["judge/read_tokens"] > 0


def test_a_policy_is_trained_on_the_verdicts_of_a_judge(judging):
    models, reward, prompts = judging
    before = weights(models.policy)
    sizes = GroupRlConfig(
        num_steps=2, prompts_per_step=2, group_size=4, temperature=1.5, max_new_tokens=6,
        num_checkpoints=0, optim=OPTIM,
    )  # fmt: skip
    settings = Settings(config=sizes, method=presets.method(kl="none"), seed=0)
    task = Task(prompts=prompts, reward=reward, check_answers=None)
    steps = list(rl.train(models, task, [[0, 1]] * 2, settings))
    assert not torch.equal(weights(models.policy), before)
    for step in steps:
        for rows in (step.rows[:4], step.rows[4:]):
            texts = [row.completion for row in rows]
            assert len(set(texts)) > 1
            for i, row in enumerate(rows):
                wins = [p_better(texts[i], texts[j]) for j in (i - 1, (i + 1) % 4)]
                # A weight of 2. The judge stays as it is, while the policy learns.
                assert row.reward == pytest.approx(2 * sum(wins) / 2, abs=1e-5)
        assert step.metrics["reward/judge"] == pytest.approx(0.5, abs=1e-5)
        assert step.metrics["judge/no_answer"] == 0.0
        assert {"judge/gap", "judge/identical", "judge/too_long"} < step.metrics.keys()


def save(path, seed):
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    model.save_pretrained(path)
    return model.eval()


def score_plainly(models, batch):
    """The head at the last token of each completion, a row each."""
    rows = [
        torch.tensor([[*batch.prompt(i).prompt_ids, *sample.token_ids]])
        for i, sample in enumerate(batch.samples)
    ]
    with torch.no_grad():
        return torch.tensor(
            [[model.score(model.base_model(row)[0])[0, -1, 0] for row in rows] for model in models]
        )


def positions(batch):
    """Tokens a completion: each prompt once, for all of them fit one row."""
    read = sum(len(prompt.prompt_ids) for prompt in batch.prompts)
    return (read + sum(len(sample.token_ids) for sample in batch.samples)) / len(batch.samples)


@pytest.mark.parametrize("aggregate", [mean, minimum, partial(mean_minus_std, k=1.0)])
@pytest.mark.parametrize("max_tokens", [4096, 20])
def test_an_ensemble_pays_the_aggregate_and_logs_how_far_its_members_disagree(
    tmp_path, batch, aggregate, max_tokens
):
    expected = score_plainly([save(tmp_path / str(seed), seed) for seed in range(3)], batch)
    settings = compute(max_tokens=max_tokens)
    models = scalar_head.load_ensemble(tmp_path, aggregate, settings, CPU)
    actual = score_completions(models, batch)
    assert actual.totals == pytest.approx(aggregate(expected).tolist(), abs=1e-4)
    disagreement = expected.std(0, correction=0).mean().item()
    assert actual.metrics == {
        "ensemble/disagreement": pytest.approx(disagreement, abs=1e-4),
        "scorer/positions": positions(batch),
    }


def test_a_reward_model_alone_pays_its_score_and_has_nobody_to_disagree_with(tmp_path, batch):
    expected = score_plainly([save(tmp_path, 0)], batch)
    actual = score_completions(scalar_head.load_ensemble(tmp_path, minimum, compute(), CPU), batch)
    assert actual.totals == pytest.approx(expected[0].tolist(), abs=1e-4)
    assert actual.metrics == {"scorer/positions": positions(batch)}


STEP, BREAK = 2, 3
STEP_PROMPTS = [
    Prompt(id=f"p{i}", task="solve", question="", prompt="", prompt_ids=ids, answer="")
    for i, ids in enumerate([[4, 5], [6]])
]
COMPLETIONS = [[7, BREAK, 8, 9, EOS], [7, EOS], [10, BREAK, 11, BREAK, EOS]]
# Of each completion, the last token of each step; the end alone is no step.
ENDS = [[1, 4], [1], [1, 4]]


def decode_steps(token_ids):
    return "".join("\n" if i == BREAK else "" if i == EOS else chr(90 + i) for i in token_ids)


def make_scorer():
    model = process_head.init_process_model(checkpoint("llama"), STEP, compute(), CPU)
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.get_head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return ProcessScorer(model=ProcessHead(model, compute(), PAD), decode=decode_steps)


def solutions(order=(0, 1, 2)):
    groups = [0, 1, 0]
    return Rollouts(
        prompts=STEP_PROMPTS,
        groups=[groups[i] for i in order],
        numbers=[0] * len(order),
        samples=[
            Sample(
                token_ids=COMPLETIONS[i],
                logprobs=[0.0] * len(COMPLETIONS[i]),
                finish_reason="stop",
            )
            for i in order
        ],
        texts=[decode_steps(COMPLETIONS[i]) for i in order],
    )


def test_each_step_is_paid_its_score_at_its_last_token_and_nothing_else_is_paid():
    scorer = make_scorer()
    judged = score_steps(scorer, solutions())
    assert judged.totals == [0.0, 0.0, 0.0]
    assert judged.step_rewards is not None
    assert judged.step_ends is not None
    assert [row.nonzero()[:, 0].tolist() for row in judged.step_ends] == ENDS
    assert not judged.step_rewards[~judged.step_ends].any()
    # By transformers' own forward pass, a prefix at a time.
    for index, completion in enumerate(COMPLETIONS):
        row = list(STEP_PROMPTS[[0, 1, 0][index]].prompt_ids)
        start = 0
        for end in ENDS[index]:
            row += [*completion[start : end + 1], STEP]
            start = end + 1
            expected = scorer.model.model(torch.tensor([row])).logits[0, -1].softmax(-1)[1]
            actual = judged.step_rewards[index, end]
            assert actual.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("credit", ["sum", "min"])
def test_a_score_that_is_no_number_is_no_reward_of_zero(credit):
    scorer = make_scorer()
    with torch.no_grad():
        scorer.model.model.get_input_embeddings().weight[11] = torch.nan
    config = {
        "value": {"kind": "process", "credit": credit, "zero": 0.0},
        "weight": 1.0,
        "cap": None,
        "normalise": {"kind": "none"},
    }
    reward = Composition.model_validate({"components": {"p": config}, "combine": {"kind": "sum"}})
    available = replace(NOTHING, scorer=lambda: score_steps(scorer, solutions()))
    with pytest.raises(ValueError, match=r"component 'p' .*solution \d: expected finite scores"):
        compose_rewards(reward, solutions(), available)


def test_what_is_logged_is_the_mean_over_completions():
    judged = score_steps(make_scorer(), solutions())
    assert judged.step_rewards is not None
    scores = [judged.step_rewards[i][ends].tolist() for i, ends in enumerate(ENDS)]
    assert judged.metrics == {
        # prompts of 2 and 1 tokens, 12 of completions, a step token after each of 5 steps
        "scorer/positions": pytest.approx((2 + 1 + 12 + 5) / 3),
        "process/steps": pytest.approx(5 / 3),
        "process/lowest": pytest.approx(sum(map(min, scores)) / 3),
        "process/last": pytest.approx(sum(score[-1] for score in scores) / 3),
    }


def test_the_order_of_completions_does_not_matter():
    first = score_steps(make_scorer(), solutions())
    other = score_steps(make_scorer(), solutions((2, 0, 1)))
    assert first.step_rewards is not None
    assert other.step_rewards is not None
    torch.testing.assert_close(other.step_rewards, first.step_rewards[[2, 0, 1]])


SIZES = {
    "num_steps": 1, "prompts_per_step": 16, "temperature": 1.0, "max_new_tokens": 32,
    "num_checkpoints": 0, "optim": OPTIM,
}  # fmt: skip


def sizes(**changes):
    return GroupRlConfig(**{**SIZES, "group_size": 8} | changes)


def reward(name, model="reward"):
    return presets.reward(name, model)


def test_normalised_rewards_go_with_presets_that_leave_them_as_they_are():
    check_reward(sizes(), presets.method("dr_grpo"), reward("rule_gdpo"))
    for name in ("grpo_deepseekmath", "gspo", "rloo"):
        with pytest.raises(ValueError, match="is an advantage already"):
            check_reward(sizes(), presets.method(name), reward("rule_gdpo"))


@pytest.mark.parametrize("name", ["rule_gdpo", "rule_model"])
def test_what_compares_completions_needs_all_of_them_drawn_together(name):
    for preset, changes in (
        ("dapo", {}),
        ("remax", {}),
        ("dr_grpo", {"truncation": "exclude"}),
    ):
        with pytest.raises(ValueError, match="all of which must be sampled together"):
            check_reward(sizes(), presets.method(preset, **changes), reward(name))


def test_other_rewards_go_with_every_preset():
    for preset in set(presets.GROUP_RL) - {"grpo_process"}:
        for name in ("rule", "model", "answer_concise", "rule_own"):
            if preset == "maxrl" and name in ("model", "answer_concise"):
                with pytest.raises(ValueError, match="components are 0 or more"):
                    check_reward(sizes(), presets.method(preset), reward(name))
            else:
                check_reward(sizes(), presets.method(preset), reward(name))


def test_what_compares_steps_needs_a_process_model():
    by_step = sizes(), presets.method("grpo_process")
    for name in ("process_sum", "answer_process_min", "model"):
        check_reward(*by_step, reward(name, "process"))
    for name in ("rule", "model"):
        with pytest.raises(ValueError, match="expected a reward with a process model, found one"):
            check_reward(*by_step, reward(name))


def test_a_buffer_of_the_reward_must_fit_too():
    small = sizes(max_new_tokens=6)
    with pytest.raises(ValueError, match=r"overlong\.value\.buffer 8 is more than max_new"):
        check_reward(small, presets.method(), reward("answer_concise"))


def test_a_judge_compares_completions_of_a_prompt():
    judge = reward("judge_wins", "policy")
    check_reward(sizes(), presets.method(), judge)
    with pytest.raises(ValueError, match="greedy_baseline rewards one completion by itself"):
        check_reward(sizes(), presets.method("remax"), reward("judge_wins", "policy"))
    alone = sizes(group_size=1)
    with pytest.raises(ValueError, match="group_size is 1, and a component of kind judge compares"):
        check_reward(alone, presets.method("reinforce_pp"), judge)


def test_a_component_that_is_compared_within_groups_needs_groups():
    """Alone its z-score is 0, so that the reward model would have no say."""
    method, alone = presets.method("reinforce_pp"), sizes(group_size=1)
    with pytest.raises(ValueError, match="group_size is 1: component score with normalise group"):
        check_reward(alone, method, reward("rule_model"))
    check_reward(sizes(group_size=2), method, reward("rule_model"))
    check_reward(alone, method, reward("rule"))


def test_rewards_that_ppo_cannot_learn_from_are_refused():
    def check(name, preset="ppo_process", model="reward", samples_per_prompt=1):
        config = PpoConfig(**SIZES, samples_per_prompt=samples_per_prompt, value_optim=OPTIM)
        check_reward(config, presets.method(preset), reward(name, model))

    with pytest.raises(ValueError, match=r"its reward needs combine: \{kind: sum\}"):
        check("rule_gdpo")
    with pytest.raises(ValueError, match="samples_per_prompt is 1: component score with"):
        check("rule_model")
    with pytest.raises(ValueError, match="samples_per_prompt is 1, and a component of kind judge"):
        check("judge_wins", model="policy")
    check("rule_model", samples_per_prompt=2)
    check("judge_wins", model="policy", samples_per_prompt=2)
    check("rule", model=None)
    check("model", preset="ppo_instructgpt")
    for name, model in (("rule", None), ("judge_wins", "policy"), ("process_sum", "process")):
        with pytest.raises(ValueError, match=f"scores completions, found one of .* is {model}"):
            check(name, preset="ppo_instructgpt", model=model, samples_per_prompt=2)
