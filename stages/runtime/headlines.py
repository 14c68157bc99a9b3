"""The few numbers of a stage by which it is known: its closing line, and its run in MLflow.

An edit shows there after `posttrain track`: no output depends on it.
"""

from collections.abc import Sequence

METRICS: dict[str, dict[str, Sequence[str]]] = {
    "train": {
        "final_loss": ["final_loss"],
        "margin_accuracy": ["final_margin_accuracy"],
        "reward": ["reward/mean"],
        "rollout_accuracy": ["reward/accuracy"],
        "success": ["episode/success"],
        "kl": ["kl/sequence"],
        "trained_tokens": ["trained_tokens"],
        "generated_tokens": ["generated_tokens"],
    },
    "evaluate": {
        "accuracy": ["mean_accuracy"],
        "greedy_accuracy": ["greedy_accuracy"],
        "dev_accuracy": ["dev_accuracy"],
    },
    "reward": {
        "heldout_accuracy": ["heldout/accuracy", "heldout/labels/balanced_accuracy"],
        "heldout_auc": ["heldout/auc", "heldout/labels/auroc_within_problem"],
    },
    "label": {"pairs": ["train/pairs"], "agreement": ["train/agreement/averaged"]},
    "label_steps": {"steps": ["train/steps"], "labelled_right": ["train/labelled_right"]},
    "sample": {
        "length": ["test/mean_tokens"],
        "truncated": ["test/truncated"],
        "generated_tokens": ["generated_tokens"],
    },
    "play": {
        name: [name]
        for name in (
            "success",
            "reward",
            "turns",
            "tool_calls",
            "tool_errors",
            "failed",
            "generated_tokens",
        )
    },
    "pool": {
        "length": ["train/mean_tokens"],
        "truncated": ["train/truncated"],
        "generated_tokens": ["generated_tokens"],
    },
}
"""Stage -> name in MLflow -> where it stands in the metrics.json of a seed, or in the last step of
its history: the first that is there. A run shows the mean over seeds; of a policy's training also
those of its evaluation."""
