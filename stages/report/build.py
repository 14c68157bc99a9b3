"""The report of a finished run, in three steps: read measurements, compare, write."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.records import lines
from stages.records.problems import Prompt
from stages.report import (
    comparison,
    controls,
    conversations,
    episode_comparison,
    estimates,
    experiment,
    page,
    plots,
    reward_comparison,
    sections,
    stage_metrics,
    transcripts,
    verdict,
)
from stages.report.episode_comparison import EnvironmentEpisodes
from stages.report.estimates import Results
from stages.report.stage_metrics import History, Plan
from stages.runtime import outputs


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """Evaluations, episodes and trainings of a finished run."""

    data: Path
    """Folder of the run's data."""
    plan: Plan
    every_result: Results
    """Results of all policies, controls included; the baseline is the first."""
    control_rows: dict[str, Mapping[str, Any]]
    not_evaluated: dict[str, str]
    """Policy that is not in the results -> sentence with the reason."""
    episodes: list[EnvironmentEpisodes]
    """Episodes of each environment that policies played from its test starts."""
    histories: dict[str, History]
    """Policy -> metrics of each training step."""

    @property
    def results(self) -> Results:
        """Results of the policies that are not controls."""
        return controls.leave_out(self.every_result, self.control_rows)

    @property
    def has_answers(self) -> bool:
        """Whether test problems have gold answers; else policies are compared by reward models."""
        return bool(self.every_result.temperatures)


def read_run(data: Path, baseline: str, seeds: list[int], confidence: float) -> MeasuredRun:
    """Measurements that the stages of a run wrote below `data`."""
    plan = outputs.read_json(data / "plan.json")
    first = next(iter(lines.read_lines(data / "prompts/test.jsonl", Prompt)))
    has_answers = first.answer is not None
    read_results = estimates.read_results if has_answers else reward_comparison.read_scored_results
    folder, names = data / "evaluations", [baseline, *plan["policies"]]
    not_evaluated = {
        name: f"{name} was not evaluated on problems: {share:.0%} of its completions were cut at "
        f"the limit of tokens (evaluation.max_cut_share)."
        for name, share in estimates.find_not_evaluated(folder, names, seeds).items()
    }
    if baseline in not_evaluated:
        raise ValueError(
            f"{not_evaluated[baseline]} The others are compared with it: name another baseline"
        )
    evaluated = [name for name in names if name not in not_evaluated]
    not_evaluated |= {
        name: f"{name} is a control of {row['from']}, and as that was not evaluated, it is not "
        f"compared."
        for name, row in controls.find_controls(plan, evaluated).items()
        if row["from"] not in evaluated
    }
    names = [name for name in names if name not in not_evaluated]
    every_result = read_results(folder, names, seeds, confidence)
    return MeasuredRun(
        data=data, plan=plan, every_result=every_result,
        control_rows=controls.find_controls(plan, names), not_evaluated=not_evaluated,
        episodes=episode_comparison.read_episodes(data, plan, baseline, seeds, confidence),
        histories={
            name: stage_metrics.read_history(data / f"policies/{name}/training", seeds)
            for name in [*every_result.tables, *not_evaluated]
        },
    )  # fmt: skip


def compute_metrics(run: MeasuredRun) -> dict[str, Any]:
    """The content of metrics.json, with the verdict's sentences on controls and episodes."""
    compare = (
        comparison.compare_policies if run.has_answers else reward_comparison.compare_by_rewards
    )
    results = run.results
    costs = stage_metrics.read_costs(run.data, run.plan, results.seeds)
    metrics = compare(results)
    metrics |= {
        "quality": stage_metrics.read_quality(run.data, run.plan, results.seeds),
        "costs": {
            "policies": stage_metrics.sum_policy_costs(run.plan, metrics["baseline"], costs),
            "rows": costs,
        },
    }
    write = verdict.write_verdict if run.has_answers else verdict.write_reward_verdict
    of_pairs = metrics["quality"].get("pairs", {})
    judges = verdict.describe_judges(of_pairs, run.plan["pairs"])
    metrics = {"verdict": [*write(metrics), *judges], **metrics}
    controls.add_controls(metrics, run.every_result, run.control_rows, has_answers=run.has_answers)
    metrics["verdict"] += run.not_evaluated.values()
    if run.episodes:
        metrics["episodes"] = {
            episodes.environment: episode_comparison.compare_episodes(episodes)
            for episodes in run.episodes
        }
        metrics["verdict"] += [
            environment_metrics["verdict"] for environment_metrics in metrics["episodes"].values()
        ]
    return metrics


def write_report(
    folder: Path, run: MeasuredRun, metrics: dict[str, Any], *, model: Mapping[str, Any],
    engine: str,
) -> None:  # fmt: skip
    """Write the page, metrics.json, the verdict and plots/; `model`, `engine`: from params.yaml."""
    results = run.results
    curves = {
        name: curve
        for name in [*results.tables, *run.not_evaluated]
        if (curve := plots.select_curves(run.histories[name]))
    }
    (folder / "plots").mkdir(parents=True)
    if run.has_answers:
        plots.draw_accuracy(folder / "plots", metrics)
        plots.draw_parts(folder / "plots", metrics)
        plots.draw_accuracy_by_n(folder / "plots", results)
    plots.draw_training(folder / "plots", curves, results)
    outputs.write_json(folder / "metrics.json", metrics)
    setting = experiment.read_experiment(
        run.data, run.plan, metrics["baseline"], results.seeds,
        histories=run.histories, model=model, engine=engine,
    )  # fmt: skip
    parts = sections.build_sections(
        metrics, has_answers=run.has_answers, methods=setting.methods, curves=list(curves),
        transcripts=transcripts.read_transcripts(run.data / "samples", results),
        conversations={
            episodes.environment: conversations.choose_conversations(episodes)
            for episodes in run.episodes
        },
    )  # fmt: skip
    page.write_report(folder, setting.title, metrics["verdict"], setting.facts, parts)
