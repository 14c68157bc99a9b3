import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from ruamel.yaml import YAML
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast

from stages import prepare_data
from stages.records import lines
from stages.records.problems import BadRow, Demonstration, Prompt
from stages.sources.splitting import SPLITS

DATA = Path("data")
GSM8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k"
TINY = {
    "hidden_size": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_length": 2048,
    "vocab_size": 800,
}
CHAT = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|stop|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def prepare(model: str | None = None, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Run the stage with these settings; the data card."""
    section = {
        "source": {"path": "mine.jsonl", "licence": "CC0-1.0"},
        "prompt_template": "Solve: {question}\n",
        "mixture": None,
        "shares": {"preference": 0.2, "dev": 0.2, "test": 0.2},
        "max_prompt_tokens": 100,
        "max_completion_tokens": 100,
        "max_bad_share": 0.2,
    } | changes
    content = {
        "data_seed": seed,
        "model": {"path": model, "revision": None, "thinking": None, "tiny": TINY},
        "data": section,
    }
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML().dump(content, file)
    Path("stages").mkdir(exist_ok=True)
    Path("stages/presets.yaml").write_text("{}\n", encoding="utf-8")
    prepare_data.main()
    return json.loads((prepare_data.PREPARED / "data_card.json").read_text(encoding="utf-8"))


def rows(count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "question": f"What is {n} plus 3?",
            "answer": str(n + 3),
            "solution": f"{n} + 3 = {n + 3}\n#### {n + 3}",
        }
        for n in range(count)
    ]


def write(content: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in content)
    Path("mine.jsonl").write_text(text, encoding="utf-8")


def prompts() -> dict[str, list[Prompt]]:
    return {
        split: list(lines.read_lines(DATA / "prompts" / f"{split}.jsonl", Prompt))
        for split in SPLITS
    }


def demonstrations() -> list[Demonstration]:
    return list(lines.read_lines(DATA / "demonstrations/demonstrations.jsonl", Demonstration))


def quarantined() -> list[BadRow]:
    return list(lines.read_lines(prepare_data.PREPARED / "quarantine.jsonl", BadRow))


def files() -> dict[str, bytes]:
    return {
        path.relative_to(DATA).as_posix(): path.read_bytes()
        for path in sorted(DATA.rglob("*"))
        if path.is_file() and {"runs", "journals"}.isdisjoint(path.relative_to(DATA).parts)
    }


def test_the_embedded_source_is_prepared_the_same_each_time():
    source = {
        "kind": "word_problems",
        "num_problems": 300,
        "max_value": 199,
        "guess_share": 0.3,
        "slip_share": 0.2,
        "misconception_share": 0.2,
    }
    card = prepare(source=source)
    first = files()
    assert card["rows_read"] == sum(card["counts"][split] for split in SPLITS) == 300
    assert card["counts"]["demonstrations"] == card["counts"]["train"] > 0
    assert set(card["overlaps"].values()) == {0}
    assert card["quarantined"] == {}
    assert set(card["sha256"]) == set(first) - {"prepared/data_card.json"}
    assert prepare(source=source) == card
    assert files() == first
    assert prepare(source=source, seed=1)["sha256"] != card["sha256"]


def test_prompts_and_demonstrations_decode_to_their_text_and_end_with_the_end_token():
    write(rows())
    prepare()
    tokenizer = AutoTokenizer.from_pretrained(DATA / "policies/base/model")
    train = {prompt.id: prompt for prompt in prompts()["train"]}
    assert {row.id for row in demonstrations()} == set(train)
    for row in demonstrations():
        assert tokenizer.decode(row.prompt_ids) == row.prompt == train[row.id].prompt
        assert row.prompt == f"Solve: {train[row.id].question}\n"
        assert row.prompt_ids == train[row.id].prompt_ids
        assert tokenizer.decode(row.completion_ids[:-1]) == row.completion
        assert row.completion_ids[-1] == tokenizer.eos_token_id
        assert row.completion.endswith(f"#### {train[row.id].answer}")


def test_rows_of_every_bad_kind_are_quarantined_with_file_line_and_reason():
    content = rows(94)
    train = [row["question"] for row in content]
    write(content)
    good = Path("mine.jsonl").read_bytes()
    bad = [
        b'{"answer": "4"}',
        b'{"question": "\xff", "answer": "4"}',
        b'{"question": "Why?", "answer": NaN}',
        b'{"question": "Why?", "answer": "who can tell why it is so"}',
        b'{"question": " ", "answer": "4"}',
        b'{"question": "Why? <|end|>", "answer": "4"}',
        b'{"question": "' + b"long " * 200 + b'", "answer": "4"}',
        b'{"id": "mine-000001", "question": "Twice?", "answer": "4"}',
        b"{",
    ]
    Path("mine.jsonl").write_bytes(good + b"\n".join(bad))
    card = prepare()
    result = {(row.file, row.line, row.reason.partition(":")[0]) for row in quarantined()}
    assert result == {
        ("mine.jsonl", 95, "missing column"),
        ("mine.jsonl", 96, "not UTF-8"),
        ("mine.jsonl", 97, "not a number"),
        ("mine.jsonl", 98, "answer does not parse"),
        ("mine.jsonl", 99, "empty question"),
        ("mine.jsonl", 100, "special token"),
        ("mine.jsonl", 101, "over-long prompt"),
        ("mine.jsonl", 102, "duplicate id"),
        ("mine.jsonl", 103, "not JSON"),
    }
    assert sum(card["quarantined"].values()) == 9
    assert sorted(row.question for split in prompts().values() for row in split) == sorted(train)


def test_an_overlong_solution_is_quarantined_only_where_it_would_be_imitated():
    content = rows(40)
    for row in content[:4]:
        row["solution"] = "and " * 200 + row["solution"]
    write(content)
    card = prepare()
    left_out = {row.content for row in quarantined()}
    assert left_out.isdisjoint({row.question for split in prompts().values() for row in split})
    assert card["counts"]["demonstrations"] == card["counts"]["train"]
    assert set(card["quarantined"]) <= {"over-long solution"}


def test_problems_that_are_listed_twice_count_once(capsys):
    write(rows(100))
    once = prepare()
    write([*rows(100), *rows(100)])
    twice = prepare()
    assert (twice["counts"], twice["quarantined"]) == (once["counts"], {"repeated": 100})
    assert "warning: 100 of 200 rows are left out (100 repeated)" in capsys.readouterr().out
    assert (quarantined()[0].line, quarantined()[0].reason) == (
        101, "repeated: the same row as line 1 of mine.jsonl",
    )  # fmt: skip


def test_other_solutions_of_a_question_are_imitated_and_no_second_test_question():
    content = rows(100)
    again = [row | {"solution": f"So: {row['solution']}"} for row in content]
    write(content)
    once = prepare()["counts"]
    write([*content, *again])
    card = prepare()
    counts = card["counts"]
    assert counts["demonstrations"] == counts["train"] == 2 * once["train"]
    assert (counts["dev"], counts["test"]) == (once["dev"], once["test"])
    assert card["repeated_questions"]["test"] == card["repeated_questions"]["dev"] == 0
    assert card["quarantined"] == {"repeated question": once["dev"] + once["test"]}


def test_too_many_bad_rows_are_refused_and_nothing_is_written():
    write([*rows(40), *[{"question": "Why?", "answer": "who can tell why it is so"}] * 11])
    with pytest.raises(ValueError, match=r"11 of 51 rows.*answer does not parse") as error:
        prepare()
    assert "mine.jsonl, line 41: " in str(error.value)
    assert not (prepare_data.PREPARED / "data_card.json").exists()


def test_solutions_that_the_checker_cannot_read_are_refused_not_rewarded_with_zero():
    content = rows()
    for row in content:
        row["solution"] = row["solution"].replace("#### ", "So it is ")
    write(content)
    with pytest.raises(ValueError, match=r"0\.0% of \d+ solutions.*So it is.*End solutions with"):
        prepare()


def test_a_source_without_solutions_has_prompts_alone():
    write([{"question": row["question"], "answer": row["answer"]} for row in rows()])
    card = prepare()
    assert card["counts"]["demonstrations"] == 0
    assert card["extraction_rate"] is None
    assert sum(card["counts"][split] for split in SPLITS) == 40


def test_lengths_do_not_follow_from_a_few_solutions():
    save_tokenizer(Path("model"), "llama")
    facts = []
    for solved in (0, 1, 400):
        content = rows(400)
        for row in content[solved:]:
            del row["solution"]
        write(content)
        prepare(model="model")
        facts.append(json.loads((DATA / "prompts/facts.json").read_text()))
    assert [fact["completion_tokens"] > 0 for fact in facts] == [False, False, True]
    assert facts[0]["demonstrations"] == 0


def test_the_data_card_says_how_the_files_were_read(capsys):
    write([row | {"level": 3} for row in rows()])
    card = prepare()
    (report,) = card["files"]
    assert report["columns"] == {name: name for name in ("question", "answer", "solution")}
    assert (report["form"], report["unused"]) == ("problems", ["level"])
    shown = capsys.readouterr().out
    assert "mine.jsonl: problems, 40 rows; read as question: 'question'" in shown
    assert "columns that are not read: level" in shown


def test_a_fixed_test_split_is_kept_and_a_training_copy_of_its_questions_left_out():
    content = [row | {"split": "train"} for row in rows()]
    content += [row | {"split": "test", "id": f"t{n}"} for n, row in enumerate(rows(3))]
    write(content)
    card = prepare()
    assert card["source_problems"] == {"train": 37, "test": 3}
    assert card["counts"]["test"] == 3
    assert card["quarantined"] == {"overlap": 3}
    assert set(card["overlaps"].values()) == {0}


def test_a_test_split_of_which_nothing_is_left_is_refused():
    test = [row | {"question": " ", "split": "test"} for row in rows(2)]
    write([row | {"id": n} for n, row in enumerate(rows())])
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in test))
    with pytest.raises(ValueError, match="expected usable rows in the source's test split"):
        prepare(source={"path": "mine.jsonl", "test_path": "test.jsonl"})


def test_ids_that_begin_anew_in_the_test_split_lose_none_of_its_questions():
    write([row | {"id": n} for n, row in enumerate(rows())])
    test = [row | {"id": n} for n, row in enumerate(rows(43)[40:])]
    Path("test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in test))
    prepare(source={"path": "mine.jsonl", "test_path": "test.jsonl"})
    assert [row.id for row in prompts()["test"]] == ["test-0", "test-1", "test-2"]


def test_rows_longer_than_the_tiny_model_are_refused_before_any_work():
    write(rows())
    with pytest.raises(ValueError, match=r"rows of 2148 tokens.*model\.tiny\.max_length"):
        prepare(max_prompt_tokens=2048)


def test_a_template_without_the_question_is_refused():
    write(rows())
    with pytest.raises(ValueError, match=r"data\.prompt_template"):
        prepare(prompt_template="Solve:")


def save_tokenizer(path: Path, kind: str) -> None:
    """A byte-level tokenizer as Llama's (adds BOS), GPT-2's (adds nothing) or a chat model's."""
    specials = {
        "llama": {"bos_token": "<s>", "eos_token": "</s>"},
        "gpt2": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
        "chat": {"eos_token": "<|stop|>", "pad_token": "<|pad|>"},
    }[kind]
    names = sorted({*specials.values(), *(["<|start|>"] if kind == "chat" else [])})
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=names,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["What is 2 plus 3? 2 + 3 = 5"], trainer)
    if kind == "llama":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)
    if kind == "chat":
        fast.chat_template = CHAT
    fast.save_pretrained(path)
    config = LlamaConfig(num_hidden_layers=1, architectures=["LlamaForCausalLM"])
    config.save_pretrained(path)
    save_file({"none": torch.zeros(1)}, path / "model.safetensors")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", "<s>Solve: {question}\n"),
        ("gpt2", "Solve: {question}\n"),
        ("chat", "<|start|>user\nSolve: {question}<|stop|><|start|>assistant\n"),
    ],
)
def test_a_models_own_tokenizer_renders_prompts_its_way(kind, expected):
    save_tokenizer(Path("model"), kind)
    write(rows())
    card = prepare(model="model")
    tokenizer = AutoTokenizer.from_pretrained(DATA / "policies/base/model")
    for row in (row for split in prompts().values() for row in split):
        assert row.prompt == expected.replace("{question}", row.question)
        assert tokenizer.decode(row.prompt_ids) == row.prompt
        # Exactly one begin-of-sequence token, and only where the tokenizer starts with one.
        begins = sum(token == tokenizer.bos_token_id for token in row.prompt_ids)
        assert begins == (1 if kind == "llama" else 0)
    for row in demonstrations():
        assert row.completion_ids[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(row.completion_ids[:-1]) == row.completion
    assert tokenizer.pad_token_id is not None
    assert card["extraction_rate"] == 1.0


def test_no_output_depends_on_where_the_tokenizer_lay():
    save_tokenizer(Path("model"), "llama")
    write(rows())
    prepare(model="model")
    first = files()
    shutil.move("model", "elsewhere")
    prepare(model="elsewhere")
    assert files() == first


def test_a_model_without_a_tokenizer_is_a_clear_error():
    write(rows())
    save_tokenizer(Path("model"), "llama")
    for path in Path("model").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ValueError, match=r"no tokenizer could be loaded from 'model'"):
        prepare(model="model")


@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not at ../shared/data/gsm8k")
@pytest.mark.slow
def test_gsm8k_gives_all_its_problems_with_every_gold_answer_read():
    card = prepare(
        source={"path": str(GSM8K), "licence": "MIT"},
        shares={"preference": 0.12, "dev": 0.06, "test": 0.08},
        max_prompt_tokens=640,
        max_completion_tokens=896,
        max_bad_share=0.0,
    )
    assert card["source_problems"] == {"train": 7473, "test": 1319}
    assert card["quarantined"] == {"near copy": 2}
    assert card["counts"]["test"] == 1319
    assert sum(card["counts"][split] for split in SPLITS) == 8790
    assert card["solutions_that_state_the_answer"] == 1.0
    assert card["extraction_rate"] == 1.0
    assert set(card["overlaps"].values()) == {0}


@pytest.mark.parametrize("where", ["question", "solution"])
def test_a_token_without_an_embedding_is_refused_in_prompts_and_in_solutions(where):
    save_tokenizer(Path("model"), "gpt2")
    tokenizer = AutoTokenizer.from_pretrained("model")
    tokenizer.add_tokens(["xyzzy"])
    tokenizer.save_pretrained("model")
    config = LlamaConfig(
        num_hidden_layers=1, architectures=["LlamaForCausalLM"], vocab_size=len(tokenizer) - 1
    )
    config.save_pretrained("model")
    write(rows())
    prepare(model="model")  # no text has it
    write([row | {where: "xyzzy " + row[where]} for row in rows()])
    with pytest.raises(ValueError, match=r"tokens below (\d+), .* found \1, 'xyzzy'"):
        prepare(model="model")


def test_forms_of_answers_that_are_not_all_stand_in_every_prompt():
    write(rows())
    card = prepare(answer_forms=["hash", "Result:"])
    assert "warnings" not in card
    forms = [prompt.answer_forms for split in prompts().values() for prompt in split]
    assert forms == [["hash", "Result:"]] * 40
    assert b"answer_forms" in files()["prompts/train.jsonl"]
    prepare(answer_forms=["label", "sentence", "tag", "boxed", "hash"])
    assert b"answer_forms" not in files()["prompts/train.jsonl"]


def test_solutions_in_a_form_that_is_not_listed_are_refused():
    write(rows())
    with pytest.raises(ValueError, match=r"reads a final answer in 0\.0% .*data\.answer_forms"):
        prepare(answer_forms=["boxed"])


def test_prompts_that_ask_for_a_form_that_is_not_listed_are_warned_of(capsys):
    write(rows())
    template = "{question} Put your final answer within \\boxed{}."
    card = prepare(answer_forms=["hash", "tag"], prompt_template=template)
    (warning,) = card["warnings"]
    assert warning.startswith("40 of 40 prompts ask for an answer in the form 'boxed'")
    assert f"warning: {warning}\n" in capsys.readouterr().out
    assert "warnings" not in prepare(answer_forms=["hash", "boxed"], prompt_template=template)
