"""Export a policy: a folder for other tools, with a model card.

    python -m stages.export <policy> <folder> [<seed>]

Without a seed, the first one is exported. transformers 4.57 and 5 compute the same logits from the
folder (`models/transformers_4`). The card (README.md, as model hubs read it) has data, method,
accuracies with their intervals, the difference from the baseline (or that the report does not
compare the policy), the commit and a program that prompts the policy. Its parameters are those of
the training in dvc.lock, not the present ones. A tokenizer without a chat template gets one that
renders messages as in training, so that chat and servers prompt the policy as it was trained;
generation_config.json gets the temperature that was best on the dev split. For a policy trained in
an environment the card has the environment and its success there. The card's text is in
export.md.j2 and report/model_card.md.j2. The policy must be the one in dvc.lock, bit by bit. The
folder must not exist. No stage depends on it, and no output of DVC changes.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import auto
from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.environments import definition
from stages.models import model_files, model_tokenizer, transformers_4
from stages.models.prompting import PLACEHOLDER, TASK, get_bos_text
from stages.models.turn_rendering import make_episode_template
from stages.params import LOCK_PATH, read_facts
from stages.records import lines
from stages.records.problems import Prompt
from stages.records.transcripts import SPEAKERS, TOOL
from stages.report import experiment, markdown, model_card
from stages.rows import DATA, PROMPTS, STAGES
from stages.runtime import outputs, process, runs

logger = logging.getLogger(__name__)

PLAN, METRICS = DATA / "plan.json", DATA / "report/metrics.json"
MAX_NEW_TOKENS = 256
"""Limit in the card's program of a policy that was trained without one."""


def main(policy: str = "", folder: str = "", seed: str = "") -> None:
    """Write the folder.

    Raises:
        ValueError: the run has no such policy or seed, files of it are damaged or missing,
            or the folder exists.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = outputs.read_json(PLAN)
    outputs.check_exists(METRICS)
    metrics, row = outputs.read_json(METRICS), plan["policies"].get(policy)
    params, presets = read_run(policy, plan) if row else (read_yaml(), {})
    seeds = [str(value) for value in params["seeds"]]
    seed = seed or seeds[0]
    if row is None or not folder or seed not in seeds:
        raise ValueError(
            f"expected a policy ({', '.join(plan['policies'])}), a new folder and a seed "
            f"({', '.join(seeds)}), found {policy or 'no policy'}, {folder or 'no folder'}, {seed}"
        )
    target, source = Path(folder), DATA / f"policies/{policy}/model/{seed}"
    if target.exists():
        raise ValueError(f"{target} exists: name a folder that does not")
    check_policy(policy, source)
    template, tasks, question = params["data"]["prompt_template"], set[str](), "Hello"
    name, environment = model_card.find_environment(plan, row), None
    if name is not None:
        environment = definition.read_environment(DATA / f"environments/{name}")
    else:
        outputs.check_exists(PROMPTS / "test.jsonl")
        for prompt in lines.read_lines(PROMPTS / "test.jsonl", Prompt):
            question = question if tasks else prompt.question
            tasks.add(prompt.task)
    with outputs.replace(target) as scratch:
        shutil.copytree(source, scratch)
        fault = transformers_4.add_old_keys(scratch)
        best = metrics.get("temperatures", {}).get("policies", {}).get(policy, {}).get("best")
        if best is not None:
            set_temperature(scratch, best)
        tokenizer = model_tokenizer.load_tokenizer(scratch)
        if tokenizer.chat_template is None:
            text = (
                make_chat_template(tokenizer, template, tasks)
                if environment is None
                else make_episode_template(tokenizer)
            )
            (scratch / "chat_template.jinja").write_text(text, encoding="utf-8")
        section = {row["train"]: params.get(row["train"], {}) | row}
        settings = auto.resolve(section, read_facts(params), params, strict=False)[0][row["train"]]
        limit = settings.get("max_new_tokens", MAX_NEW_TOKENS)
        commit, has_edits = runs.git_state()
        section = markdown.render_template(
            Path(__file__).with_suffix(".md.j2"),
            policy=policy, m=metrics, environment_name=name, environment=environment,
            commit=commit, has_edits=has_edits, prompt_template=json.dumps(template),
            origin=experiment.describe_commit(experiment.digest_folder(DATA / "evaluations")),
            tasks=sorted(tasks), seed=seed, best=best, fault=fault, limit=limit,
            folder=json.dumps(target.name), question=json.dumps(question, ensure_ascii=False),
        ).rstrip()  # fmt: skip
        card = model_card.render_card(policy, params["seeds"], params["model"], presets, section)
        (scratch / "README.md").write_text(card, encoding="utf-8")
    logger.info("%s: policy %s, seed %s, with its card, README.md. %s", target, policy, seed, fault)


def read_run(policy: str, plan: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sections of params.yaml, and presets by name, from the training of a policy.

    They come from dvc.lock, or, if it lacks them, from the present files. The presets, without
    `auto`, are those of the row, its reward and its environment.
    """
    stages = read_yaml(LOCK_PATH).get("stages", {}) if LOCK_PATH.exists() else {}
    words = model_card.list_presets(plan, policy)
    rows = [row.partition("/")[::2] for row in reversed(words.values())]
    params, entries = read_yaml(), read_yaml(PRESETS_PATH)
    for stage in ("prepare_data", *(f"{STAGES[table]}@{name}" for table, name in rows)):
        recorded = stages.get(stage, {}).get("params", {})
        params |= recorded.get(str(PARAMS_PATH), {})
        entries |= recorded.get(str(PRESETS_PATH), {})
    used = {"presets": {word: entries[word] for word in words}}
    return params, auto.resolve(used, read_facts(params), params)[0]["presets"]


def set_temperature(folder: Path, temperature: float) -> None:
    """Write a temperature into generation_config.json; 0: greedy decoding.

    It applies to the full distribution: top_k is off, whose default in transformers is 50.
    """
    config = GenerationConfig.from_pretrained(folder)
    config.do_sample = temperature > 0
    sampled = {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    for name, value in sampled.items():
        setattr(config, name, value if config.do_sample else None)
    config._from_model_config = False  # the flag would mean that these values are defaults
    config.save_pretrained(folder)


def check_policy(policy: str, source: Path) -> None:
    """Raise a ValueError unless a policy is complete, and has the digest of dvc.lock.

    `source`: the folder of its seed. dvc.lock has one digest for all seeds together.
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
    """Digest of an output of a stage in dvc.lock; None: it has none."""
    content = read_yaml(LOCK_PATH) if LOCK_PATH.exists() else {}
    outs = content.get("stages", {}).get(stage, {}).get("outs", [])
    return next((out.get("md5") for out in outs if Path(out["path"]) == folder), None)


def make_chat_template(
    tokenizer: PreTrainedTokenizerBase, prompt_template: str, tasks: set[str]
) -> str:
    """Jinja chat template that renders prompts as in training.

    A problem is the last message in `prompt_template`; a conversation is rendered as by
    `render_transcript`. For data with both tasks, a single message is a problem.
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


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    process.run(main)
