"""A judge behind a real server says what the same weights say here."""

from pathlib import Path

import judge_checkpoint
import pytest
import tiny_checkpoints
import vllm_server
from vllm_installed import needs_vllm

from stages.engines import openai_endpoint, transformers
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig
from stages.engines.openai_endpoint import EndpointJudge
from stages.models import model_tokenizer, policy
from stages.models.policy_judge import PolicyJudge, option_tokens


def connect(url: str, model: str, folder: Path) -> EndpointJudge:
    judge = {"model": model, "revision": "2026-11", "api": "completions", "top_logprobs": 20}
    return openai_endpoint.connect_endpoint(
        EndpointJudgeConfig(kind="endpoint", **judge),
        ("1", "2"),
        0,
        AnswerCache(folder / "cache"),
        environment={openai_endpoint.URL: url},
    )


@needs_vllm
@pytest.mark.vllm
def test_vllm_serve_judges_as_the_same_weights_do_here(tmp_path):
    path = judge_checkpoint.checkpoint()
    model = policy.load_policy(path, tiny_checkpoints.compute(), tiny_checkpoints.CPU)
    tokenizer = model_tokenizer.load_tokenizer(path)
    engine = transformers.make_sampler(model, tokenizer, max_batch=8, max_tokens=1024)
    local = PolicyJudge(
        engine=engine,
        tokenizer=tokenizer,
        option_ids=option_tokens(tokenizer, ("1", "2")),
        max_prompt_tokens=240,
        reasoning_tokens=0,
    )
    with vllm_server.serve(path, "judge-1", tmp_path) as url:
        served = connect(url, "judge-1", tmp_path)
        found = served.choose(judge_checkpoint.MESSAGES)
        with pytest.raises(ValueError, match="knows no model 'judge-2'"):
            connect(url, "judge-2", tmp_path).choose(["x"])
    expected = local.choose(judge_checkpoint.MESSAGES)
    assert len(found) == 20
    for ours, theirs in zip(expected, found, strict=True):
        assert ours is not None
        assert theirs is not None
        assert theirs.probabilities == pytest.approx(ours.probabilities, abs=1e-3)
        assert theirs.mass == pytest.approx(ours.mass, abs=1e-3)
        assert theirs.num_prompt_tokens == ours.num_prompt_tokens
