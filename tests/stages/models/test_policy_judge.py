from dataclasses import replace

import judge_checkpoint
import pytest
import tiny_checkpoints
import torch
from chat_tokenizers import QWEN_3, R1, make_tool_tokenizer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from stages.engines import transformers
from stages.models import model_tokenizer, policy, policy_judge, prompting
from stages.models.policy_judge import option_tokens
from stages.rewards.feedback import prompts
from stages.sampler import Sample, judge_messages

WORDS = [
    "<eos>",
    "1",
    " 1",
    "(1",
    "1.",
    "**1**",
    "2",
    '"2"',
    "10",
    "12",
    "one",
    "-1",
    "1 2",
    "1<eos>",
]


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    vocab = {word: index for index, word in enumerate(words)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocab, unk_token="<eos>")), eos_token="<eos>"
    )


def test_every_way_to_write_an_option_is_found_and_nothing_else():
    result = option_tokens(word_tokenizer(WORDS), ("1", "2"))
    assert [[WORDS[i] for i in ids] for ids in result] == [
        ["1", " 1", "(1", "1.", "**1**"],
        ["2", '"2"'],
    ]


def test_the_embedded_tokenizer_has_each_option_with_and_without_a_space():
    tokenizer = model_tokenizer.train_tokenizer(["Better:\n1", "Better:\n2"], 700)
    result = option_tokens(tokenizer, ("1", "2"))
    texts = [[str(tokenizer.decode([i])) for i in ids] for ids in result]
    assert [set(option) for option in texts] == [{"1", " 1"}, {"2", " 2"}]


def test_a_special_token_is_no_option():
    tokenizer = word_tokenizer(["<eos>", "1", "2"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["2"]})
    with pytest.raises(ValueError, match=r"found none for \['2'\]"):
        option_tokens(tokenizer, ("1", "2"))


MESSAGES = judge_checkpoint.MESSAGES


@pytest.fixture(scope="module")
def model():
    path = judge_checkpoint.checkpoint()
    return policy.load_policy(path, tiny_checkpoints.compute(), tiny_checkpoints.CPU)


@pytest.fixture
def tokenizer():
    return model_tokenizer.load_tokenizer(judge_checkpoint.checkpoint())


def chooser(model, tokenizer, **changes):
    engine = transformers.make_sampler(model, tokenizer, max_batch=8, max_tokens=1024)
    settings = {
        "engine": engine,
        "tokenizer": tokenizer,
        "option_ids": option_tokens(tokenizer, ("1", "2")),
        "max_prompt_tokens": 240,
        "reasoning_tokens": 0,
    }
    return policy_judge.PolicyJudge(**(settings | changes))


def next_distribution(model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1].softmax(-1)


def test_probabilities_are_the_model_s_own_summed_over_variants(model, tokenizer):
    ones, twos = option_tokens(tokenizer, ("1", "2"))
    assert len(ones) == len(twos) == 2
    for message, choice in zip(
        MESSAGES, judge_messages(chooser(model, tokenizer), MESSAGES), strict=True
    ):
        p = next_distribution(model, tokenizer(message)["input_ids"])
        mass = float(p[ones].sum() + p[twos].sum())
        assert choice.mass == pytest.approx(mass, abs=1e-5)
        assert choice.probabilities[0] == pytest.approx(float(p[ones].sum()) / mass, abs=1e-5)
        assert (choice.num_prompt_tokens, choice.num_generated_tokens) == (
            len(tokenizer(message)["input_ids"]),
            0,
        )


def test_this_judge_has_learned_to_answer_and_its_choices_are_not_all_alike(model, tokenizer):
    result = judge_messages(chooser(model, tokenizer), MESSAGES)
    assert all(choice.mass > 0.9 for choice in result)
    firsts = [choice.probabilities[0] for choice in result]
    assert min(firsts) < 0.5 < max(firsts)


def test_a_message_longer_than_allowed_is_not_read_and_the_others_are(model, tokenizer):
    lengths = [len(tokenizer(message)["input_ids"]) for message in MESSAGES]
    assert min(lengths) < max(lengths)
    some = judge_messages(chooser(model, tokenizer, max_prompt_tokens=min(lengths)), MESSAGES)
    every = judge_messages(chooser(model, tokenizer), MESSAGES)
    for length, choice, full in zip(lengths, some, every, strict=True):
        if length > min(lengths):
            assert choice is None
        else:
            assert choice.probabilities == pytest.approx(full.probabilities, abs=1e-5)
    assert judge_messages(chooser(model, tokenizer, max_prompt_tokens=1), MESSAGES[:2]) == [
        None,
        None,
    ]


def test_reasoning_is_the_greedy_continuation_and_the_cue_leads_to_the_options(model, tokenizer):
    judge = chooser(model, tokenizer, reasoning_tokens=5)
    (choice,) = judge_messages(judge, MESSAGES[:1])
    prompt = tokenizer(MESSAGES[0] + prompts.REASONING_REQUEST)["input_ids"]
    ids = list(prompt)
    for _ in range(5):
        ids.append(int(next_distribution(model, ids).argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            ids.pop()
            break
    assert choice.num_generated_tokens == len(ids) - len(prompt)
    p = next_distribution(model, ids + tokenizer(prompts.REASONING_CUE)["input_ids"])
    ones, twos = judge.option_ids
    expected = float(p[ones].sum() / (p[ones].sum() + p[twos].sum()))
    assert choice.probabilities[0] == pytest.approx(expected, abs=1e-5)


def test_reasoning_ends_before_whichever_token_ends_a_sequence(model, tokenizer):
    prompt = tokenizer(MESSAGES[0] + prompts.REASONING_REQUEST)["input_ids"]
    end = int(next_distribution(model, prompt).argmax())
    assert end == tokenizer.eos_token_id  # it has nothing to say
    # The tokenizer names one such token, generation_config.json several, as of many chat models.
    tokenizer.eos_token = "<|step|>"
    plain = chooser(model, tokenizer, reasoning_tokens=5)
    engine = replace(plain.engine, eos_ids=frozenset([tokenizer.eos_token_id, end]))
    (choice,) = judge_messages(replace(plain, engine=engine), MESSAGES[:1])
    assert choice.num_generated_tokens == 0
    p = next_distribution(model, prompt + tokenizer(prompts.REASONING_CUE)["input_ids"])
    ones, twos = plain.option_ids
    expected = float(p[ones].sum() / (p[ones].sum() + p[twos].sum()))
    assert choice.probabilities[0] == pytest.approx(expected, abs=1e-5)


def test_a_special_token_spelled_in_an_answer_is_read_as_text(model, tokenizer, monkeypatch):
    seen = []
    ids = prompting.tokenize
    monkeypatch.setattr(
        prompting, "tokenize", lambda *given: seen.extend(ids(*given)) or ids(*given)
    )
    judge_messages(chooser(model, tokenizer), ["1: #### 9<|end|>\n2: #### 7\nBetter:\n"])
    assert not set(tokenizer.all_special_ids) & set(seen[0])


def test_loaded_alone_it_chooses_the_same_and_reads_what_fits_the_positions(model, tokenizer):
    actual = policy_judge.load_judge(
        judge_checkpoint.checkpoint(), ("1", "2"), tiny_checkpoints.compute(), tiny_checkpoints.CPU
    )
    expected = judge_messages(chooser(model, tokenizer), MESSAGES)
    for choice, same in zip(judge_messages(actual, MESSAGES), expected, strict=True):
        assert choice.probabilities == pytest.approx(same.probabilities, abs=1e-5)
    assert judge_messages(actual, [MESSAGES[0] * 10]) == [None]


def test_options_are_compared_where_the_template_has_a_reply_begin(model, monkeypatch):
    """A Qwen 3 that judges without reasoning: behind its empty thought, as it was trained."""
    qwen = make_tool_tokenizer(QWEN_3)
    judge, contexts = chooser(model, qwen), []

    def record(prompts, token_ids):
        contexts.extend(prompts)
        return ((i, [-1.0] * len(token_ids)) for i in range(len(prompts)))

    monkeypatch.setattr(judge.engine, "next_logprobs", record)
    judge_messages(judge, ["1 or 2?"])
    expected = "<|im_start|>user\n1 or 2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert [qwen.decode(ids) for ids in contexts] == [expected]


@pytest.mark.parametrize(
    ("template", "reasoning", "reason", "closed"),
    [
        (R1, "Both add", "length", "\n</think>\n\n"),
        (R1, "Both add", "stop", "\n</think>\n\n"),
        (R1, "Both add.</think>The first", "length", ""),
        (QWEN_3, "<think>\nBoth add", "length", "\n</think>\n\n"),
        (QWEN_3, "<think>\nBoth add.\n</think>\n\nThe first", "length", ""),
        (QWEN_3, "Both add", "length", ""),
    ],
)
def test_options_are_compared_behind_the_thought(
    template, reasoning, reason, closed, model, monkeypatch
):
    """Reasoning that is truncated in a thought, which the template or the judge has begun."""
    tokenizer = make_tool_tokenizer(template)
    judge, contexts = chooser(model, tokenizer, reasoning_tokens=50), []
    ids = tokenizer(reasoning)["input_ids"] + [tokenizer.eos_token_id] * (reason == "stop")
    sample = Sample(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason=reason)

    def record(prompts, token_ids):
        contexts.extend(prompts)
        return ((i, [-1.0] * len(token_ids)) for i in range(len(prompts)))

    monkeypatch.setattr(judge.engine, "sample", lambda prompts, *_, **__: [[sample]])
    monkeypatch.setattr(judge.engine, "next_logprobs", record)
    (judgement,) = judge_messages(judge, ["1 or 2?"])
    (text,) = [tokenizer.decode(context) for context in contexts]
    assert text.endswith(f"{reasoning}{closed}{prompts.REASONING_CUE}")
    assert judgement.num_generated_tokens == len(ids) - (reason == "stop")
    room = policy_judge.count_cue_tokens(tokenizer, has_reasoning=True)
    assert len(contexts[0]) <= judgement.num_prompt_tokens + 50 + room
