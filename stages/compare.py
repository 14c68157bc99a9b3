"""Compare the policies, and write the report.

    python -m stages.compare

Reads the evaluations of all policies, their transcripts and trainings, and what every other row
measured; writes `data/report/`: `report.html` (one page that opens from disk), `report.md`,
`metrics.json`, `verdict.txt` (a line for each part: gains, gains at the best temperatures, pairs of
policies, ways to choose among samples; where there are any, controls and environments in which
policies played from test starts) and `plots/`; and `data/headlines/`, the numbers that DVC lists.
Differences are paired by seed and by problem or start, with t intervals over both
(stages/algorithms/statistics/crossed_means.py), and Holm's adjustment within each family of
comparisons; without several seeds there is no verdict. Where no problem has a gold answer, mean
rewards are compared (stages/report/reward_comparison.py). Controls have a section and tests of
their own (stages/report/controls.py). No output holds a time.
"""

import json
from typing import Any

from stages.config import Params
from stages.params import load_config
from stages.records import lines
from stages.records.problems import Prompt
from stages.report import estimates, headlines, sections, stage_metrics, transcripts
from stages.report.evaluation_config import EvaluationConfig
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process, runs

OUTPUT = DATA / "report"


class Config(Params):
    """Keys of params.yaml that compare reads."""

    seeds: list[int]
    baseline: str
    model: dict[str, Any]
    engine: str
    evaluation: EvaluationConfig


def main() -> None:
    """Write the report."""
    # With scipy, pandas and matplotlib, of which `plan`, which imports `Config`, has no use.
    from stages.report import (
        comparison,
        controls,
        conversations,
        episode_comparison,
        experiment,
        forecast,
        page,
        plots,
        reward_comparison,
    )

    with runs.start("compare") as run:
        config = load_config(Config)
        plan = json.loads((DATA / "plan.json").read_text(encoding="utf-8"))
        first = next(iter(lines.read_lines(PROMPTS / "test.jsonl", Prompt)))
        has_answers = first.answer is not None
        read_results, compare, build_sections = (
            (estimates.read_results, comparison.compare_policies, sections.build_sections)
            if has_answers
            else (
                reward_comparison.read_scored_results,
                reward_comparison.compare_by_rewards,
                sections.build_reward_sections,
            )
        )
        every_result = read_results(
            DATA / "evaluations",
            [config.baseline, *plan["policies"]],
            config.seeds,
            config.evaluation.confidence,
        )
        control_rows = controls.find_controls(plan)
        results = controls.leave_out(every_result, control_rows)
        costs = stage_metrics.read_costs(DATA, plan, config.seeds)
        of_policies = stage_metrics.sum_policy_costs(plan, config.baseline, costs)
        metrics = {
            **compare(results),
            "quality": stage_metrics.read_quality(DATA, plan, config.seeds),
            "costs": {"policies": of_policies, "rows": costs},
        }
        histories = {
            name: stage_metrics.read_history(DATA / f"policies/{name}/training", config.seeds)
            for name in every_result.tables
        }
        metrics |= forecast.compare_forecast(results, metrics["gains"])
        controls.add_controls(metrics, every_result, control_rows, has_answers=has_answers)
        played = episode_comparison.read_episodes(
            DATA, plan, config.baseline, config.seeds, config.evaluation.confidence
        )
        if played:
            metrics["episodes"] = {
                episodes.environment: episode_comparison.compare_episodes(episodes)
                for episodes in played
            }
            metrics["verdict"] += [
                of_environment["verdict"] for of_environment in metrics["episodes"].values()
            ]
        curves = {
            name: curve
            for name in results.tables
            if (curve := plots.select_curves(histories[name]))
        }
        with outputs.replace(OUTPUT) as folder:
            (folder / "plots").mkdir(parents=True)
            if has_answers:
                plots.draw_accuracy(folder / "plots", metrics)
                plots.draw_accuracy_by_n(folder / "plots", results)
            plots.draw_training(folder / "plots", curves, results)
            outputs.write_json(folder / "metrics.json", metrics)
            setting = experiment.read_experiment(
                DATA,
                plan,
                config.baseline,
                config.seeds,
                histories=histories,
                model=config.model,
                engine=config.engine,
            )
            chosen = transcripts.read_transcripts(DATA / "samples", results)
            parts = build_sections(metrics, setting, chosen, list(curves))
            if played:
                shown = {
                    episodes.environment: conversations.choose_conversations(episodes)
                    for episodes in played
                }
                parts.insert(1, sections.build_episode_section(metrics["episodes"], shown))
            picture = page.PICTURE if has_answers else None
            page.write_report(folder, metrics["verdict"], setting.facts, parts, picture)
        with outputs.replace(DATA / "headlines") as folder:
            folder.mkdir()
            headlines.write_headlines(folder, metrics)
        for name, values in metrics["policies"].items():
            headline = {"mean_accuracy"} if has_answers else {k for k in values if "reward/" in k}
            run.log(0, {f"{name}/{key}": values[key]["value"] for key in sorted(headline)})


if __name__ == "__main__":
    process.run(main)
