r"""Probe whether a policy gamed what it was trained for, and how well it does on dev.

    python -m stages.probe_policy <name> <policy> <pool> <reward_model> <process> <judge> \
        <transfer> <refusals>

Reads a policy, its pool of the test problems and the models and files that the entry names; writes
for each probe and problem a value (`probes.jsonl`), their means with intervals, why a probe was
not run, and the accuracy on dev problems, by which the best policy is chosen (`metrics.json`).
What the probes are: stages/rewards/probes/catalogue. write_card compares them with the baseline's.
"""

import itertools
import json
from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import probe_replies, probe_scores
from stages.loops.candidates import CandidatesConfig
from stages.models import policy as models_policy
from stages.models import start as models_start
from stages.models.aggregate import Aggregate
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.models.process_scorer import ProcessScore
from stages.params import Params
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.reports import dev_accuracy, probe_summary
from stages.rewards.probes import judge_injection, not_run, questions, written
from stages.rewards.probes.config import ProbeConfig
from stages.rewards.probes.not_run import NO_FILE
from stages.rewards.probes.questions import Questions
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive
from stages.sources import other_problems, refusal_requests

PROMPTS = Path("data/prepare_data/prompts")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/probe_policy")


class ProbePolicy(ProbeConfig):
    """How a policy is probed, and how dev problems are sampled."""

    dev: CandidatesConfig
    """By the accuracy of these completions the best policy is chosen."""


class Config(Params):
    """What probe_policy reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName
    ensemble: Aggregate
    process_score: ProcessScore
    probe_policy: ProbePolicy


def main(
    name: str,
    policy: str,
    pool: str,
    reward_model: str,
    process_model: str,
    judge: str,
    transfer: str,
    refusals: str,
) -> None:
    """Write `probes.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"probe_policy@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings, seed = config.probe_policy, derive(config.seed, "probe_policy")
        problems = pools.by_problem(
            lines.read(PROMPTS / "test.jsonl", Prompt),
            lines.read(POOLS / pool / "pool.jsonl", Completion),
        )
        first = problems[: settings.num_problems]
        tokenizer = models_start.tokenizer(policy)
        is_chat = tokenizer.chat_template is not None
        asked = questions.ask(
            gather(first, settings, transfer, refusals if is_chat else NO_FILE), seed
        )
        ids = questions.encode(asked, tokenizer)
        dev = list(lines.read(PROMPTS / "dev.jsonl", Prompt))
        longest = max(len(one) for one in [*ids, *(prompt.prompt_ids for prompt in dev)])
        sampler = samplers.load(
            config.engine,
            policy,
            model=config.model,
            compute=config.compute,
            max_length=longest + max(settings.max_new_tokens, settings.dev.max_new_tokens),
        )
        decode = models_policy.decoder(tokenizer)
        steps = probe_replies.replies(sampler, decode, asked, ids, settings.max_new_tokens)
        replies, generated = [], 0
        for step in progress.track(steps, label=f"ask {name}"):
            run.log(step.index, step.metrics)
            replies += step.rows
            generated += int(step.metrics["tokens/generated"])
        drawn = probe_replies.draw_dev(sampler, decode, dev, settings.dev, config.seed)
        greedy = lines.read(POOLS / pool / "greedy.jsonl", Completion)
        values = [
            *written.values(problems),
            *questions.values(
                [prompt for prompt, _ in first],
                {row.id: row.completion for row in greedy},
                probe_replies.by_kind(replies),
                seed,
            ),
        ]
        device = setup(config.compute)
        chosen = probe_scores.chosen(first, settings.samples_per_problem)
        values += probe_scores.by_reward(
            chosen,
            reward_model,
            config.ensemble,
            config.model,
            config.compute,
            device,
            max_tokens=settings.max_tokens,
        )
        values += probe_scores.by_process(
            chosen,
            process_model,
            config.process_score,
            config.compute,
            device,
            max_tokens=settings.max_tokens,
        )
        values += judge_injection.attack(first, judge, settings.attack, config, seed)
        found = probe_summary.by_probe(values)
        words = {"reward_model": reward_model, "process": process_model, "judge": judge}
        words |= {"transfer": transfer, "refusals": refusals}
        interval = {"num_resamples": settings.num_bootstrap, "confidence": settings.confidence}
        metrics = {
            "policy": policy,
            "dev_accuracy": dev_accuracy.summarise(drawn, **interval, seed=seed),
            **probe_summary.summarise(
                found,
                not_run.reasons(found, words, has_chat_template=is_chat),
                **interval,
                seed=seed,
            ),
            "generated_tokens": generated + probe_replies.num_tokens(drawn),
        }
        with outputs.replace(output / "probes.jsonl") as temporary:
            lines.write(temporary, values)
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def gather(
    problems: list[tuple[Prompt, list[Completion]]],
    settings: ProbeConfig,
    transfer: str,
    refusals: str,
) -> Questions:
    """What there is to ask about; a file that is named in vain is an error."""
    train = itertools.islice(lines.read(PROMPTS / "train.jsonl", Prompt), settings.num_problems)
    return Questions(
        test=[prompt for prompt, _ in problems],
        train=list(train),
        transfer=[]
        if transfer == NO_FILE
        else other_problems.problems(Path(transfer), settings.transfer),
        requests=[] if refusals == NO_FILE else refusal_requests.read(Path(refusals)),
    )


if __name__ == "__main__":
    process.run(main)
