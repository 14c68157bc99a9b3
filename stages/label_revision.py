"""Answers criticised and revised by a policy, after a constitution.

    python -m stages.label_revision <pairs> --by revision --preset .. --from .. --on pools/<pool>

Reads a pool of each seed, the problems that it answers, and the policy `from`, which criticises and
revises. Writes each round's original, critique and revision (`triples.jsonl`); the problems to
learn from with their last revision, for SFT (`demonstrations.jsonl`); and pairs of the last
revision over the first answer (`train.jsonl`, `heldout.jsonl`). Source: stages/loops/revision.py.
"""

from functools import partial
from typing import Any

from stages import stage
from stages.engines.loading import SamplingConfig
from stages.loops import revision, work
from stages.loops.revision import RevisionConfig
from stages.loops.run import Run
from stages.models import policy, prompting, row_policy, size
from stages.records import pools
from stages.records.preferences import Revision
from stages.rewards.feedback import revisions
from stages.runtime import process
from stages.seeding import derive_seed


class Config(SamplingConfig):
    """What label_revision reads of params.yaml, and its preset."""

    preset: RevisionConfig


def main(*words: str) -> None:
    """Write pairs, demonstrations, triples and `metrics.json` of each seed."""
    stage.run(revise, "label", words, Config, gpu=True)


def revise(run: Run) -> dict[str, Any]:
    """The revisions of one seed, by the policy of that seed."""
    config, row = run.config, run.row
    preset, seed = config.preset, derive_seed(run.seed, "label_revision")
    sampler = config.load_sampler(
        row.policy, run.seed, preset.max_prompt_tokens + preset.max_new_tokens
    )
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    decode, encode = (
        policy.make_decode(tokenizer),
        partial(prompting.tokenize_messages, tokenizer=tokenizer),
    )
    triples: list[Revision] = []
    history: list[dict[str, int | float]] = []
    metrics: dict[str, Any] = {}
    for side in pools.SIDES:
        problems = pools.read_pools(row.source, run.seed, side)
        answers = revisions.choose_answers(problems, preset.max_per_problem)
        how = {"config": preset, "seed": seed, "split": side}
        rounds_of = partial(revision.rounds, sampler, decode, encode, **how)
        steps = run.parts(side, partial(revision.revise, rounds_of, answers), Revision)
        done = list(run.track(steps, total=revision.num_parts(answers), label=side))
        history += [step.metrics for step in done]
        found = [row for step in done for row in step.rows]
        triples += found
        revised = revisions.gather(answers, found, preset.num_rounds)
        metrics[side] = revisions.summarise_revisions(revised)
        revisions.check_pairs(revised, row.source)
        pairs = [pair for one in revised if (pair := one.preference()) is not None]
        run.write(f"{side}.jsonl", pairs)
        if side == "train":
            shown = [shown for one in revised if (shown := one.demonstration()) is not None]
            run.write("demonstrations.jsonl", shown)
    run.write("triples.jsonl", triples)
    measured = size.measure_policy(row.policy, run.seed, config.model)
    return metrics | work.learned(history, {"policy": measured})


if __name__ == "__main__":
    process.run(main)
