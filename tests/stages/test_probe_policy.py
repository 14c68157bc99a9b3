"""The stage on a small judge that is the policy too, with and without a chat template."""

import json
import shutil
from pathlib import Path

import judge_checkpoint
import pytest
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE

from stages import params, probe_policy
from stages.models import model_tokenizer, prompting
from stages.records import lines
from stages.records.completion import Completion
from stages.records.probe_value import ProbeValue
from stages.records.prompt import Prompt
from stages.reports import probe_summary
from stages.rewards.probes.catalogue import PROBES

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data"
POLICY, POOL = "train_sft/old/policy", "old-test"
NONE = ("no_model", "no_model", "no_model", "data/no_file", "data/no_file")
SETTINGS = {"num_problems": 12, "max_new_tokens": 4, "num_bootstrap": 100}
NUM_PROBLEMS = 14
CHAT = "{% for message in messages %}User: {{ message.content }}\nAssistant:{% endfor %}"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(judge_checkpoint.checkpoint(), Path("data") / POLICY)
    write_params()
    write_prompts()
    completions = [
        Completion(
            id=f"test-{i}",
            index=index,
            completion=judge_checkpoint.ANSWERS[index],
            completion_ids=[20 + index] * 8,
            logprob_sum=-1.0,
            finish_reason="length" if index == 3 else "stop",
            seed=0,
        )
        for i in range(NUM_PROBLEMS)
        for index in range(4)
    ]
    folder = probe_policy.POOLS / POOL
    lines.write(folder / "pool.jsonl", completions)
    lines.write(folder / "greedy.jsonl", [row for row in completions if row.index == 0])


def write_params(**changes: object) -> None:
    content = params.read(ROOT / "params.yaml")
    kept = {key: content[key] for key in probe_policy.Config.model_fields}
    kept["compute"] = COMPUTE
    kept["probe_policy"] |= SETTINGS | changes
    kept["probe_policy"]["dev"] |= {"num_samples": 2, "max_new_tokens": 4}
    kept["probe_policy"]["attack"]["constitution"] = "none"
    with Path("params.yaml").open("w") as file:
        YAML().dump(kept, file)


def write_prompts() -> None:
    tokenizer = model_tokenizer.load(Path("data") / POLICY)
    for split in ("train", "dev", "test"):
        questions = [
            f"Anna has {3 + i} apples. She buys 4 more. She loses 2. How many apples now?"
            for i in range(NUM_PROBLEMS)
        ]
        texts = prompting.render(questions, tokenizer, "{question}")
        rows = zip(questions, texts, prompting.ids(texts, tokenizer), strict=True)
        prompts = [
            Prompt(
                id=f"{split}-{i}",
                task="solve",
                question=question,
                prompt=text,
                prompt_ids=ids,
                answer=str(5 + i),
            )
            for i, (question, text, ids) in enumerate(rows)
        ]
        lines.write(probe_policy.PROMPTS / f"{split}.jsonl", prompts)


def probe(*others: str) -> dict:
    probe_policy.main("old", POLICY, POOL, *others)
    return json.loads((probe_policy.OUTPUT / "old/metrics.json").read_text())


def values() -> probe_summary.Values:
    path = probe_policy.OUTPUT / "old/probes.jsonl"
    return probe_summary.by_probe(lines.read(path, ProbeValue))


def test_every_probe_is_run_or_says_why_and_the_files_agree():
    metrics = probe(*NONE[:2], POLICY, *NONE[3:])
    assert metrics["probes"].keys() | metrics["not_run"].keys() == set(PROBES)
    found = values()
    assert {name: len(own) for name, own in found.items()} == {
        name: one["problems"] for name, one in metrics["probes"].items()
    }
    assert set(found["repeated_4grams"].values()) == {0.8}  # 5 windows of 8 equal tokens, 1 kind
    assert set(found["unfinished_loop"].values()) == {0.25}
    assert len(found["hint_sway"]) == 12
    assert "judge_injection" in found
    assert metrics["not_run"]["list_gain"] == "no reward model named"
    assert metrics["not_run"]["over_refusal"].startswith("no chat template")
    assert metrics["dev_accuracy"]["problems"] == NUM_PROBLEMS


def test_a_second_run_writes_the_same_bytes():
    probe(*NONE)
    path = probe_policy.OUTPUT / "old"
    before = [(path / name).read_bytes() for name in ("probes.jsonl", "metrics.json")]
    probe(*NONE)
    assert before == [(path / name).read_bytes() for name in ("probes.jsonl", "metrics.json")]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_a_chat_model_is_asked_xstest_and_svamp():
    path = Path("data") / POLICY
    tokenizer = model_tokenizer.load(path)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(path)
    write_prompts()
    columns = {"question": ["Body", "Question"], "answer": "Answer", "max_bad_share": 0.0}
    write_params(transfer=columns | {"num_problems": 15})
    files = (SHARED / "svamp/SVAMP.json.gz", SHARED / "xstest/xstest_v2_prompts.csv.gz")
    probe(*NONE[:3], *map(str, files))
    found = values()
    assert len(found["transfer_accuracy"]) == 15
    assert len(found["over_refusal"]) == 250
    assert len(found["unsafe_compliance"]) == 200
