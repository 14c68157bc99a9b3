"""The default pipeline with a model and data of one's own: two words, and less work."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_copy import ROOT, PipelineCopy
from ruamel.yaml import YAML
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RESERVED = "<|extra_0|>"
NUM_PROBLEMS = {"train": 1300, "test": 40}


def write_problems(folder: Path) -> list[str]:
    """GSM8K's problems with the shortest solutions whose answer has one digit; all their texts."""
    folder.mkdir()
    texts = []
    for split, number in NUM_PROBLEMS.items():
        with gzip.open(GSM8K / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        rows = [row for row in rows if row["answer"][-2:-1] == " "]
        rows = sorted(rows, key=lambda row: len(row["answer"]))[:number]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
        texts += [text for row in rows for text in row.values()]
    return texts


def write_model(folder: Path, texts: list[str]) -> None:
    """A random Qwen2: grouped keys, digits as tokens, a chat template, a reserved token."""
    inner = Tokenizer(models.BPE())
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel()]
    inner.pre_tokenizer = pre_tokenizers.Sequence(split)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", RESERVED],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", RESERVED],
    )
    tokenizer.chat_template = CHAT
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def two_words(folder: Path, params: dict[str, Any]) -> None:
    params["model"]["path"] = str(folder / "model")
    params["data"]["source"] = {"path": "data/raw/gsm8k"}


def less_work(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """For speed alone: one seed, fewer samples, steps and prefixes (and problems, above)."""
    params["seeds"] = [0]
    params["sampling"]["test"]["num_samples"] = 4
    params["evaluation"] |= {"ks": [1], "num_bootstrap": 200}
    for method in ("ppo", "grpo"):
        params[method]["num_steps"] = 2
    presets["completions"] |= {"num_problems": 20, "num_heldout_problems": 10, "num_completions": 2}


@pytest.mark.slow
@pytest.mark.rotating
@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not at ../shared/data/gsm8k")
def test_two_words_are_all_that_a_user_changes(tmp_path: Path):
    write_model(tmp_path / "model", write_problems(tmp_path / "gsm8k"))
    (tmp_path / "copy").mkdir()

    def edit(params: dict[str, Any], presets: dict[str, Any]) -> None:
        two_words(tmp_path, params)
        less_work(params, presets)

    copy = PipelineCopy(tmp_path / "copy", edit)
    shutil.copytree(tmp_path / "gsm8k", copy.path / "data/raw/gsm8k")
    content = YAML(typ="safe").load(ROOT / "params.yaml")
    copy.repro()
    assert list(copy.read("data/report/metrics.json")["policies"]) == list(content["policies"])
    card = copy.read("data/prepared/data_card.json")
    assert set(card["quarantined"]) <= {"near copy"}
    facts = copy.read("data/prompts/facts.json")
    assert facts["train_prompts"] == card["counts"]["train"]
    assert facts["completion_tokens"] == card["completion_tokens"]["max"]
    # So weak a model repeats itself when it decodes greedily, and is evaluated all the same.
    assert copy.read("data/evaluations/sft/0/metrics.json")["in_loop/test_greedy"] > 0.5
    assert "greedy in a loop" in (copy.path / "data/report/report.md").read_text(encoding="utf-8")
    # What users look at has numbers.
    (run,) = [
        run for run in copy.mlflow_runs() if run.data.tags.get("posttrain.stage") == "train@sft"
    ]
    assert run.data.params["compute.dtype"] == "float32"
    assert 5e-4 < float(run.data.params["sft.optim.learning_rate"]) < 1.5e-3
