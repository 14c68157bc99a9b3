"""README's library snippet runs as written, with only paths and sizes put in."""

import copy
import re
from pathlib import Path

import peft
import pytest
import torch
from chat_tokenizers import KINDS, make_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages import library
from stages.environments.environment import Reply
from stages.environments.limits import EpisodeLimits
from stages.loops import rollouts
from stages.models import prompting
from stages.models.model_tokenizer import train_tokenizer
from stages.records.problems import Problem
from stages.rewards.answer_checker import states_an_answer

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TEXTS = [f"{a} plus {b} is {a + b}" for a in range(10) for b in range(10)]


@pytest.fixture
def model_path(tmp_path):
    from transformers import LlamaConfig

    tokenizer = train_tokenizer(TEXTS, 700)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def snippet():
    (code,) = re.findall(r"```python\n(from stages import library.*?)```", README, re.DOTALL)
    return code


def test_the_snippet_of_the_readme_trains_a_model_in_ten_lines(model_path, tmp_path, capsys):
    code = snippet()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code = code.replace("path/to/model", str(model_path)).replace("path/to/trained", str(tmp_path))
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 20
    before = AutoModelForCausalLM.from_pretrained(model_path).state_dict()
    after = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_reward_of_the_users_is_learned(model_path, monkeypatch):
    # Nothing rewards ending an answer.
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)
    model = AutoModelForCausalLM.from_pretrained(model_path)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    seen = []

    def reward(prompt, completion):
        seen.append(prompt)
        return float("7" in completion)

    steps = list(
        library.grpo(
            model, tokenizer, TEXTS[:8], reward, preset="dr_grpo", num_steps=25, max_new_tokens=8,
            prompts_per_step=4, learning_rate=1e-2,
        )
    )  # fmt: skip
    assert set(seen) <= set(TEXTS[:8])
    rewards = [step.metrics["reward/mean"] for step in steps]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.3


def test_errors_say_what_to_do(model_path):
    model = AutoModelForCausalLM.from_pretrained(model_path)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    with pytest.raises(ValueError, match=r"no entry 'grpo'; it has \['cispo', 'dapo', 'dr_grpo',"):
        next(library.grpo(model, tokenizer, TEXTS, lambda p, c: 0.0, preset="grpo"))
    with pytest.raises(ValueError, match=r"reward: expected .*found arguments \(completions\)"):
        next(library.grpo(model, tokenizer, TEXTS, lambda completions: [0.0]))  # pyright: ignore
    with pytest.raises(ValueError, match="expected weights in float32"):
        next(library.grpo(model.bfloat16(), tokenizer, TEXTS, lambda p, c: 0.0))


def first_step(model, tokenizer, reward, **settings):
    sizes = {"num_steps": 1, "prompts_per_step": 2, "max_new_tokens": 4, "group_size": 2}
    return next(library.grpo(model, tokenizer, TEXTS[:4], reward, **(sizes | settings)))


@pytest.mark.parametrize(
    ("value", "problem"),
    [(float("nan"), "found nan"), (float("inf"), "found inf"), ("good", "'good'"), (None, "None")],
)
def test_a_reward_that_is_no_number_is_named_with_prompt_and_completion(model_path, value, problem):
    model = AutoModelForCausalLM.from_pretrained(model_path)
    tokenizer, seen = AutoTokenizer.from_pretrained(model_path), []

    def reward(prompt, completion):
        seen.append((prompt, completion))
        return value if len(seen) == 3 else 0.0

    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        first_step(model, tokenizer, reward)
    assert all(repr(text) in str(caught.value) for text in seen[2])


def test_a_tokenizer_needs_no_pad_token_and_an_end(model_path):
    model = AutoModelForCausalLM.from_pretrained(model_path)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    expected = first_step(copy.deepcopy(model), tokenizer, lambda _prompt, text: len(text))
    tokenizer.pad_token = None
    actual = first_step(copy.deepcopy(model), tokenizer, lambda _prompt, text: len(text))
    assert actual.metrics == pytest.approx(expected.metrics, rel=1e-5)
    assert tokenizer.pad_token is None
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        first_step(model, tokenizer, lambda _prompt, text: len(text))


def test_of_a_peft_model_the_adapters_alone_are_trained(model_path):
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    lora = peft.LoraConfig(target_modules="all-linear", lora_dropout=0.5, r=4)
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(model_path), lora)
    before = copy.deepcopy(model.state_dict())
    first_step(model, tokenizer, lambda _prompt, text: len(text), learning_rate=1e-2)
    changed = {n for n, value in model.state_dict().items() if not torch.equal(value, before[n])}
    assert changed == {name for name in before if ".lora_B." in name}
    prompt = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(model_path), prompt)
    with pytest.raises(ValueError, match="found PeftModelForCausalLM with PROMPT_TUNING"):
        first_step(model, tokenizer, lambda _prompt, text: len(text))


def teach_to_end(model, tokenizer):
    """The model after some steps of SFT, so that it ends its turns."""
    ids = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in TEXTS]
    batch = torch.tensor([row for row in ids if len(row) == len(ids[0])])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        model(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


class Sum:
    """Two turns: the second is paid for what the first was, and both for a digit."""

    def start(self, row, seed):
        self.turn = 0
        return [{"role": "user", "content": row["question"]}], None

    def step(self, message):
        self.turn += 1
        answer = {"role": "user", "content": "plus 3 is"}
        reward = float(any(digit in message["content"] for digit in "0123456789"))
        return Reply(messages=[answer], reward=reward, done=self.turn == 2)


def test_episodes_in_an_environment_are_trained_on_and_resumed_to_the_bit(model_path, tmp_path):
    rows = [{"question": text.rpartition(" ")[0]} for text in TEXTS[:6]]
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    taught = teach_to_end(AutoModelForCausalLM.from_pretrained(model_path), tokenizer)

    def train(state=None):
        model = copy.deepcopy(taught)
        limits = EpisodeLimits(max_turns=3, max_turn_tokens=6, max_tokens=40, success_reward=1.0)
        for step in library.grpo(
            model, tokenizer, rows, environment=Sum, limits=limits, num_steps=3, group_size=4,
            prompts_per_step=3, learning_rate=1e-2, state=state,
        ):  # fmt: skip
            yield step
            if state is not None:
                state.save(tmp_path / str(step.index))

    expected = [(step.metrics, step.rows) for step in train(library.State())]
    assert len(expected) == 3
    metrics = expected[0][0]
    assert metrics["episode/turns"] > 1.5
    assert metrics["episode/success"] > 0
    assert metrics["reward/accuracy"] == metrics["episode/success"]
    shares = [value for key, value in metrics.items() if key.startswith("ending/")]
    assert sum(shares) + metrics["episode/failed"] == pytest.approx(1)
    rest = train(library.State.load(tmp_path / "0"))
    assert [(step.metrics, step.rows) for step in rest] == expected[1:]


def test_a_reward_or_an_environment_is_needed_and_not_both(model_path):
    model = AutoModelForCausalLM.from_pretrained(model_path)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    for given in ({}, {"environment": Sum, "reward": lambda p, c: 0.0}):
        rows = [{"question": text} for text in TEXTS] if given else TEXTS
        with pytest.raises(ValueError, match="expected a reward or an environment"):
            next(library.grpo(model, tokenizer, rows, **given))
    with pytest.raises(ValueError, match="in an environment rows"):
        next(library.grpo(model, tokenizer, TEXTS, environment=Sum))


@pytest.mark.parametrize(("max_new_tokens", "buffer"), [(4, 1), (256, 51), (10000, 2000)])
def test_a_length_of_a_preset_follows_from_the_longest_completion(max_new_tokens, buffer):
    assert library.load_method("dapo", max_new_tokens).overlong_buffer == buffer


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_have_the_ids_of_the_pipeline(model_path, kind):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_path), make_tokenizer(kind)
    model.resize_token_embeddings(len(tokenizer))
    (row,) = prompting.encode_problems(
        {"test": [Problem(id="a", question="Why?", answer="1", solution=None, split=None, line=1)]},
        tokenizer, template="{question}", readable=states_an_answer,
        max_prompt_tokens=99, max_completion_tokens=99,
    )  # fmt: skip
    expected = row.prompt
    assert expected is not None
    texts = [expected.prompt]
    if tokenizer.chat_template is not None:
        turns = [{"role": "user", "content": "Why?"}]
        texts.append(
            tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        )
    else:
        texts.append("Why?")
    actual = library.make_prompts(texts, model, tokenizer)
    assert [row.prompt_ids for row in actual] == [expected.prompt_ids] * 2
    assert [row.prompt for row in actual] == [expected.prompt] * 2
    # A plain text starts with the begin token where the template's do.
    (plain,) = library.make_prompts(["Why?"], model, tokenizer)
    starts_with_begin = expected.prompt_ids[0] == tokenizer.bos_token_id
    assert (plain.prompt_ids[0] == tokenizer.bos_token_id) is starts_with_begin


def test_the_reward_reads_prompts_as_they_were_passed(model_path):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_path), make_tokenizer("plain")
    model.resize_token_embeddings(len(tokenizer))
    (prompt,) = library.make_prompts(["2 plus 2 is"], model, tokenizer)
    assert prompt.prompt == tokenizer.bos_token + "2 plus 2 is"
    gold = dict.fromkeys(TEXTS[:4], "4")
    first_step(model, tokenizer, lambda prompt, text: float(gold[prompt] in text))


def test_a_prompt_with_a_token_that_has_no_embedding_is_refused(model_path):
    model = AutoModelForCausalLM.from_pretrained(model_path)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    tokenizer.add_tokens(["plus"])
    with pytest.raises(ValueError, match=r"tokens below (\d+), .* found \1, 'plus'"):
        first_step(model, tokenizer, lambda _prompt, text: len(text))
