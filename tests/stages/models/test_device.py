"""The pinned instructions give the bits of portable_digests.json, on whatever processor this is.

That file was written on an AMD EPYC (Zen 4, with AVX-512). Another processor is emulated, in a few
minutes, by Debian's qemu-user (7.2), and gave the same file: `Haswell-noTSX` (Intel's, AVX2 alone),
`Skylake-Client` and `EPYC-Rome` (AMD's, AVX2 alone). That the emulation is true was seen on the
digests that a real Intel Emerald Rapids gave of 32 such operations: all the same. In tests/:

    qemu-x86_64 -cpu Haswell-noTSX $(which python) -m portable_digests | diff - \
        stages/models/portable_digests.json

Written anew, where libraries change, by `python -m portable_digests` to that file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest
import torch
from tiny_checkpoints import compute

import stages
from stages.models import device

TESTS = Path(__file__).parents[2]
EXPECTED = Path(__file__).with_name("portable_digests.json")
FEW = frozenset({"fpu", "sse4_2", "avx"})


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    """A process of its own: instructions are chosen when torch is loaded."""
    kept = {k: v for k, v in os.environ.items() if k not in stages.INSTRUCTIONS}
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    return subprocess.Popen(
        [sys.executable, *command],
        env=kept | {"POSTTRAIN_ROUNDING": "pinned", "PYTHONPATH": paths} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(*command: str, **environment: str) -> str:
    process = start(*command, **environment)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output + errors


@pytest.mark.slow
def test_digests_are_those_of_other_processors_on_an_idle_and_on_a_busy_machine():
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    side_by_side = [start("-m", "portable_digests") for _ in range(1 + (os.cpu_count() or 1))]
    outputs = [run.communicate() for run in side_by_side]
    for output, errors in [*outputs, start("-m", "portable_digests").communicate()]:
        assert output, errors
        actual = json.loads(output)
        assert actual.keys() == expected.keys()
        assert not [name for name in expected if actual[name] != expected[name]]


def test_stages_fix_the_instructions_and_install_finds_them_in_force():
    code = (
        "from stages.models import device; import torch; device.pin_instructions(); "
        "print([device.unpinned_instructions(), torch.backends.cpu.get_cpu_capability()])"
    )
    assert told("-c", code) == "['', 'AVX2']\n"


def test_what_computed_before_is_told():
    code = (
        "import torch; torch.ones(9, 9) @ torch.ones(9, 9); "
        "from stages.models import device; device.pin_instructions()"
    )
    result = told("-c", code, ATEN_CPU_CAPABILITY="default")
    assert "computed before the package `stages` was imported, and chose kernels for" in result


def test_native_rounding_leaves_all_as_it_comes_and_takes_back_what_a_pinned_parent_set():
    code = (
        "import os, stages; from stages.models import device; device.pin_instructions(); "
        "print(stages.THREADS, [n for n in stages.INSTRUCTIONS if n in os.environ])"
    )
    parent = stages.INSTRUCTIONS | {"OMP_NUM_THREADS": "7"}
    result = told("-c", code, **parent | {"POSTTRAIN_ROUNDING": "native-2"})
    assert result == "2 ['OMP_NUM_THREADS']\n"


def test_an_unknown_rounding_is_refused():
    process = start("-c", "import stages", POSTTRAIN_ROUNDING="nativ")
    assert "expected pinned, native or native-2, found 'nativ'" in process.communicate()[1]


def test_a_processor_without_avx2_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stages, "ROUNDING", "pinned")
    monkeypatch.setattr(stages, "flags", lambda: FEW)
    with pytest.raises(ValueError, match=r"found one without avx2, fma.*rounding: native"):
        device.pin_instructions()


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch without MKL")
def test_another_build_of_mkl_is_refused_except_on_intels_processors(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(stages, "ROUNDING", "pinned")
    monkeypatch.setattr(device, "REST", b"\xc3")
    monkeypatch.setattr(stages, "processor", lambda: {"flags": "avx2 fma", "vendor_id": "Other"})
    with pytest.raises(ValueError, match="expected MKL as torch's wheels have it"):
        device.pin_instructions()
    intel = {"flags": "avx2 fma", "vendor_id": "GenuineIntel"}
    monkeypatch.setattr(stages, "processor", lambda: intel)
    device.pin_instructions()


def test_products_are_those_of_float64_to_rounding_with_gradients():
    torch.manual_seed(0)
    a, b = torch.randn(70, 300, requires_grad=True), torch.randn(300, 90).t().contiguous().t()
    assert torch.allclose((a @ b).double(), a.double() @ b.double(), atol=1e-4)
    (a @ b).sum().backward()
    assert torch.allclose(a.grad, b.sum(1).expand(70, 300), atol=1e-4)


@pytest.fixture
def restored(torch_settings):
    """Leaves torch as it was, autocast included."""
    yield
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_cache_enabled(True)


@pytest.mark.usefixtures("restored")
def test_setup_makes_torch_deterministic_on_one_thread():
    result = device.setup(compute())
    assert result.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_a_stage_starts_again_with_the_rounding_of_its_params(tmp_path: Path):
    code = (
        f"import os; os.chdir({str(tmp_path)!r}); import stages; from stages import params; "
        "params.adopt_rounding(); "  # nothing without params.yaml
        "from pathlib import Path; p = Path('params.yaml'); first = not p.exists(); "
        "first and p.write_text('compute: {rounding: native-2}'); params.adopt_rounding(); "
        "print(first, stages.ROUNDING, stages.THREADS, stages.INSTRUCTIONS.keys() & os.environ)"
    )
    assert told("-c", code) == "False native-2 2 set()\n"


def test_another_rounding_than_the_process_s_is_refused():
    with pytest.raises(ValueError, match=r"expected pinned, .* found native: .*ROUNDING=native"):
        device.setup(compute(rounding="native"))


@pytest.mark.usefixtures("restored")
def test_bfloat16_makes_matrix_products_bfloat16_and_leaves_weights_alone():
    result = device.setup(compute(dtype="bfloat16"))
    layer = torch.nn.Linear(4, 4, device=result)
    assert layer(torch.ones(1, 4, device=result)).dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32


@pytest.mark.usefixtures("restored")
@pytest.mark.skipif(torch.cuda.is_available(), reason="of CPUs")
def test_bfloat16_by_instructions_without_it_is_warned_of(caplog):
    device.setup(compute(dtype="float32"))
    assert not caplog.records
    device.setup(compute(dtype="bfloat16"))
    assert "Set compute.dtype: float32, or rounding: native" in caplog.text


def test_another_precision_is_refused():
    with pytest.raises(pydantic.ValidationError):
        compute(dtype="float16")
