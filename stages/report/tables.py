"""The tables of the report, as rows of text: what is a number in metrics.json, by column."""

from collections.abc import Callable

from stages.report import verdict
from stages.report.estimates import BEST_OF, GREEDY, IN_LOOP, MAJORITY, MEAN, PASS, WEIGHTED
from stages.report.stage_metrics import MEASURES, Kind
from stages.report.verdict import Metrics

Rows = list[dict[str, str]]
"""A cell that a row does not have is empty."""
NOTHING = "–"
MADE_FOR = "made for it"
"""A column of words, which is wrapped."""
WRITTEN: dict[Kind, Callable[[float], str]] = {
    "count": "{:,.0f}".format, "percent": lambda share: f"{100 * share:.1f} %",
    "number": "{:.3f}".format,
}  # fmt: skip


def accuracy(metrics: Metrics) -> Rows:
    """A row a policy: accuracies, each seed's, and the gain over the baseline."""
    n, gains = metrics["n"], metrics["gains"][MEAN]
    return [
        {
            "policy": name,
            "accuracy, %": interval(one[MEAN]),
            **over_seeds(one[MEAN], "each seed"),
            "greedy, %": value(one[GREEDY]),
            **({"greedy in a loop, %": f"{100 * one[IN_LOOP]:.1f}"} if IN_LOOP in one else {}),
            f"majority of {n}, %": value(one[f"{MAJORITY}/{n}"]),
            "cut, %": value(one["truncation_rate"]),
            f"over {metrics['baseline']}, points": points(gains.get(name)),
            **over_seeds(gains.get(name, one[MEAN]), "p (Holm)"),
        }
        for name, one in metrics["policies"].items()
    ]


def rewards(metrics: Metrics, reward: str) -> Rows:
    """A row a policy: its mean score by a reward, what it gains, and how often it wins.

    Scores have no unit, and are no shares.
    """
    gains, baseline = metrics["gains"][f"reward/{reward}"], metrics["baseline"]

    def written(one: Metrics | None) -> str:
        return NOTHING if one is None else "{value:.3f} [{low:.3f}, {high:.3f}]".format(**one)

    return [
        {
            "policy": name,
            "mean score": written(one[f"reward/{reward}"]),
            f"over {baseline}": written(gains.get(name)),
            **over_seeds(gains.get(name, one[f"reward/{reward}"]), "p (Holm)"),
            f"wins against {baseline}, %": interval(one[f"wins/{reward}"]),
        }
        for name, one in metrics["policies"].items()
    ]


def lengths(metrics: Metrics) -> Rows:
    """A row a policy: tokens of a sample, and how many were cut."""
    return [
        {
            "policy": name,
            "tokens": f"{one['mean_tokens']['value']:.1f}",
            "cut, %": value(one["truncation_rate"]),
        }
        for name, one in metrics["policies"].items()
    ]


def gains(metrics: Metrics, measure: str) -> Rows:
    """A row a policy: one measure, and its gain over the baseline's."""
    return [
        {
            "policy": name,
            "%": interval(metrics["policies"][name][measure]),
            f"over {metrics['baseline']}, points": points(gain),
            **over_seeds(gain, "each seed", "p (Holm)", "detectable, points"),
        }
        for name, gain in metrics["gains"][measure].items()
    ]


def pairs(metrics: Metrics) -> Rows:
    """A row a pair of policies besides the baseline."""
    return [
        {
            "difference": name.replace(" - ", " − "),
            "points": points(one),
            **over_seeds(one, "each seed", "p (Holm)", "detectable, points"),
        }
        for name, one in metrics["pairs"].items()
    ]


def selection(metrics: Metrics, policy: str) -> Rows:
    """A row a way to choose among n samples of a policy; first what needs no reward."""
    n, found = metrics["n"], metrics["selection"][policy]
    one, tested = metrics["policies"][policy], found["over_majority"]
    levels = {
        "one sample": one[MEAN], f"majority of {n}": one[f"{MAJORITY}/{n}"],
        f"any of {n} is right (pass@{n})": one[f"{PASS}/{n}"],
    }  # fmt: skip
    rows = [{"": label, "accuracy, %": interval(level)} for label, level in levels.items()]
    for way in sorted(found["accuracy"], key=lambda way: way not in tested):
        row = {"": verdict.name(way, n), "accuracy, %": interval(found["accuracy"][way])}
        if way in tested:
            row[f"over the majority of {n}, points"] = points(tested[way])
            row |= over_seeds(tested[way], "each seed", "p (Holm)")
        rows.append(row)
    return rows


def scoring(metrics: Metrics, policy: str) -> Rows:
    """A row a reward: how well it orders a policy's samples, and what it has over the format."""
    found, n = metrics["selection"][policy], metrics["n"]
    in_format = {name: f"{one['value']:.3f}" for name, one in found["auc_in_format"].items()}
    over = found["over_format"]
    return [
        {
            "reward": name,
            "AUC in a problem": f"{area['value']:.3f}",
            "AUC in the format": in_format.get(name, NOTHING),
            f"best of {n} over format, points": points(over.get(f"{BEST_OF}/{name}")),
            "weighted vote over format, points": points(over.get(f"{WEIGHTED}/{name}")),
        }
        for name, area in found["auc"].items()
    ]


def made(metrics: Metrics, table: str) -> Rows:
    """A row a source of labels, or a reward; means over seeds."""
    found = metrics["quality"].get(table, {})
    measured = {
        label: WRITTEN[kind]
        for label, (kind, _) in MEASURES[table].items()
        if any(label in row for row in found.values())
    }
    return [
        {"": name}
        | {
            label: written(row[label]["value"]) if label in row else NOTHING
            for label, written in measured.items()
        }
        for name, row in found.items()
    ]


def completions(metrics: Metrics) -> Rows:
    """A row a policy: what its samples look like, and accuracy read strictly and leniently."""
    columns = {
        "mean_strict": "accuracy, strict, %", "mean_lenient": "accuracy, lenient, %",
        "readable_rate": "answer readable, %", "format_rate": "format kept, %",
    }  # fmt: skip
    return [
        {"policy": name}
        | {label: value(one[key]) for key, label in columns.items()}
        | {"tokens": f"{one['mean_tokens']['value']:.1f}"}
        for name, one in metrics["policies"].items()
    ]


def difficulty(metrics: Metrics) -> Rows:
    """A row a policy, a column a fifth of the problems, the hardest first."""
    groups = metrics["difficulty"]
    names = {0: "hardest fifth, %", len(groups) - 1: "easiest fifth, %"}
    columns = {names.get(at, f"{at + 1}, %"): one["policies"] for at, one in enumerate(groups)}
    return [
        {"policy": policy} | {name: interval(one[policy]) for name, one in columns.items()}
        for policy in metrics["policies"]
    ]


def costs(metrics: Metrics) -> Rows:
    """A row a policy: what was made for it, and what that cost a seed."""
    found = metrics["costs"]["policies"]
    return [
        {"policy": name, MADE_FOR: ", ".join(found[name]["rows"])} | spent(found[name])
        for name in metrics["policies"]
    ]


def rows(metrics: Metrics) -> Rows:
    """A row of each table that costs tokens or operations."""
    found = metrics["costs"]["rows"].items()
    return [{"row": name} | spent(one) for name, one in found if any(one.values())]


def spent(cost: Metrics) -> dict[str, str]:
    """Tokens and operations of one seed."""
    return {
        "tokens generated": f"{cost['generated_tokens']:,.0f}",
        "tokens trained on": f"{cost['trained_tokens']:,.0f}",
        "GFLOPs": f"{cost['flops'] / 1e9:,.0f}",
    }


def over_seeds(one: Metrics, *names: str) -> dict[str, str]:
    """Columns that only several seeds have, some of: each, the adjusted p, what could be seen."""
    if len(one["seeds"]) == 1:
        return {}
    p, least = one.get("p_holm"), one.get("detectable")
    found = {
        "each seed": ", ".join(f"{100 * seed:.1f}" for seed in one["seeds"].values()),
        "p (Holm)": "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}",
        "detectable, points": "" if least is None else f"{100 * least:.1f}",
    }
    return {name: found[name] for name in names}


def value(one: Metrics) -> str:
    """A share in per cent."""
    return f"{100 * one['value']:.1f}"


def interval(one: Metrics) -> str:
    """A share in per cent, with its interval."""
    return f"{value(one)} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"


def points(one: Metrics | None) -> str:
    """A difference of shares in percentage points, with its interval."""
    if one is None:
        return NOTHING
    return f"{100 * one['value']:+.1f} [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]"
