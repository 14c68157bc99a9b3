import pydantic
import pytest
import torch
from tiny_checkpoints import compute

from stages.models import device


@pytest.fixture
def restored():
    """Leaves torch as it was."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_cache_enabled(True)


@pytest.mark.usefixtures("restored")
def test_setup_makes_torch_deterministic_on_one_thread():
    found = device.setup(compute())
    assert found.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.usefixtures("restored")
def test_bfloat16_makes_matrix_products_bfloat16_and_leaves_weights_alone():
    found = device.setup(compute(dtype="bfloat16"))
    layer = torch.nn.Linear(4, 4, device=found)
    assert layer(torch.ones(1, 4, device=found)).dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32


def test_another_precision_is_refused():
    with pytest.raises(pydantic.ValidationError):
        compute(dtype="float16")
