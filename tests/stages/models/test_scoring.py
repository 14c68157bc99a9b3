"""Scores of solutions and of pools: of each distinct completion once, in the order of the rows."""

from functools import partial

import pytest
import torch
from tiny_checkpoints import CPU, EOS, PAD, VOCAB, checkpoint, compute

from stages.algorithms.ensemble import mean_minus_std
from stages.models import model_tokenizer, policy, pool_scorer, process_head, scalar_head
from stages.models.batch import make_groups
from stages.models.process_head import ProcessHead, ProcessScorer, TokenizedSolution, score_steps
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards.reward_file import RewardFile

STEP = 2
WORDS = model_tokenizer.train_tokenizer(["1"], 700)
STAR = WORDS.convert_tokens_to_ids("*")
"""Ends a step. The model has 32 tokens: the tokenizer's bytes beyond them are not used."""
COMPLETIONS = [[13, STAR, STAR, 14, EOS], [13, EOS], [15, 16, STAR, EOS]]
STEPS = [[[13, STAR], [STAR], [14, EOS]], [[13, EOS]], [[15, 16, STAR, EOS]]]
"""An end alone is no step."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    assert STAR < VOCAB
    model = process_head.init_process_model(checkpoint("llama"), STEP, compute(), CPU,
                                            separator="*")  # fmt: skip
    for parameter in process_head.get_head(model).parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    path = tmp_path_factory.mktemp("process")
    policy.save_model(model, WORDS, path)
    return path


def load(folder) -> ProcessScorer:
    return process_head.load_process_scorer(folder, compute(), CPU)


def solution(prompt_ids, steps) -> TokenizedSolution:
    return TokenizedSolution(prompt_ids=prompt_ids, steps=steps)


def test_scores_are_the_probability_of_right_at_each_step_in_the_order_of_solutions(folder):
    scorer = load(folder)
    assert [scorer.split(ids) for ids in COMPLETIONS] == STEPS
    prompts = [[5, 6], [8], [5, 6]]
    solutions = [solution(*pair) for pair in zip(prompts, STEPS, strict=True)]
    for scores, prompt, steps in zip(scorer(solutions), prompts, STEPS, strict=True):
        row = [*prompt, *(token for step in steps for token in (*step, STEP))]
        logits = scorer.model.model(torch.tensor([row])).logits[0].softmax(-1)
        expected = [logits[i, 1].item() for i, token in enumerate(row) if token == STEP]
        assert scores == pytest.approx(expected, rel=1e-5)
    # Two share a prompt: 2 + (8 + 6), 1 + 3.
    assert scorer.num_positions(solutions) == 2 + (5 + 3) + (4 + 1) + 1 + (2 + 1)
    ids = [i for i in range(700) if "*" in WORDS.decode([i])]
    assert scorer.find_separator_tokens(700) == set(ids) >= {STAR}
    with pytest.raises(ValueError, match=r"\*"):
        scorer.find_separator_tokens(STAR)


REFUSED = {
    "129 tokens": ([[3] * 100, [[4] * 28]], "129.*128"),  # and a step token
    "no number": ([[9], [[5], [6]]], "solution 1.*nan"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_solution_that_cannot_be_scored_whole_is_refused(name, folder):
    model, (row, reason) = load(folder).model.model, REFUSED[name]
    # Attention spreads NaN over its batch, so each is in one of its own.
    head = ProcessHead(model, compute(max_tokens=1, row_tokens=0), PAD)
    good = solution([3] * 100, [[4] * 27])
    assert len(score_steps(head, [good])[0]) == 1
    with torch.no_grad():
        model.get_input_embeddings().weight[9] = torch.nan
    with pytest.raises(ValueError, match=reason):
        score_steps(head, [good, solution(*row)])


def completion(problem: str, index: int, ids: list[int]) -> Completion:
    return Completion(id=problem, index=index, completion="", completion_ids=ids, logprob_sum=0.0,
                      finish_reason="stop", seed=0)  # fmt: skip


PROMPTS = [Prompt(id=name, task="solve", question="", prompt="", prompt_ids=ids, answer="")
           for name, ids in (("a", [5, 6]), ("b", [8]), ("c", [7, 7, 7]))]  # fmt: skip
POOL = [
    (
        prompt,
        [completion(prompt.id, index, COMPLETIONS[which]) for index, which in enumerate(draws)],
    )
    for prompt, draws in zip(PROMPTS, ([0, 1, 0], [2, 2, 1], [1, 0, 2]), strict=True)
]


@pytest.mark.parametrize("chunk", [1, 64])
def test_a_pool_has_the_scores_of_its_completions_and_equal_ones_are_read_once(
    chunk, folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(pool_scorer, "GROUPS_PER_CHUNK", chunk)
    for seed in (0, 1):
        member = scalar_head.init_scalar_model(
            checkpoint("llama"), PAD, compute(), CPU, head_seed=seed
        )
        member.save_pretrained(tmp_path / str(seed))
    aggregate = partial(mean_minus_std, k=1.0)
    samples = pool_scorer.group_samples(POOL, row_tokens=64)
    # Of "a" two distinct completions, of "b" two, of "c" three.
    assert sum(len(g.completions) for part in samples.chunks for g in part) == 7
    assert samples.positions == (2 + 5 + 2) + (1 + 4 + 2) + (3 + 2 + 5 + 4)
    columns = {}
    for name, model, path in (("ensemble", "reward", tmp_path), ("steps", "process", folder),
                              ("single", "reward", tmp_path / "0")):  # fmt: skip
        reward = RewardFile.model_construct(model=model, aggregate=aggregate)
        parts = [*pool_scorer.score_chunks(path, reward, samples.chunks, compute(), CPU, 4)]
        assert len(parts) == len(samples.chunks)
        rest = [*pool_scorer.score_chunks(path, reward, samples.chunks, compute(), CPU, 4, first=1)]
        assert rest == parts[1:]
        columns[name] = [row for part in parts for row in part]
    ensemble = scalar_head.load_ensemble(tmp_path, aggregate, compute(), CPU)
    single = scalar_head.load_ensemble(tmp_path / "0", aggregate, compute(), CPU)
    scorer, rows = load(folder), pool_scorer.score_rows(samples, columns)
    assert [(row.id, row.index) for row in rows] == [(p.id, i) for p in PROMPTS for i in range(3)]
    for row, (prompt, drawn) in zip(rows, [(p, c) for p, pool in POOL for c in pool], strict=True):
        group = make_groups([(prompt.prompt_ids, [drawn.completion_ids])], 64)
        scores, alone = ensemble.score_groups(group), single.score_groups(group)
        assert row.scores == pytest.approx(
            {"ensemble": scores.values.item(), "single": alone.values.item()}, abs=1e-4
        )
        assert row.disagreement == pytest.approx({"ensemble": scores.disagreement.item()}, abs=1e-4)
        (steps,) = scorer([solution(prompt.prompt_ids, scorer.split(drawn.completion_ids))])
        assert row.steps == {"steps": pytest.approx(steps, abs=1e-4)}
        assert all(round(score, 4) == score for score in row.scores.values())
