"""AI feedback on completions of a pool: a judge's preferences, or a policy's revisions.

    python -m stages label_judge    <pairs> --by judge    --preset .. --from <judge> --on pools/..
    python -m stages label_revision <pairs> --by revision --preset .. --from .. --on pools/..

Both read a pool of each seed and the problems that it answers.

`judge`: draws pairs of completions of a problem, independent of the answer checker, and asks a
model which is better. Writes preferences (`train.jsonl`, `heldout.jsonl`) and every verdict
(`verdicts.jsonl`). Lee et al. 2023, "RLAIF", https://arxiv.org/abs/2309.00267; principles drawn
from a constitution: Bai et al. 2022, https://arxiv.org/abs/2212.08073. The answer checker only
measures the judge afterwards.

`revision`: the policy `from` criticises and revises the answers by a constitution. Writes each
round's original, critique and revision (`triples.jsonl`); the training problems with their last
revision, for SFT (`demonstrations.jsonl`); and pairs of the last revision over the first answer
(`train.jsonl`, `heldout.jsonl`). Source: stages/loops/revision.py.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.engines import loading
from stages.engines.loading import SamplingConfig
from stages.loops import revision, work
from stages.loops.revision import RevisionConfig
from stages.loops.run import Run
from stages.models import model_tokenizer, prompting, row_policy, size
from stages.records import pools
from stages.records.preferences import Revision, Verdict
from stages.report import judge_quality
from stages.rewards.feedback import injections, judging, revisions
from stages.rewards.feedback.judging import LabelRule, PairToJudge
from stages.rewards.feedback.prompts import Prompts, Style
from stages.sampler import Judge
from stages.seeding import derive_seed


class JudgePreset(Params):
    """The judge, its requests, and the rule from verdicts to labels."""

    judge: loading.JudgeConfig
    style: Style
    """Style of the request: `short` for the embedded model, which was trained on it."""
    constitution: Literal["correct", "harmless", "none"]
    """Constitution, from which a principle is drawn for each pair."""
    reasoning: loading.ReasoningConfig | None
    """Reasoning that the judge writes before its choice; null: none."""
    max_pairs_per_problem: int = Field(ge=1)
    rule: LabelRule
    injection_pairs: int = Field(ge=0)
    """Held-out pairs on which each attack on the judge is tried."""


class JudgeLabelling(SamplingConfig):
    """Keys of params.yaml that label_judge reads, and its preset."""

    preset: JudgePreset


class RevisionLabelling(SamplingConfig):
    """Keys of params.yaml that label_revision reads, and its preset."""

    preset: RevisionConfig


CONFIGS = {"label_judge": JudgeLabelling, "label_revision": RevisionLabelling}


def main(*words: str) -> None:
    """Write pairs, verdicts or revisions, and `metrics.json`, of each seed."""
    label = label_by_judge if words[0] == "label_judge" else revise_answers
    stage.run(label, words, CONFIGS, gpu=True)


def label_by_judge(run: Run) -> dict[str, Any]:
    """Write the pairs of one seed, labelled by that seed's judge; returns their metrics."""
    config, row = run.config, run.row
    preset, seed = config.preset, derive_seed(run.seed, "label_judge")
    prompts = Prompts(style=preset.style, constitution=preset.constitution)
    judge = config.load_judge(preset.judge, row.policy, run.seed, preset.reasoning)
    metrics: dict[str, Any] = {"trained_tokens": 0}
    cost: Counter[str] = Counter()
    verdicts, pairs, of_side = [], [], []
    pairs_by_side = {
        side: judging.choose_pairs(
            pools.read_pools(row.source, run.seed, side), prompts,
            max_pairs=preset.max_pairs_per_problem, seed=seed,
        )
        for side in pools.SIDES
    }  # fmt: skip
    num_attacked = min(preset.injection_pairs, len(pairs_by_side[pools.SIDES[-1]]))
    after = sum(map(len, pairs_by_side.values())) + num_attacked * len(injections.TRIED)
    for side, pairs in pairs_by_side.items():
        after -= len(pairs)
        of_side, tokens = judge_side(run, judge, prompts, side, pairs, 2 * after)
        cost.update(tokens)
        run.write(f"{side}.jsonl", judging.make_preferences(pairs, of_side, preset.rule))
        metrics[side] = judge_quality.summarise_verdicts(
            of_side, *judging.correctness_and_lengths(pairs), seed
        )
        judging.warn_of_low_mass(metrics[side].get("mean_option_mass"), side)
        headline = judge_quality.select_headline(metrics[side])
        shown = {name: headline[name] for name in ("pairs", "agreement") if name in headline}
        run.progress.watch(shown)
        run.log(0, {f"{side}/{name}": value for name, value in headline.items()})
        verdicts += of_side
    attacked = injections.choose_attacked(pairs, of_side, preset.injection_pairs)
    flips, tokens = attack_judge(run, judge, prompts, attacked)
    cost.update(tokens)
    metrics["injection"] = judge_quality.estimate_flip_rates(flips, seed)
    is_ours = preset.judge.kind == "policy"
    judge_size = size.measure_policy(row.policy, run.seed, config.model) if is_ours else None
    metrics |= work.summarise_judging(cost, judge_size)
    metrics["judge"] = preset.judge.model_dump()
    run.write("verdicts.jsonl", verdicts)
    return metrics


def judge_side(
    run: Run, judge: Judge, prompts: Prompts, side: str, pairs: Sequence[PairToJudge], after: int
) -> tuple[list[Verdict], Counter[str]]:
    """Verdicts on the pairs of a side, and their cost in tokens; resumes a killed run.

    `after`: the number of messages that follow.
    """
    verdicts: list[Verdict] = []
    cost: Counter[str] = Counter()
    chunks = judging.split_chunks(pairs)
    work_from = partial(judging.judge_chunks, judge, chunks, prompts, run.config.preset.rule, side)
    sizes = [2 * len(chunk) for chunk in chunks]  # both orders
    parts = run.keep_parts(side, work_from)
    for part in run.track(parts, label=side, unit="messages", sizes=sizes, after=after):
        verdicts += [Verdict(**verdict) for verdict in part["verdicts"]]
        cost.update(part["tokens"])
        masses = [verdict.option_mass for verdict in verdicts if verdict.option_mass is not None]
        run.progress.watch({"option mass": fmean(masses)} if masses else {})
    return verdicts, cost


def attack_judge(
    run: Run, judge: Judge, prompts: Prompts, pairs: Sequence[PairToJudge]
) -> tuple[dict[str, list[tuple[str, float]]], Counter[str]]:
    """Flips of the verdicts on pairs by each attack (`measure_flips`), and their cost in tokens."""
    flips: dict[str, list[tuple[str, float]]] = {}
    cost: Counter[str] = Counter()
    work_from = partial(injections.measure_flips, judge, pairs, prompts, run.config.preset.rule)
    sizes = [2 * len(pairs)] * len(injections.TRIED)
    parts = run.keep_parts("attacks", work_from)
    for part in run.track(parts, label="attacks", unit="messages", sizes=sizes, after=0):
        flips[part["attack"]] = [(name, value) for name, value in part["flips"]]
        cost.update(part["tokens"])
    return flips, cost


def revise_answers(run: Run) -> dict[str, Any]:
    """Write the revisions of one seed by that seed's policy; returns their metrics."""
    config, row = run.config, run.row
    preset, seed = config.preset, derive_seed(run.seed, "label_revision")
    max_tokens = preset.max_prompt_tokens + preset.max_new_tokens
    sampler = config.load_sampler(row.policy, run.seed, max_tokens)
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    decode = model_tokenizer.make_decode(tokenizer)
    encode = partial(prompting.tokenize_messages, tokenizer=tokenizer)
    triples: list[Revision] = []
    history: list[dict[str, int | float]] = []
    metrics: dict[str, Any] = {}
    answers_by_side = {
        side: revisions.choose_answers(
            pools.read_pools(row.source, run.seed, side), preset.max_per_problem
        )
        for side in pools.SIDES
    }
    sizes = {
        side: revision.count_replies(answers, preset.num_rounds)
        for side, answers in answers_by_side.items()
    }
    after = sum(map(sum, sizes.values()))
    for side, answers in answers_by_side.items():
        rounds_of = partial(
            revision.rounds, sampler, decode, encode, config=preset, seed=seed, split=side
        )
        steps = run.parts(side, partial(revision.revise, rounds_of, answers), Revision)
        after -= sum(sizes[side])
        finished = list(
            run.track(steps, label=side, unit="completions", sizes=sizes[side], after=after)
        )
        history += [step.metrics for step in finished]
        of_side = [row for step in finished for row in step.rows]
        triples += of_side
        revised = revisions.join_revisions(answers, of_side, preset.num_rounds)
        metrics[side] = revisions.summarise_revisions(revised)
        revisions.check_pairs(revised, row.source)
        pairs = [pair for answer in revised if (pair := answer.preference()) is not None]
        run.write(f"{side}.jsonl", pairs)
        if side == "train":
            shown = [row.demonstration() for row in revised]
            run.write("demonstrations.jsonl", [row for row in shown if row is not None])
    run.write("triples.jsonl", triples)
    measured = size.measure_policy(row.policy, run.seed, config.model)
    return metrics | work.summarise_training(history, {"policy": measured})
