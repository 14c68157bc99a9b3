"""SFT, DPO and GRPO without the pipeline: the user's model, tokenizer, texts and reward."""

import copy
import json
import math
import re
import tempfile
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import peft
import pytest
import torch
from chat_tokenizers import KINDS, make_tokenizer
from page_blocks import blocks_of
from tiny_checkpoints import plain_logprobs
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from stages import library
from stages.config import read_yaml
from stages.environments.environment import Reply
from stages.environments.limits import EpisodeLimits
from stages.loops import rollouts
from stages.loops.work import Step
from stages.models import prompting
from stages.models.device import COMPUTE
from stages.models.model_tokenizer import train_tokenizer
from stages.records.problems import Problem
from stages.rewards.answer_checker import states_an_answer

TEXTS = [f"{a} plus {b} is {a + b}" for a in range(10) for b in range(10)]
SIZES = {"num_steps": 1, "prompts_per_step": 2, "max_new_tokens": 4, "group_size": 2}


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(TEXTS, 700)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def model(model_path, torch_settings):
    return AutoModelForCausalLM.from_pretrained(model_path)


@pytest.fixture
def tokenizer(model_path):
    return AutoTokenizer.from_pretrained(model_path)


def pay_length(prompt, text):
    return len(text)


def step_once(model, tokenizer, reward=pay_length, prompts=TEXTS[:4], **settings):
    return next(library.grpo(model, tokenizer, prompts, reward, **SIZES | settings))


SNIPPETS = [block.text for block in blocks_of("script")]
STEPS = {"sft": 22, "dpo": 10, "grpo": 20}


@pytest.mark.parametrize("name", STEPS)
def test_a_snippet_of_the_page_trains_a_model_in_ten_lines(
    name, model_path, model, tmp_path, capsys
):
    assert len(SNIPPETS) == len(STEPS)
    (code,) = [code for code in SNIPPETS if f"library.{name}(" in code]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code = code.replace("path/to/model", str(model_path)).replace("path/to/trained", str(tmp_path))
    exec(compile(code, name, "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == STEPS[name]
    before = model.state_dict()
    after = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


NOTEBOOK = Path(__file__).parents[2] / "stages/try_it.ipynb"


def test_the_cells_of_the_notebook_run_in_order_and_the_reward_grows(
    torch_settings, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    content, names = json.loads(NOTEBOOK.read_text(encoding="utf-8")), {}
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    assert "line 101" in capsys.readouterr().out
    assert names["after"] > names["before"] + 0.05


EXAMPLES = re.findall(r"(?m)(?:^    .+\n)+", library.__doc__)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_docstring_runs(number, model, tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"library": library, "model": model, "tokenizer": tokenizer, "Game": Coach}
    names |= {"prompts": TEXTS[:8], "reward": pay_length, "rows": ROWS + ROWS[:2]}
    names |= {"settings": {"num_steps": 2, "max_new_tokens": 16}, "EpisodeLimits": EpisodeLimits}
    exec(compile(textwrap.dedent(EXAMPLES[number]), "library.py", "exec"), names)
    assert isinstance(names["step"], Step)
    assert (tmp_path / "folder").exists() is ("state.save" in EXAMPLES[number])
    assert bool(capsys.readouterr().out) is ("print" in EXAMPLES[number])


class Coach:
    """Two turns: the second is paid for what the first was, and both for a digit."""

    rows: ClassVar[list[dict]] = []

    def start(self, row, seed):
        self.turn = 0
        self.rows.append(row)
        return [{"role": "user", "content": row["question"]}], None

    def step(self, message):
        self.turn += 1
        answer = {"role": "user", "content": "plus 3 is"}
        reward = float(any(digit in message["content"] for digit in "0123456789"))
        return Reply(messages=[answer], reward=reward, done=self.turn == 2)


ROWS = [{"question": text.rpartition(" ")[0]} for text in TEXTS[:6]]
DEMONSTRATIONS = [{"prompt": row["question"], "completion": " 7."} for row in ROWS]
PAIRS = [{"prompt": f"{a} plus 1 is", "chosen": f" {a + 1}", "rejected": f" {a}"} for a in range(6)]


def encode(tokenizer, text):
    return [*prompting.tokenize_continuation([text], tokenizer)[0], tokenizer.eos_token_id]


def test_dpo_has_the_loss_of_its_formula_from_the_model_as_it_was(model, tokenizer):
    row, start = PAIRS[0], copy.deepcopy(model)
    (prompt,) = library.make_prompts([row["prompt"]], model, tokenizer)

    def log_p(policy, key):
        ids = encode(tokenizer, row[key])
        return plain_logprobs(policy, [*prompt.prompt_ids], ids).sum().item()

    settings = {"preset": "dpo_low_beta", "num_epochs": 3, "learning_rate": 1e-2}
    expected = math.log(2)
    for step in library.dpo(model, tokenizer, [row], **settings):
        assert step.metrics["loss/preference"] == pytest.approx(expected, rel=1e-4)
        chosen, rejected = (log_p(model, key) - log_p(start, key) for key in ("chosen", "rejected"))
        expected = math.log1p(math.exp(-0.1 * (chosen - rejected)))
    assert expected < math.log(2)


TRAINED = {
    "sft": (DEMONSTRATIONS, {"num_epochs": 2, "batch_size": 2}),
    "dpo": (PAIRS, {"num_epochs": 2, "batch_size": 2}),
    "grpo": (TEXTS[:4], {"reward": pay_length, **SIZES, "num_steps": 6}),
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_training_is_resumed_to_the_bit_by_its_own_function(
    name, model, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 100)  # nothing rewards an end
    rows, settings = TRAINED[name]

    def train(state, function=name, rows=rows, settings=settings):
        learner = copy.deepcopy(model)
        for step in getattr(library, function)(
            learner, tokenizer, rows, learning_rate=1e-2, state=state, **settings
        ):
            yield step.metrics, copy.deepcopy(learner.state_dict())
            state.save(tmp_path / str(step.index))

    expected = list(train(library.State()))
    assert len(expected) == 6
    for (metrics, weights), (also, others) in zip(
        train(library.State.load(tmp_path / "2")), expected[3:], strict=True
    ):
        assert metrics == also
        assert all(torch.equal(weights[name], others[name]) for name in weights)
    other = "dpo" if name == "sft" else "sft"
    with pytest.raises(ValueError, match="another function"):
        next(train(library.State.load(tmp_path / "2"), other, *TRAINED[other]))


CASES = read_yaml(Path(__file__).with_suffix(".yaml"))["refused"]
AUTO = COMPUTE.model_copy(update={"gradient_checkpointing": "auto"})


@contextmanager
def refused(match):
    """Of a refusal no word is of the pipeline: who calls a function has none of its files."""
    with pytest.raises(ValueError, match=match) as error:
        yield
    words = ("params.yaml", "dvc", "data/", "`train: ", "`on: ", "policies", "posttrain")
    assert [word for word in words if word in str(error.value)] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["it"])
def test_what_sft_and_dpo_cannot_learn_is_refused_by_its_argument(case, model, tokenizer):
    rows = [{key: text.replace("</s>", tokenizer.eos_token) for key, text in row.items()}
            if isinstance(row, dict) else row for row in case["rows"]]  # fmt: skip
    settings = {"compute": AUTO} if case.get("auto") else case.get("settings", {})
    with refused(case["says"]):
        next(getattr(library, case["of"])(model, tokenizer, rows, **settings))


REFUSED = {
    "steps": ({"num_steps": 0}, "num_steps: expected"),
    "group": ({"group_size": 2.5}, "group_size: expected"),
    "unknown preset": ({"preset": "grpo"}, "such as dr_grpo, found .grpo."),
    "preset with a teacher": ({"preset": "opd"}, "dr_grpo"),
    "preset with rewards of steps": ({"preset": "grpo_process"}, "dr_grpo"),
    "too few prompts": ({"prompts": TEXTS[:1]}, "prompts_per_step"),
    "arguments": ({"reward": lambda completions: [0.0]}, "completions"),
    "nan": ({"reward": lambda p, c: float("nan")}, "nan"),
    "no reward": ({"reward": None}, "neither"),
    "both": ({"environment": Coach, "prompts": ROWS}, "both"),
    "texts in an environment": ({"environment": Coach, "reward": None}, "str"),
    "rows for a reward": ({"prompts": ROWS}, "dict"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_learned_is_refused(case, model, tokenizer):
    settings, mentions = REFUSED[case]
    with refused(mentions):
        step_once(model, tokenizer, **settings)


def test_models_and_tokenizers_that_cannot_be_trained_are_refused(model, tokenizer):
    prompt = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    with refused("PROMPT_TUNING"):
        step_once(peft.get_peft_model(copy.deepcopy(model), prompt), tokenizer)
    with refused("bfloat16"):
        step_once(copy.deepcopy(model).bfloat16(), tokenizer)
    damaged = copy.deepcopy(model)
    damaged.model.norm.weight.data[3] = float("nan")
    with refused(r"model\.norm\.weight"):
        step_once(damaged, tokenizer)
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["plus"])
    with refused("plus"):
        step_once(model, other)
    tokenizer.pad_token = tokenizer.eos_token = None
    with refused("end-of-sequence"):
        step_once(model, tokenizer)


def test_of_a_peft_model_the_adapters_alone_are_trained_and_a_state_goes_on_with_new_ones(
    model, tokenizer, tmp_path
):
    def adapt(base):  # the A of LoRA is drawn anew
        lora = peft.LoraConfig(target_modules="all-linear", lora_dropout=0.5, r=4)
        return peft.get_peft_model(copy.deepcopy(base), lora)

    trained, state = adapt(model), library.State()
    before = copy.deepcopy(trained.state_dict())
    step_once(trained, tokenizer, state=state, num_steps=2, learning_rate=1e-2)
    changed = {n for n, value in trained.state_dict().items() if not torch.equal(value, before[n])}
    assert changed == {name for name in before if ".lora_B." in name}
    state.save(tmp_path)
    other = copy.deepcopy(model)
    next(other.parameters()).data.add_(1)
    for wrong in (trained, adapt(other)):
        with refused("state"):
            step_once(wrong, tokenizer, state=library.State.load(tmp_path), num_steps=2)
    step = step_once(adapt(model), tokenizer, state=library.State.load(tmp_path), num_steps=2)
    assert step.index == 1


def test_episodes_in_an_environment_are_learned_from(model, tokenizer):
    turns = [{"prompt": row["question"], "completion": " plus 3"} for row in ROWS]
    for _ in library.sft(model, tokenizer, turns, num_epochs=40, learning_rate=1e-2):
        pass  # so that it ends its turns
    starts = [
        {"id": "first", **ROWS[0]},
        *({"id": f"r{n}", **row} for n, row in enumerate(ROWS[1:])),
    ]
    Coach.rows.clear()
    limits = EpisodeLimits(max_turns=3, max_turn_tokens=6, max_tokens=40, success_reward=1.0)
    step = step_once(
        model, tokenizer, None, starts, environment=Coach, limits=limits, group_size=4,
        prompts_per_step=3,
    )  # fmt: skip
    assert {row["id"] for row in Coach.rows} <= {row["id"] for row in starts}
    metrics = step.metrics
    assert metrics["episode/turns"] > 1.5
    assert metrics["reward/accuracy"] == metrics["episode/success"] > 0
    shares = [value for key, value in metrics.items() if key.startswith("ending/")]
    assert sum(shares) + metrics["episode/failed"] == pytest.approx(1)


def test_a_state_goes_on_only_with_the_model_that_it_began_from(model, tokenizer, tmp_path):
    start, state = copy.deepcopy(model), library.State()
    step_once(model, tokenizer, state=state, num_steps=2, learning_rate=1e-2)
    state.save(tmp_path)
    with refused("state"):  # the model as trained would be its reference
        step_once(model, tokenizer, state=library.State.load(tmp_path), num_steps=2)
    unknown = library.State.load(tmp_path)
    unknown.start = None  # as states were saved before they had it
    step = step_once(start, tokenizer, state=unknown, num_steps=2)
    assert step.index == 1
    assert step.metrics["kl/k1"] != 0


def test_a_length_of_a_preset_follows_from_the_longest_completion():
    buffers = {length: library.load_method("dapo", length).overlong_buffer for length in (4, 256)}
    assert buffers == {4: 1, 256: 51}


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_have_the_ids_of_the_pipeline(kind, model):
    tokenizer = make_tokenizer(kind)
    model.resize_token_embeddings(len(tokenizer))
    problem = Problem(id="a", question="Why?", answer="1", solution=None, split=None, line=1)
    (row,) = prompting.encode_problems(
        {"test": [problem]}, tokenizer, template="{question}", readable=states_an_answer,
        max_prompt_tokens=99, max_completion_tokens=99,
    )  # fmt: skip
    assert row.prompt is not None
    plain = "Why?"
    if tokenizer.chat_template is not None:
        plain = tokenizer.apply_chat_template(
            [{"role": "user", "content": "Why?"}], add_generation_prompt=True, tokenize=False
        )
    actual = library.make_prompts([row.prompt.prompt, plain], model, tokenizer)
    assert [item.prompt_ids for item in actual] == [row.prompt.prompt_ids] * 2
    assert [item.prompt for item in actual] == [row.prompt.prompt] * 2
    assert [item.question for item in actual] == [row.prompt.prompt, plain]
    # A plain text starts with the begin token where the template's do.
    (begun,) = library.make_prompts(["Why?"], model, tokenizer)
    begins = row.prompt.prompt_ids[0] == tokenizer.bos_token_id
    assert (begun.prompt_ids[0] == tokenizer.bos_token_id) is begins
