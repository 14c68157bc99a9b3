"""People's preferences out of a file, as pairs for the reward model and for DPO.

    python -m stages.label_people <pairs> --by people --preset .. --from base --on raw/<file>

Reads JSON lines with a chosen and a rejected answer to one prompt, as text, as chat, or as
transcripts (HH-RLHF, Bai et al. 2022, https://arxiv.org/abs/2204.05862), and the tokenizer of the
policy `from`; writes pairs in tokens for training and held out (the same for every seed, so in no
seed's folder), and every row that is left out, with its line and the reason. The side of a pair
depends on the opening of its conversation (the text before the first answer) alone, so neither a
prompt nor two turns of one conversation are on both sides. Conversations that open as a dev or test
prompt does are left out, and counted: policies are tested on those.
"""

from itertools import chain
from typing import Any

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.loops.run import Run
from stages.models import label_prompting, row_policy
from stages.records import lines
from stages.records.problems import BadRow, Prompt
from stages.rows import PROMPTS
from stages.runtime import process
from stages.sources import preference_files, quarantine
from stages.sources.quarantine import FileLimits


class PeoplePreset(FileLimits):
    """What a file is like, and what is taken of it."""

    format: preference_files.Format
    """text: three columns of text; chat: lists of messages; transcript: HH-RLHF's form."""
    columns: preference_files.PreferenceColumns
    """What the file calls its columns."""
    heldout_share: float = Field(gt=0, lt=1)
    """Share of the conversations that reward models are tested on."""


class Config(Params):
    """What label_people reads of params.yaml, and its preset."""

    seeds: list[int]
    preset: PeoplePreset


def main(*words: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `quarantine.jsonl` and `metrics.json`."""
    stage.run(label, "label", words, Config, per_seed=False)


def label(run: Run) -> dict[str, Any]:
    """Read the labels of the file; returns their metrics."""
    row, preset, path = run.row, run.config.preset, run.row.source
    found = list(preference_files.pairs(path, preset.format, preset.columns))
    bad = [one for one in found if isinstance(one, BadRow)]
    raws = [one for one in found if not isinstance(one, BadRow)]
    # That of every seed is the same.
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    encoded = label_prompting.encode_pairs(raws, tokenizer, max_tokens=preset.max_tokens)
    bad += preference_files.bad_rows(path.name, encoded.rejected)
    over_long = preference_files.bad_rows(path.name, encoded.over_long)
    left_out = preset.left_out(row.preset, bad, over_long, len(found))
    asked = [lines.read_lines(PROMPTS / f"{split}.jsonl", Prompt) for split in ("dev", "test")]
    kept = preference_files.apart(encoded.rows, chain(*asked))
    sides = preference_files.split(kept, preset.heldout_share)
    metrics: dict[str, Any] = {"generated_tokens": 0, "trained_tokens": 0, "rows": len(found)}
    metrics["of_dev_and_test"] = len(encoded.rows) - len(kept)
    metrics["quarantined"] = quarantine.count_by_kind(left_out)
    for side, pairs in sides.items():
        metrics[side] = preference_files.describe(pairs)
        run.log(0, {f"{side}/{key}": value for key, value in metrics[side].items()})
        run.write(f"{side}.jsonl", pairs)
    run.write("quarantine.jsonl", left_out)
    return metrics


if __name__ == "__main__":
    process.run(main)
