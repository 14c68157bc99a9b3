"""Copy of a policy for other tools: its folder in the format of transformers, with a model card.

    python -m stages.export <policy> <folder> [<seed>]

Without a seed it is the first of the section `seeds`. The card (README.md, as model hubs read it)
has data, method, accuracies with their intervals, the difference from the baseline and the commit.
A tokenizer without a chat template gets one that renders messages as in training, so that chat and
servers prompt the policy as it was trained. Of a policy trained in an environment the card names
that, and its success there. The policy must be the one that dvc.lock names, to the bit. The folder
must not exist. Nothing depends on it, and what DVC keeps is not changed.
"""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.config import read_yaml
from stages.environments import definition
from stages.models import model_files, model_tokenizer
from stages.models.call_form import CallForm
from stages.models.model_tokenizer import end_id
from stages.models.prompting import PLACEHOLDER, TASK, get_bos_text
from stages.params import LOCK_PATH
from stages.records import lines
from stages.records.problems import Prompt
from stages.records.transcripts import SPEAKERS, TOOL
from stages.report import experiment, markdown, model_card
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process, runs

logger = logging.getLogger(__name__)

PLAN, METRICS = DATA / "plan.json", DATA / "report/metrics.json"
ACCURACIES = {
    "mean_accuracy": "one sample at temperature 1", "greedy_accuracy": "greedy decoding",
}  # fmt: skip

ENVIRONMENT_PROMPTS = "The environment's messages and tools, by the chat template."


def main(policy: str = "", folder: str = "", seed: str = "") -> None:
    """Write the folder.

    Raises:
        ValueError: the policy or the seed is none of the run, files of it are damaged or missing,
            or the folder exists.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    params, plan = read_yaml(), outputs.read_json(PLAN)
    outputs.check_exists(METRICS)
    names, seeds = list(plan["policies"]), [str(value) for value in params["seeds"]]
    seed = seed or seeds[0]
    if policy not in names or not folder or seed not in seeds:
        raise ValueError(
            f"expected a policy ({', '.join(names)}), a new folder and a seed ({', '.join(seeds)}),"
            f" found {policy or 'no policy'}, {folder or 'no folder'}, {seed}"
        )
    target, source = Path(folder), DATA / f"policies/{policy}/model/{seed}"
    if target.exists():
        raise ValueError(f"{target} exists: name a folder that does not")
    check_policy(policy, source)
    template = params["data"]["prompt_template"]
    environment = model_card.find_environment(plan, plan["policies"][policy])
    tasks = set[str]()
    if environment is None:
        outputs.check_exists(PROMPTS / "test.jsonl")
        tasks = {prompt.task for prompt in lines.read_lines(PROMPTS / "test.jsonl", Prompt)}
        section = render_comparison(policy, describe_prompts(template, tasks))
    else:
        section = render_comparison(policy, ENVIRONMENT_PROMPTS)
        section = f"{render_environment(environment, policy)}\n\n{section}"
    card = model_card.render_card(policy, params["seeds"], params["model"], section)
    with outputs.replace(target) as scratch:
        shutil.copytree(source, scratch)
        (scratch / "README.md").write_text(card, encoding="utf-8")
        tokenizer = model_tokenizer.load_tokenizer(scratch)
        if tokenizer.chat_template is None:
            text = (
                make_chat_template(tokenizer, template, tasks)
                if environment is None
                else make_episode_template(tokenizer)
            )
            (scratch / "chat_template.jinja").write_text(text, encoding="utf-8")
    logger.info("%s: policy %s, seed %s, with its card, README.md", target, policy, seed)


def check_policy(policy: str, source: Path) -> None:
    """A ValueError unless a policy is whole, and to the bit the one that dvc.lock names.

    `source`: the folder of its seed. dvc.lock has one digest for the seeds together.
    """
    outputs.check_exists(source)
    folder = source.parent
    remedy = f"`dvc checkout {folder}` restores it, or `dvc repro` makes it again"
    try:
        model_files.check_model_files(str(source))
    except ValueError as error:
        raise ValueError(f"{error} Of this run's policy, {remedy}.") from error
    expected = read_digest(f"train@{policy}", folder)
    if expected is None:
        logger.warning("%s has no digest of %s, which is exported unchecked", LOCK_PATH, folder)
        return
    digest = experiment.digest_folder(folder)
    if digest != expected:
        raise ValueError(
            f"expected {folder} as {LOCK_PATH} has it, with the digest {expected}, found {digest}: "
            f"a file is damaged, edited, missing or new. Compare `dvc diff`; {remedy}"
        )


def read_digest(stage: str, folder: Path) -> str | None:
    """The digest of an output of a stage in dvc.lock; None where it has none."""
    content = read_yaml(LOCK_PATH) if LOCK_PATH.exists() else {}
    outs = content.get("stages", {}).get(stage, {}).get("outs", [])
    return next((out.get("md5") for out in outs if Path(out["path"]) == folder), None)


def make_chat_template(
    tokenizer: PreTrainedTokenizerBase, prompt_template: str, tasks: set[str]
) -> str:
    """The prompts of training as a chat template, in Jinja.

    A problem is the last message in `prompt_template`, a conversation the transcript of
    `render_transcript`; of data with both tasks, a message alone is a problem.
    """
    start = get_bos_text(tokenizer)
    literals = map(_quote, (start + prompt_template).split(PLACEHOLDER))
    problem = f"{{{{- {' + messages[-1].content + '.join(literals)} }}}}"
    speaker = f"{_quote(SPEAKERS)}.get(message.role, {_quote(TOOL)})"
    conversation = (
        f"{{{{- {_quote(start)} }}}}{{%- for message in messages %}}"
        "{%- if message.role == 'system' %}{{- message.content }}{%- else %}"
        f"{{{{- '\\n\\n' + {speaker} + ': ' + message.content }}}}"
        "{%- endif %}{%- endfor %}{{- '\\n\\n"
        f"{SPEAKERS['assistant']}:' }}}}"
    )
    if TASK not in tasks:
        return conversation
    if tasks == {TASK}:
        return problem
    return f"{{%- if messages | length == 1 %}}{problem}{{%- else %}}{conversation}{{%- endif %}}"


def make_episode_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """The messages of an episode as a chat template, as `TurnRenderer` writes them without one."""
    start, end = get_bos_text(tokenizer), tokenizer.convert_ids_to_tokens(end_id(tokenizer))
    form = CallForm()
    call = (
        f"{_quote(form.before)} + {{'{form.name_key}': call.function.name, "
        f"'{form.arguments_key}': call.function.arguments}} | tojson + {_quote(form.behind)}"
    )
    return (
        f"{{{{- {_quote(start)} + messages[0].content }}}}"
        "{%- for message in messages[1:] %}{%- if message.role == 'assistant' %}"
        "{{- message.content or '' }}"
        f"{{%- for call in message.tool_calls or [] %}}{{{{- {call} }}}}{{%- endfor %}}"
        f"{{{{- {_quote(end)} }}}}"
        "{%- else %}{{- '\\n' + message.content + '\\n' }}{%- endif %}{%- endfor %}"
    )


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def render_environment(name: str, policy: str) -> str:
    """The card's section on the environment that a policy learned in, and its success there."""
    environment = definition.read_environment(DATA / f"environments/{name}")
    packages = ", ".join(f"{key} {version}" for key, version in environment.packages.items())
    own = environment.own and (
        f"the class in `stages/environments/own/{environment.own}.py` (SHA-256 "
        f"{environment.own_digest})"
    )
    source = ", ".join(part for part in (own, packages) if part)
    played = outputs.read_json(METRICS).get("episodes", {}).get(name, {})
    estimates = played.get("policies", {}).get(policy)
    success = "Its success there was not measured: no row of `episodes` played it from test starts."
    if estimates is not None:
        gain = played["gains"]["success"].get(policy)
        over = (
            f", {markdown.format_points(gain)} points over `{played['baseline']}`" if gain else ""
        )
        success = (
            f"Success: {markdown.format_percent(estimates['success'])} of the episodes from "
            f"{played['num_starts']:,} test starts{over} (interval over seeds and starts)."
        )
    return f"## Environment\n\n`{name}`, of kind {environment.kind}: {source}.\n\n{success}"


def describe_prompts(prompt_template: str, tasks: set[str]) -> str:
    """How problems and conversations, whichever the test prompts are, were put to the policy."""
    problem = f"A problem was put to the policy as `{json.dumps(prompt_template)}` (a JSON string)."
    conversation = "A conversation was put to the policy as it is, by the chat template."
    sentences = [problem] * (tasks != {"chat"}) + [conversation] * ("chat" in tasks)
    return " ".join(sentences)


def render_comparison(policy: str, prompts: str) -> str:
    """The card's sections on the run: accuracies with intervals, verdict, commit, and prompt.

    Without gold answers there are no accuracies.
    """
    metrics = outputs.read_json(METRICS)
    baseline, level = metrics["baseline"], 100 * metrics["confidence"]
    estimates, table = metrics["policies"][policy], []
    for key, label in ACCURACIES.items():
        if key in estimates:
            gain = metrics["gains"].get(key, {}).get(policy)
            points = "" if gain is None else markdown.format_points(gain)
            table.append([label, markdown.format_percent(estimates[key]), points])
    commit, has_edits = runs.git_state()
    at = f" at commit {commit}{' with edits' if has_edits else ''}" if commit is not None else ""
    digest = experiment.digest_folder(DATA / "evaluations")
    accuracies = [
        f"Intervals of {level:g} % over seeds and problems; points over the policy `{baseline}` are"
        " paired by seed and problem.",
        markdown.render_table(["accuracy", "all seeds", f"points over {baseline}"], table),
    ]
    return "\n\n".join([
        "## Comparison",
        *(accuracies if table else []),
        " ".join(metrics["verdict"]),
        f"Exported{at}. Where these results are from: {experiment.describe_commit(digest)}; "
        "`dvc repro` there gives them again.",
        "## Prompt",
        prompts,
    ])  # fmt: skip


if __name__ == "__main__":
    process.run(main)
