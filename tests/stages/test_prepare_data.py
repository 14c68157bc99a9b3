"""Stage prepare_data: rows of a source -> prompts by split, demonstrations, card and quarantine."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_tokenizers import make_tokenizer
from ruamel.yaml import YAML
from safetensors.torch import save_file
from transformers import AutoTokenizer, LlamaConfig

from stages import prepare_data
from stages.records import lines
from stages.records.problems import BadRow, Demonstration, Prompt
from stages.sources.splitting import SPLITS

DATA, MODEL = Path("data"), Path("model")
GSM8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k"
TINY = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 32,
        "max_length": 2048, "vocab_size": 800}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def prepare(model: str | None = None, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Run the stage with these settings; the data card."""
    section = {
        "source": {"path": "mine.jsonl", "licence": "CC0-1.0"}, "mixture": None,
        "prompt_template": "Solve: {question}\n", "max_prompt_tokens": 100,
        "shares": {"preference": 0.2, "dev": 0.2, "test": 0.2}, "max_completion_tokens": 100,
        "max_bad_share": 0.2,
    }  # fmt: skip
    policy = {"path": model, "revision": None, "thinking": None, "tiny": TINY}
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML().dump({"data_seed": seed, "model": policy, "data": section | changes}, file)
    Path("stages").mkdir(exist_ok=True)
    Path("stages/presets.yaml").write_text("{}\n", encoding="utf-8")
    prepare_data.main()
    return json.loads((prepare_data.PREPARED / "data_card.json").read_text(encoding="utf-8"))


def make_rows(count: int = 40, **changes: Any) -> list[dict[str, Any]]:
    return [{"question": f"What is {n} plus 3?", "answer": str(n + 3),
             "solution": f"{n} + 3 = {n + 3}\n#### {n + 3}"} | changes
            for n in range(count)]  # fmt: skip


def write(rows: list[dict[str, Any]], name: str = "mine.jsonl") -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def prompts() -> dict[str, list[Prompt]]:
    return {name: [*lines.read_lines(DATA / f"prompts/{name}.jsonl", Prompt)] for name in SPLITS}


def demonstrations() -> list[Demonstration]:
    return [*lines.read_lines(DATA / "demonstrations/demonstrations.jsonl", Demonstration)]


def files() -> dict[str, bytes]:
    paths = {path.relative_to(DATA): path for path in DATA.rglob("*") if path.is_file()}
    return {name.as_posix(): path.read_bytes() for name, path in paths.items()
            if {"runs", "journals"}.isdisjoint(name.parts)}  # fmt: skip


def save_tokenizer(kind: str, added: str = "") -> None:
    """A model's folder with a tokenizer, which may have a token more than the model."""
    tokenizer = make_tokenizer(kind)
    LlamaConfig(
        num_hidden_layers=1, architectures=["LlamaForCausalLM"], vocab_size=len(tokenizer)
    ).save_pretrained(MODEL)  # fmt: skip
    tokenizer.add_tokens([added] if added else [])
    tokenizer.save_pretrained(MODEL)
    save_file({"none": torch.zeros(1)}, MODEL / "model.safetensors")


def test_a_generated_source_is_prepared_the_same_each_time():
    source = {"kind": "word_problems", "num_problems": 300, "max_value": 199, "guess_share": 0.3,
              "slip_share": 0.2, "misconception_share": 0.2}  # fmt: skip
    card = prepare(source=source)
    first = files()
    assert card["rows_read"] == sum(card["counts"][split] for split in SPLITS) == 300
    assert card["counts"]["demonstrations"] == card["counts"]["train"] > 0
    assert ({*card["overlaps"].values()}, card["quarantined"]) == ({0}, {})
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}
    del digests["prepared/data_card.json"]
    assert card["sha256"] == digests
    assert (prepare(source=source), files()) == (card, first)
    assert prepare(source=source, seed=1)["sha256"] != card["sha256"]


CHAT_PROMPT = "<|im_start|>user\nSolve: {question}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(("kind", "expected", "end"), [
    (None, "Solve: {question}\n", "<|end|>"), ("plain", "<s>Solve: {question}\n", "</s>"),
    ("qwen_base", CHAT_PROMPT, "<|im_end|>"),
])  # fmt: skip
def test_tokens_decode_to_the_text_that_the_model_reads_and_end_with_its_end(kind, expected, end):
    if kind:
        save_tokenizer(kind)
    write(make_rows())
    card = prepare(model=kind and "model")
    tokenizer: Any = AutoTokenizer.from_pretrained(DATA / "policies/base/model")
    train = {prompt.id: prompt for prompt in prompts()["train"]}
    for row in (row for split in prompts().values() for row in split):
        assert row.prompt == expected.replace("{question}", row.question)
        assert tokenizer.decode(row.prompt_ids) == row.prompt
        # One begin-of-sequence token, and only where the tokenizer starts with one.
        begins = sum(token == tokenizer.bos_token_id for token in row.prompt_ids)
        assert begins == (kind == "plain")
    assert {row.id for row in demonstrations()} == {*train}
    for row in demonstrations():
        assert row.prompt_ids == train[row.id].prompt_ids
        assert tokenizer.decode(row.completion_ids[:-1]) == row.completion
        assert tokenizer.decode(row.completion_ids[-1:]) == end
        assert row.completion.endswith(f"#### {train[row.id].answer}")
    assert tokenizer.pad_token_id is not None
    assert (card["extraction_rate"], card["solutions_that_state_the_answer"]) == (1.0, 1.0)
    if kind != "plain":
        return
    first = files()  # where the tokenizer lay changes nothing
    shutil.move("model", "elsewhere")
    prepare(model="elsewhere")
    assert files() == first


def test_a_row_of_every_bad_kind_is_quarantined_with_file_line_and_reason():
    write(make_rows(94))
    kinds = {
        b'{"question": "\xff", "answer": "4"}': "not UTF-8",
        b'{"question": "Why? <|end|>", "answer": "4"}': "special token",
        b"{": "not JSON",
    }
    Path("mine.jsonl").write_bytes(Path("mine.jsonl").read_bytes() + b"\n".join(kinds))
    card = prepare()
    bad = [*lines.read_lines(prepare_data.PREPARED / "quarantine.jsonl", BadRow)]
    assert {(row.file, row.line, row.reason.partition(":")[0]) for row in bad} == {
        ("mine.jsonl", line, kind) for line, kind in enumerate(kinds.values(), start=95)
    }
    assert sum(card["quarantined"].values()) == len(kinds)
    assert sum(map(len, prompts().values())) == 94


def test_an_overlong_solution_is_left_out_only_where_it_would_be_imitated():
    long = [row | {"solution": "and " * 200 + row["solution"]} for row in make_rows(4)]
    write([*long, *make_rows(40)[4:]])
    card = prepare()
    asked = {row.question for split in prompts().values() for row in split}
    bad = lines.read_lines(prepare_data.PREPARED / "quarantine.jsonl", BadRow)
    assert asked.isdisjoint({row.content for row in bad})
    assert card["counts"]["demonstrations"] == card["counts"]["train"]
    assert {*card["quarantined"]} <= {"over-long solution"}


@pytest.mark.parametrize("where", ["question", "solution"])
def test_a_token_without_an_embedding_is_refused_wherever_it_stands(where):
    save_tokenizer("plain", added="xyzzy")
    write(make_rows())
    prepare(model="model")  # no text has it
    write([row | {where: f"xyzzy {row[where]}"} for row in make_rows()])
    with pytest.raises(ValueError, match=r"below (\d+), .* found \1, 'xyzzy'"):
        prepare(model="model")


@pytest.mark.parametrize(("solved", "has_length"), [(0, False), (1, False), (400, True)])
def test_lengths_do_not_follow_from_a_few_solutions(solved, has_length):
    save_tokenizer("plain")
    write([*make_rows(400)[:solved], *make_rows(400, solution=None)[solved:]])
    card = prepare(model="model")
    facts = json.loads((DATA / "prompts/facts.json").read_text())
    assert (facts["completion_tokens"] > 0, facts["demonstrations"] > 1) == (has_length, has_length)
    assert (card["extraction_rate"] is None) == (card["counts"]["demonstrations"] == 0)
    assert sum(card["counts"][split] for split in SPLITS) == 400


def test_forms_of_answers_stand_in_prompts_unless_they_are_all(capsys):
    write(make_rows())
    prepare(answer_forms=["hash", "Result:"])
    forms = [prompt.answer_forms for split in prompts().values() for prompt in split]
    assert forms == [["hash", "Result:"]] * 40
    assert "warnings" not in prepare(answer_forms=["label", "sentence", "tag", "boxed", "hash"])
    assert b"answer_forms" not in files()["prompts/train.jsonl"]
    template = "{question} Put your final answer within \\boxed{}."
    assert "warnings" not in prepare(answer_forms=["hash", "boxed"], prompt_template=template)
    (warning,) = prepare(answer_forms=["hash", "tag"], prompt_template=template)["warnings"]
    assert warning.startswith("40 of 40 prompts")
    assert f"warning: {warning}\n" in capsys.readouterr().out


@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not at ../shared/data/gsm8k")
@pytest.mark.slow
def test_gsm8k_gives_all_its_problems_with_every_gold_answer_read():
    card = prepare(source={"path": str(GSM8K), "licence": "MIT"}, max_prompt_tokens=640,
                   shares={"preference": 0.12, "dev": 0.06, "test": 0.08}, max_bad_share=0.0,
                   max_completion_tokens=896)  # fmt: skip
    assert card["source_problems"] == {"train": 7473, "test": 1319}
    assert (card["quarantined"], card["counts"]["test"]) == ({"near copy": 2}, 1319)
    assert sum(card["counts"][split] for split in SPLITS) == 8790
    assert (card["solutions_that_state_the_answer"], card["extraction_rate"]) == (1.0, 1.0)
    assert {*card["overlaps"].values()} == {0}
