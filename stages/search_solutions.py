"""Search for solutions of a split's problems with a policy and a process reward model.

    python -m stages.search_solutions <name> <preset> <policy> <process> <split>

Beam search over steps (Snell et al. 2024, https://arxiv.org/abs/2408.03314) or diverse verifier
tree search (Beeching, Tunstall and Rush 2024), by the preset. Writes the solutions with the
scores of their steps (`solutions.jsonl`), how right they are and what they cost, problem by
problem (`per_problem.jsonl`) and together (`metrics.json`). Every token that was sampled, read or
scored is counted, those of dropped candidates too: a search is to be compared with what as much
computing buys otherwise, not with as many samples.

What a kill interrupts goes on where it stopped: finished parts are kept.
"""

from collections.abc import Iterator
from pathlib import Path

from stages import params, seeding
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import search, search_parts
from stages.loops.search import SearchConfig
from stages.loops.step import Step
from stages.models import process_scorer, size
from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines
from stages.records.prompt import Prompt
from stages.reports import search_summary
from stages.reports.search_summary import SummaryConfig
from stages.rewards import search_evaluation
from stages.runtime import kept_parts, outputs, process, progress, runs

TABLES = ("search",)
DATA = Path("data")
PROMPTS = Path("data/prepare_data/prompts")
OUTPUT = Path("data/search_solutions")
# Of a GPU, where vLLM samples: the rest is the process model's.
VLLM_SHARE = 0.6


class Config(Params):
    """What search_solutions reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName
    search: SearchConfig
    search_solutions: SummaryConfig


def main(name: str, preset: str, start: str, process_model: str, split: str) -> None:
    """Write `solutions.jsonl`, `per_problem.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"search_solutions@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"search": preset})
        prompts = list(lines.read(PROMPTS / f"{split}.jsonl", Prompt))
        parts = search.chunks(prompts)
        done: list[Step] = []
        steps = searched(run.folder / "parts", config, start, process_model, parts)
        for step in progress.track(steps, total=len(parts), label=f"search {name}"):
            run.log(step.index, step.metrics)
            done.append(step)
        sizes = (size.of_scorer(DATA / start)["body"], size.of_scorer(DATA / process_model)["body"])
        solutions, costs = search_parts.by_problem(done)
        results = search_evaluation.evaluate_all(prompts, solutions, costs, *sizes)
        seed = seeding.derive(config.seed, "search_solutions", "bootstrap")
        metrics = search_summary.summarise(results, *sizes, config.search_solutions, seed=seed)
        found = [row for own in solutions.values() for row in own]
        for file, table in {"solutions": found, "per_problem": results}.items():
            with outputs.replace(output / f"{file}.jsonl") as temporary:
                lines.write(temporary, table)
        outputs.write_json(output / "metrics.json", metrics)


def searched(
    kept: Path, config: Config, start: str, process_model: str, parts: search.Parts
) -> Iterator[Step]:
    """All parts; those that were searched before an interruption are in `kept`."""

    def work(first: int) -> Iterator[Step]:
        scorer = process_scorer.load(DATA / process_model, config.compute, setup(config.compute))
        where = {"model": config.model, "compute": config.compute, "gpu_share": VLLM_SHARE}
        length = search.longest(parts, config.search)
        sampler = samplers.load(config.engine, start, **where, max_length=length)
        ends = scorer.step_ends(len(models_start.tokenizer(start)))
        settings, seed = config.search, config.seed
        return search.run(sampler, scorer, parts, settings, seed, start=first, break_after=ends)

    return kept_parts.go_on(kept, work, write=search_parts.write, read=search_parts.read)


if __name__ == "__main__":
    process.run(main)
