from pathlib import Path

import pytest
import torch
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute

from stages.models import model_tokenizer, policy, process_head, process_scorer
from stages.models.batch import Group
from stages.models.process_head import Solution

WORD = "rewards/process/0/model"
STEP, NEWLINE = 2, 9
DATA = Path("data")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A process model of 32 tokens: the tokenizer's bytes beyond them are not used."""
    monkeypatch.chdir(tmp_path)
    model = process_head.from_policy(checkpoint("llama"), STEP, compute(), CPU, separator="*")
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    policy.save(model, model_tokenizer.train_tokenizer(["1"], 700), DATA / WORD)


def groups():
    """`*` is token 12 of the embedded tokenizer: steps of 2, 1 and 2 tokens, and of 2."""
    words = model_tokenizer.train_tokenizer(["1"], 700)
    star = words.convert_tokens_to_ids("*")
    assert isinstance(star, int)
    assert star < 32
    first = [13, star, star, 14, EOS]
    return [
        Group(prompt_ids=[5, 6], completions=[first, [13, EOS]], indices=[4, 7]),
        Group(prompt_ids=[8], completions=[[15, 16, star, EOS]], indices=[1]),
    ]


def test_a_completion_is_split_into_steps_in_its_own_tokens():
    found = process_scorer.load(DATA / WORD, compute(), CPU)
    (first, second), (third,) = (group.completions for group in groups())
    star = first[1]
    assert found.split(first) == [[13, star], [star], [14, EOS]]
    assert found.split(second) == [[13, EOS]]
    assert found.split(third) == [[15, 16, star, EOS]], "an end alone is no step"


def test_the_scores_of_steps_come_in_the_order_of_the_groups_whatever_their_numbers():
    model = process_head.load(DATA / WORD, compute(), CPU)
    reader = process_scorer.load(DATA / WORD, compute(), CPU)
    solutions = [
        Solution(prompt_ids=group.prompt_ids, steps=reader.split(ids))
        for group in groups()
        for ids in group.completions
    ]
    expected = [process_head.step_scores(model, [one], compute(), PAD)[0] for one in solutions]
    found = process_scorer.completion_steps(reader, groups())
    assert [len(steps) for steps in found] == [3, 1, 1]
    for own, alone in zip(found, expected, strict=True):
        assert own == pytest.approx(alone, rel=1e-5)
