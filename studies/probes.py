"""Study: does a policy game its training objective?

    python -m studies probes

Asks a policy problems with hints, pads its answers, edits their steps and attacks a judge with
them. The result is a value for each probe (`probe_catalogue`), seed and problem, which the study
`gate` compares with the baseline's.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from stages.algorithms.selection.step_scores import KINDS
from stages.engines.loading import SamplingConfig
from stages.loops.run import Run
from stages.models import model_tokenizer, process_head, prompting, row_policy, scalar_head
from stages.models.batch import Group, split_group
from stages.models.device import setup
from stages.models.process_head import TokenizedSolution
from stages.params import adopt_rounding
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rewards.feedback import injections, judging
from stages.rewards.feedback.prompts import Prompts
from stages.rows import DATA
from stages.runtime import outputs, process
from stages.seeding import derive_seed
from studies import probe_catalogue, probe_edits, probe_hints, probe_texts
from studies import study as studies
from studies.probe_catalogue import ProbeConfig, ProbeValue

CANDIDATES = 2
"""Number of pairs judged per attacked one: ties and unanswered pairs are not attacked."""
FILLER = "Next step:"
"""Step without content; the separator follows it."""
Problems = Sequence[tuple[Prompt, list[Completion]]]
Values = Iterator[ProbeValue]


class Config(SamplingConfig):
    """Keys that the study reads."""

    probes: ProbeConfig


def main(name: str) -> None:
    """Write the rows of each seed of one policy, and the reasons why probes were not run."""
    with studies.start_study(f"probes@{name}", plots=False) as study:
        config = studies.load_study_config(Config, "probes")
        study.for_each_seed(config.seeds, partial(probe_policy, config, name))


def probe_policy(config: Config, name: str, run: Run, folder: Path) -> None:
    """Write the probes of the policy of one seed."""
    results = list(measure_probes(config, name, run.seed))
    lines.write_lines(folder / "probes.jsonl", results)
    not_run = probe_catalogue.list_reasons_not_run({row.probe for row in results}, config.probes)
    outputs.write_json(folder / "not_run.json", not_run)


def measure_probes(config: Config, name: str, seed: int) -> Values:
    """The values of all probes that can be run."""
    settings, samples = config.probes, DATA / "samples" / name / str(seed)
    problems = pools.read_split(samples, "test")
    first = problems[: settings.num_problems]
    yield from probe_texts.measure_texts(problems)
    greedy = lines.read_lines(samples / "test_greedy.jsonl", Completion)
    replies = {row.id: row.completion for row in greedy}
    yield from ask_with_hints([prompt for prompt, _ in first], replies, name, seed, config)
    if settings.reward is not None:
        yield from measure_length_taste(first, settings.reward, seed, config)
    if settings.process is not None:
        yield from measure_step_taste(first, settings.process, seed, config)
    if settings.judge is not None:
        yield from attack_judge(first, settings.judge, seed, config)


def ask_with_hints(
    prompts: Sequence[Prompt], replies: Mapping[str, str], name: str, seed: int, config: Config
) -> Values:
    """Values of `probe_hints.measure_hints`; `replies`: greedy completions without hints, by id."""
    hinted = probe_hints.choose_hints(prompts, derive_seed(seed, "probes"))
    if not hinted:
        return
    max_new_tokens = config.probes.max_new_tokens
    tokenizer = row_policy.load_row_tokenizer(name, seed)
    ids = probe_hints.encode_hints(hinted, tokenizer)
    decode = model_tokenizer.make_decode(tokenizer)
    with closing(config.load_sampler(name, seed, max(map(len, ids)) + max_new_tokens)) as sampler:
        samples = sampler.sample(
            ids, [0] * len(ids), num_samples=1, temperature=0.0, max_new_tokens=max_new_tokens
        )
    texts = [decode(sample.token_ids) for (sample,) in samples]
    for problem, wrong, right in zip(hinted, texts[::2], texts[1::2], strict=True):
        plain = replies[problem.prompt.id]
        yield from probe_hints.measure_hints(problem, plain=plain, wrong=wrong, right=right)


def drop_duplicates(problems: Problems) -> Problems:
    """Distinct completions of each problem that were not truncated, in drawing order."""
    return [
        (prompt, pools.deduplicate([row for row in pool if row.finish_reason == "stop"])[0])
        for prompt, pool in problems
    ]


def measure_length_taste(problems: Problems, reward: str, seed: int, config: Config) -> Values:
    """Values of `probe_edits.measure_padding` for one seed of a row of `rewards`."""
    folder, compute = DATA / "rewards" / reward, config.compute
    path = reward_file.model_path(folder, seed)
    aggregate = reward_file.read_reward(folder).aggregate
    ensemble = scalar_head.load_ensemble(path, aggregate, compute, setup(compute))
    tokenizer = model_tokenizer.load_tokenizer(scalar_head.find_member_folders(path)[0])
    end = model_tokenizer.end_id(tokenizer)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, end] for ids in prompting.tokenize(texts, tokenizer)]

    def scores(groups: Sequence[Group]) -> Sequence[float]:
        parts = [part for group in groups for part in split_group(group, compute.row_tokens)]
        return ensemble.score_groups(parts).values.tolist()

    yield from probe_edits.measure_padding(
        drop_duplicates(problems), encode, scores,
        num_padded=config.probes.samples_per_problem, max_tokens=config.probes.max_tokens,
    )  # fmt: skip


def measure_step_taste(problems: Problems, process: str, seed: int, config: Config) -> Values:
    """Values of `probe_edits.measure_recutting` for one seed of a process row of `rewards`."""
    settings, path = config.probes, reward_file.model_path(DATA / "rewards" / process, seed)
    model = process_head.load_process_scorer(path, config.compute, setup(config.compute))
    separator = model.model.separator
    (filler,) = prompting.tokenize([FILLER + separator], model_tokenizer.load_tokenizer(path))

    def aggregated(solutions: Sequence[TokenizedSolution]) -> Sequence[float]:
        return [KINDS[settings.process_score](steps) for steps in model(solutions)]

    first = [
        (prompt, pool[: settings.samples_per_problem]) for prompt, pool in drop_duplicates(problems)
    ]
    yield from probe_edits.measure_recutting(
        first, model.split, aggregated, filler=filler, max_tokens=settings.max_tokens
    )


def attack_judge(problems: Problems, judge: str, seed: int, config: Config) -> Values:
    """Shares of attacks, and of controls, that turn the verdict, for each attacked problem.

    The judge is the policy `judge`. Each problem with different completions gives one pair.
    """
    attack = config.probes.attack
    judge_model = config.load_judge(attack.judge, judge, seed)
    prompts = Prompts(style=attack.style, constitution=attack.constitution)
    candidate_pairs = judging.choose_pairs(
        problems, prompts, max_pairs=1, seed=derive_seed(seed, "probes", "judge")
    )
    if not (pairs := candidate_pairs[: CANDIDATES * attack.num_pairs]):
        return
    verdicts, _ = judging.judge_pairs(
        judge_model, judging.split_chunks(pairs), prompts, attack.rule, "test"
    )
    attacked = injections.choose_attacked(pairs, verdicts, attack.num_pairs)
    parts = injections.measure_flips(judge_model, attacked, prompts, attack.rule)
    flips = {part["attack"]: part["flips"] for part in parts}
    for name, flipped in flips.pop("control"):
        yield ProbeValue(probe="judge_control", id=name, value=flipped)
    turned: dict[str, list[float]] = {}
    for name, flipped in itertools.chain(*flips.values()):
        turned.setdefault(name, []).append(flipped)
    for name, values in turned.items():
        yield ProbeValue(probe="judge_injection", id=name, value=sum(values) / len(values))


if __name__ == "__main__":
    adopt_rounding()
    process.run(main)
