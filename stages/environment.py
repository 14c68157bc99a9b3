"""Environment of a row, the rows that its episodes start from, and the check that it is replayable.

    python -m stages environment_own <environment> --by own --preset .. --from base --on own/<file>
    python -m stages environment_textarena <environment> --by textarena --preset .. --on prompts

Writes `environment.json` (`environments/definition`), and the rows of each split. Before that,
`environments/checks` checks that the environment starts alike with the same seed, and gives the
same observations and rewards for the same messages, beside other episodes and in another process
(`environments/hash_seed`).
"""

import hashlib
from typing import Any

from stages import rows, stage
from stages.config import Params
from stages.environments import checks, definition, hash_seed
from stages.environments.definition import OWN, SPLITS, EnvironmentFile, EnvironmentPreset, Starts
from stages.loops.run import Run
from stages.models.prompting import fill_template
from stages.records import lines
from stages.records.problems import Prompt
from stages.sources.catalogue import PreparationConfig


class Config(Params):
    """Keys of params.yaml that environment reads, and its preset."""

    seeds: list[int]
    data: PreparationConfig
    preset: EnvironmentPreset


CONFIGS = {name: Config for name, module in rows.ENTRY_POINTS.items() if module == "environment"}


def main(*words: str) -> None:
    """Write `environment.json` and the rows of each split."""
    stage.run(write, words, CONFIGS, per_seed=False)


def write(run: Run) -> dict[str, Any]:
    """Check the environment, and write it and its rows; returns the number of rows by split."""
    row, preset = run.row, run.config.preset
    own = row.on.removeprefix(OWN) if row.on.startswith(OWN) else None
    content = EnvironmentFile(
        kind=row.by,  # pyright: ignore[reportArgumentType]
        preset=preset,
        own=own,
        own_digest=hashlib.sha256(row.source.read_bytes()).hexdigest() if own else None,
        packages={},
        files=definition.digest_files(preset.options),
    )
    factory = definition.load_factory(content)
    content = content.model_copy(update={"packages": definition.read_versions(row.by)})
    counts, plays = dict[str, Any](), list[checks.Play]()
    for split in SPLITS:
        starts = list_starts(split, preset, run.config.data.prompt_template)
        plays += checks.check_replay(factory, starts[: checks.NUM_ROWS], preset, seed=0)
        definition.write_rows(run.output, split, starts)
        counts[split] = len(starts)
    hash_seed.check_hash_seed(content, plays)
    definition.write_environment(run.output, content)
    return {"rows": counts}


def list_starts(split: str, preset: EnvironmentPreset, template: str) -> list[dict[str, Any]]:
    """Rows of a split: its problems, or numbers that no other split has."""
    if isinstance(preset.starts, Starts):
        first = sum(getattr(preset.starts, name) for name in SPLITS[: SPLITS.index(split)])
        count = getattr(preset.starts, split)
        return [{"id": f"{split}-{i}", "index": first + i} for i in range(count)]
    return [
        {
            "id": prompt.id,
            "question": prompt.question,
            "answer": prompt.answer,
            "message": write_message(prompt, template),
        }
        for prompt in lines.read_lines(rows.PROMPTS / f"{split}.jsonl", Prompt)
    ]


def write_message(prompt: Prompt, template: str) -> str:
    """User's message in the prompt of a problem."""
    message = fill_template(template, prompt.question)
    for text in (message, message.strip()):
        if text in prompt.prompt:
            return text
    raise ValueError(
        f"starts: prompts: expected problems with one question each, found '{prompt.id}', whose "
        f"prompt is a conversation: take an environment with rows of its own, "
        f"`starts: {{train: 512, dev: 64, test: 256}}`"
    )
