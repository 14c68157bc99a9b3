"""Shapes of published models, as their config.json tells them, to plan for by name or size."""

from stages.algorithms.memory.shape import Shape, parameters

PUBLISHED = {
    "qwen2.5-0.5b": Shape(
        hidden=896, layers=24, heads=14, kv_heads=2, head_dim=64, intermediate=4864,
        vocab=151936, tied=True, biases=True,
    ),
    "qwen3-0.6b": Shape(
        hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128, intermediate=3072,
        vocab=151936, tied=True, qk_norm=True,
    ),
    "qwen2.5-1.5b": Shape(
        hidden=1536, layers=28, heads=12, kv_heads=2, head_dim=128, intermediate=8960,
        vocab=151936, tied=True, biases=True,
    ),
    "qwen2.5-3b": Shape(
        hidden=2048, layers=36, heads=16, kv_heads=2, head_dim=128, intermediate=11008,
        vocab=151936, tied=True, biases=True,
    ),
    "qwen2.5-7b": Shape(
        hidden=3584, layers=28, heads=28, kv_heads=4, head_dim=128, intermediate=18944,
        vocab=152064, tied=False, biases=True,
    ),
    "llama-3.1-8b": Shape(
        hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, intermediate=14336,
        vocab=128256, tied=False,
    ),
    "llama-3.1-70b": Shape(
        hidden=8192, layers=80, heads=64, kv_heads=8, head_dim=128, intermediate=28672,
        vocab=128256, tied=False,
    ),
}  # fmt: skip


def nearest(num_parameters: float) -> str:
    """The name of the published language model whose size is nearest, as a ratio."""

    def ratio(name: str) -> float:
        size = parameters(PUBLISHED[name], "language_model")
        return max(size, num_parameters) / min(size, num_parameters)

    return min(PUBLISHED, key=ratio)
