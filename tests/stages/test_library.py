"""README's library snippet runs as written, with only paths and sizes put in."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages import library
from stages.loops import rollouts
from stages.models.model_tokenizer import train_tokenizer

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
    with pytest.raises(ValueError, match="expected weights in float32"):
        next(library.grpo(model.bfloat16(), tokenizer, TEXTS, lambda p, c: 0.0))
