"""The engine that params.yaml names, on a policy that a row names."""

from typing import Literal

from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.sampler import Sampler

EngineName = Literal["transformers", "vllm"]


def load(
    engine: EngineName,
    policy: str,
    seed: int,
    *,
    model: ModelConfig,
    compute: ComputeConfig,
    max_length: int,
    gpu_share: float | None = None,
) -> Sampler:
    """A sampler.

    Args:
        engine: which implementation.
        policy: a row of `policies`, or the base model.
        seed: of the policy.
        model: says what the base model is.
        compute: precision, device and batch size.
        max_length: the longest prompt and completion together, in tokens.
        gpu_share: of a GPU's memory, what vLLM may take, where another model computes beside
            it; None: vLLM's own choice. The other engine takes what it needs.
    """
    match engine:
        case "transformers":
            from stages.engines import transformers

            return transformers.from_model(
                models_start.load(policy, seed, model, compute, setup(compute)),
                models_start.tokenizer(policy, seed),
                max_batch=compute.max_batch,
            )
        case "vllm":
            from stages.engines import vllm

            path = models_start.folder(policy, seed, model)
            return vllm.load(
                path, dtype=compute.dtype, max_model_len=max_length, gpu_share=gpu_share
            )
