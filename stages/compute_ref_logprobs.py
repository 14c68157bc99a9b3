"""Log-probs of every completion in the pairs under a policy that will be a reference.

    python -m stages.compute_ref_logprobs <name> <policy> <pairs>

A stage of its own: no change of the preference loss or its numbers computes them again.
"""

from pathlib import Path

from stages import params
from stages.loops import ref_logprobs, work
from stages.models import model_tokenizer, policy, size
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines
from stages.records.preferences import Preference
from stages.runtime import outputs, process, runs

DATA = Path("data")
OUTPUT = DATA / "compute_ref_logprobs"


class Config(Params):
    """What compute_ref_logprobs reads of params.yaml."""

    compute: ComputeConfig


def main(name: str, policy_of: str, pairs_of: str) -> None:
    """Write `ref_logprobs.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"compute_ref_logprobs@{name}", output, gpu=True) as run:
        config = params.load(Config)
        device = setup(config.compute)
        model = policy.load(DATA / policy_of, config.compute, device)
        pad_id = model_tokenizer.pad_id(model_tokenizer.load(DATA / policy_of))
        pairs = list(lines.read(DATA / pairs_of / "train.jsonl", Preference))
        rows = ref_logprobs.compute_rows(model, pairs, config.compute, pad_id)
        passes = ref_logprobs.rows_work(pairs, config.compute)
        metrics = {
            "generated_tokens": 0,
            "trained_tokens": 0,
            "work": work.summary([passes], {"reference": size.frozen(model)}),
            "pairs": len(pairs),
            "completions": len(rows),
            "mean_logprob_sum": sum(row.logprob_sum for row in rows) / len(rows),
        }
        run.log(0, {"logprobs/ref": metrics["mean_logprob_sum"]})
        with outputs.replace(output / "ref_logprobs.jsonl") as temporary:
            lines.write(temporary, rows)
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
