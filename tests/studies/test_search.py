"""A search over reasoning steps: its choices, its cost, its answers, and samples of equal cost."""

import dataclasses
import json
from dataclasses import dataclass, field

import numpy as np
import pytest
import studied_run
import torch
from studied_run import CASES, SEEDS, problem
from tiny_checkpoints import CPU, PAD, checkpoint, compute, exact, load
from tiny_rollouts import make_prompts, make_sampler

from stages.algorithms.selection.step_scores import KINDS
from stages.models import process_head
from stages.models.process_head import ProcessHead, ProcessScorer, TokenizedSolution
from stages.records import lines
from stages.records.pools import Completion, ProblemResult, Score
from stages.records.steps import split_steps
from stages.rows import DATA
from stages.sampler import Sample
from studies import equal_compute, search, search_results, step_search
from studies.equal_compute import CostCurve, SearchOutcome
from studies.search_results import ProblemSearch, SearchCost, SearchSolution
from studies.step_search import Candidate, Search, SearchConfig

STEP, BREAK = 2, 9
CONFIG = SearchConfig(
    trees=1, keep=2, expand=3, max_steps=3, max_new_tokens=4, temperature=1.0, aggregate="last",
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
    sampler = sampler or make_sampler(load("llama").double())
    ends = scorer.find_separator_tokens(32)
    return [*step_search.run_searches(sampler, scorer, parts, config, seed, break_after=ends)]


def test_solutions_do_not_depend_on_the_part_of_problems(scorer):
    (whole,) = searched(scorer, [PROMPTS])
    parts = searched(scorer, [PROMPTS[4:], PROMPTS[:1], PROMPTS[1:4]])
    key = repr
    assert sorted(whole.rows, key=key) == sorted((r for p in parts for r in p.rows), key=key)
    assert searched(scorer, [PROMPTS], seed=1) != [whole]


@pytest.mark.parametrize("aggregate", ["last", "product"])
def test_scores_equal_those_of_whole_solutions(scorer, aggregate):
    steps = searched(scorer, [PROMPTS], aggregate=aggregate, trees=2, max_new_tokens=6)
    steps += searched(scorer, [PROMPTS], aggregate=aggregate, trees=2, max_steps=1)
    rows = [row for step in steps for row in step.rows if not isinstance(row, SearchCost)]
    ids_by_name = {prompt.id: prompt.prompt_ids for prompt in PROMPTS}
    whole = [TokenizedSolution(prompt_ids=ids_by_name[row.id],
             steps=split_steps(row.completion_ids, text, "*")) for row in rows]  # fmt: skip
    for row, scores in zip(rows, scorer(whole), strict=True):
        assert row.step_scores == pytest.approx(scores, abs=1e-5)
        assert row.score == round(KINDS[aggregate](row.step_scores), step_search.DECIMALS)
    assert {row.finish_reason for row in rows} == {"stop", "length", "step"}
    assert max(len(row.step_scores) for row in rows) > 1


@dataclass
class Scripted:
    """A policy that writes the same steps in turn, and remembers its calls."""

    script: list
    calls: list = field(default_factory=list)

    def sample(self, prompts, seeds, *, num_samples, **settings):
        steps = self.script[len(self.calls)][:num_samples]
        self.calls.append(([list(prompt) for prompt in prompts], num_samples, list(seeds)))
        samples = [Sample(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason=reason)
                   for ids, reason in steps]  # fmt: skip
        return [samples for _ in prompts]


class Judge(ProcessScorer):
    """Likes steps that begin with a high token."""

    def __call__(self, solutions):
        return [[step[0] / 32 for step in solution.steps] for solution in solutions]


def test_a_scripted_search_continues_the_best_steps(scorer):
    judge = Judge(model=scorer.model, decode=text)
    first = [([3, BREAK], "step"), ([20, BREAK], "step"), ([12, 1], "stop"), ([25, BREAK], "step")]
    script = Scripted([first, [([30, 1], "stop"), ([5, 5, 1], "stop")]])
    (step,) = searched(judge, [PROMPTS[:1]], sampler=script, keep=2, expand=2)
    ids = list(PROMPTS[0].prompt_ids)
    begin, then = script.calls
    assert begin[:2] == ([ids], 4)
    assert then[:2] == ([[*ids, 25, BREAK], [*ids, 20, BREAK]], 2)
    assert len({*begin[2], *then[2]}) == 3, "every place at every depth has a stream of its own"
    *rows, cost = step.rows
    assert [(row.completion_ids, row.kept) for row in rows] == [
        ([25, BREAK, 30, 1], True), ([20, BREAK, 30, 1], True), ([12, 1], False),
        ([25, BREAK, 5, 5, 1], False), ([20, BREAK, 5, 5, 1], False),
    ]  # fmt: skip
    assert [row.index for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0].step_scores == [25 / 32, 30 / 32]
    assert cost.generated_tokens == step.metrics["tokens/generated"] == 8 + 2 * 5
    assert cost.read_tokens == len(ids) + 2 * (len(ids) + 2)
    # Four candidates of one step, with a STEP each; then four of two, 6 or 7 tokens with two.
    assert cost.scored_tokens == (len(ids) + 4 * 3) + (len(ids) + 2 * 6 + 2 * 7)
    assert step.metrics["search/depth"] == 2


def grown(parent, piece, score, *, finish="step", tree=0):
    """Each piece is a step."""
    return Candidate(
        tree=tree, score=score, finish_reason=finish,
        ids=(*(parent.ids if parent else ()), *piece),
        step_scores=[*(parent.step_scores if parent else []), score],
    )  # fmt: skip


CHOICES = CASES["choices"]


@pytest.mark.parametrize("case", CHOICES)
def test_what_a_search_keeps(case):
    rounds, keep, expected = CHOICES[case].values()
    search, by_name = Search(prompt=PROMPTS[0]), {}
    for candidates in rounds:
        children = {
            name: grown(by_name.get(name[0]), [ord(name[-1])], score, **changes)
            for name, score, changes in candidates
        }
        search.choose([children[name] for name, *_ in candidates], keep=keep)
        by_name |= children
    names = {item.ids: name for name, item in by_name.items()}
    for part, name in zip((search.beam, search.live, search.solutions()), expected, strict=True):
        assert name is None or [names[item.ids] for item in part] == name
    assert search.depth == len(rounds)


# Answers of a search

COST = SearchCost(id="p", depth=2, generated_tokens=100, read_tokens=50, scored_tokens=70)


def evaluate(*rows):
    solutions = [
        SearchSolution(
            id="p", index=i, tree=0, completion=answer, completion_ids=[], step_scores=[score],
            score=score, kept=True, finish_reason="stop",
        )
        for i, (answer, score) in enumerate(rows)
    ]  # fmt: skip
    return search_results.evaluate_search(problem("p", "5"), solutions, COST, (3, 7))


# best scored is wrong; 5 has .5 + .2, written in two ways, and 6 has .6; 7 is thrice
VOTES = [("#### 6", 0.6), ("#### 5", 0.5), ("#### 10/2", 0.2), ("#### 7", 0.1), ("#### 7", 0.1),
         ("#### 7", 0.1), ("nothing", 0.9)]  # fmt: skip
TIES = [("#### 5", 0.5), ("#### 6", 0.5), ("#### 7", 0.2), ("#### 7", 0.2)]


@pytest.mark.parametrize(
    ("solutions", "best", "weighted", "majority"),
    [(VOTES, 0.0, 1.0, 0.0), (TIES, 0.5, 0.5, 0.0), ([("", 0.5)], 0, 0, 0)],
    ids=["votes", "ties", "unreadable"],
)
def test_three_ways_to_choose_an_answer(solutions, best, weighted, majority):
    row = evaluate(*solutions)
    assert (row.best, row.weighted, row.majority) == (best, weighted, majority)


# Samples of equal cost

COSTS = {1: 10.0, 2: 20.0, 4: 40.0}


def right_share(mean, number=40):
    """So many problems that are right, under one seed."""
    return (np.arange(number) < round(mean * number)).astype(float)[None]


def curve(*means):
    costs = {"flops": COSTS, "tokens": {n: cost / 10 for n, cost in COSTS.items()}}
    return CostCurve(accuracy=dict(zip(COSTS, map(right_share, means), strict=True)), costs=costs)


def outcome(flops, tokens=3.0, **accuracy):
    values = {way: right_share(mean) for way, mean in accuracy.items()}
    costs = {"flops": flops, "tokens": tokens}
    return SearchOutcome(accuracy=values, costs=costs)


def compare(curves, **searches):
    return equal_compute.compare_at_equal_compute(curves, searches, confidence=0.95)


def test_scoring_reads_equal_completions_once_and_a_token_per_step():
    short, long = ((1, 2), 0), ((3, 4, 5), 0)
    pools = [[short, short, long], [((6,), 0)] * 3]
    # one of three: 2/3 * 2 + 1/3 * 3 = 7/3 tokens of the first problem, 1 of the second
    assert equal_compute.count_distinct_tokens(pools, [1, 3]) == pytest.approx(
        {1: (7 / 3 + 1) / 2, 3: (5 + 1) / 2}
    )
    assert equal_compute.count_distinct_tokens([[((1, 2, 3), 2)]], [1]) == {1: 3 + 2}


VERSUS = {
    # operations and tokens of a search, unit: largest n within its cost, at the end, and how much
    # the accuracy 0.6 is above that of samples
    "a quarter of the way from 0.4 to 0.8": (25.0, 3.0, "flops", (2, False, 0.1)),
    "half way from 0.4 to 0.8": (25.0, 3.0, "tokens", (2, False, 0.0)),
    "the very cost of n": (20.0, 1.0, "flops", (2, False, 0.2)),
    "the very cost of one": (20.0, 1.0, "tokens", (1, False, 0.4)),
    "above all": (400.0, 0.5, "flops", (4, True, -0.2)),
    "below one": (400.0, 0.5, "tokens", None),
}


@pytest.mark.parametrize("case", VERSUS)
def test_searches_and_samples_are_compared_where_both_cost_the_same(case):
    flops, tokens, unit, expected = VERSUS[case]
    result = compare({"a": curve(0.2, 0.4, 0.8)}, s=outcome(flops, tokens, best=0.6))
    point, searched = result["curves"]["a"]["4"], result["searches"]["s"]
    assert (point["value"], point["flops"]) == (0.8, 40.0)
    assert searched["accuracy"]["best"]["value"] == 0.6
    row = searched["versus"][unit]["a"]
    if expected is None:
        assert row is None
        report = search.render_report(
            result, image="x.png", way="best", num_seeds=3, confidence=0.95
        )
        assert "costs less than n = 1" in report
    else:
        n, at_end, gain = expected
        cost = n * (10.0 if unit == "flops" else 1.0)
        assert (row["n"], row["at_end"], row["n_cost"]) == (n, at_end, cost)
        assert row["ways"]["best"]["value"] == pytest.approx(gain)


def test_the_verdict_follows_the_test_of_all_comparisons():
    curves = {"a": curve(0.5, 0.5, 0.5), "b": curve(0.2, 0.2, 0.2)}
    for mean, words in ((0.95, "beats"), (0.5, "cannot be told from"), (0.1, "is worse than")):
        result = compare(curves, s=outcome(25.0, weighted=mean))
        assert f"{words} a (" in search.describe_result(result, way="weighted", confidence=0.95)
        gain = result["searches"]["s"]["versus"]["flops"]["a"]["ways"]["weighted"]
        if mean == 0.5:  # as right on the very same problems: others may still differ
            assert gain["low"] == -gain["high"] < gain["value"] == 0.0
            assert gain["p"] == 1.0
        for entry in result["searches"]["s"]["versus"]["flops"].values():
            entry["ways"]["weighted"]["p"] = 0.03
        report = search.describe_result(result, way="weighted", confidence=0.95)
        assert "cannot be told from a (" in report


VERDICTS = {
    # operations of a search -> words on a curve whose points cost 10, 20 and 40
    5.0: "`s`, best-scored, costs less than one sample by any of the curves.",
    25.0: ") at equal cost.",
    40.0: ") at equal cost.",
    400.0: ") with n = 4, the largest, at 10 times their cost.",
}


@pytest.mark.parametrize("flops", VERDICTS)
def test_the_verdict_names_the_point_compared_with(flops):
    result = compare({"a": curve(0.2, 0.4, 0.8)}, s=outcome(flops, 40.0, best=0.6))
    assert search.describe_result(result, way="best", confidence=0.95).endswith(VERDICTS[flops])
    report = search.render_report(result, image="x.png", way="best", num_seeds=3, confidence=0.95)
    row = report[report.rindex("| `s`") :].splitlines()[0]
    assert row.endswith("at n = 4, the largest, at 10 times their cost |")  # of 4 generated tokens


# The study at work

PRESET = {
    "trees": 2, "keep": 1, "expand": 2, "max_steps": 3, "max_new_tokens": 6, "temperature": 1.0,
    "aggregate": "last",
}  # fmt: skip
SETTINGS = {
    "policy": "sft", "process": "process", "way": "weighted", "confidence": 0.95,
    "presets": {"dvts": PRESET, "beam": PRESET | {"trees": 1, "keep": 2}},
}  # fmt: skip
STUDY = DATA / "studies/search"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studied_run.make("search", SETTINGS)
    numbers = dict.fromkeys((item.name for item in dataclasses.fields(ProblemResult)), 0.5)
    accuracy_at = {
        "majority": {"1": 0.5, "2": 0.75}, "best_of/process": {"1": 0.5, "2": 0.5},
        "weighted/process": {"1": 0.5, "2": 1.0},
    }  # fmt: skip
    for seed in SEEDS:
        pool = list(lines.read_lines(DATA / f"samples/sft/{seed}/test.jsonl", Completion))
        evaluation = DATA / f"evaluations/sft/{seed}"
        scores = [
            Score(id=row.id, index=row.index, scores={}, disagreement={},
                  steps={"process": [0.5] * row.completion.count("\n") + [0.5]})
            for row in pool
        ]  # fmt: skip
        lines.write_lines(evaluation / "scores.jsonl", scores)
        results = [
            ProblemResult(
                **numbers | {"id": name, "num_samples": 8, "num_correct": 4, "even_correct": 2,
                "greedy_correct": True, "greedy_strict": True, "greedy_lenient": True,
                "accuracy_at": accuracy_at, "auc": {}, "auc_in_format": {}})
            for name in dict.fromkeys(row.id for row in pool)
        ]  # fmt: skip
        lines.write_lines(evaluation / "per_problem.jsonl", results)


def test_rows_and_metrics_fit_together(folder):
    search.main()
    written = studied_run.outputs("search")
    metrics = json.loads(written["metrics.json"])
    assert set(metrics["searches"]) == {"dvts", "beam"}
    rows, tokens = STUDY / "rows", []
    for seed in SEEDS:
        solutions = list(lines.read_lines(rows / f"{seed}/dvts.jsonl", SearchSolution))
        results = list(lines.read_lines(rows / f"{seed}/dvts_problems.jsonl", ProblemSearch))
        assert [row.id for row in results] == [f"test{n}" for n in range(6)]
        policy, process = metrics["parameters"][str(seed)]
        for result in results:
            assert {row.tree for row in solutions if row.id == result.id} == {0, 1}
            # Two trees of two samples, then one place in each.
            assert result.generated_tokens <= 2 * 2 * 6 * result.depth
            read = result.read_tokens + result.generated_tokens
            assert result.flops == 2 * (policy * read + process * result.scored_tokens)
            tokens.append(result.generated_tokens)
    assert metrics["searches"]["dvts"]["tokens"] == pytest.approx(np.mean(tokens))
    assert set(metrics["curves"]) == {"majority", "best-of-n, process", "weighted vote, process"}
    # Samples cost their tokens, and what a process model reads of them besides.
    problems = studied_run.prompts("test", 6)
    mean = np.mean([len(row.completion_ids) for row in studied_run.completions(problems, 8)])
    prompt = np.mean([len(prompt.prompt_ids) for prompt in problems])
    plain, scored = (metrics["curves"][name]["2"] for name in ("majority", "best-of-n, process"))
    assert plain["flops"] == pytest.approx(2 * policy * (prompt + 2 * mean))
    assert plain["tokens"] == scored["tokens"] == pytest.approx(2 * mean)
    assert scored["flops"] > plain["flops"]
    report = written["report.md"].decode()
    assert "| `dvts`, weighted vote |" in report
    assert "No verdict" in report, "of two seeds"
    assert written["plots/equal_compute.png"].startswith(b"\x89PNG")
    search.main()
    assert studied_run.outputs("search") == written
