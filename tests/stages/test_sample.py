"""Samples of a policy, and a pool, on a random checkpoint."""

import json

import pytest
import stage_inputs
from stage_inputs import MODEL, SEED
from tiny_checkpoints import COMPUTE
from tiny_rollouts import make_prompts

from stages import sample
from stages.records import lines
from stages.records.pools import Completion
from stages.records.temperatures import SampledFile
from stages.rows import DATA, PROMPTS

SPLIT = {"num_samples": 3, "temperature": 1.0, "max_new_tokens": 5}
TEMPERATURES = {"tried": [0.5], "num_samples": 2}
SAMPLES, POOL = DATA / "samples/sft", DATA / "pools/new"


def run(*words, seeds=(SEED,), sampling=None, temperatures=None):
    names = ("train", "preference", "heldout", "dev", "test")
    sections = dict.fromkeys(names, SPLIT) | {"dev": SPLIT | {"num_samples": 1}}
    stage_inputs.configure(
        {},
        seeds,
        compute=COMPUTE,
        model=MODEL,
        engine="transformers",
        sampling=sections if sampling is None else sampling,
        temperatures=TEMPERATURES if temperatures is None else temperatures,
    )
    sample.main(*words)


def read(path):
    return list(lines.read_lines(path, Completion))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    """Prompts and a policy."""
    monkeypatch.chdir(tmp_path)
    for seed in (SEED, 4):
        stage_inputs.write_policy(seed=seed)
    for split, number in (("dev", 2), ("test", 4), ("preference", 3)):
        lines.write_lines(PROMPTS / f"{split}.jsonl", make_prompts(number))


def test_each_dev_and_test_problem_has_its_samples_and_its_greedy_completion():
    run("sample", "sft")
    numbers = {
        "dev": 2, "dev_greedy": 2, "dev_at_0.5": 4,
        "test": 12, "test_greedy": 4, "test_at_0.5": 8,
    }  # fmt: skip
    result = {name: read(SAMPLES / f"{SEED}/{name}.jsonl") for name in numbers}
    assert {name: len(rows) for name, rows in result.items()} == numbers
    metrics = stage_inputs.metrics(SAMPLES / str(SEED))
    tokens = sum(len(row.completion_ids) for rows in result.values() for row in rows)
    assert metrics["generated_tokens"] == tokens
    assert metrics["work"]["policy"]["sampled"]["outputs"] == tokens
    assert metrics["test"]["problems"] == 4


def test_other_temperatures_change_nothing_else_and_draw_from_the_same_streams():
    run("sample", "sft")
    rows = lines.read_lines(SAMPLES / f"{SEED}/temperatures.jsonl", SampledFile)
    assert {row.name: (row.split, row.temperature) for row in rows} == {
        "dev": ("dev", 1.0), "dev_greedy": ("dev", 0.0), "dev_at_0.5": ("dev", 0.5),
        "test": ("test", 1.0), "test_greedy": ("test", 0.0), "test_at_0.5": ("test", 0.5),
    }  # fmt: skip
    paths = [SAMPLES / f"{SEED}/{name}.jsonl" for name in ("dev", "test", "test_greedy")]
    before, cold = (
        [path.read_bytes() for path in paths],
        read(SAMPLES / f"{SEED}/test_at_0.5.jsonl"),
    )
    assert {row.seed for row in cold} == {row.seed for row in read(paths[1])}
    run("sample", "sft", temperatures={"tried": [], "num_samples": 1})
    assert [path.read_bytes() for path in paths] == before
    assert not (SAMPLES / f"{SEED}/test_at_0.5.jsonl").exists()


@pytest.mark.parametrize("tried", [[0.5, 0.5], [1.0], [0.0]])
def test_a_temperature_twice_or_that_is_always_tried_is_refused(tried):
    with pytest.raises(ValueError, match=r"temperatures\.tried"):
        run("sample", "sft", temperatures={"tried": tried, "num_samples": 1})


def test_seeds_draw_apart_and_a_seed_alone_draws_the_same():
    run("sample", "sft", seeds=(SEED, 4))
    two = {seed: read(SAMPLES / f"{seed}/test.jsonl") for seed in (SEED, 4)}
    assert [row.completion_ids for row in two[SEED]] != [row.completion_ids for row in two[4]]
    run("sample", "sft")
    assert read(SAMPLES / f"{SEED}/test.jsonl") == two[SEED]
    assert not (SAMPLES / "4").exists()


def test_a_pool_holds_its_split_and_other_draws_of_the_dev_problems():
    run("pool", "new", "--from", "sft", "--split", "preference")
    pool = json.loads((POOL / "pool.json").read_text(encoding="utf-8"))
    assert pool == {"split": "preference", "policy": "sft"}
    train, heldout = (read(POOL / f"{SEED}/{name}.jsonl") for name in ("train", "heldout"))
    assert (len(train), len(heldout)) == (9, 6)
    run("sample", "sft")
    dev = read(SAMPLES / f"{SEED}/dev.jsonl")
    assert {row.id for row in heldout} == {row.id for row in dev}
    assert {row.seed for row in heldout}.isdisjoint(row.seed for row in dev)


def test_a_split_without_numbers_is_told():
    sampling = {"heldout": SPLIT, "dev": SPLIT}
    with pytest.raises(ValueError, match="section 'sampling' has no entry 'preference'"):
        run("pool", "new", "--from", "sft", "--split", "preference", sampling=sampling)
