from pathlib import Path

import pytest
import torch
from tiny_checkpoints import CPU, EOS, FAMILIES, PAD, checkpoint, compute, exact, random_ids
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForTokenClassification, PreTrainedTokenizerFast

from stages.models import model_tokenizer, policy, process_head, row_policy
from stages.models.batch import Group, micro_batches
from stages.models.process_head import ProcessHead, TokenizedSolution
from stages.models.row_policy import LoraConfig

STEP = 2


def ids(generator, length):
    """Tokens other than padding, end of sequence and the step token."""
    return [token if token != STEP else 3 for token in random_ids(generator, length)]


def make_solutions():
    """Three of one prompt and one of another, the last two ended."""
    generator = torch.Generator().manual_seed(0)
    prompt = ids(generator, 4)
    return [
        TokenizedSolution(prompt_ids=prompt, steps=[ids(generator, 3), ids(generator, 1)]),
        TokenizedSolution(prompt_ids=ids(generator, 6), steps=[ids(generator, 2)]),
        TokenizedSolution(
            prompt_ids=prompt, steps=[ids(generator, 2), ids(generator, 4), [5, EOS]]
        ),
        TokenizedSolution(prompt_ids=prompt, steps=[[7, EOS]]),
    ]


def make_model(family):
    """With a head that is no longer zero."""
    model = process_head.init_process_model(checkpoint(family), STEP, compute(), CPU).eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.get_head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return model


def score(model, solutions, **changes):
    return process_head.score_steps(ProcessHead(model, compute(**changes), PAD), solutions)


def plain_scores(model, solution):
    """By transformers' own forward pass, one row, the step tokens found by looking for them."""
    row = [*solution.prompt_ids]
    for step in solution.steps:
        row += [*step, STEP]
    logits = model(torch.tensor([row])).logits[0]
    return [logits[place].softmax(-1)[1].item() for place, token in enumerate(row) if token == STEP]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_head_finds_every_step_as_likely_right_as_wrong(family):
    model = process_head.init_process_model(checkpoint(family), STEP, compute(), CPU)
    result = score(model, make_solutions())
    assert result == [[0.5, 0.5], [0.5], [0.5, 0.5, 0.5], [0.5]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("row_tokens", "pack_tokens"), [(0, 0), (64, 0), (64, 64)])
def test_a_score_is_what_transformers_gives_at_the_step_token(family, row_tokens, pack_tokens):
    model = exact(make_model(family))
    solutions = make_solutions()
    result = score(model, solutions, row_tokens=row_tokens, pack_tokens=pack_tokens)
    for scores, solution in zip(result, solutions, strict=True):
        assert scores == pytest.approx(plain_scores(model, solution), rel=1e-10)


@pytest.mark.parametrize("max_tokens", [1, 20, 4096])
def test_order_and_padding_change_no_score(max_tokens):
    model = exact(make_model("llama"))
    solutions = make_solutions()
    expected = score(model, solutions, row_tokens=0)
    actual = score(model, solutions[::-1], max_tokens=max_tokens)
    for scores, other in zip(actual[::-1], expected, strict=True):
        assert scores == pytest.approx(other, rel=1e-10)


def test_a_step_token_that_the_policy_wrote_gets_no_score_of_its_own():
    model = make_model("llama")
    written = TokenizedSolution(prompt_ids=[4, 5], steps=[[6, STEP, 7], [8]])
    result = score(model, [written])
    assert len(result[0]) == 2
    every = plain_scores(model, written)
    assert result[0] == pytest.approx([every[1], every[2]], rel=1e-5)


def test_an_end_token_in_the_place_of_a_step_token_is_read_where_steps_end():
    model = exact(make_model("llama"))
    model.config.step_token_id = EOS
    solution = TokenizedSolution(prompt_ids=[4, 5], steps=[[6, 7], [8, EOS]])
    (result,) = score(model, [solution])
    logits = model(torch.tensor([[4, 5, 6, 7, EOS, 8, EOS, EOS]])).logits[0].softmax(-1)
    assert result == pytest.approx(logits[[4, 7], 1].tolist(), rel=1e-10)


def test_a_later_step_changes_no_earlier_score():
    model = exact(make_model("llama"))
    short = TokenizedSolution(prompt_ids=[4, 5], steps=[[6], [7, 8]])
    longer = TokenizedSolution(prompt_ids=[4, 5], steps=[[6], [7, 8], [9, EOS]])
    (a,), (b,) = (score(model, [s]) for s in (short, longer))
    assert b[:2] == pytest.approx(a, rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_folder_alone_gives_the_same_scores_and_says_its_step_token(family, tmp_path):
    model = make_model(family)
    policy.save_model(model, model_tokenizer.train_tokenizer(["a few words"], 700), tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    assert not list(tmp_path.glob("*.bin"))
    again = process_head.load_process_model(tmp_path, compute(), CPU)
    expected = score(model, make_solutions())
    assert (
        process_head.score_steps(ProcessHead(again, compute(), PAD), make_solutions()) == expected
    )
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert theirs.config.step_token_id == STEP
    assert theirs.config.step_separator == "\n"
    assert theirs.config.id2label == {0: "wrong", 1: "right"}


def test_a_classifier_with_the_labels_the_other_way_round_is_refused(tmp_path):
    model = make_model("llama")
    model.config.id2label = {0: "right", 1: "wrong"}
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="expected the labels"):
        process_head.load_process_model(tmp_path, compute(), CPU)


@pytest.mark.parametrize("key", ["step_token_id", "step_separator"])
def test_a_classifier_that_does_not_say_where_steps_end_is_refused(key, tmp_path):
    model = make_model("llama")
    delattr(model.config, key)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=key):
        process_head.load_process_model(tmp_path, compute(), CPU)


def test_the_embedded_tokenizer_has_a_step_token():
    assert process_head.step_token_id(model_tokenizer.train_tokenizer(["a"], 700), "auto") == STEP


def special(*names: str, template: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer with these special tokens, added as real ones add them: by no name of a role."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a")), eos_token="<eos>"
    )
    tokenizer.add_tokens([AddedToken(name, special=True) for name in names], special_tokens=True)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("names", "template", "chosen"),
    [
        (["<|step|>"], None, "<|step|>"),
        # Llama 3, Qwen 2.5, and Qwen 2.5's process reward models
        (["<|begin|>", "<|reserved_special_token_0|>"], None, "<|reserved_special_token_0|>"),
        (["<|im_start|>", "<|object_ref_start|>"], "<|im_start|>", "<|object_ref_start|>"),
        (["<|im_start|>", "<|box|>", "<extra_0>", "<extra_1>"], "<|im_start|>", "<extra_0>"),
    ],
)
def test_a_free_special_token_is_found(names, template, chosen):
    tokenizer = special(*names, template=template)
    expected = tokenizer.convert_tokens_to_ids(chosen)
    assert process_head.step_token_id(tokenizer, "auto") == expected
    assert process_head.step_token_id(tokenizer, chosen) == expected


@pytest.mark.parametrize("token", ["<|im_start|>", "<eos>", "b"])
def test_where_none_is_free_none_can_be_named_and_the_end_token_is_found(token):
    tokenizer = special("<|im_start|>", template="{{ '<|im_start|>' }}")
    assert process_head.step_token_id(tokenizer, "auto") == tokenizer.eos_token_id
    with pytest.raises(ValueError, match=r"to `auto`, or to one that is free: \[\]"):
        process_head.step_token_id(tokenizer, token)


@pytest.mark.parametrize("token", ["<|other|>", "ки", "\n", "<|end|>", "<|pad|>", ""])
def test_a_step_token_that_is_not_one_free_special_token_is_refused(token):
    with pytest.raises(ValueError, match=r"that is free: \['<\|step\|>'\]"):
        process_head.step_token_id(model_tokenizer.train_tokenizer(["a"], 700), token)


@pytest.mark.parametrize("steps", [[], [[3], []]])
def test_a_solution_without_steps_or_with_an_empty_one_is_refused(steps):
    model = make_model("llama")
    with pytest.raises(ValueError, match="at least one step"):
        score(model, [TokenizedSolution(prompt_ids=[3], steps=steps)])


def test_scores_that_are_no_numbers_are_refused_with_the_solution():
    model = make_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[9] = torch.nan
    # Attention spreads NaN over its batch, so each is in one of its own.
    good, bad = (TokenizedSolution(prompt_ids=[start], steps=[[5], [6]]) for start in (4, 9))
    alone = {"max_tokens": 1, "row_tokens": 0}
    assert len(score(model, [good], **alone)[0]) == 2
    with pytest.raises(ValueError, match=r"solution 1: .* found \[nan, nan\].*learning_rate"):
        score(model, [good, bad], **alone)


def test_a_solution_is_never_cut():
    model = make_model("llama")
    fits = TokenizedSolution(prompt_ids=[3] * 100, steps=[[4] * 27])  # and one step token: 128
    assert len(score(model, [fits])[0]) == 1
    longer = TokenizedSolution(prompt_ids=[3] * 100, steps=[[4] * 28])
    with pytest.raises(ValueError, match=r"has 129 tokens .* the model 128"):
        score(model, [longer])


@pytest.mark.parametrize("family", FAMILIES)
def test_under_lora_the_head_is_trained_whole_and_saved(family, tmp_path):
    model = process_head.init_process_model(checkpoint(family), STEP, compute(), CPU)
    row_policy.add_adapters(model, LoraConfig(rank=2, alpha=4), seed=0)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert any(".weight" in name and "lora" not in name for name in trained), trained
    solutions = make_solutions()
    parts = process_head.solution_groups(
        ProcessHead(model, compute(row_tokens=64), PAD), solutions, range(len(solutions))
    )
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):
        for batch in micro_batches(parts, compute(), PAD, CPU):
            ends = [process_head.step_end_indices(solutions[i].steps) for i in batch.indices]
            ProcessHead(model)(batch, ends)[:, 1].mean().backward()
        optimizer.step()
    scores = score(model, solutions)
    assert max(scores[0]) < 0.5
    policy.save_model(model, model_tokenizer.train_tokenizer(["1"], 700), tmp_path)
    saved = ProcessHead(process_head.load_process_model(tmp_path, compute(), CPU))
    again = process_head.score_steps(saved, solutions)
    for rescored, other in zip(again, scores, strict=True):
        assert rescored == pytest.approx(other, rel=1e-4)


WORD = "rewards/process/0/model"
DATA = Path("data")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A process model of 32 tokens: the tokenizer's bytes beyond them are not used."""
    monkeypatch.chdir(tmp_path)
    model = process_head.init_process_model(
        checkpoint("llama"), STEP, compute(), CPU, separator="*"
    )
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.get_head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    policy.save_model(model, model_tokenizer.train_tokenizer(["1"], 700), DATA / WORD)


def sampled():
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


@pytest.mark.usefixtures("written")
def test_a_completion_is_split_into_steps_in_its_own_tokens():
    result = process_head.load_process_scorer(DATA / WORD, compute(), CPU)
    (first, second), (third,) = (group.completions for group in sampled())
    star = first[1]
    assert result.split(first) == [[13, star], [star], [14, EOS]]
    assert result.split(second) == [[13, EOS]]
    assert result.split(third) == [[15, 16, star, EOS]], "an end alone is no step"


@pytest.mark.usefixtures("written")
def test_the_scores_of_steps_come_in_the_order_of_the_solutions_whatever_shares_a_prompt():
    model = process_head.load_process_model(DATA / WORD, compute(), CPU)
    reader = process_head.load_process_scorer(DATA / WORD, compute(), CPU)
    solutions = [
        TokenizedSolution(prompt_ids=group.prompt_ids, steps=reader.split(ids))
        for group in sampled()
        for ids in group.completions
    ]
    expected = [score(model, [solution])[0] for solution in solutions]
    actual = reader(solutions)
    assert [len(steps) for steps in actual] == [3, 1, 1]
    for scores, alone in zip(actual, expected, strict=True):
        assert scores == pytest.approx(alone, rel=1e-5)
