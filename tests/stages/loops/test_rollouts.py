"""Rollouts and their rewards: what is drawn, how it is laid out, and what models score it."""

import json
from dataclasses import replace
from functools import partial

import judge_checkpoint
import pytest
import torch
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute, load
from tiny_rollouts import decode, even_share, make_prompts, make_sampler

from stages.algorithms.ensemble import mean_minus_std, minimum
from stages.loops import rollouts
from stages.loops.rollout_rewards import load_reward, reward_answers, score_completions, score_steps
from stages.loops.rollouts import RolloutConfig, Rollouts
from stages.models import process_head, scalar_head
from stages.models.process_head import ProcessHead, ProcessScorer
from stages.rewards import reward_file
from stages.rewards.completion_rewards import CompletionRewards
from stages.rewards.reward_file import RewardFile
from stages.sampler import Sample

PROMPTS = make_prompts(4)
LLAMA = load("llama")
EXACT = load("llama").double()


def collect(model=LLAMA, step=0, prompts=PROMPTS, size=3):
    return rollouts.sample_rollouts(
        make_sampler(model), decode, prompts, step=step, seed=3, group_size=size,
        config=RolloutConfig(temperature=0.8, max_new_tokens=6),
    )  # fmt: skip


def test_a_stream_depends_on_step_and_problem_not_on_who_else_is_in_the_batch():
    drawn = collect(EXACT)
    assert drawn.texts == [decode(sample.token_ids) for sample in drawn.samples]
    alone = collect(EXACT, prompts=[PROMPTS[2]])
    assert alone.samples == drawn.samples[6:9]
    later = collect(EXACT, step=1)
    assert all(a != b for a, b in zip(drawn.samples, later.samples, strict=True))
    twins = collect(EXACT, prompts=[PROMPTS[0], replace(PROMPTS[0], id="twin")])
    assert twins.texts[:3] != twins.texts[3:]
    greedy = collect(EXACT, size=None)
    assert greedy.texts == collect(EXACT, step=1, size=None).texts
    assert len(greedy.texts) == 4
    parts = [collect(EXACT, prompts=some) for some in (PROMPTS[:3], PROMPTS[3:])]
    both = rollouts.join_rollouts(parts)
    assert (both.groups, both.numbers) == ([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], [0, 1, 2] * 4)
    assert both.texts == drawn.texts
    again = rollouts.join_rollouts([parts[1], drawn])
    assert again.groups == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [0] * 3


def test_limits_of_truncated_steps_in_a_row_and_of_the_samplers_gap(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 3)
    drawn = collect()
    cut = replace(drawn, samples=[replace(s, finish_reason="length") for s in drawn.samples])
    assert rollouts.count_truncated_steps(drawn, 2) == 0
    assert rollouts.count_truncated_steps(cut, 1) == 2
    with pytest.raises(ValueError, match="max_new_tokens"):
        rollouts.count_truncated_steps(cut, 2)
    rollouts.check_sampler_gap(0.001)
    with pytest.raises(ValueError, match=r"0\.100"):
        rollouts.check_sampler_gap(0.1)


def test_records_and_statistics_of_what_was_drawn():
    """Other statistics are in `test_definitions`."""
    drawn = collect()
    shares = even_share(drawn.texts)
    correct = [share > 0.5 for share in shares]
    judged = CompletionRewards(totals=shares, parts={"even": [0.0, 0.5] * 6}, metrics={"x": 3.0})
    rows = rollouts.make_rows(drawn, 5, torch.tensor(shares), correct)
    assert [(row.step, row.id, row.index) for row in rows[2:4]] == [(5, "p0", 2), (5, "p1", 0)]
    assert rows[7].completion_ids == drawn.samples[7].token_ids
    assert [row.correct for row in rows] == correct
    result = rollouts.summarise_rollouts(drawn, judged, correct)
    assert (result["reward/even"], result["x"]) == (0.25, 3.0)
    assert result["tokens/generated"] == sum(len(sample.token_ids) for sample in drawn.samples)
    assert "reward/accuracy" not in rollouts.summarise_rollouts(drawn, judged, None)
    unchecked = replace(drawn, prompts=[replace(p, answer=None) for p in drawn.prompts])
    without = rollouts.make_rows(unchecked, 5, torch.tensor(shares), correct)
    assert {row.correct for row in without} == {None}
    without = rollouts.make_rows(drawn, 5, torch.tensor(shares), None)
    assert {row.correct for row in without} == {None}
    assert reward_answers(unchecked).totals == [0.0] * 12
    stored = json.loads(json.dumps(rollouts.STORED.dump_python(drawn)))
    assert rollouts.STORED.validate_python(stored) == drawn


# --- Rewards of models


def write(path, kinds, model=None, own=None, aggregate="mean", **settings):
    """A reward's folder: components of these kinds, each with a weight of 2."""
    body = {"weight": 2.0, "cap": None, "normalise": {"kind": "none"}}
    components = {kind: {"value": {"kind": kind, **settings}, **body} for kind in kinds}
    content = RewardFile(
        kind="rule", model=model, own=own, own_digest=None, aggregate={"kind": aggregate},
        composition={"components": components, "combine": {"kind": "sum"}},
    )  # fmt: skip
    path.mkdir(exist_ok=True)
    reward_file.write_reward(path, content)
    return path


def save_scalar(path, seed):
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    model.save_pretrained(path)
    return model.eval()


@torch.no_grad()
def score_plainly(models, batch):
    """The head at the last token of each completion, a row each."""
    rows = [
        torch.tensor([[*batch.prompt(i).prompt_ids, *sample.token_ids]])
        for i, sample in enumerate(batch.samples)
    ]
    return torch.tensor(
        [[model.score(model.base_model(row)[0])[0, -1, 0] for row in rows] for model in models]
    )


def test_a_reward_is_of_the_seeds_scorer_and_ones_own_function_and_missing_parts_are_refused(
    tmp_path, monkeypatch
):
    with pytest.raises(ValueError, match=r"reward\.json"):
        load_reward(tmp_path, 0, compute(), CPU, 6)
    batch = collect(prompts=PROMPTS[:2])
    (scores,) = score_plainly([save_scalar(tmp_path / "3/model", 0)], batch).tolist()
    save_scalar(tmp_path / "2/model", 1)
    own = lambda word: lambda prompt, text: float(len(word))  # noqa: E731
    monkeypatch.setattr(reward_file, "load_own_function", own)
    write(tmp_path, ("scorer", "answer", "own"), model="reward", own="brevity")
    result = load_reward(tmp_path, 3, compute(), CPU, 6)(batch)
    expected = [2 * (score + len("brevity")) for score in scores]
    assert result.totals == pytest.approx(expected, abs=1e-4)
    assert result.parts["answer"] == [0.0] * 6
    for kind, word in (("scorer", "reward"), ("own", "own/")):
        with pytest.raises(ValueError, match=word):
            write(tmp_path, [kind])


@pytest.mark.parametrize("aggregate", [minimum, partial(mean_minus_std, k=1.0)])
def test_an_ensemble_pays_the_aggregate_and_logs_how_far_its_members_disagree(tmp_path, aggregate):
    batch = collect(prompts=PROMPTS[:2])
    scores = score_plainly([save_scalar(tmp_path / str(seed), seed) for seed in range(3)], batch)
    # Each prompt is read once, since all of its completions fit one row.
    read = sum(len(p.prompt_ids) for p in batch.prompts) + int(batch.mask().sum())
    ensemble = scalar_head.load_ensemble(tmp_path, aggregate, compute(max_tokens=20), CPU)
    actual = score_completions(ensemble, batch)
    assert actual.totals == pytest.approx(aggregate(scores).tolist(), abs=1e-4)
    assert actual.metrics == {
        "ensemble/disagreement": pytest.approx(scores.std(0, correction=0).mean().item(), abs=1e-4),
        "scorer/positions": read / 6,
    }


STEP, BREAK = 2, 3
COMPLETIONS = [[7, BREAK, 8, 9, EOS], [7, EOS], [10, BREAK, 11, BREAK, EOS]]
STEP_GROUPS, STEP_PROMPTS = [0, 1, 0], [[4, 5], [6]]
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
    prompts = [replace(PROMPTS[i], prompt_ids=ids) for i, ids in enumerate(STEP_PROMPTS)]
    samples = [
        Sample(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop")
        for ids in (COMPLETIONS[i] for i in order)
    ]
    return Rollouts(
        prompts=prompts, groups=[STEP_GROUPS[i] for i in order], numbers=[0] * len(order),
        samples=samples, texts=[decode_steps(sample.token_ids) for sample in samples],
    )  # fmt: skip


def test_each_step_is_paid_its_score_at_its_last_token_and_nothing_else_is_paid():
    scorer = make_scorer()
    judged = score_steps(scorer, solutions())
    assert judged.totals == [0.0, 0.0, 0.0]
    assert [row.nonzero()[:, 0].tolist() for row in judged.step_ends] == ENDS
    assert not judged.step_rewards[~judged.step_ends].any()
    scores = []
    # By transformers' own forward pass, a prefix at a time.
    for index, completion in enumerate(COMPLETIONS):
        row, start = list(STEP_PROMPTS[STEP_GROUPS[index]]), 0
        for end in ENDS[index]:
            row += [*completion[start : end + 1], STEP]
            start = end + 1
            expected = scorer.model.model(torch.tensor([row])).logits[0, -1].softmax(-1)[1]
            actual = judged.step_rewards[index, end]
            assert actual.item() == pytest.approx(expected.item(), rel=1e-4)
        scores.append(judged.step_rewards[index, ENDS[index]].tolist())
    assert judged.metrics == {
        # prompts of 2 and 1 tokens, 12 of completions, a step token after each of 5 steps
        "scorer/positions": pytest.approx((2 + 1 + 12 + 5) / 3),
        "process/steps": pytest.approx(5 / 3),
        "process/lowest": pytest.approx(sum(map(min, scores)) / 3),
        "process/last": pytest.approx(sum(score[-1] for score in scores) / 3),
    }
    other = score_steps(make_scorer(), solutions((2, 0, 1)))
    torch.testing.assert_close(other.step_rewards, judged.step_rewards[[2, 0, 1]])


def test_the_judge_of_a_row_chooses_between_the_answers_to_a_prompt(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0/model").symlink_to(judge_checkpoint.checkpoint())
    write(tmp_path, ["judge"], "policy", style="short", constitution="none", min_option_mass=0.5)
    prompts = [replace(prompt, question=judge_checkpoint.QUESTION) for prompt in PROMPTS[:2]]
    best, worst = judge_checkpoint.ANSWERS[0], judge_checkpoint.ANSWERS[4]
    token = Sample(token_ids=[1], logprobs=[0.0], finish_reason="stop")
    answers = Rollouts(
        prompts=prompts, groups=[0, 0, 1, 1], numbers=[0, 1, 0, 1], samples=[token] * 4,
        texts=[best, worst, worst, best],
    )  # fmt: skip
    judged = load_reward(tmp_path, 0, compute(), CPU, 6)(answers)
    p = judged.parts["judge"][0]
    assert p > 0.52, "it has learned to prefer the first of `ANSWERS` to the last"
    assert judged.parts["judge"] == pytest.approx([p, 1 - p, 1 - p, p], abs=1e-5)
    assert judged.totals == pytest.approx([2 * p, 2 - 2 * p, 2 - 2 * p, 2 * p], abs=1e-5)
    assert judged.metrics["judge/no_answer"] == 0.0
