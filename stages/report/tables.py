"""The tables of the report, as rows of text: what is a number in metrics.json, by column."""

from collections.abc import Callable

from stages.records.metrics import round_metric
from stages.report import verdict
from stages.report.estimates import (
    BEST_OF,
    BEST_TEMPERATURE,
    GREEDY,
    IN_LOOP,
    MAJORITY,
    MEAN,
    PASS,
    WEIGHTED,
)
from stages.report.stage_metrics import MEASURES, Kind
from stages.report.verdict import Metrics

Rows = list[dict[str, str]]
"""A cell that a row does not have is empty."""
NOTHING = "–"
WRITTEN: dict[Kind, Callable[[float], str]] = {
    "count": "{:,.0f}".format, "percent": lambda share: f"{100 * share:.1f} %",
    "number": "{:.3f}".format,
}  # fmt: skip


def tabulate_accuracy(metrics: Metrics) -> Rows:
    """One row per policy: accuracy and gain as sampled, and at its best temperature."""
    sampled_at, chosen = metrics["temperatures"]["sampled"], metrics["temperatures"]["policies"]
    sampled, at_best = metrics["gains"][MEAN], metrics["gains"][BEST_TEMPERATURE]
    over = f"over {metrics['baseline']}, points"
    return [
        {
            "policy": name,
            "accuracy, %": format_interval(estimates[MEAN]),
            over: format_difference(sampled.get(name)),
            "best temperature": f"{chosen[name]['best']:g}"
            if "best" in chosen[name]
            else f"{sampled_at:g}, none chosen",
            "accuracy at best temperature, %": format_interval(estimates[BEST_TEMPERATURE]),
            f"{over}, at best": format_difference(at_best.get(name)),
            **(format_readings(metrics, name) if readings_differ(metrics) else {}),
        }
        for name, estimates in metrics["policies"].items()
    ]


def tabulate_estimates(metrics: Metrics) -> Rows:
    """One row per policy: p-values of its gains, and accuracy by seed, greedy and by majority."""
    gains = {"sampled": metrics["gains"][MEAN], "at best": metrics["gains"][BEST_TEMPERATURE]}
    return [
        {
            "policy": name,
            **{
                f"{column}, {kind}": cell
                for kind, differences in gains.items()
                for column, cell in format_seed_columns(
                    differences.get(name, estimates[MEAN]), "p (Holm)"
                ).items()
            },
            **format_seed_columns(estimates[MEAN], "each seed"),
            "greedy, %": format_share(estimates[GREEDY]),
            **(
                {"greedy in a loop, %": f"{100 * estimates[IN_LOOP]:.1f}"}
                if IN_LOOP in estimates
                else {}
            ),
            f"majority of {metrics['n']}, %": format_share(estimates[f"{MAJORITY}/{metrics['n']}"]),
            "truncated, %": format_share(estimates["truncation_rate"]),
        }
        for name, estimates in metrics["policies"].items()
    ]


def tabulate_parts(metrics: Metrics) -> Rows:
    """One row per policy: its gain as sampled, and the three parts that add up to it."""
    return [
        {
            "policy": name,
            f"over {metrics['baseline']}, points": format_difference(metrics["gains"][MEAN][name]),
            **{part: format_difference(estimate) for part, estimate in parts.items()},
        }
        for name, parts in metrics["parts"].items()
    ]


def tabulate_temperatures(metrics: Metrics) -> Rows:
    """One row per policy, one column per temperature and split."""
    return [
        {"policy": name}
        | {
            f"{split}, {temperature}": f"{100 * accuracy:.1f}"
            for split in ("dev", "test")
            for temperature, accuracy in of_policy[split].items()
        }
        for name, of_policy in metrics["temperatures"]["policies"].items()
    ]


def tabulate_coverage(metrics: Metrics) -> Rows:
    """One row per policy: pass@k, and problems of a seed that it or the baseline alone solves."""
    ks, counts, baseline = (*metrics["coverage"].values(), metrics["baseline"])
    gains = metrics["gains"][f"{PASS}/{ks[-1]}"]
    rows: Rows = []
    for name, estimates in metrics["policies"].items():
        shares = {f"pass@{k}, %": format_share(estimates[f"{PASS}/{k}"]) for k in ks}
        row = {"policy": name} | shares
        if name in counts:
            row |= {
                f"pass@{ks[-1]} over {baseline}, points": format_difference(gains[name]),
                **format_seed_columns(gains[name], "p (Holm)"),
                "solved by it alone": f"{counts[name]['only_policy']['value']:.1f}",
                f"by {baseline} alone": f"{counts[name]['only_baseline']['value']:.1f}",
                "by neither": f"{counts[name]['neither']['value']:.1f}",
            }
        rows.append(row)
    return rows


def readings_differ(metrics: Metrics) -> bool:
    """Whether accuracy read strictly and leniently differs by more than a point for any policy."""
    return any(
        round_metric(estimates["mean_lenient"]["value"] - estimates["mean_strict"]["value"]) > 0.01
        for estimates in metrics["policies"].values()
    )


def format_readings(metrics: Metrics, policy: str) -> dict[str, str]:
    """Columns of accuracy by both readings, and the share of the strict gain that is format.

        gain_strict = gain_lenient + (strict - lenient of the policy) - (that of the baseline)

    What is right by the strict reading is right by the lenient one, so the rest of the strict gain
    beyond the lenient one was right before but for its format. A strict gain of a point or
    less is not shared out.
    """
    estimates = metrics["policies"][policy]
    columns = {
        "strict, %": format_share(estimates["mean_strict"]),
        "lenient, %": format_share(estimates["mean_lenient"]),
    }
    strict, lenient = (
        metrics["gains"][measure].get(policy, {"value": 0.0})["value"]
        for measure in ("mean_strict", "mean_lenient")
    )
    share = f"{100 * (strict - lenient) / strict:z.0f}" if strict > 0.01 else NOTHING
    return {**columns, "gain by format, %": share}


def tabulate_rewards(metrics: Metrics, reward: str) -> Rows:
    """One row per policy: its mean score by a reward, what it gains, and how often it wins.

    Scores have no unit, and are no shares.
    """
    gains, baseline = metrics["gains"][f"reward/{reward}"], metrics["baseline"]
    return [
        {
            "policy": name,
            "mean score": format_interval(estimates[f"reward/{reward}"], ".3f", 1.0),
            f"over {baseline}": format_interval(gains.get(name), ".3f", 1.0),
            **format_seed_columns(gains.get(name, estimates[f"reward/{reward}"]), "p (Holm)"),
            f"wins against {baseline}, %": format_interval(estimates[f"wins/{reward}"]),
        }
        for name, estimates in metrics["policies"].items()
    ]


def tabulate_lengths(metrics: Metrics) -> Rows:
    """A row per policy: tokens of a sample, and the share of truncated samples."""
    return [
        {
            "policy": name,
            "tokens": f"{estimates['mean_tokens']['value']:.1f}",
            "truncated, %": format_share(estimates["truncation_rate"]),
        }
        for name, estimates in metrics["policies"].items()
    ]


def tabulate_gains(metrics: Metrics, measure: str) -> Rows:
    """One row per policy: one measure, and its gain over the baseline's."""
    return [
        {
            "policy": name,
            "%": format_interval(metrics["policies"][name][measure]),
            f"over {metrics['baseline']}, points": format_difference(gain),
            **format_seed_columns(gain, "each seed", "p (Holm)", "detectable, points"),
        }
        for name, gain in metrics["gains"][measure].items()
    ]


def tabulate_differences(differences: Metrics, *columns: str) -> Rows:
    """One row per difference of two policies, with these columns of `format_seed_columns`."""
    return [
        {
            "difference": name.replace(" - ", " − "),
            "points": format_difference(difference),
            **format_seed_columns(difference, *columns),
        }
        for name, difference in differences.items()
    ]


OUTCOMES = {
    "none": "as it should be: no difference", "different": "warning: a difference",
    "undecided": "undecided: the interval is too wide",
    "untested": "fewer than three seeds: untested",
}  # fmt: skip
"""Outcome of a control that has nothing to learn -> its cell."""


def tabulate_controls(controls: Metrics, differences: Metrics) -> Rows:
    """One row per control: its accuracy, and the difference from where its training started."""
    greedy = {name: row for kind in controls["greedy"].values() for name, row in kind.items()}
    return [
        {
            "control": name,
            "accuracy, %": format_interval(controls["policies"][name][MEAN]),
            "from": controls["from"][name],
            "difference, points": format_difference(difference),
            **format_seed_columns(difference, "each seed", "p (Holm)", "detectable, points"),
            "greedy, points": format_difference(greedy[name]),
            **({"result": OUTCOMES[difference["outcome"]]} if "outcome" in difference else {}),
        }
        for name, difference in differences.items()
    ]


def tabulate_selection(metrics: Metrics, policy: str) -> Rows:
    """One row per way to choose among n samples; first what needs no reward."""
    n, choices = metrics["n"], metrics["selection"][policy]
    estimates, tested = metrics["policies"][policy], choices["over_majority"]
    levels = {
        "one sample": estimates[MEAN], f"majority of {n}": estimates[f"{MAJORITY}/{n}"],
        f"any of {n} is right (pass@{n})": estimates[f"{PASS}/{n}"],
    }  # fmt: skip
    rows = [
        {"choice": label, "accuracy, %": format_interval(level)} for label, level in levels.items()
    ]
    for way in sorted(choices["accuracy"], key=lambda way: way not in tested):
        row = {
            "choice": verdict.name_choice(way, n),
            "accuracy, %": format_interval(choices["accuracy"][way]),
        }
        if way in tested:
            row[f"over the majority of {n}, points"] = format_difference(tested[way])
            row |= format_seed_columns(tested[way], "each seed", "p (Holm)")
        rows.append(row)
    return rows


def tabulate_scoring(metrics: Metrics, policy: str) -> Rows:
    """One row per reward: how well it orders samples, and what it has over the format."""
    choices, n = metrics["selection"][policy], metrics["n"]
    in_format = {name: f"{area['value']:.3f}" for name, area in choices["auc_in_format"].items()}
    over = choices["over_format"]
    return [
        {
            "reward": name,
            "AUC in a problem": f"{area['value']:.3f}",
            "AUC in the format": in_format.get(name, NOTHING),
            f"best of {n} over format, points": format_difference(over.get(f"{BEST_OF}/{name}")),
            "weighted vote over format, points": format_difference(over.get(f"{WEIGHTED}/{name}")),
        }
        for name, area in choices["auc"].items()
    ]


def tabulate_quality(metrics: Metrics, table: str) -> Rows:
    """One row per source of labels, or a reward; means over seeds."""
    quality = metrics["quality"].get(table, {})
    measured = {
        label: WRITTEN[kind]
        for label, (kind, _) in MEASURES[table].items()
        if any(label in row for row in quality.values())
    }
    return [
        {"row": name}
        | {
            label: written(row[label]["value"]) if label in row else NOTHING
            for label, written in measured.items()
        }
        for name, row in quality.items()
    ]


def tabulate_completions(metrics: Metrics) -> Rows:
    """One row per policy: what its samples look like, and accuracy read strictly and leniently."""
    columns = {
        "mean_strict": "accuracy, strict, %", "mean_lenient": "accuracy, lenient, %",
        "readable_rate": "answer readable, %", "format_rate": "format kept, %",
    }  # fmt: skip
    return [
        {"policy": name}
        | {label: format_share(estimates[key]) for key, label in columns.items()}
        | {"tokens": f"{estimates['mean_tokens']['value']:.1f}"}
        for name, estimates in metrics["policies"].items()
    ]


def tabulate_difficulty(metrics: Metrics) -> Rows:
    """One row per policy, one column per fifth of the problems, the hardest first."""
    if not (groups := metrics["difficulty"]):
        return []
    names = {0: "hardest fifth, %", len(groups) - 1: "easiest fifth, %"}
    columns = {names.get(at, f"{at + 1}, %"): group["policies"] for at, group in enumerate(groups)}
    return [
        {"policy": policy}
        | {name: format_interval(estimates[policy]) for name, estimates in columns.items()}
        for policy in metrics["policies"]
    ]


def tabulate_episodes(metrics: Metrics) -> Rows:
    """One row per policy: success, and means of the episodes whose environment did not fail.

    Endings are shares of all episodes.
    """
    return [
        {
            "policy": name,
            "success, %": format_interval(estimates["success"]),
            **format_seed_columns(estimates["success"], "each seed"),
            "reward": f"{estimates['reward']['value']:.3f}",
            "turns": f"{estimates['turns']['value']:.2f}",
            "tool calls": f"{estimates['tool_calls']['value']:.2f}",
            "tool errors": f"{estimates['tool_errors']['value']:.2f}",
            "endings": ", ".join(
                f"{ending.replace('_', ' ')} {100 * share:.1f} %"
                for ending, share in estimates["endings"].items()
            ),
            "failed": f"{estimates['failed']:,}",
        }
        for name, estimates in metrics["policies"].items()
    ]


def tabulate_policy_costs(metrics: Metrics) -> Rows:
    """One row per policy: what was made for it, and what that cost a seed."""
    policy_costs = metrics["costs"]["policies"]
    return [
        {"policy": name, "made for it": ", ".join(policy_costs[name]["rows"])}
        | format_cost(policy_costs[name])
        for name in metrics["policies"]
    ]


def tabulate_row_costs(metrics: Metrics) -> Rows:
    """A row of each table that costs tokens or operations."""
    row_costs = metrics["costs"]["rows"].items()
    return [{"row": name} | format_cost(cost) for name, cost in row_costs if any(cost.values())]


def format_cost(cost: Metrics) -> dict[str, str]:
    """Tokens and operations of one seed."""
    return {
        "tokens generated": f"{cost['generated_tokens']:,.0f}",
        "tokens trained on": f"{cost['trained_tokens']:,.0f}",
        "GFLOPs": f"{cost['flops'] / 1e9:,.0f}",
    }


def format_seed_columns(estimate: Metrics, *names: str) -> dict[str, str]:
    """Columns `names` of `each seed`, `p (Holm)` and `detectable, points`; none of one seed."""
    if len(estimate["seeds"]) == 1:
        return {}
    p, detectable = estimate.get("p_holm"), estimate.get("detectable")
    cells = {
        "each seed": ", ".join(f"{100 * seed:.1f}" for seed in estimate["seeds"].values()),
        "p (Holm)": "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}",
        # A difference of shares is never larger than 1.
        "detectable, points": (
            NOTHING if detectable is None or detectable > 1.0 else f"{100 * detectable:.1f}"
        ),
    }
    return {name: cells[name] for name in names}


def format_share(estimate: Metrics) -> str:
    """A share in per cent."""
    return f"{100 * estimate['value']:.1f}"


def format_interval(estimate: Metrics | None, form: str = ".1f", scale: float = 100.0) -> str:
    """A number with its interval, a share in per cent unless `scale` is another."""
    if estimate is None:
        return NOTHING
    value, low, high = (f"{scale * estimate[key]:{form}}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def format_difference(difference: Metrics | None) -> str:
    """A difference of shares in percentage points, with its interval."""
    return format_interval(difference, "+.1f")
