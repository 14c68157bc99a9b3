"""Answers criticised and revised by their own author, after a constitution.

    python -m stages.revise_answers <name> <train pool> <heldout pool> <policy>

Reads pools of completions of the preference and the dev split, the prompts they answer, and the
policy that criticises and revises. Writes each round's original, critique and revision
(`triples.jsonl`); problems of the preference split with their last revision, for SFT
(`demonstrations.jsonl`); and pairs of the last revision over the first answer
(`train.jsonl`, `heldout.jsonl`). Bai et al. 2022 (Constitutional AI),
https://arxiv.org/abs/2212.08073; stages/loops/revision.py says where we depart.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import revision, work
from stages.loops.revision import RevisionConfig
from stages.models import messages, policy, size
from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.preferences import Revision
from stages.records.problems import Prompt
from stages.rewards.feedback import revised_answers, revision_quality
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

logger = logging.getLogger(__name__)

PROMPTS = Path("data/prepare_data/prompts")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/revise_answers")
SPLITS = {"train": "preference", "heldout": "dev"}
"""Output file -> the split of problems that its pool is of."""


class Config(Params):
    """What revise_answers reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName
    revise_answers: RevisionConfig


def main(name: str, train: str, heldout: str, start: str) -> None:
    """Write `triples.jsonl`, `demonstrations.jsonl`, `train.jsonl`, `heldout.jsonl`, metrics."""
    output = OUTPUT / name
    with runs.start(f"revise_answers@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings = config.revise_answers
        longest = settings.max_prompt_tokens + settings.max_new_tokens
        sampler = samplers.load(
            config.engine, start, model=config.model, compute=config.compute, max_length=longest
        )
        tokenizer = models_start.tokenizer(start)
        decode, encode = policy.decoder(tokenizer), messages.encoder(tokenizer)
        seed = derive(config.seed, "revise_answers")
        triples: list[Revision] = []
        history: list[dict[str, int | float]] = []
        metrics: dict[str, object] = {}
        for file, pool in {"train": train, "heldout": heldout}.items():
            prompts = lines.read(PROMPTS / f"{SPLITS[file]}.jsonl", Prompt)
            completions = lines.read(POOLS / pool / "pool.jsonl", Completion)
            problems = pools.by_problem(prompts, completions)
            answers = revised_answers.choose(problems, settings.max_per_problem)
            steps = revision.rounds(sampler, decode, encode, answers, settings, seed, file)
            rows: list[Revision] = []
            for step in progress.track(steps, total=settings.num_rounds, label=f"revise {pool}"):
                run.log(step.index, {f"{file}/{key}": value for key, value in step.metrics.items()})
                history.append(step.metrics)
                rows += step.rows
            triples += rows
            revised = revised_answers.gather(answers, rows, settings.num_rounds)
            metrics[file] = revision_quality.summarise(revised)
            revision_quality.check_pairs(revised, POOLS / pool)
            logger.info("%s: %s", pool, metrics[file])
            write(output / f"{file}.jsonl", [one.preference() for one in revised])
            if file == "train":
                write(output / "demonstrations.jsonl", [one.demonstration() for one in revised])
        write(output / "triples.jsonl", triples)
        generated = sum(int(one["tokens/generated"]) for one in history)
        metrics |= {"generated_tokens": generated, "trained_tokens": 0}
        metrics["work"] = work.summary(history, {"policy": size.of_start(start, config.model)})
        outputs.write_json(output / "metrics.json", metrics)


def write(path: Path, rows: Iterable[object]) -> None:
    """The rows that there are."""
    with outputs.replace(path) as temporary:
        lines.write(temporary, (row for row in rows if row is not None))


if __name__ == "__main__":
    process.run(main)
