"""The stage on random models: what it writes, and that a kill in the middle changes nothing."""

import json
from pathlib import Path

import pytest
import torch
from dvc.repo import Repo
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, CPU, compute
from vllm_installed import needs_vllm

from stages import search_solutions
from stages.loops import search
from stages.models import policy, process_head, start, tiny
from stages.models import tokenizer as tokenizers
from stages.models.tiny import TinyConfig
from stages.records import lines
from stages.records.problem_search import ProblemSearch
from stages.records.prompt import Prompt
from stages.records.search_solution import SearchSolution

POLICY, PROCESS = "train_sft/sft/policy", "train_process_reward/sft/process_model"
TINY = {
    "hidden_size": 64, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 64, "vocab_size": 700,
}  # fmt: skip
PRESET = {
    "trees": 2, "keep": 1, "distinct": False, "expand": 2, "max_steps": 3, "max_new_tokens": 6,
    "temperature": 1.0, "aggregate": "last", "decimals": 5,
}  # fmt: skip
DVC_YAML = f"""
stages:
  search_solutions:
    foreach: [x]
    do:
      cmd: python -m stages.search_solutions x dvts {POLICY} {PROCESS} test
      deps: [data/prepare_data/prompts/test.jsonl]
      params: [seed, search_solutions]
      outs: ['data/search_solutions/${{item}}/solutions.jsonl']
"""
FILES = ("solutions.jsonl", "per_problem.jsonl", "metrics.json")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = tokenizers.train(["1 + 2 = 3\n"], TINY["vocab_size"])
    model = tiny.build(TinyConfig(**TINY), words, 0)
    policy.save(model, words, search_solutions.DATA / POLICY)
    head = process_head.from_policy(search_solutions.DATA / POLICY, 2, compute(), CPU)
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.head(head).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    policy.save(head, words, search_solutions.DATA / PROCESS)
    prompts = [
        Prompt(
            id=f"p{n}", task="solve", question=f"{n}", prompt=f"{n}", answer="9",
            prompt_ids=words(f"{n} + 1 = ")["input_ids"],
        )
        for n in range(5)
    ]  # fmt: skip
    lines.write(search_solutions.PROMPTS / "test.jsonl", prompts)
    write_params("transformers")


def write_params(engine: str):
    content = {
        "seed": 0,
        "compute": COMPUTE,
        "model": {"path": None, "revision": None, "tiny": TINY},
        "engine": engine,
        "search": {"dvts": PRESET},
        "search_solutions": {"num_bootstrap": 100, "confidence": 0.95},
    }
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)


def run():
    search_solutions.main("x", "dvts", POLICY, PROCESS, "test")
    return {name: (search_solutions.OUTPUT / "x" / name).read_bytes() for name in FILES}


@pytest.mark.parametrize(
    "engine", ["transformers", pytest.param("vllm", marks=[needs_vllm, pytest.mark.vllm])]
)
def test_rows_and_metrics_fit_together(engine: str):
    write_params(engine)
    written = run()
    metrics = json.loads(written["metrics.json"])
    output = search_solutions.OUTPUT / "x"
    solutions = list(lines.read(output / "solutions.jsonl", SearchSolution))
    results = list(lines.read(output / "per_problem.jsonl", ProblemSearch))
    assert [row.id for row in results] == [f"p{n}" for n in range(5)]
    assert list(dict.fromkeys(row.id for row in solutions)) == [row.id for row in results]
    for result in results:
        own = [row for row in solutions if row.id == result.id]
        assert result.num_solutions == len(own)
        assert {row.tree for row in own} == {0, 1}
        sampled = result.generated_tokens
        assert max(len(row.completion_ids) for row in own) <= sampled - result.dropped_tokens
        # Two trees of two samples, then one place in each.
        assert sampled <= 2 * 2 * 6 * result.depth
        assert result.read_tokens >= result.read_tokens_once
        assert result.scored_tokens >= result.scored_tokens_once
        read = result.read_tokens + sampled
        parameters = metrics["policy_parameters"], metrics["process_parameters"]
        assert result.flops == 2 * (parameters[0] * read + parameters[1] * result.scored_tokens)
    assert metrics["generated_tokens"] == sum(row.generated_tokens for row in results)
    assert set(metrics["accuracies"]) >= {"best", "weighted", "majority", "any_right"}
    assert run() == written


@needs_vllm
@pytest.mark.vllm
def test_both_engines_search_alike_where_the_policy_leaves_nothing_to_chance():
    path = search_solutions.DATA / POLICY
    model, words = policy.load(path, compute(), CPU), start.tokenizer(POLICY)
    # A few tokens alone, which of them by all that stands before, and by far.
    few = [*words("1 2 3 + =\n4")["input_ids"], words.eos_token_id]
    table = torch.zeros_like(model.get_output_embeddings().weight)
    generator = torch.Generator().manual_seed(2)
    half = 1e4 * torch.randn(len(few) // 2, table.shape[1], generator=generator)
    table[few] = torch.cat([half, -half])
    model.config.tie_word_embeddings = False
    model.set_output_embeddings(torch.nn.Linear(*table.T.shape, bias=False))
    model.get_output_embeddings().weight.data = table
    policy.save(model, words, path)
    by_transformers = run()
    write_params("vllm")
    assert run() == by_transformers
    solutions = list(lines.read(search_solutions.OUTPUT / "x/solutions.jsonl", SearchSolution))
    assert len({tuple(row.completion_ids) for row in solutions}) > 1
    assert any("\n" in row.completion[:-1] for row in solutions)  # gone on with after a step


def test_an_interrupted_stage_goes_on_where_it_stopped_and_writes_the_same_bits(monkeypatch):
    Path("dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    Repo.init(".", no_scm=True).close()
    monkeypatch.setattr(search, "CHUNK", 2)
    expected = run()
    work, searched = search.run, []

    def watched(*args, stop, **arguments):
        for step in work(*args, **arguments):
            if step.index == stop:
                raise KeyboardInterrupt
            searched.append(step.index)
            yield step

    for stop in (1, None):
        monkeypatch.setattr(search, "run", lambda *a, stop=stop, **k: watched(*a, stop=stop, **k))
        if stop is not None:
            with pytest.raises(KeyboardInterrupt):
                run()
    assert run() == expected
    assert searched == [0, 1, 2]
