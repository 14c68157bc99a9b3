"""A folder in which any stage can run: params.yaml, a preset, and everything that stages read.

`copy_world(folder)` copies one that each process makes once: prompts, demonstrations, policies,
a pool, pairs, labelled steps, rewards, an environment, episodes, samples and raw files, of `SEEDS`.
"""

import atexit
import functools
import importlib
import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, CPU, compute
from transformers import AutoTokenizer, LlamaConfig, PreTrainedTokenizerBase

from stages import auto, rows
from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.environments import definition
from stages.environments.definition import EnvironmentFile, EnvironmentPreset
from stages.models import model_tokenizer, policy, process_head, scalar_head
from stages.models.row_policy import TinyConfig, build_tiny
from stages.records import lines
from stages.records.episodes import EPISODES, Episode
from stages.records.pools import Completion
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.records.steps import StepLabels
from stages.records.temperatures import SampledFile
from stages.rewards import reward_file
from stages.rewards.reward_file import RewardFile
from stages.rows import DATA, PROMPTS

ROOT = Path(__file__).parents[1]
PRESETS: dict[str, Any] = auto.resolve({"presets": read_yaml(ROOT / PRESETS_PATH)}, None)[0][
    "presets"
]
"""Those of presets.yaml, as the embedded model has them."""
PRESET = "mine"
SEED, OTHER_SEED = SEEDS = (3, 4)
POOL = DATA / "pools/old"
SECTIONS: dict[str, Any] = read_yaml(Path(__file__).with_name("stage_sections.yaml"))
"""Sections of params.yaml, small; `model` stands in each by itself."""
MODEL = SECTIONS.pop("model")
SECTIONS["compute"] = COMPUTE
TINY, OPTIM, SPLIT = MODEL["tiny"], SECTIONS["sft"]["optim"], SECTIONS["sampling"]["test"]
EVALUATION = SECTIONS["evaluation"]
NUMBERS = {"train": 5, "preference": 4, "dev": 3, "test": 4}
"""Split -> number of its prompts."""


def configure(preset: Mapping[str, Any], seeds: Sequence[int] = (SEED,), **sections: Any) -> None:
    """params.yaml with these sections, and presets.yaml with the preset `mine`."""
    PRESETS_PATH.parent.mkdir(exist_ok=True)
    plain = {"seeds": list(seeds), "num_processes": 1, "model": MODEL}
    write_yaml(PARAMS_PATH, plain | sections)
    write_yaml(PRESETS_PATH, {PRESET: dict(preset)})


def make_words(entry: str, on: str, start: str = "sft") -> list[str]:
    """The command line of the row `new` of a table whose rows have a preset."""
    stage, _, by = entry.partition("_")
    return ["new", "--train" if stage == "train" else "--by", by, "--preset", PRESET,
            "--from", start, "--on", on]  # fmt: skip


def run_stage(
    entry: str, words: Sequence[str], preset: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (SEED,), **sections: Any,
) -> None:  # fmt: skip
    """Run a stage in the working folder, with sections in place of those of `SECTIONS`."""
    configure(preset or {}, seeds, **SECTIONS | sections)
    importlib.import_module(f"stages.{rows.ENTRY_POINTS[entry]}").main(entry, *words)


def write_yaml(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def metrics(folder: Path) -> dict[str, Any]:
    """metrics.json of an output."""
    return read_json(folder / "metrics.json")


def read_steps(path: Path) -> list[dict[str, float]]:
    """The metrics of each step of a history or a journal."""
    return [json.loads(line)["metrics"] for line in path.read_text().splitlines()]


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its path in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@functools.cache
def make_tokenizer() -> PreTrainedTokenizerBase:
    """The tokenizer of every policy here."""
    return model_tokenizer.train_tokenizer(["3 + 4 = 7\n#### 7 = ?\n"] * 2, TINY["vocab_size"])


@functools.cache
def encode(text: str) -> tuple[int, ...]:
    return tuple(make_tokenizer()(text)["input_ids"])


def end(text: str) -> list[int]:
    """The tokens of a completion that ends by itself."""
    return [*encode(text), make_tokenizer().eos_token_id]


@torch.no_grad()
def build_policy(number: int) -> Any:
    """A model with random weights, of which about one token in five is the last."""
    model, tokenizer = build_tiny(TinyConfig(**TINY), make_tokenizer(), number), make_tokenizer()
    weight = model.get_output_embeddings().weight
    weight.mul_(4)  # so that policies differ
    hidden = model.base_model(torch.tensor([encode("3 + 4 = ?\n")])).last_hidden_state.mean((0, 1))
    ratio = math.log(len(tokenizer)) / hidden.square().sum()
    weight[tokenizer.eos_token_id] = hidden * ratio
    return model


def write_policy(name: str = "sft", seed: int = SEED, number: int | None = None) -> None:
    """A policy with the random weights of `number`."""
    model = build_policy(seed if number is None else number)
    policy.save_model(model, make_tokenizer(), rows.locate_policy(name, seed))


def make_prompts(split: str, number: int | None = None) -> list[Prompt]:
    """`0 + 2 = ?`, `1 + 3 = ?`, ..."""
    return [
        Prompt(
            id=f"{split}-{n}", task="solve", question=f"{n} + {n + 2} = ?", answer=str(2 * n + 2),
            prompt=f"{n} + {n + 2} = ?\n", prompt_ids=list(encode(f"{n} + {n + 2} = ?\n")),
        )
        for n in range(NUMBERS[split] if number is None else number)
    ]  # fmt: skip


def make_completion(prompt: str, index: int, text: str, *, cut: bool = False) -> Completion:
    ids = list(encode(text)) if cut else end(text)
    return Completion(
        id=prompt, index=index, completion=text, completion_ids=ids, logprob_sum=-1.0 - index / 8,
        finish_reason="length" if cut else "stop", seed=0,
    )  # fmt: skip


def list_answers(prompt: Prompt, shift: int = 0) -> list[str]:
    """Two right completions and two wrong ones, from another one on."""
    right, wrong = f"{prompt.question[:-1]}{prompt.answer}\n#### {prompt.answer}", "= 99\n#### 99"
    texts = [right, wrong, f"#### {prompt.answer}", "1 + 1 = 2\n7 + 7 = 98\n#### 98"]
    return [texts[(i + shift) % 4] for i in range(4)]


def make_completions(prompts: Sequence[Prompt], shift: int = 0) -> list[Completion]:
    return [
        make_completion(prompt.id, index, text)
        for place, prompt in enumerate(prompts)
        for index, text in enumerate(list_answers(prompt, shift + place))
    ]


def write_side(side: str, prompts: Sequence[Prompt], completions: Any, seed: int = SEED) -> None:
    """One side of the pool `old`: of the problems of `preference`, or of `dev`."""
    split = "preference" if side == "train" else "dev"
    lines.write_lines(PROMPTS / f"{split}.jsonl", prompts)
    lines.write_lines(POOL / str(seed) / f"{side}.jsonl", completions)


def write_answers(side: str, answers: Mapping[str, str], seed: int = SEED) -> None:
    """Problem `name`, of answer 4, with a completion for each character of `answers[name]`.

    No two completions of a problem are the same tokens.
    """
    prompts = [
        Prompt(id=name, task="solve", question="2+2?", prompt="2+2?", prompt_ids=[5], answer="4")
        for name in answers
    ]
    completions = [
        replace(
            make_completion(name, index, f"#### {answer}"),
            completion_ids=[20 + index, int(answer), 3],
        )
        for name, text in answers.items()
        for index, answer in enumerate(text)
    ]
    write_side(side, prompts, completions, seed)


def make_pairs(prompts: Sequence[Prompt], shift: int = 0) -> list[Preference]:
    """The right completion of each prompt over a wrong one."""
    pairs = []
    for place, prompt in enumerate(prompts):
        chosen, rejected = list_answers(prompt, 0 if (place + shift) % 2 else 2)[:2]
        pairs.append(
            Preference(
                id=prompt.id, prompt=prompt.prompt, prompt_ids=prompt.prompt_ids, chosen=chosen,
                chosen_ids=end(chosen), rejected=rejected, rejected_ids=end(rejected),
                probability=1.0, source="verifier",
            )
        )  # fmt: skip
    return pairs


def make_solutions(prompts: Sequence[Prompt], *, labelled: bool = True) -> list[StepLabels]:
    """A right and a wrong solution of each prompt, of two steps."""
    result = []
    for prompt in prompts:
        for is_right, answer in ((True, prompt.answer), (False, "99")):
            steps = [f"{prompt.question[:-1]}{answer}\n", f"#### {answer}"]
            result.append(
                StepLabels(
                    id=prompt.id, index=int(not is_right), prompt=prompt.prompt, steps=steps,
                    prompt_ids=prompt.prompt_ids, step_ids=[list(encode(steps[0])), end(steps[1])],
                    labels=[float(is_right) if labelled else None] * 2, num_completions=[4, 0],
                    true_labels=[is_right] * 2, correct=is_right, source="math_shepherd",
                )
            )  # fmt: skip
    return result


def make_episode(
    index: int, reward: float, start: str = "a", ending: Any = "done", shift: int = 0
) -> Episode:
    """Two turns of the policy, one token each, and one of the environment between them."""
    return Episode(
        id=start, index=index, env_seed=0, messages=[], num_start_messages=0, tools=None,
        prompt_ids=[5], token_ids=[10 + index + shift, 20, 30], sampled=[(0, 1), (2, 3)],
        rewards=[0.0, reward], reward=reward, success=reward >= 1, ending=ending, error=None,
    )  # fmt: skip


def write_rule(kind: str = "length_penalty", name: str = "rule", **options: Any) -> None:
    """A reward of one component, without a model."""
    default = {"per": 4} if kind == "length_penalty" else {}
    write_reward(name, {"kind": kind, **(options or default)}, None)


def write_reward(name: str, value: Mapping[str, Any], model: Any, kind: str = "rule") -> None:
    part = {"value": value, "weight": 1.0, "cap": None, "normalise": {"kind": "none"}}
    content = RewardFile.model_validate({
        "kind": kind, "model": model, "own": None, "own_digest": None,
        "composition": {"components": {"part": part}, "combine": {"kind": "sum"}},
        "aggregate": {"kind": "mean"},
    })  # fmt: skip
    (DATA / "rewards" / name).mkdir(parents=True, exist_ok=True)
    reward_file.write_reward(DATA / "rewards" / name, content)


def make_scorer(seed: int, member: int = 0) -> Any:
    """A preference model of the policy `sft`, with a random head."""
    start, pad = rows.locate_policy("sft", seed), make_tokenizer().pad_token_id
    model = scalar_head.init_scalar_model(start, pad, compute(), CPU, head_seed=10 * seed + member)
    torch.nn.init.normal_(
        model.score.weight, generator=torch.Generator().manual_seed(10 * seed + member)
    )
    return model


def write_scorer(name: str = "scorer", seeds: Sequence[int] = SEEDS) -> None:
    """A reward that is a preference model of each seed."""
    write_reward(name, {"kind": "scorer"}, "reward", "preference")
    for seed in seeds:
        path = reward_file.model_path(DATA / "rewards" / name, seed)
        policy.save_model(make_scorer(seed), make_tokenizer(), path)


def write_process_scorer(name: str = "steps", seeds: Sequence[int] = SEEDS) -> None:
    """A process model of each seed with a random head, whose aggregations differ."""
    folder = DATA / "rewards" / name
    folder.mkdir(parents=True)
    reward_file.write_reward(folder, reward_file.model_reward_file("process"))
    for seed in seeds:
        start, generator = rows.locate_policy("sft", seed), torch.Generator().manual_seed(seed)
        model = process_head.init_process_model(start, 2, compute(), CPU, separator="\n")
        for parameter in process_head.get_head(model).parameters():
            torch.nn.init.normal_(parameter, generator=generator)
        policy.save_model(model, make_tokenizer(), folder / str(seed) / "model")
        aggregation = {"best_of": "min", "weighted": "last"}
        write_json(folder / str(seed) / "aggregation.json", aggregation)


def write_environment(name: str = "sums", own: str = "calculator", **preset: Any) -> None:
    """The environment of stages/environments/own/calculator.py, or another file there."""
    folder = DATA / "environments" / name
    folder.mkdir(parents=True, exist_ok=True)
    content = {"starts": {"train": 2, "dev": 1, "test": 2}, "num_episodes": 3,
               "max_turn_tokens": 96} | preset  # fmt: skip
    file = EnvironmentFile(
        kind="own", preset=EnvironmentPreset.model_validate(content), own=own, own_digest=None,
        packages={},
    )  # fmt: skip
    definition.write_environment(folder, file)
    for split in ("train", "test"):
        definition.write_rows(folder, split, [{"id": f"{split}-{i}"} for i in range(2)])


def write_samples(seed: int, name: str = "sft") -> None:
    """Samples of problems, half of those of test and a quarter of dev's right, greedy ones too."""
    folder, files = DATA / "samples" / name / str(seed), []
    for split in ("dev", "test"):
        drawn = make_completions(make_prompts(split), shift=seed)
        if split == "dev":
            drawn = [replace(row, completion="#### 99") if row.index < 2 else row for row in drawn]
        lines.write_lines(folder / f"{split}.jsonl", drawn)
        greedy = [row for row in make_completions(make_prompts(split)) if row.index == 0]
        lines.write_lines(folder / f"{split}_greedy.jsonl", greedy)
        files += [SampledFile(name=split, split=split, temperature=1.0),
                  SampledFile(name=f"{split}_greedy", split=split, temperature=0.0)]  # fmt: skip
    lines.write_lines(folder / "temperatures.jsonl", files)


def write_raw(name: str, content: Sequence[Any]) -> None:
    """A file in data/raw: a line for each row, or text as it is."""
    path = DATA / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [row if isinstance(row, str) else json.dumps(row) for row in content]
    path.write_text("\n".join(texts), encoding="utf-8")


def list_raw_pairs(count: int) -> list[dict[str, str]]:
    return [{"prompt": f"{i}?", "chosen": f" {i}", "rejected": " no"} for i in range(count)]


RAW_SOLUTION = {"id": "r", "problem": "2+2-1?", "steps": ["2 + 2 = 4", "#### 4"], "label": 1,
                "final_answer_correct": False}  # fmt: skip


@functools.cache
def make_world() -> Path:
    """The folder that is copied; it lives as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="stage-inputs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with chdir(folder):
        for split in NUMBERS:
            lines.write_lines(PROMPTS / f"{split}.jsonl", make_prompts(split))
        shown = []
        for prompt in make_prompts("train", 8):
            text = list_answers(prompt)[0]
            words = {"id": prompt.id, "prompt": prompt.prompt, "prompt_ids": prompt.prompt_ids}
            shown.append(
                Demonstration(**words, task="solve", completion=text, completion_ids=end(text))
            )
        lines.write_lines(DATA / "demonstrations/demonstrations.jsonl", shown)
        make_tokenizer().save_pretrained(rows.locate_policy(rows.BASE, 0))
        for seed in SEEDS:
            write_policy("sft", seed)
            write_policy("teacher", seed, number=10 + seed)
            train, dev, preference = map(make_prompts, ("train", "dev", "preference"))
            write_side("train", preference, make_completions(preference, shift=seed), seed)
            write_side("heldout", dev, make_completions(dev, shift=seed), seed)
            others = [replace(row, prompt=(text := f"Now {row.prompt}"),
                              prompt_ids=list(encode(text))) for row in dev]  # fmt: skip
            for table, sides in {
                "pairs": {"train": make_pairs(train, seed), "heldout": make_pairs(dev, seed)},
                "steps": {"train": make_solutions(train[seed % 2 :]),
                          "heldout": make_solutions(others)},
            }.items():  # fmt: skip
                for side, written in sides.items():
                    lines.write_lines(DATA / f"{table}/old/{seed}/{side}.jsonl", written)
            episodes = [make_episode(i, reward, f"s{start}", shift=seed)
                        for start in range(2)
                        for i, reward in enumerate((0.0, 1.0, 0.5))]  # fmt: skip
            lines.write_lines(DATA / f"episodes/games/{seed}" / EPISODES, episodes)
            write_samples(seed)
            taught = DATA / f"pairs/taught/{seed}"
            lines.write_lines(taught / "demonstrations.jsonl", shown)
            shutil.copytree(rows.locate_policy("teacher", seed), taught / "model")
        write_json(POOL / "pool.json", {"split": "preference", "policy": "sft"})
        write_rule()
        write_scorer()
        write_process_scorer()
        write_environment()
        write_raw("pairs.jsonl", list_raw_pairs(20))
        several = [RAW_SOLUTION | {"id": f"r{n}", "problem": f"{n}+1?"} for n in range(8)]
        write_raw("steps.jsonl", several)
        (DATA / "own").mkdir()
        for name in ("calculator", "brevity"):
            (DATA / "own" / name).write_text("{}")
    return folder


def copy_world(folder: Path) -> None:
    shutil.copytree(make_world(), folder, dirs_exist_ok=True)


def add_token_without_embedding(token: str) -> Mapping[str, Any]:
    """Section `model` of a model whose tokenizer, that of `base`, has a token more than it."""
    folder = rows.locate_policy(rows.BASE, 0)
    words = AutoTokenizer.from_pretrained(folder)
    LlamaConfig(vocab_size=len(words)).save_pretrained("model")
    words.add_tokens([token])
    words.save_pretrained(folder)
    return MODEL | {"path": "model"}
