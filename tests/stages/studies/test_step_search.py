from dataclasses import dataclass, field

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, exact, load
from tiny_rollouts import make_prompts, make_sampler

from stages.algorithms.selection.step_scores import KINDS
from stages.models import process_head
from stages.models.process_head import ProcessHead, ProcessScorer, TokenizedSolution
from stages.records.steps import split_steps
from stages.sampler import Sample
from stages.studies import step_search
from stages.studies.search_results import SearchCost
from stages.studies.step_search import Candidate, Search, SearchConfig

STEP, BREAK = 2, 9
CONFIG = SearchConfig(
    trees=1, keep=2, distinct=False, expand=3, max_steps=3, max_new_tokens=4,
    temperature=1.0, aggregate="last", decimals=6,
)  # fmt: skip
PROMPTS = make_prompts(6)


def text(ids):
    """A letter for each token; two of them end a step."""
    return "".join("*" if item in (BREAK, 11) else chr(96 + item) for item in ids)


@pytest.fixture(scope="module")
def scorer():
    model = process_head.init_process_model(
        checkpoint("llama"), STEP, compute(), CPU, separator="*"
    )
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.get_head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    # In float64, or the last digit kept of a score would depend on the batch.
    return ProcessScorer(model=ProcessHead(exact(model), compute(), PAD), decode=text)


def searched(scorer, parts, seed=0, sampler=None, **changes):
    config = SearchConfig(**CONFIG.model_dump() | changes)
    return list(
        step_search.run_searches(
            sampler or make_sampler(load("llama").double()),
            scorer,
            parts,
            config,
            seed,
            break_after=scorer.find_separator_tokens(32),
        )
    )


def test_the_tokens_that_end_a_step_are_those_with_the_separator_in_their_text(scorer):
    assert scorer.find_separator_tokens(32) == {BREAK, 11}
    with pytest.raises(ValueError, match="no token of the tokenizer has the separator"):
        scorer.find_separator_tokens(BREAK)


def test_a_problems_solutions_do_not_depend_on_its_part(scorer):
    (whole,) = searched(scorer, [PROMPTS])
    parts = searched(scorer, [PROMPTS[4:], PROMPTS[:1], PROMPTS[1:4]])
    key = repr
    assert sorted(whole.rows, key=key) == sorted((r for p in parts for r in p.rows), key=key)
    assert searched(scorer, [PROMPTS], seed=1) != [whole]


@pytest.mark.parametrize("aggregate", ["last", "min", "product", "mean"])
def test_scores_are_those_of_the_whole_solution(scorer, aggregate):
    steps = searched(scorer, [PROMPTS], aggregate=aggregate, trees=2, max_new_tokens=6)
    steps += searched(scorer, [PROMPTS], aggregate=aggregate, trees=2, max_steps=1)
    rows = [row for step in steps for row in step.rows if not isinstance(row, SearchCost)]
    prompts = {prompt.id: prompt for prompt in PROMPTS}
    expected = scorer(
        [
            TokenizedSolution(
                prompt_ids=prompts[row.id].prompt_ids,
                steps=split_steps(row.completion_ids, text, "*"),
            )
            for row in rows
        ]
    )
    for row, scores in zip(rows, expected, strict=True):
        assert row.step_scores == pytest.approx(scores, abs=1e-5)
        assert row.score == pytest.approx(KINDS[aggregate](scores), abs=1e-5)
    assert {row.finish_reason for row in rows} == {"stop", "length", "step"}
    assert max(len(row.step_scores) for row in rows) > 1


def test_solutions_are_numbered_from_the_best_and_the_kept_ones_are_marked(scorer):
    (step,) = searched(scorer, [PROMPTS], trees=2, keep=2)
    for prompt in PROMPTS:
        rows = [r for r in step.rows if r.id == prompt.id and not isinstance(r, SearchCost)]
        assert [row.index for row in rows] == list(range(len(rows)))
        assert [row.score for row in rows] == sorted((r.score for r in rows), reverse=True)
        for tree in (0, 1):
            of_tree = [row for row in rows if row.tree == tree]
            kept = [row for row in of_tree if row.kept]
            assert 1 <= len(kept) <= 2
            worst = min(row.score for row in kept)
            assert all(row.score <= worst for row in of_tree if not row.kept)


def test_one_sample_a_tree_is_plain_sampling(scorer):
    # Nothing is chosen then: every tree's solution is its sample, whatever its score.
    (step,) = searched(scorer, [PROMPTS], trees=5, keep=1, expand=1, max_steps=1)
    sampler = make_sampler(load("llama").double())
    for cost, prompt in zip(step.rows[-len(PROMPTS) :], PROMPTS, strict=True):
        rows = [r for r in step.rows if r.id == prompt.id and not isinstance(r, SearchCost)]
        assert sorted(row.tree for row in rows) == [0, 1, 2, 3, 4]
        assert all(row.kept for row in rows)
        assert cost.dropped_tokens == 0
        seed = step_search.derive_seed(0, "search", prompt.id, 0, 0)
        (samples,) = sampler.sample(
            [prompt.prompt_ids], [seed], num_samples=5, temperature=1.0, max_new_tokens=4,
            break_after=frozenset([BREAK, 11]),
        )  # fmt: skip
        result = {row.tree: row.completion_ids for row in rows}
        assert [result[tree] for tree in range(5)] == [sample.token_ids for sample in samples]


@dataclass
class Scripted:
    """A policy that writes the same steps in turn, and remembers what it was asked."""

    script: list
    asked: list = field(default_factory=list)

    def sample(self, prompts, seeds, *, num_samples, **settings):
        self.asked.append(([list(prompt) for prompt in prompts], num_samples, list(seeds)))
        return [
            [
                Sample(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason=reason)
                for ids, reason in self.script[len(self.asked) - 1][:num_samples]
            ]
            for _ in prompts
        ]


class Judge(ProcessScorer):
    """Likes steps that begin with a high token."""

    def __call__(self, solutions):
        return [[step[0] / 32 for step in solution.steps] for solution in solutions]


def test_it_goes_on_with_the_best_steps_and_counts_everything(scorer):
    judge = Judge(model=scorer.model, decode=text)
    first = [([3, BREAK], "step"), ([20, BREAK], "step"), ([12, 1], "stop"), ([25, BREAK], "step")]
    second = [([30, 1], "stop"), ([5, 5, 1], "stop")]
    script = Scripted([first, second])
    prompt = PROMPTS[0]
    (step,) = searched(judge, [[prompt]], sampler=script, keep=2, expand=2)
    begin, then = script.asked
    assert begin[:2] == ([list(prompt.prompt_ids)], 4)
    assert then[:2] == (
        [[*prompt.prompt_ids, 25, BREAK], [*prompt.prompt_ids, 20, BREAK]],
        2,
    )
    assert len({*begin[2], *then[2]}) == 3, "every place at every depth has a stream of its own"
    *rows, cost = step.rows
    assert [row.completion_ids for row in rows] == [
        [25, BREAK, 30, 1], [20, BREAK, 30, 1], [12, 1], [25, BREAK, 5, 5, 1], [20, BREAK, 5, 5, 1]
    ]  # fmt: skip
    assert [row.kept for row in rows] == [True, True, False, False, False]
    assert rows[0].step_scores == [25 / 32, 30 / 32]
    assert cost.generated_tokens == 8 + 2 * 5
    assert cost.dropped_tokens == 2, "the step that begins with 3"
    length = len(prompt.prompt_ids)
    assert cost.read_tokens == length + 2 * (length + 2)
    # Four candidates of one step, with a STEP each; then four of two, 6 or 7 tokens with two.
    assert cost.scored_tokens == (length + 4 * 3) + (length + 2 * 6 + 2 * 7)
    assert step.metrics["tokens/generated"] == 18
    assert step.metrics["search/depth"] == 2


def grown(parent, piece, score, *, finish="step", tree=0, steps=None):
    """Each piece is a step, but for those that say otherwise."""
    before = parent.ids if parent else ()
    return Candidate(
        tree=tree,
        parent=parent,
        piece=list(piece),
        ids=(*before, *piece),
        finish_reason=finish,
        steps=steps or [*(parent.steps if parent else []), list(piece)],
        step_scores=[*(parent.step_scores if parent else []), score],
        score=score,
    )


def test_a_finished_solution_stays_in_the_competition():
    search = Search(prompt=PROMPTS[0])
    early = grown(None, [3, 1], 0.6, finish="stop")
    better, worse = grown(None, [4], 0.9), grown(None, [5], 0.5)
    search.choose([early, better, worse], keep=1, distinct=False)
    assert search.live == search.beam == [better]
    # What looked better leads to nothing: the solution that had lost its place has it again.
    bad = [grown(better, [6], 0.2), grown(better, [7], 0.3)]
    search.choose(bad, keep=1, distinct=False)
    assert search.beam == [early]
    assert search.live == []
    assert search.solutions() == [early]
    assert search.depth == 2


def test_a_finished_solution_with_a_place_is_not_gone_on_with():
    search = Search(prompt=PROMPTS[0])
    early = grown(None, [3, 1], 0.9, finish="stop")
    others = [grown(None, [4], 0.8), grown(None, [5], 0.7)]
    search.choose([*others, early], keep=2, distinct=False)
    assert search.beam == [early, others[0]]
    assert search.live == [others[0]]
    last = grown(others[0], [6, 1], 0.85, finish="stop")
    search.choose([last], keep=2, distinct=False)
    assert search.solutions() == [early, last]


def test_at_the_limit_on_steps_what_has_a_place_is_a_solution():
    search = Search(prompt=PROMPTS[0])
    done, live = grown(None, [3, 1], 0.5, finish="stop"), grown(None, [4], 0.8)
    lost = grown(None, [5], 0.4)
    search.choose([done, live, lost], keep=1, distinct=False)
    assert search.solutions() == [live, done]


def test_each_tree_goes_on_with_its_own_best():
    search = Search(prompt=PROMPTS[0])
    first = [grown(None, [4], 0.9, tree=0), grown(None, [5], 0.8, tree=0)]
    second = [grown(None, [4], 0.1, tree=1), grown(None, [6], 0.2, tree=1)]
    search.choose([*first, *second], keep=1, distinct=False)
    assert search.live == [first[0], second[1]]


def test_copies_have_one_place_if_asked_to():
    for distinct, places in ((True, 1), (False, 2)):
        search = Search(prompt=PROMPTS[0])
        twins = [grown(None, [4], 0.9), grown(None, [4], 0.9)]
        search.choose([*twins, grown(None, [5], 0.1)], keep=2, distinct=distinct)
        assert search.live[:places] == twins[:places]
        assert (search.live[1].ids == (5,)) == distinct


def test_of_equal_scores_the_solution_with_a_place_comes_first():
    search = Search(prompt=PROMPTS[0])
    twins = [grown(None, [5, 1], 0.9, finish="stop"), grown(None, [4, 1], 0.9, finish="stop")]
    search.choose(twins[:1], keep=1, distinct=False)
    search.beam = []
    search.choose(twins[1:], keep=1, distinct=False)
    assert search.beam == [twins[0]]
    assert search.solutions() == twins


def test_the_cost_counted_by_hand():
    search = Search(prompt=PROMPTS[0])
    search.request()  # the prompt: 2
    kept, lost = grown(None, [4, 9], 0.9), grown(None, [5, 9], 0.5)
    done = grown(None, [3, 1], 0.1, finish="stop")
    search.choose([kept, lost, done], keep=1, distinct=False)
    search.request()  # prompt and the kept step: 4
    end, twin = (grown(kept, [6, 7, 1], 0.9, finish="stop") for _ in range(2))
    cut = grown(kept, [8, 8, 8], 0.3, finish="length")
    search.choose([end, twin, cut], keep=1, distinct=False)
    assert search.live == []
    cost = search.cost()
    assert cost.depth == 2
    assert cost.read_tokens == 2 + 4
    assert cost.read_tokens_once == 2
    assert cost.generated_tokens == 3 * 2 + 3 * 3
    # Only the lost step leads to no solution: the one that was cut is one, and so is the guess.
    assert cost.dropped_tokens == 2
    # prompt, three steps of 2 tokens with their STEP, and two different ones of 3
    assert cost.scored_tokens_once == 2 + 3 * 3 + 2 * 4
    assert cost.scored_tokens == 0, "counted by the loop, which knows what the model reads"
