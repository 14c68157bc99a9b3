import shutil

import judge_checkpoint
import pytest
import stage_inputs
from option_server import serve
from stage_inputs import SEED, WORDS
from tiny_checkpoints import COMPUTE

from stages import label_feedback, rows
from stages.engines import openai_endpoint
from stages.records import lines
from stages.records.pools import Completion
from stages.records.preferences import Preference, Verdict
from stages.records.problems import Prompt
from stages.rows import DATA

OWN = DATA / f"pairs/new/{SEED}"
PRESET = {
    "judge": {"kind": "policy", "max_prompt_tokens": 240},
    "style": "short",
    "constitution": "correct",
    "reasoning": None,
    "max_pairs_per_problem": 3,
    "rule": {
        "labels": "soft",
        "min_option_mass": 0.5,
        "min_confidence": 0.0,
        "inconsistent": "keep",
        "clamp": None,
    },
    "injection_pairs": 2,
}
ENDPOINT = {
    "kind": "endpoint",
    "model": "m",
    "revision": "2026-11",
    "api": "chat",
    "top_logprobs": 20,
}
ASKED = tuple("base" if word == "sft" else word for word in WORDS)
"""The row's words where an endpoint judges."""


def write(side: str, names: str) -> None:
    """A pool of five different answers, the first of them right, for each of some problems."""
    prompts = [
        Prompt(
            id=name,
            task="solve",
            question=judge_checkpoint.QUESTION,
            prompt="?",
            prompt_ids=[5],
            answer="7",
        )
        for name in names
    ]
    completions = [
        Completion(
            id=name,
            index=index,
            completion=text,
            completion_ids=list(range(len(text.split()))),
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for name in names
        for index, text in enumerate(judge_checkpoint.ANSWERS)
    ]
    stage_inputs.write_pool(side, prompts, completions)


def set_preset(**changes) -> None:
    stage_inputs.configure(
        PRESET | changes, compute=COMPUTE, model=stage_inputs.MODEL, engine="transformers"
    )


def outputs() -> tuple[list[Preference], list[Preference], list[Verdict], dict]:
    return (
        list(lines.read_lines(OWN / "train.jsonl", Preference)),
        list(lines.read_lines(OWN / "heldout.jsonl", Preference)),
        list(lines.read_lines(OWN / "verdicts.jsonl", Verdict)),
        stage_inputs.metrics(OWN),
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    policy = rows.locate_policy("sft", SEED)
    policy.parent.mkdir(parents=True)
    policy.symlink_to(judge_checkpoint.checkpoint())
    write("train", "abcd")
    write("heldout", "ef")
    set_preset()


def test_a_policy_judges_both_splits_and_every_verdict_is_written():
    label_feedback.main("label_judge", *WORDS)
    train, heldout, verdicts, metrics = outputs()
    assert len(train) == 12
    assert len(heldout) == 6
    assert {row.source for row in train} == {"ai"}
    assert all(0.5 <= row.probability <= 1.0 for row in train)
    assert [row.split for row in verdicts] == ["train"] * 12 + ["heldout"] * 6
    for row in verdicts:
        assert row.gap == pytest.approx(abs(row.p12 - (1 - row.p21)), abs=1e-5)
        assert row.probability == pytest.approx((row.p12 + 1 - row.p21) / 2, abs=1e-5)
    chosen = {(row.id, row.chosen, row.rejected) for row in train}
    assert len(chosen) == 12
    assert metrics["train"]["pairs"] == 12
    assert metrics["heldout"]["agreement"]["pairs"] > 0
    assert metrics["injection"]["all"]["readings"] == 2 * 11
    assert metrics["generated_tokens"] == metrics["trained_tokens"] == 0
    assert metrics["read_tokens"] > 36 * 20


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        label_feedback.main("label_judge", *WORDS)
        files = sorted(OWN.glob("*.json*"))
        written.append([path.read_bytes() for path in files])
    assert len(written[0]) == 4
    assert written[0] == written[1]


def test_an_endpoint_judges_and_a_second_run_asks_it_nothing(monkeypatch):
    set_preset(judge=ENDPOINT, injection_pairs=0)
    with serve() as server:
        monkeypatch.setenv(openai_endpoint.URL, server.url)
        # Prefers whichever answer holds the right result, with a favour for the first place.
        server.tokens = lambda message: (
            {"1": 0.8, "2": 0.1} if "1: #### 7" in message else {"1": 0.4, "2": 0.5}
        )
        label_feedback.main("label_judge", *ASKED)
        first = outputs()
        num_requests = len(server.requests)
        label_feedback.main("label_judge", *ASKED)
        assert outputs() == first
        assert len(server.requests) == num_requests
    _, _, verdicts, metrics = first
    assert metrics["train"]["agreement"]["averaged"]["value"] == 1.0
    assert metrics["generated_tokens"] == 2 * len(verdicts)  # counted, cached or not
    assert metrics["judge"] == ENDPOINT


def test_a_message_too_long_for_an_endpoint_drops_its_pairs_and_no_others(monkeypatch):
    set_preset(judge=ENDPOINT, injection_pairs=2)
    with serve() as server:
        monkeypatch.setenv(openai_endpoint.URL, server.url)
        label_feedback.main("label_judge", *ASKED)
        lengths = [len(request["messages"][0]["content"]) for request in server.requests]
        server.longest = sorted(lengths)[len(lengths) // 2]
        shutil.rmtree(".pipe/judge-cache")
        label_feedback.main("label_judge", *ASKED)
    train, _, verdicts, metrics = outputs()
    dropped = [row.dropped for row in verdicts if row.split == "train"]
    assert metrics["train"]["dropped"] == {"too_long": dropped.count("too_long")}
    assert 0 < dropped.count("too_long") < 12
    assert len(train) == 12 - dropped.count("too_long")


def test_a_judge_that_answers_with_no_option_is_an_error_that_says_so():
    rule = PRESET["rule"] | {"min_option_mass": 1.0}
    set_preset(rule=rule)
    with pytest.raises(ValueError, match=r"first 12 pairs: 0 are longer.*in 12 it gives"):
        label_feedback.main("label_judge", *WORDS)


def test_a_judge_that_hardly_answers_is_reported_on_its_first_pairs(monkeypatch, caplog):
    rule = PRESET["rule"] | {"min_option_mass": 0.0}
    set_preset(judge=ENDPOINT, injection_pairs=0, rule=rule)
    write("train", "abcdefghijklmnopqrstuvwxyz")  # 78 pairs
    num_requests = []
    with serve() as server:
        monkeypatch.setenv(openai_endpoint.URL, server.url)
        monkeypatch.setenv(openai_endpoint.CONCURRENCY, "1")
        server.tokens = lambda _: {"1": 0.2, "2": 0.1}
        caplog.handler.addFilter(lambda _: num_requests.append(len(server.requests)) or True)
        label_feedback.main("label_judge", *ASKED)
    assert num_requests[0] < num_requests[-1], "before the others are asked"
    assert "0.300 on the first 64 messages of the train pairs" in caplog.messages[0]


def test_an_endpoint_is_asked_for_no_policy():
    set_preset(judge=ENDPOINT)
    with pytest.raises(ValueError, match=r"expected `from: base` .*found `from: sft`"):
        label_feedback.main("label_judge", *WORDS)
