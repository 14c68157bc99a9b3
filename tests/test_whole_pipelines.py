"""Whole pipelines that are not the default: conversations, an own model, recipes."""

import gzip
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_copy import ROOT, PipelineCopy, find_edit
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from toy_repo import init_dvc
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from flows.plan import read_graph
from stages.config import read_yaml
from stages.rows import TABLES

RECIPES = sorted(path.stem for path in (ROOT / "stages/recipes").glob("*.yaml"))
HH = ROOT.parent / "shared/data/hh_rlhf_harmless/test.jsonl.gz"
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RESERVED = "<|extra_0|>"
NUM_PROBLEMS = {"train": 1300, "test": 40}


@pytest.mark.parametrize("name", RECIPES)
def test_every_data_dependency_of_a_recipe_is_the_output_of_one_of_its_stages(
    tmp_path: Path, name: str
):
    init_dvc(tmp_path)
    for file in ("params.yaml", "stages/presets.yaml", f"stages/recipes/{name}.yaml"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    text = (ROOT / "dvc.yaml").read_text()
    assert text.count("vars: []") == 1
    switched_on = text.replace("vars: []", f"vars: [stages/recipes/{name}.yaml]")
    (tmp_path / "dvc.yaml").write_text(switched_on)
    graph = read_graph(tmp_path)
    made = {out for node in graph.values() for out in node.outs}
    read = {dep for node in graph.values() for dep in node.deps if dep.startswith("data/")}
    # One whole output, a file of data/code or data/own, or the folder around a table's outputs.
    missing = {
        dep
        for dep in read - made
        if not dep.startswith(("data/code/", "data/own/"))
        and not any(out.startswith(f"{dep}/") for out in made)
    }
    # Files that the user puts there, and the folders of tables without rows, which `plan` makes.
    missing -= {f"data/{table}" for table in TABLES}
    assert {dep for dep in missing if not dep.startswith("data/raw")} == set()
    leaves = set(graph) - {other for node in graph.values() for other in node.upstream}
    assert leaves == {"track"}
    evaluated = {node for node in graph if node.startswith("evaluate@")}
    assert evaluated <= set(graph["compare"].upstream)


# Conversations: SFT, people's pairs, DPO, and RL on a learned reward.


@pytest.mark.weekly
@pytest.mark.skipif(not HH.is_file(), reason="HH-RLHF is not at ../shared/data/hh_rlhf_harmless")
def test_the_whole_pipeline_runs_on_conversations(pipeline_copy: Callable[..., PipelineCopy]):
    copy = pipeline_copy(find_edit("conversations"))
    (copy.path / "data/raw").mkdir(parents=True, exist_ok=True)
    with gzip.open(HH, "rb") as file, gzip.open(copy.path / "data/raw/hh.jsonl.gz", "wb") as some:
        some.writelines(itertools.islice(file, 700))
    copy.repro()
    prompts = (copy.path / "data/prompts/test.jsonl").read_text().splitlines()
    assert all(json.loads(line)["answer"] is None for line in prompts)
    card = copy.read("data/prepared/data_card.json")
    assert card["demonstrations_by_task"] == {"chat": card["counts"]["demonstrations"]}
    # an earlier turn of the assistant is learned, too
    assert card["counts"]["demonstrations"] > card["counts"]["train"] / 2
    rollouts = (copy.path / "data/policies/grpo/training/0/rollouts.jsonl").read_text()
    assert {json.loads(line)["correct"] for line in rollouts.splitlines()} == {None}
    report = copy.read("data/report/metrics.json")
    assert set(report["policies"]) == {"sft", "dpo", "ppo", "grpo"}
    assert report["policies"]["sft"]["wins/people"]["value"] == 0.5
    assert set(report["gains"]["reward/people"]) == {"dpo", "ppo", "grpo"}
    page = (copy.path / "data/report/report.html").read_text()
    assert "wins against sft" in page
    assert "Right answer" not in page


# A model and data of one's own: two words, and less work.


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


@pytest.mark.weekly
@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not at ../shared/data/gsm8k")
def test_two_words_are_all_that_a_user_changes(tmp_path: Path):
    write_model(tmp_path / "model", write_problems(tmp_path / "gsm8k"))
    (tmp_path / "copy").mkdir()

    def edit(params: dict[str, Any], presets: dict[str, Any]) -> None:
        params["model"]["path"] = str(tmp_path / "model")
        params["data"]["source"] = {"path": "data/raw/gsm8k"}
        find_edit("less work")(params, presets)

    copy = PipelineCopy(tmp_path / "copy", edit)
    shutil.copytree(tmp_path / "gsm8k", copy.path / "data/raw/gsm8k")
    content = read_yaml(ROOT / "params.yaml")
    copy.repro()
    assert list(copy.read("data/report/metrics.json")["policies"]) == list(content["policies"])
    card = copy.read("data/prepared/data_card.json")
    assert set(card["quarantined"]) <= {"near copy"}
    facts = copy.read("data/prompts/facts.json")
    assert facts["train_prompts"] == card["counts"]["train"]
    assert facts["completion_tokens"] == card["completion_tokens"]["max"]
    # So weak a model repeats itself when it decodes greedily, and is evaluated all the same.
    assert copy.read("data/evaluations/sft/0/metrics.json")["in_loop/test_greedy"] > 0.5
    # What users look at has numbers.
    (run,) = [
        run for run in copy.mlflow_runs() if run.data.tags.get("posttrain.stage") == "train@sft"
    ]
    assert run.data.params["compute.dtype"] == "float32"
    assert 5e-4 < float(run.data.params["sft.optim.learning_rate"]) < 1.5e-3
