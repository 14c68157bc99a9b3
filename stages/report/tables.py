"""The tables of the report, as rows of text: what is a number in metrics.json, by column."""

from collections.abc import Callable

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
    """One row per policy: accuracy and gain as sampled, and, where chosen, at best temperature."""
    chosen, over = metrics["temperatures"]["policies"], f"over {metrics['baseline']}, points"
    rows: Rows = []
    for name, estimates in metrics["policies"].items():
        row = {"policy": name}
        for measure, at in {MEAN: "", BEST_TEMPERATURE: " at best"}.items():
            if measure in estimates:
                gain = metrics["gains"][measure].get(name)
                row |= {"best temperature": f"{chosen[name]['best']:g}"} if at else {}
                row[f"accuracy{at}, %"] = format_interval(estimates[measure])
                row |= {f"{over}{at}": format_difference(gain), f"p (Holm){at}": format_p(gain)}
        rows.append(row)
    return rows


def tabulate_estimates(metrics: Metrics) -> Rows:
    """One row per policy: accuracy by seed, greedy and by majority."""
    return [
        {
            "policy": name,
            **format_seed_columns(estimates[MEAN], "each seed"),
            "greedy, %": format_share(estimates[GREEDY]),
            "greedy in a loop, %": f"{100 * loop:.1f}" if (loop := estimates.get(IN_LOOP)) else "",
            f"majority of {metrics['n']}, %": format_share(estimates[f"{MAJORITY}/{metrics['n']}"]),
        }
        for name, estimates in metrics["policies"].items()
    ]


def tabulate_parts(metrics: Metrics) -> Rows:
    """One row per policy: its gain as sampled, and the three parts that add up to it."""
    parts, over = metrics["parts"], f"over {metrics['baseline']}, points"
    return [
        {"policy": name, over: format_difference(gain)}
        | {part: format_difference(of[name]) for part, of in parts.items()}
        for name, gain in metrics["gains"][MEAN].items()
        if parts
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
                "p (Holm)": format_p(gains[name]),
                "solved by it alone": f"{counts[name]['only_policy']['value']:.1f}",
                f"by {baseline} alone": f"{counts[name]['only_baseline']['value']:.1f}",
                "by neither": f"{counts[name]['neither']['value']:.1f}",
            }
        rows.append(row)
    return rows


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
            "p (Holm)": format_p(gains.get(name)),
            f"wins against {baseline}, %": format_interval(estimates[f"wins/{reward}"]),
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
    estimates, over_single = metrics["policies"][policy], choices["over_single"]
    levels = {"one sample": MEAN, "one sample at best temperature": BEST_TEMPERATURE,
              f"majority of {n}": f"{MAJORITY}/{n}",
              f"any of {n} is right (pass@{n})": f"{PASS}/{n}"}  # fmt: skip
    rows = [
        {"choice": label, "accuracy, %": format_interval(estimates[measure])}
        for label, measure in levels.items()
        if measure in estimates
    ]
    for way in sorted(choices["accuracy"], key=lambda way: way not in over_single):
        row = {
            "choice": verdict.name_choice(way, n),
            "accuracy, %": format_interval(choices["accuracy"][way]),
        }
        for label in ("single", "majority") if way in over_single else ():
            difference = choices[f"over_{label}"][way]
            row[f"over {label}, points"] = format_difference(difference)
            row[f"p (Holm) {label}"] = format_p(difference)
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
    return [
        {"row": name}
        | {
            label: WRITTEN[kind](quality[label]["value"]) if label in quality else ""
            for label, (kind, _) in MEASURES[table].items()
        }
        for name, quality in metrics["quality"].get(table, {}).items()
    ]


def tabulate_completions(metrics: Metrics) -> Rows:
    """One row per policy: what its samples look like, and accuracy read strictly and leniently."""
    columns = {
        "mean_strict": "accuracy, strict, %", "mean_lenient": "accuracy, lenient, %",
        "readable_rate": "answer readable, %", "format_rate": "format kept, %",
        "truncation_rate": "truncated, %", "right_first_rate": "right first, wrong last, %",
    }  # fmt: skip
    return [
        {"policy": name, "tokens": f"{estimates['mean_tokens']['value']:.1f}"}
        | {
            label: format_share(estimates[key])
            for key, label in columns.items()
            if key in estimates
        }
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
    detectable = estimate.get("detectable")
    cells = {
        "each seed": ", ".join(f"{100 * seed:.1f}" for seed in estimate["seeds"].values()),
        "p (Holm)": format_p(estimate),
        # A difference of shares is never larger than 1.
        "detectable, points": (
            NOTHING if detectable is None or detectable > 1.0 else f"{100 * detectable:.1f}"
        ),
    }
    return {name: cells[name] for name in names}


def format_p(difference: Metrics | None) -> str:
    """The p-value after Holm's adjustment; empty of what is not tested."""
    p = (difference or {}).get("p_holm")
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


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
