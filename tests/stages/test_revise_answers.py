import json
import math
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE
from transformers import PreTrainedModel

from stages import revise_answers
from stages.models import model_tokenizer
from stages.models.config import TinyConfig, build_tiny
from stages.records import lines
from stages.records.pools import Completion
from stages.records.preferences import Preference, Revision
from stages.records.problems import Demonstration, Prompt

WORDS = model_tokenizer.train_tokenizer(
    ["Check result: Anna has 3 apples.\n> #### 3\nCritique:\n"] * 2, 700
)
SHAPE = {
    "hidden_size": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_length": 256,
    "vocab_size": 700,
}
POLICY = "train_sft/old/policy"
OUTPUT = Path("data/revise_answers/new")


def write_pool(split: str, number: int) -> None:
    prompts = [
        Prompt(
            id=f"{split}-{i}",
            task="solve",
            question=f"Anna has {i} apples.",
            prompt=f"Solve: {i}",
            prompt_ids=[5, i],
            answer=str(i),
        )
        for i in range(number)
    ]
    completions = [
        Completion(
            id=prompt.id,
            index=index,
            completion=f"#### {index}",
            completion_ids=[20 + index, 1],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for prompt in prompts
        for index in range(3)
    ]
    lines.write(revise_answers.PROMPTS / f"{split}.jsonl", prompts)
    lines.write(revise_answers.POOLS / f"old-{split}" / "pool.jsonl", completions)


@torch.no_grad()
def end_early(model: PreTrainedModel) -> None:
    """Make one token in five the last: random weights alone would hardly ever end an answer."""
    ids = torch.tensor(WORDS(["> #### 3\nCritique:\n"])["input_ids"])
    hidden = model.base_model(ids).last_hidden_state.mean((0, 1))
    weight = model.get_output_embeddings().weight
    weight[WORDS.eos_token_id] = hidden * math.log(700 / 5) / hidden.square().sum()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = build_tiny(TinyConfig(**SHAPE), WORDS, 0)
    end_early(model)
    model.save_pretrained(Path("data") / POLICY)
    WORDS.save_pretrained(Path("data") / POLICY)
    write_pool("preference", 5)
    write_pool("dev", 3)


def run(**changes):
    section = {
        "constitution": "correct",
        "style": "short",
        "num_rounds": 2,
        "max_per_problem": 2,
        "temperature": 1.0,
        "max_prompt_tokens": 200,
        "max_new_tokens": 40,
    }
    content = {
        "seed": 0,
        "compute": COMPUTE | {"max_batch": 64},
        "model": {"path": None, "revision": None, "tiny": SHAPE},
        "engine": "transformers",
        "revise_answers": section | changes,
    }
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML().dump(content, file)
    revise_answers.main("new", "old-preference", "old-dev", POLICY)
    return json.loads((OUTPUT / "metrics.json").read_text(encoding="utf-8"))


def test_every_file_holds_what_the_metrics_count():
    metrics = run()
    triples = list(lines.read(OUTPUT / "triples.jsonl", Revision))
    assert len(triples) == 2 * (5 * 2 + 3 * 2)
    assert metrics["train"]["answers"] == 10
    assert metrics["heldout"]["answers"] == 6
    last = {(row.id, row.index): row for row in triples if row.round == 2}
    for file, split in revise_answers.SPLITS.items():
        pairs = list(lines.read(OUTPUT / f"{file}.jsonl", Preference))
        assert len(pairs) == metrics[file]["pairs"] > 0
        for pair in pairs:
            index = int(pair.rejected.removeprefix("#### "))
            assert pair.id.startswith(split)
            assert pair.rejected_ids == [20 + index, 1]
            assert pair.chosen_ids == last[pair.id, index].revision_ids
            assert pair.chosen_ids[-1] == WORDS.eos_token_id
            assert pair.source == "constitution"
    demonstrations = list(lines.read(OUTPUT / "demonstrations.jsonl", Demonstration))
    assert demonstrations
    assert all(row.id.startswith("preference") for row in demonstrations)
    assert all(row.task == "solve" and row.prompt_ids[0] == 5 for row in demonstrations)
    drawn = sum(len(row.critique_ids) + len(row.revision_ids) for row in triples)
    assert (metrics["generated_tokens"], metrics["trained_tokens"]) == (drawn, 0)


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        run()
        files = [path for path in sorted(OUTPUT.glob("*.json*")) if path.is_file()]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
    assert len(written[0]) == 5


def test_a_policy_that_revises_nothing_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r"old-preference: .*found none: \{.*'cut': \d.*max_new"):
        run(max_new_tokens=1)
