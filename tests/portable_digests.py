"""Digests of what training, sampling and reports compute, from inputs that are the same everywhere.

In tests/, name and digest of each as JSON:

    python -m portable_digests
"""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable

import stages  # before torch and numpy: it fixes the instructions

import numpy as np  # isort: skip
import torch  # isort: skip
import torch.nn.functional as F  # isort: skip
from scipy import special  # isort: skip

from stages.models import device

SHAPES = [(1, 192, 192), (2, 64, 32), (7, 192, 900), (33, 40, 17), (64, 192, 512), (64, 512, 192),
          (256, 192, 900), (384, 192, 512), (300, 700, 900), (1536, 192, 192),
          (5, 3000, 7)]  # fmt: skip
"""Rows, depth and columns of matrix products: decoding, training, and what no block divides."""
UNARY = ("abs", "cos", "erf", "exp", "exp2", "expm1", "log", "log1p", "reciprocal", "rsqrt",
         "sigmoid", "sin", "sqrt", "square", "tanh")  # fmt: skip
FUNCTIONS = ("exp", "expm1", "log", "log1p", "log2", "sqrt", "sin", "cos", "tanh", "cbrt")


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers from -1 to 1 by a linear congruence, no library's random numbers."""
    x = torch.arange(math.prod(shape)) * 6364136223846793005 + 1442695040888963407 + seed * 7919
    return (((x >> 33) % 2000003).double() / 1000001.5 - 1).float().reshape(shape)


def products() -> Iterable[tuple[str, object]]:
    for m, k, n in SHAPES:
        a, b, bias = draw(m, k), draw(k, n, seed=1), draw(n)
        at, bt = a.t().contiguous().t(), b.t().contiguous().t()
        result = [a @ b, at @ b, a @ bt, at @ bt, a @ b[:, 0], a[0].dot(a[0])]
        # The last one's rows start at no round address.
        result += [torch.addmm(bias, a, b, beta=0.5, alpha=2), F.linear(a[:, 1:], b[1:].t(), bias)]
        yield f"products {m}x{k}x{n}", result
    q, k = draw(12, 40, 32), draw(12, 32, 40, seed=3)
    yield "bmm", [q @ k, q.transpose(1, 2) @ k.transpose(1, 2)]
    yield "baddbmm", torch.baddbmm(draw(12, 40, 40, seed=4), q, k, beta=0.5, alpha=2)
    square = draw(30, 30) + 9 * torch.eye(30)
    yield "solve", torch.linalg.solve(square, draw(30, 3, seed=1))


def functions() -> Iterable[tuple[str, object]]:
    x = draw(384, 193)
    for name in UNARY:
        yield name, getattr(torch, name)(3 * x.abs() + 0.1)
        yield f"{name} of every other", getattr(torch, name)(3 * x[:, ::2].abs() + 0.1)
    yield "pow", [x.abs().pow(2.5), 0.9 ** (9 * x), x.pow(3), x.pow(2), x.abs().pow(0.5)]
    yield "silu, gelu", [F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.softplus(x)]
    yield "log sigmoid", F.logsigmoid(9 * x)
    yield "softmax", [x.softmax(-1), x.log_softmax(-1), x.logsumexp(-1), x.softmax(0)]
    yield "sums", [x.sum(), x.sum(0), x.sum(1), x.mean(), x.mean(1), x.cumsum(1), x[:, ::2].sum()]
    yield "spread", [x.std(), x.var(1), torch.linalg.vector_norm(x), x.norm(dim=1), x.prod(1)]
    index = torch.arange(384) * 7 % 40
    yield "scatter", [torch.zeros(40, 193).index_add(0, index, x),
                      torch.zeros(40).scatter_add(0, index, x[:, 0])]  # fmt: skip


def gradients() -> Iterable[tuple[str, object]]:
    q, k, v = (draw(4, 6, 40, 32, seed=s).requires_grad_() for s in (6, 7, 8))
    seen = torch.ones(40, 40, dtype=torch.bool).tril()
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    out.square().sum().backward()
    yield "attention", [out, q.grad, k.grad, v.grad]
    yield "attention causal", F.scaled_dot_product_attention(q, k, v, is_causal=True)
    attended = F.scaled_dot_product_attention(q[:, :, :1], k, v)
    yield "attention of one", attended
    w, h = draw(900, 192, seed=9).requires_grad_(), draw(64, 192, seed=10).requires_grad_()
    loss = F.cross_entropy(h @ w.T, torch.arange(64))
    loss.backward()
    yield "cross entropy", [loss, w.grad, h.grad]
    table = draw(90, 32).requires_grad_()
    F.embedding(torch.arange(500) % 90, table).square().sum().backward()
    yield "embedding", table.grad
    scale, x = draw(192).requires_grad_(), draw(64, 192, seed=2).requires_grad_()
    F.silu(F.rms_norm(x, (192,), scale)).sigmoid().std().backward()
    yield "norm, silu, sigmoid, std", [scale.grad, x.grad]
    p = torch.nn.Parameter(draw(192, 512, seed=11))
    optimizer = torch.optim.AdamW([p], lr=1e-3, fused=True)
    for step in range(20):
        p.grad = draw(192, 512, seed=20 + step)
        torch.nn.utils.clip_grad_norm_([p], 1.0)
        optimizer.step()
    yield "AdamW", p


def llama() -> Iterable[tuple[str, object]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 900, "hidden_size": 192, "intermediate_size": 512}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=6))
    for number, p in enumerate(model.parameters()):
        p.data = draw(*p.shape, seed=100 + number) * (0.02 if p.ndim > 1 else 1.0) + (p.ndim == 1)
    ids = torch.arange(8 * 48).reshape(8, 48) * 7919 % 899
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    yield "llama", [loss, *(p.grad for p in model.parameters())]
    with torch.no_grad():
        first = model(input_ids=ids[:, :20], use_cache=True)
        cache = first.past_key_values
        rest = [model(input_ids=ids[:, i : i + 1], past_key_values=cache) for i in range(20, 24)]
    yield "llama with cache", [out.logits for out in (first, *rest)]


def random_numbers() -> Iterable[tuple[str, object]]:
    torch.manual_seed(0)
    yield "torch", [torch.randn(1000), torch.randn(7), torch.rand(99), torch.randperm(50)]
    yield "torch, exponential", torch.empty(1000).exponential_()
    generator = np.random.default_rng(0)
    yield "numpy", [generator.standard_normal(999), generator.random(99), generator.permutation(50)]
    yield "numpy, others", [generator.beta(2, 3, 99), generator.binomial(9, 0.3, 99)]


def statistics() -> Iterable[tuple[str, object]]:
    x = draw(200, 301).numpy().astype(np.float64)
    for name in FUNCTIONS:
        yield name, getattr(np, name)(3 * np.abs(x) + 0.1)
    yield "sums", [x.sum(), x.sum(0), x.mean(1), x.std(), x.var(0, ddof=1), x.cumsum(1), x.prod(1)]
    yield "powers", [np.abs(x) ** 0.3, np.logaddexp(x, x.T[:200, :1]), np.hypot(x, 1)]
    yield "products", [x @ x.T, x.T @ x, x @ x[0], np.dot(x[0], x[1]), np.einsum("ij,ij->i", x, x)]
    yield "order", [np.quantile(x, 0.3, axis=0), np.median(x, axis=1), np.sort(x, axis=1)]
    yield "lstsq", [*np.linalg.lstsq(x[:, :5], x[:, 5:7])[:2], np.linalg.solve(x[:9, :9], x[:9, 9])]
    yield "scipy", [special.stdtr(5.0, x), special.ndtri(np.abs(x[:9]) / 2 + 0.1), special.expit(x)]


def digest(result: object) -> str:
    parts = result if isinstance(result, list) else [result]
    arrays = [p.detach().numpy() if isinstance(p, torch.Tensor) else np.asarray(p) for p in parts]
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()[:16]


def main() -> None:
    torch.set_num_threads(stages.THREADS)
    torch.use_deterministic_algorithms(True)
    device.pin_instructions()
    assert not device.unpinned_instructions(), device.unpinned_instructions()
    groups: dict[str, Callable[[], Iterable[tuple[str, object]]]] = {
        "float32": lambda: (*products(), *functions()),
        "gradients": gradients,
        "model": llama,
        "random": random_numbers,
        "numpy float64": statistics,
    }
    result = {f"{group}: {n}": digest(v) for group, make in groups.items() for n, v in make()}
    json.dump(result, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
