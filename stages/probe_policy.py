r"""Probe whether a policy gamed what it was trained for, and how well it does on dev.

    python -m stages.probe_policy <name> <policy> <pool> <reward_model> <process> <judge> \
        <transfer> <refusals>

Reads a policy, its pool of the test problems and the models and files that the entry names; writes
for each probe and problem a value (`probes.jsonl`), their means with intervals, why a probe was
not run, and the accuracy on dev problems, by which the best policy is chosen (`metrics.json`).
What the probes are: stages/rewards/probes/catalogue. compare_probes compares them with the
baseline's.
"""

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
from stages.models.device import ComputeConfig
from stages.params import Params
from stages.records import lines
from stages.reports import probe_metrics, probe_summary
from stages.rewards.probes import given, judge_injection, questions, written
from stages.rewards.probes.config import ProbeConfig
from stages.rewards.probes.given import Words
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

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
    probe_policy: ProbePolicy


def main(name: str, policy: str, pool: str, *others: str) -> None:
    """Write `probes.jsonl` and `metrics.json`."""
    output, words = OUTPUT / name, Words(*others)
    with runs.start(f"probe_policy@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings, seed = config.probe_policy, derive(config.seed, "probe_policy")
        tokenizer = models_start.tokenizer(policy)
        is_chat = tokenizer.chat_template is not None
        had = given.load(PROMPTS, POOLS / pool, settings.num_problems)
        about = questions.gather(had.test, PROMPTS, settings, words, is_chat=is_chat)
        asked = questions.ask(about, seed)
        ids = questions.encode(asked, tokenizer)
        longest = probe_replies.longest(ids, had.dev, settings.max_new_tokens, settings.dev)
        sampler = samplers.load(
            config.engine, policy, model=config.model, compute=config.compute, max_length=longest
        )
        decode = models_policy.decoder(tokenizer)
        replies, generated = [], 0
        steps = probe_replies.replies(sampler, decode, asked, ids, settings.max_new_tokens)
        for step in progress.track(steps, label=f"ask {name}"):
            run.log(step.index, step.metrics)
            replies += step.rows
            generated += int(step.metrics["tokens/generated"])
        drawn = probe_replies.draw_dev(sampler, decode, had.dev, settings.dev, config.seed)
        modified = {"num_modified": settings.samples_per_problem, "max_tokens": settings.max_tokens}
        values = [
            *written.values(had.problems),
            *questions.values(had.test, had.plain, probe_replies.by_kind(replies), seed),
            *probe_scores.values(had.first, words, config, kind=settings.process_score, **modified),
            *judge_injection.attack(had.first, words.judge, settings.attack, config, seed),
        ]
        metrics = probe_metrics.metrics(
            policy,
            probe_summary.by_probe(values),
            drawn,
            words,
            settings,
            is_chat=is_chat,
            generated_tokens=generated + probe_replies.num_tokens(drawn),
            seed=seed,
        )
        with outputs.replace(output / "probes.jsonl") as temporary:
            lines.write(temporary, values)
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
