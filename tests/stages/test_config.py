import json
from dataclasses import asdict

import pydantic
import pytest

from stages import auto
from stages.config import PARAMS_PATH, PRESETS_PATH, Params
from stages.params import FACTS_PATH, LOCK_PATH, load_config, measured_facts

TEXT = """
seed: 3
other: {ignored: true}
train:
  rate: 1e-4
  steps: 10
"""
PRESETS = """
first: &first {beta: 0.5, kind: plain}
second: {<<: *first, beta: 1}
"""


class Train(Params):
    rate: float
    steps: int


class Config(Params):
    seed: int
    train: Train


class Preset(Params):
    beta: float
    kind: str


class PresetConfig(Params):
    seed: int
    preset: Preset


@pytest.fixture(autouse=True)
def write(tmp_path, monkeypatch):
    """Another params.yaml."""
    monkeypatch.chdir(tmp_path)
    PRESETS_PATH.parent.mkdir()
    PRESETS_PATH.write_text(PRESETS)
    PARAMS_PATH.write_text(TEXT)
    return PARAMS_PATH.write_text


def test_a_config_reads_the_keys_it_names_and_no_others():
    config = load_config(Config)
    assert (config.seed, config.train.rate, config.train.steps) == (3, 1e-4, 10)


def test_a_preset_holds_what_it_inherits_and_what_it_changes():
    assert load_config(PresetConfig, "first").preset == Preset(beta=0.5, kind="plain")
    assert load_config(PresetConfig, "second").preset == Preset(beta=1.0, kind="plain")


def test_an_unknown_preset_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"no entry 'third'; it has \['first', 'second'\]"):
        load_config(PresetConfig, "third")


def test_every_wrong_key_is_told_at_once(write):
    write("train: {rate: fast, stepz: 1}\n")
    with pytest.raises(ValueError) as caught:
        load_config(Config)
    text = str(caught.value)
    assert "seed: missing; add it" in text
    assert "train.rate: expected a number, found 'fast'" in text
    assert "train.stepz: unknown key; did you mean 'steps'?" in text


def test_a_whole_number_will_do_for_a_rate_and_a_text_or_truth_for_no_number(write):
    write("seed: 3\ntrain: {rate: 1, steps: 10}\n")
    assert load_config(Config).train.rate == 1.0
    for wrong in ("'10'", "10.5", "true"):
        write(f"seed: 3\ntrain: {{rate: 1.0, steps: {wrong}}}\n")
        with pytest.raises(ValueError, match=r"train\.steps"):
            load_config(Config)


def test_a_configuration_cannot_be_changed():
    config = load_config(Config)
    with pytest.raises(pydantic.ValidationError):
        config.seed = 4


def test_a_key_given_twice_is_refused(write):
    write("seed: 3\nseed: 4\ntrain: {rate: 1.0, steps: 1}\n")
    with pytest.raises(Exception, match="duplicate key"):
        load_config(Config)


MODEL = {"path": "a/model", "thinking": None}
CONTENT = {"model": MODEL, "data": {"source": {"kind": "gsm8k"}}, "data_seed": 0, "seeds": [0]}


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"seeds": [1]}, True),
        ({"data_seed": 1}, False),
        ({"model": MODEL | {"path": "another"}}, False),
        ({"model": MODEL | {"thinking": True}}, False),
        ({"data": {"source": {"kind": "hub"}}}, False),
    ],
)
def test_what_was_measured_is_of_the_model_and_data_that_dvc_lock_names(change, known):
    FACTS_PATH.parent.mkdir(parents=True)
    FACTS_PATH.write_text(json.dumps(asdict(auto.UNMEASURED)))
    assert measured_facts(CONTENT) is None, "nothing says whose they are"
    read = {name: CONTENT[name] for name in ("model", "data", "data_seed")}
    lock = {"stages": {"prepare_data": {"params": {"params.yaml": read}}}}
    LOCK_PATH.write_text(json.dumps(lock))
    assert (measured_facts(CONTENT | change) == auto.UNMEASURED) == known
    assert (measured_facts(CONTENT | change) is None) != known
    LOCK_PATH.write_text(json.dumps({"stages": {}}))
    assert measured_facts(CONTENT) is None
