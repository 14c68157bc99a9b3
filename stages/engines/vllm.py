"""Sampler on vLLM's offline engine, inside the stage's process.

One request per prompt, with `num_samples` samples and its own seed. The samples share the prompt's
key/value cache, and prompts share that of their common prefix, in blocks of 16 tokens (on a CPU
128), so vLLM needs no session. Only this module and `vllm_transfer` import vLLM, when it is chosen.
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoTokenizer, GenerationConfig
from transformers.utils.hub import cached_file

from stages.engines import vllm_hosting
from stages.models import model_tokenizer
from stages.sampler import Sample, check_requests, token_limits

LOWEST_TEMPERATURE = 0.01
"""vLLM raises temperatures between 0 and this one to it, which changes the distribution."""
MAX_LOGPROB_TOKENS = 128
"""Largest number of tokens whose log-probs a request can ask for."""


@dataclass(kw_only=True)
class VllmSampler:
    """Sampler of the checkpoint that the engine was started on."""

    llm: Any
    """A `vllm.LLM`; not named in the annotation because vLLM need not be installed."""
    eos_ids: frozenset[int]
    """End-of-sequence tokens: each of them ends a completion."""
    max_model_len: int
    """Limit of prompt and completion together, in tokens."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        num_samples: int,
        temperature: float,
        max_new_tokens: int | Sequence[int],
        break_after: frozenset[int] = frozenset(),
    ) -> list[list[Sample]]:
        """See `stages.sampler.Sampler.sample`.

        Sample j of a request is drawn by the generator seeded with the request's seed + j. Refuses
        what `stages.sampler.check_requests` refuses, and temperatures that vLLM would change.
        """
        limits = token_limits(max_new_tokens, prompts)
        check_requests(prompts, limits, self.max_model_len, num_samples, temperature)
        if 0 < temperature < LOWEST_TEMPERATURE:
            raise ValueError(
                f"vLLM cannot sample at temperature {temperature}; it raises it to "
                f"{LOWEST_TEMPERATURE}. Set 0 for greedy decoding, or engine: transformers"
            )
        params = [
            {
                "n": num_samples,
                "temperature": temperature,
                "seed": None if temperature == 0 else seed,
                "max_tokens": limit,
                # The engine has no tokenizer, so these are its only end-of-sequence tokens.
                "stop_token_ids": sorted(self.eos_ids | break_after),
                "logprobs": 0,  # only of the sampled token
            }
            for limit, seed in zip(limits, seeds, strict=True)
        ]
        groups: list[list[Sample]] = []
        for result in self._generate(prompts, params):
            groups.append([])
            for output in sorted(result.outputs, key=lambda output: output.index):
                ids, reason = list(output.token_ids), output.finish_reason
                assert reason in ("stop", "length"), reason
                # The last token is the one that stopped the completion; `stop_reason` would only
                # repeat it.
                if reason == "stop" and ids[-1] not in self.eos_ids:
                    reason = "step"
                steps = zip(output.logprobs, ids, strict=True)
                logprobs = [step[token_id].logprob for step, token_id in steps]
                sample = Sample(token_ids=ids, logprobs=logprobs, finish_reason=reason)
                groups[-1].append(sample)
        return groups

    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], token_ids: Sequence[int]
    ) -> Iterator[tuple[int, list[float]]]:
        """See `stages.sampler.Engine.next_logprobs`: one token is drawn and thrown away."""
        check_requests(prompts, token_limits(1, prompts), self.max_model_len)
        ids = list(token_ids)
        chunks = [ids[i : i + MAX_LOGPROB_TOKENS] for i in range(0, len(ids), MAX_LOGPROB_TOKENS)]
        params = [
            {"temperature": 0.0, "max_tokens": 1, "logprob_token_ids": chunk}
            for _ in prompts
            for chunk in chunks
        ]
        results = iter(self._generate([prompt for prompt in prompts for _ in chunks], params))
        for number in range(len(prompts)):
            logprobs: list[float] = []
            for chunk in chunks:
                first = next(results).outputs[0].logprobs[0]
                logprobs += [first[token].logprob for token in chunk]
            yield number, logprobs

    def close(self) -> None:
        """See `stages.sampler.Engine.close`."""
        self.llm.llm_engine.engine_core.shutdown()
        self.llm = None
        gc.collect()  # the engine's objects refer to each other
        torch.cuda.empty_cache()

    def _generate(
        self, prompts: Sequence[Sequence[int]], params: Sequence[dict[str, Any]]
    ) -> list[Any]:
        """vLLM's outputs for each prompt with its own sampling parameters."""
        # If vLLM is not installed, pyright resolves the name to this file.
        from vllm import SamplingParams  # pyright: ignore[reportAttributeAccessIssue]

        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        settings = [SamplingParams(detokenize=False, **values) for values in params]
        with vllm_hosting.vllm_precision():
            return self.llm.generate(requests, settings, use_tqdm=False)


def start_vllm(
    path: str | Path,
    revision: str | None = None,
    *,
    dtype: Literal["float32", "bfloat16"],
    max_model_len: int,
    memory_share: float = vllm_hosting.MEMORY_SHARE_ALONE,
    reserved: int = 0,
    **settings: Any,
) -> VllmSampler:
    """Start vLLM on the checkpoint at `path`, a folder or a hub id with its commit.

    `dtype`: of weights and computation. `max_model_len`: the longest prompt and completion
    together, in tokens. `memory_share`, `reserved`: `part` and `reserved` of
    `vllm_hosting.vllm_memory_share`. `settings`: more of `vllm.LLM`'s arguments.
    """
    vllm_hosting.require_vllm()
    if torch.cuda.is_available():
        vllm_hosting.check_gpu_is_not_shared()
    config = AutoConfig.from_pretrained(path, revision=revision or "main")
    eos_ids = _end_of_sequence_ids(path, revision, config)
    vllm_hosting.prepare_process()
    import vllm

    on_gpu = torch.cuda.is_available()
    arguments = {
        "dtype": dtype,
        "max_model_len": max_model_len,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # not the checkpoint's top_k and the like
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # after the temperature, as the token was drawn
        "enforce_eager": not on_gpu,  # compiling for the CPU takes a minute
        "load_format": "safetensors",  # never a pickle
        "seed": 0,  # each request has its own
    }
    if on_gpu:
        arguments["gpu_memory_utilization"] = vllm_hosting.vllm_memory_share(
            *vllm_hosting.gpu_memory(), reserved=reserved, part=memory_share
        )
    else:
        # Chunked prefill rewinds a prompt's random stream, which a CPU generator does not support.
        arguments["enable_chunked_prefill"] = False
    with vllm_hosting.vllm_precision():
        llm = vllm.LLM(  # pyright: ignore[reportAttributeAccessIssue]
            model=str(path), revision=revision, trust_remote_code=False, **arguments | settings
        )
    return VllmSampler(llm=llm, eos_ids=eos_ids, max_model_len=max_model_len)


def _end_of_sequence_ids(path: str | Path, revision: str | None, config: Any) -> frozenset[int]:
    """End-of-sequence tokens of the tokenizer and of the generation config, or else `config`."""

    def has_file(name: str) -> bool:
        options = {"revision": revision, "_raise_exceptions_for_missing_entries": False}
        return cached_file(str(path), name, **options) is not None

    version, ids = revision or "main", config.eos_token_id
    if has_file("generation_config.json"):
        ids = GenerationConfig.from_pretrained(path, revision=version).eos_token_id
    candidates = [*ids] if isinstance(ids, list) else [ids]
    if has_file("tokenizer_config.json"):
        # SFT teaches the tokenizer's end token, whatever the configuration says.
        tokenizer = AutoTokenizer.from_pretrained(path, revision=version)
        candidates += model_tokenizer.end_ids(tokenizer)
    eos_ids = frozenset(token_id for token_id in candidates if isinstance(token_id, int))
    if not eos_ids:
        raise ValueError(
            f"{path} names no end-of-sequence token: expected one in its "
            f"tokenizer, generation_config.json or config.json. Set it, or every completion "
            f"runs to the limit."
        )
    return eos_ids
