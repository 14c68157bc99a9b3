import pydantic
import pytest

from stages import params
from stages.params import Params

TEXT = """
seed: 3
other: {ignored: true}
train:
  rate: 1e-4
  steps: 10
sample:
  test: {number: 4}
  dev: {number: 2}
"""


class Train(Params):
    rate: float
    steps: int


class Config(Params):
    seed: int
    train: Train


class Number(Params):
    number: int


class TableConfig(Params):
    seed: int
    sample: Number


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text(TEXT)
    return file


def test_a_config_reads_the_keys_it_names_and_no_others(path):
    config = params.load(Config, path=path)
    assert (config.seed, config.train.rate, config.train.steps) == (3, 1e-4, 10)


def test_the_picked_entry_of_a_table_is_read(path):
    assert params.load(TableConfig, {"sample": "test"}, path).sample.number == 4
    assert params.load(TableConfig, {"sample": "dev"}, path).sample.number == 2


def test_an_unknown_entry_is_refused_with_those_there_are(path):
    with pytest.raises(ValueError, match=r"no entry 'train'; it has \['dev', 'test'\]"):
        params.load(TableConfig, {"sample": "train"}, path)


def test_every_wrong_key_is_told_at_once(path):
    path.write_text("train: {rate: fast, stepz: 1}\n")
    with pytest.raises(ValueError) as told:
        params.load(Config, path=path)
    text = str(told.value)
    assert "seed: Field required" in text
    assert "train.rate" in text
    assert "(found 'fast')" in text
    assert "train.steps: Field required" in text
    assert "train.stepz: Extra inputs are not permitted" in text


def test_a_whole_number_will_do_for_a_rate_and_a_text_or_truth_for_no_number(path):
    path.write_text("seed: 3\ntrain: {rate: 1, steps: 10}\n")
    assert params.load(Config, path=path).train.rate == 1.0
    for wrong in ("'10'", "10.5", "true"):
        path.write_text(f"seed: 3\ntrain: {{rate: 1.0, steps: {wrong}}}\n")
        with pytest.raises(ValueError, match=r"train\.steps"):
            params.load(Config, path=path)


def test_a_configuration_cannot_be_changed(path):
    config = params.load(Config, path=path)
    with pytest.raises(pydantic.ValidationError):
        config.seed = 4


def test_a_key_given_twice_is_refused(path):
    path.write_text("seed: 3\nseed: 4\ntrain: {rate: 1.0, steps: 1}\n")
    with pytest.raises(Exception, match="duplicate key"):
        params.load(Config, path=path)
