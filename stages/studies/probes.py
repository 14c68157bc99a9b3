"""Study: did a policy game what it was trained for?

    dvc repro stages/studies/dvc.yaml:probes

Asks a policy its problems otherwise (a wrong hint, other numbers), pads its answers, edits their
steps and attacks a judge with them: a value for each probe, seed and problem. What the probes are:
`probe_catalogue`. The study `gate` compares them with the baseline's.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stages.engines import loading
from stages.engines.loading import EngineName
from stages.models import policy as models_policy
from stages.models import start as models_start
from stages.models.device import ComputeConfig
from stages.models.start import ModelConfig
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process
from stages.runtime.seeds import SeedRun
from stages.seeding import derive
from stages.studies import probe_catalogue, probe_models, probe_questions, probe_texts
from stages.studies import study as studies
from stages.studies.probe_catalogue import ProbeConfig, ProbeValue
from stages.studies.probe_questions import Reply


class Config(Params):
    """What the study reads."""

    seeds: list[int]
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName
    probes: ProbeConfig


def main(name: str) -> None:
    """Write the rows of each seed of one policy, and why a probe was not run."""
    with studies.start(f"probes@{name}", plots=False) as study:
        config = studies.load(Config, "probes")
        study.for_each_seed(config.seeds, partial(probe, config, name))


def probe(config: Config, name: str, run: SeedRun, folder: Path) -> None:
    """Probe the policy of one seed."""
    settings, found = config.probes, list(values(config, name, run))
    lines.write(folder / "probes.jsonl", found)
    chat = models_start.tokenizer(name, run.seed).chat_template is not None
    run_probes = {one.probe for one in found}
    not_run = probe_catalogue.reasons(run_probes, settings, has_chat_template=chat)
    outputs.write_json(folder / "not_run.json", not_run)


def values(config: Config, name: str, run: SeedRun) -> Iterator[ProbeValue]:
    """The values of all probes that can be run."""
    settings, compute, seed = config.probes, config.compute, run.seed
    samples = DATA / "samples" / name / str(seed)
    problems = pools.by_problem(
        lines.read(PROMPTS / "test.jsonl", Prompt), lines.read(samples / "test.jsonl", Completion)
    )
    first = problems[: settings.num_problems]
    greedy = lines.read(samples / "test_greedy.jsonl", Completion)
    yield from probe_texts.written(problems)
    test = [prompt for prompt, _ in first]
    yield from probe_texts.replied(replies(config, name, run, test, greedy))
    if settings.reward is not None:
        yield from probe_models.length_values(first, settings.reward, seed, compute, settings)
    if settings.process is not None:
        yield from probe_models.step_values(first, settings.process, seed, compute, settings)
    if settings.judge is not None:
        where = {"engine": config.engine, "model": config.model, "compute": compute}
        yield from probe_models.attack(first, settings.judge, seed, settings.attack, **where)


def replies(
    config: Config, name: str, run: SeedRun, test: list[Prompt], greedy: Iterator[Completion]
) -> list[Reply]:
    """What the policy says to the test problems, greedily, and when it is asked otherwise."""
    settings, seed = config.probes, derive(run.seed, "probes")
    tokenizer = models_start.tokenizer(name, run.seed)
    is_chat = tokenizer.chat_template is not None
    asked = probe_questions.ask(test, settings, seed, is_chat=is_chat)
    ids = probe_questions.encode(asked, tokenizer)
    sampler = loading.sampler(
        config.engine, name, run.seed, model=config.model, compute=config.compute,
        max_length=max(map(len, ids)) + settings.max_new_tokens,
    )  # fmt: skip
    decode = models_policy.decoder(tokenizer)
    steps = probe_questions.replies(sampler, decode, asked, ids, settings.max_new_tokens)
    otherwise = [row for step in run.track(steps, label="ask") for row in step.rows]
    plain = {row.id: row.completion for row in greedy}
    own = probe_questions.as_they_are(test, "plain")
    return [(one, plain[one.id]) for one in own] + otherwise


if __name__ == "__main__":
    process.run(main)
