import math

import pytest
import stage_inputs
import torch
from stage_inputs import SEED, WORDS
from tiny_checkpoints import COMPUTE
from transformers import PreTrainedModel

from stages import label_feedback, rows
from stages.models.model_tokenizer import train_tokenizer
from stages.models.row_policy import TinyConfig, build_tiny
from stages.records import lines
from stages.records.pools import Completion
from stages.records.preferences import Preference, Revision
from stages.records.problems import Demonstration, Prompt
from stages.rows import DATA

TOKENS = train_tokenizer(["Check result: Anna has 3 apples.\n> #### 3\nCritique:\n"] * 2, 700)
OWN = DATA / f"pairs/new/{SEED}"


def write_pool(side: str, number: int) -> None:
    prompts = [
        Prompt(
            id=f"{side}-{i}",
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
    stage_inputs.write_pool(side, prompts, completions)


@torch.no_grad()
def end_early(model: PreTrainedModel) -> None:
    """Make one token in five the last: random weights alone would hardly ever end an answer."""
    ids = torch.tensor(TOKENS(["> #### 3\nCritique:\n"])["input_ids"])
    hidden = model.base_model(ids).last_hidden_state.mean((0, 1))
    weight = model.get_output_embeddings().weight
    weight[TOKENS.eos_token_id] = hidden * math.log(700 / 5) / hidden.square().sum()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = build_tiny(TinyConfig(**stage_inputs.TINY), TOKENS, 0)
    end_early(model)
    model.save_pretrained(rows.locate_policy("sft", SEED))
    TOKENS.save_pretrained(rows.locate_policy("sft", SEED))
    write_pool("train", 5)
    write_pool("heldout", 3)


def run(**changes):
    preset = {
        "constitution": "correct",
        "style": "short",
        "num_rounds": 2,
        "max_per_problem": 2,
        "temperature": 1.0,
        "max_prompt_tokens": 200,
        "max_new_tokens": 40,
    }
    stage_inputs.configure(
        preset | changes, compute=COMPUTE, model=stage_inputs.MODEL, engine="transformers"
    )
    label_feedback.main("label_revision", *WORDS)
    return stage_inputs.metrics(OWN)


def test_every_file_holds_what_the_metrics_count():
    metrics = run()
    triples = list(lines.read_lines(OWN / "triples.jsonl", Revision))
    assert len(triples) == 2 * (5 * 2 + 3 * 2)
    assert metrics["train"]["answers"] == 10
    assert metrics["heldout"]["answers"] == 6
    last = {(row.id, row.index): row for row in triples if row.round == 2}
    for side in ("train", "heldout"):
        pairs = list(lines.read_lines(OWN / f"{side}.jsonl", Preference))
        assert len(pairs) == metrics[side]["pairs"] > 0
        for pair in pairs:
            index = int(pair.rejected.removeprefix("#### "))
            assert pair.id.startswith(side)
            assert pair.rejected_ids == [20 + index, 1]
            assert pair.chosen_ids == last[pair.id, index].revision_ids
            assert pair.chosen_ids[-1] == TOKENS.eos_token_id
            assert pair.source == "constitution"
    demonstrations = list(lines.read_lines(OWN / "demonstrations.jsonl", Demonstration))
    assert demonstrations
    assert all(row.id.startswith("train") for row in demonstrations)
    assert all(row.task == "solve" and row.prompt_ids[0] == 5 for row in demonstrations)
    drawn = sum(len(row.critique_ids) + len(row.revision_ids) for row in triples)
    assert (metrics["generated_tokens"], metrics["trained_tokens"]) == (drawn, 0)


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        run()
        files = [path for path in sorted(OWN.glob("*.json*")) if path.is_file()]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
    assert len(written[0]) == 5


def test_a_policy_that_revises_nothing_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r"pools/old: .*found none: \{.*'cut': \d.*max_new"):
        run(max_new_tokens=1)
