"""Copy of a policy for other tools: its folder in the format of transformers, with a model card.

    python -m stages.export <policy> <folder> [<seed>]

Without a seed it is the first of the section `seeds`. The card (README.md, as model hubs read it)
has data, method, accuracies with their intervals, the difference from the baseline and the commit.
A tokenizer without a chat template gets one that renders a message as `data.prompt_template` did in
training, so that chat and servers prompt the policy as it was trained. The folder must not exist.
Nothing depends on it, and what DVC keeps is not changed.
"""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from stages import tables
from stages.config import read_yaml
from stages.models import model_tokenizer
from stages.models.prompting import PLACEHOLDER, get_bos_text
from stages.report import markdown, model_card
from stages.rows import DATA
from stages.runtime import outputs, process, runs

logger = logging.getLogger(__name__)

METRICS = DATA / "report/metrics.json"
ACCURACIES = {
    "mean_accuracy": "one sample at temperature 1", "greedy_accuracy": "greedy decoding",
}  # fmt: skip


def main(policy: str = "", folder: str = "", seed: str = "") -> None:
    """Write the folder.

    Raises:
        ValueError: the policy or the seed is none of the run, or the folder exists.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    params = read_yaml()
    names, seeds = list(params[tables.POLICIES]), [str(value) for value in params["seeds"]]
    seed = seed or seeds[0]
    if policy not in names or not folder or seed not in seeds:
        raise ValueError(
            f"expected a policy ({', '.join(names)}), a new folder and a seed ({', '.join(seeds)}),"
            f" found {policy or 'no policy'}, {folder or 'no folder'}, {seed}"
        )
    target, source = Path(folder), DATA / f"policies/{policy}/model/{seed}"
    if target.exists():
        raise ValueError(f"{target} exists: name a folder that does not")
    for path in (source, METRICS):
        if not path.exists():
            raise ValueError(f"{path} is missing: `dvc repro` makes it, `dvc checkout` restores it")
    prompt = params["data"]["prompt_template"]
    section = f"{compare(policy)}\n\n## Prompt\n\n{describe_prompt(prompt)}"
    card = model_card.render_card(policy, params["seeds"], params["model"], section)
    with outputs.replace(target) as scratch:
        shutil.copytree(source, scratch)
        (scratch / "README.md").write_text(card, encoding="utf-8")
        add_chat_template(scratch, prompt)
    logger.info("%s: policy %s, seed %s, with its card, README.md", target, policy, seed)


def describe_prompt(template: str) -> str:
    """The card's section on the text around a question."""
    return f"A question was put to the policy as `{json.dumps(template)}` (a JSON string)."


def add_chat_template(folder: Path, prompt_template: str) -> None:
    """Give a tokenizer that has no chat template that of its training prompts.

    It renders the last message alone: without a chat template, a policy is trained on single turns.
    """
    tokenizer = model_tokenizer.load_tokenizer(folder)
    if tokenizer.chat_template is not None:
        return
    before, after = prompt_template.split(PLACEHOLDER)
    parts = (get_bos_text(tokenizer) + before, after)
    quoted = [json.dumps(part, ensure_ascii=False) for part in parts]
    (folder / "chat_template.jinja").write_text(
        f"{{{{- {quoted[0]} + messages[-1].content + {quoted[1]} }}}}", encoding="utf-8"
    )


def compare(policy: str) -> str:
    """The card's section on the run: accuracies with intervals, the verdict, and the commit."""
    metrics = json.loads(METRICS.read_text(encoding="utf-8"))
    baseline, level = metrics["baseline"], 100 * metrics["confidence"]
    table = [
        [
            f"{label}, %", markdown.format_percent(metrics["policies"][policy][key]),
            format_gain(metrics["gains"].get(key, {}).get(policy)),
        ]
        for key, label in ACCURACIES.items()
    ]  # fmt: skip
    return "\n\n".join([
        "## Comparison",
        f"Intervals of {level:g} % over seeds and problems; points over the policy `{baseline}` are"
        " paired by seed and problem.",
        markdown.render_table(["accuracy", "all seeds", f"points over {baseline}"], table),
        " ".join(metrics["verdict"]),
        f"Commit: {describe_commit()}. `dvc repro` there gives these numbers again.",
    ])  # fmt: skip


def format_gain(gain: dict[str, Any] | None) -> str:
    """Points with their interval; nothing for the baseline."""
    return "" if gain is None else markdown.format_points(gain)


def describe_commit() -> str:
    """Hash of HEAD, and whether files differ from it."""
    commit, has_edits = runs.git_state()
    if commit is None:
        return "unknown (no git repository)"
    return f"{commit} with edits" if has_edits else commit


if __name__ == "__main__":
    process.run(main)
