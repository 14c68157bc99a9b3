import math

import pytest
import torch
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute

from stages.models import policy, process_head, process_scorer, scorer, tokenizer
from stages.models.aggregate import Minimum
from stages.models.batch import Group
from stages.models.config import ModelConfig
from stages.models.process_head import Solution
from stages.models.process_scorer import ProcessScore

MODEL = ModelConfig(
    path=None,
    revision=None,
    tiny={
        "hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
        "max_length": 32, "vocab_size": 700,
    },
)  # fmt: skip
WORD = "train_process_reward/sft/process_model"
STEP, NEWLINE = 2, 9


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A process model of 32 tokens: the tokenizer's bytes beyond them are not used."""
    monkeypatch.chdir(tmp_path)
    model = process_head.from_policy(checkpoint("llama"), STEP, compute(), CPU, separator="*")
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    policy.save(model, tokenizer.train(["1"], 700), scorer.start.DATA / WORD)


def groups():
    """`*` is token 12 of the embedded tokenizer: steps of 2, 1 and 2 tokens, and of 2."""
    words = tokenizer.train(["1"], 700)
    star = words.convert_tokens_to_ids("*")
    assert isinstance(star, int)
    assert star < 32
    first = [13, star, star, 14, EOS]
    return [
        Group(prompt_ids=[5, 6], completions=[first, [13, EOS]], indices=[4, 7]),
        Group(prompt_ids=[8], completions=[[15, 16, star, EOS]], indices=[1]),
    ]


def test_a_completion_is_split_into_steps_in_its_own_tokens():
    found = process_scorer.load(scorer.start.DATA / WORD, compute(), CPU)
    (first, second), (third,) = (group.completions for group in groups())
    star = first[1]
    assert found.split(first) == [[13, star], [star], [14, EOS]]
    assert found.split(second) == [[13, EOS]]
    assert found.split(third) == [[15, 16, star, EOS]], "an end alone is no step"


@pytest.mark.parametrize(
    ("kind", "aggregate"),
    [("last", lambda s: s[-1]), ("min", min), ("product", math.prod),
     ("mean", lambda s: sum(s) / len(s))],
)  # fmt: skip
def test_a_completions_score_is_made_of_its_steps_scores_in_the_groups_order(kind, aggregate):
    path = scorer.start.DATA / WORD
    model = process_head.load(path, compute(), CPU)
    reader = process_scorer.load(path, compute(), CPU)
    solutions = [
        Solution(prompt_ids=group.prompt_ids, steps=reader.split(ids))
        for group in groups()
        for ids in group.completions
    ]
    expected = [aggregate(s) for s in process_head.step_scores(model, solutions, compute(), PAD)]
    settings = ProcessScore(kind=kind)
    score = scorer.load(WORD, Minimum(kind="min"), settings, MODEL, compute(), CPU)
    found = score(groups())
    assert found.values.tolist() == pytest.approx(expected, rel=1e-5)
    assert found.disagreement.tolist() == [0.0, 0.0, 0.0]
    assert len(set(expected)) == 3
