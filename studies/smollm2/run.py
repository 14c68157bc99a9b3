"""Run the study: download its data, select the rows of a part, and start `dvc repro`.

    python run.py core                  SFT, and GRPO by rule
    python run.py                       all parts
    python run.py rates                 GRPO, DPO and PPO with each of the rates to choose from
    python run.py sums                  GRPO in an environment of sums, before and after
    python run.py long                  GRPO of 120 steps, beside SFT on as many tokens
    python run.py core -j 3             three stages side by side, by flows.local
    python run.py core --gpu            with the sizes of a large GPU
    python run.py results               the report is copied to results/, or to long/ if it is of
                                        that run, and the comparison of the sums to sums/, for
                                        a commit
    python run.py core --data <folder>  with SVAMP.json(.gz) and GSM8K's test.jsonl(.gz) of a folder

Run it again after a kill: `dvc repro` goes on. A part contains the rows of the parts before it, and
does not compute them again. Without a folder the two files are downloaded, at fixed commits; both
ways their digests are checked.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from stages.report.episode_comparison import compare_episodes, read_episodes
from stages.rows import STAGES

HERE = Path(__file__).parent
RAW = HERE / "data/raw"
TABLES = ("policies", "pools", "pairs", "steps", "rewards", "environments", "episodes")


FILES = {
    "SVAMP.json": (
        "https://raw.githubusercontent.com/arkilpatel/SVAMP/"
        "689d7ccac74b9983a2ac7cc3b264f441b99e7c53/SVAMP.json",
        "5be77703a6d891ae476d7c082787ad361392aa02453b132516cdd5f4e7934e3e",
    ),
    "test.jsonl": (
        "https://raw.githubusercontent.com/openai/grade-school-math/"
        "3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data/test.jsonl",
        "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    ),
}
"""File -> its address in another project, at a commit, and its SHA-256."""
NUM_TRAIN = 700
"""Number of SVAMP's 1,000 problems to train on, from the start: variants of a problem are adjacent,
so a random split would train on variants of the test problems."""
NUM_TRANSFER = 300
"""Number of GSM8K's test problems, from the start."""
PARTS = {
    "core": ("policies/sft", "policies/grpo"),
    "as-is": ("policies/as-is",),
    "dpo": ("policies/dpo",),
    "rewards": ("rewards/preference", "rewards/outcome", "rewards/process"),
    "feedback": ("policies/dpo-ai", "policies/ppo"),
    "control": ("policies/grpo-coin",),
    "instruct": ("policies/grpo-instruct",),
    "transfer": tuple(f"episodes/gsm8k-{name}" for name in ("sft", "as-is", "grpo", "instruct")),
}
"""Part -> its rows, or whole tables, to which all is added that they are made from."""
RATES = "rates"
"""Separate run: seed 0, and rows of each method of CHOICE with its rates."""
CHOICE = {
    "grpo": (3e-6, 1e-5, 3e-5),
    "dpo": (1.4e-6, 3e-6, 1e-5, 3e-5),
    "ppo": (3e-6, 1e-5, 3e-5),
}
"""Policy -> its learning rates to choose from. The smallest is the published rate scaled to this
size by the root of the number of parameters."""
SUMS = "sums"
"""Separate run: the model as it is, and after GRPO, in an environment of sums."""
LONG = "long"
"""Separate run: GRPO of five times as many steps, and SFT on as many tokens."""
LONG_POLICIES = ("grpo", "grpo-long", "sft-long")
FAST_CPU = {"dtype": "bfloat16", "rounding": "native"}
"""Keys of `compute` in the separate run `LONG`, which takes hours: bfloat16 is faster where a CPU
has its instructions (README.md, Cost), and its bits hold on processors of one kind."""
LAST_STAGE = {RATES: "evaluate", SUMS: "play"}
"""Separate run -> its last stage, which has the results."""
LARGE_GPU: dict[str, dict[str, int | str]] = {
    "compute": {
        "dtype": "bfloat16",
        "rounding": "native",
        "max_tokens": 16384,
        "max_batch": 2400,
    },
    "temperatures": {"num_samples": 8},
}
"""Section -> its keys with `--gpu`: bfloat16, and sizes for the memory of an H200, which several
processes share. A pass has up to 16,384 tokens, the 2,400 samples of the test problems are drawn at
once, and the other temperatures have as many samples as temperature 1. They are parameters and not
settings of the machine, because the shapes of a batch decide how sums are rounded."""

RESULTS = "results"
"""Folder of the committed report; beside it `SUMS`, with the comparison of the sums."""


def main() -> None:
    """Prepare the part, and replace this process by `dvc repro`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "part", nargs="?", choices=[*PARTS, *LAST_STAGE, LONG, RESULTS], default=[*PARTS][-1]
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    parser.add_argument("--gpu", action="store_true", help="sizes of a large GPU")
    parser.add_argument("-j", "--max-parallel", type=int, metavar="N", help="stages side by side")
    arguments, options = parser.parse_known_args()
    if arguments.part == RESULTS:
        copy_results(HERE)
        return
    RAW.mkdir(parents=True, exist_ok=True)
    if not all((RAW / name).exists() for name in ("svamp.jsonl", "gsm8k.jsonl")):
        write_rows(RAW / "svamp.jsonl", convert_svamp(read_file("SVAMP.json", arguments.data)))
        write_rows(RAW / "gsm8k.jsonl", convert_gsm8k(read_file("test.jsonl", arguments.data)))
    yaml = make_yaml()
    study = yaml.load(HERE / "study.yaml")
    match arguments.part:
        case "rates":
            params = vary_rate(study)
        case "sums":
            params = select_sums(study)
        case "long":
            params = select_long(study)
        case part:
            params = select_rows(study, list_parts(part))
    for section, sizes in (LARGE_GPU if arguments.gpu else {}).items():
        params[section] |= sizes
    yaml.dump(params, HERE / "params.yaml")
    os.chdir(HERE)
    if arguments.part in LAST_STAGE and all(option.startswith("-") for option in options):
        options.append(LAST_STAGE[arguments.part])
    command = ["-m", "dvc", "repro"]
    if arguments.max_parallel is not None:
        command = ["-m", "flows.local", "-j", str(arguments.max_parallel)]
    os.execv(sys.executable, [sys.executable, *command, *options])


def make_yaml() -> YAML:
    """Reader and writer of YAML that keeps comments, and a row of a table in one line."""
    yaml = YAML()
    yaml.width = 1000
    return yaml


def copy_results(folder: Path) -> None:
    """Replace the committed report, and the comparison of the sums with its lock.

    Each by that in `folder`, if computed; a ValueError if neither is. The report of the run `LONG`
    has a folder of its own.
    """
    report, sums = folder / "data/report", folder / "data/episodes/sums-grpo"
    if not (report.exists() or sums.exists()):
        raise ValueError(f"expected {report} or {sums}, found neither: run a part first")
    if report.exists():
        policies = YAML(typ="safe").load(folder / "params.yaml")["policies"]
        target = folder / (LONG if policies.keys() >= {*LONG_POLICIES} else RESULTS)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(report, target)
    if sums.exists():
        params = select_sums(YAML(typ="safe").load(folder / "study.yaml"))
        (played,) = read_episodes(
            folder / "data", params, params["baseline"], params["seeds"],
            params["evaluation"]["confidence"],
        )  # fmt: skip
        (folder / SUMS).mkdir(exist_ok=True)
        text = json.dumps(compare_episodes(played), indent=2, sort_keys=True)
        (folder / SUMS / "metrics.json").write_text(text + "\n", encoding="utf-8")
        yaml = make_yaml()
        lock = yaml.load(folder / "dvc.lock")
        rows = [f"{STAGES[table]}@{name}" for table in TABLES for name in params[table]]
        names = {"trace_code", "plan", "prepare_data", *rows}
        lock["stages"] = {name: lock["stages"][name] for name in lock["stages"] if name in names}
        yaml.dump(lock, folder / SUMS / "dvc.lock")


def read_file(name: str, folder: Path | None) -> str:
    """Text of a file of `FILES`, from a folder or its address; a ValueError if digests differ."""
    url, digest = FILES[name]
    if folder is None:
        with urllib.request.urlopen(url, timeout=60) as response:
            contents = [response.read()]
    else:
        contents = [path.read_bytes() for path in sorted(folder.rglob(name))]
        contents += [gzip.decompress(path.read_bytes()) for path in folder.rglob(f"{name}.gz")]
    for content in contents:
        if hashlib.sha256(content).hexdigest() == digest:
            return content.decode()
    where = f"{len(contents)} files of that name in {folder}" if folder else "another file"
    raise ValueError(f"expected {url} with the SHA-256 {digest}, found {where}: download it")


def convert_svamp(text: str) -> Iterator[dict[str, Any]]:
    """Problems with a worked solution: `76 - 25 = 51`, and `#### 51` on the next line."""
    for place, row in enumerate(json.loads(text)):
        equation = re.sub(r"\.0\b", "", row["Equation"]).removeprefix("( ").removesuffix(" )")
        equation = equation.replace("( ", "(").replace(" )", ")")
        answer = str(int(row["Answer"]))  # all are whole
        body = row["Body"].strip().removesuffix(".")
        yield {
            "id": row["ID"], "question": f"{body}. {row['Question'].strip()}", "answer": answer,
            "solution": f"{equation} = {answer}\n#### {answer}",
            "split": "train" if place < NUM_TRAIN else "test",
        }  # fmt: skip


def convert_gsm8k(text: str) -> Iterator[dict[str, Any]]:
    """Questions with only the final answers."""
    for line in text.splitlines()[:NUM_TRANSFER]:
        row = json.loads(line)
        yield {"question": row["question"], "answer": row["answer"].rpartition("#### ")[2]}


def write_rows(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Write rows as JSON lines, in one atomic step."""
    partial = path.with_suffix(".partial")
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    partial.write_text("".join(lines), encoding="utf-8")
    partial.replace(path)


def list_parts(part: str) -> list[str]:
    """Parts before a part, and the part."""
    return [*PARTS][: [*PARTS].index(part) + 1]


def select_rows(params: dict[str, Any], parts: Iterable[str]) -> dict[str, Any]:
    """Parameters with only the rows of these parts, and all that they are made from."""
    return keep_rows(params, [row for name in parts for row in PARTS[name]])


def keep_rows(params: dict[str, Any], pending: list[str]) -> dict[str, Any]:
    """Parameters with only these rows, or tables, and all that they are made from."""
    selected = set[str]()
    while pending:
        row = pending.pop()
        table, _, name = row.partition("/")
        if table not in TABLES or row in selected or name == "base":
            continue  # `prompts`, `own/..`, or the model itself
        if not name:
            pending += [f"{table}/{each}" for each in params[table]]
            continue
        selected.add(row)
        words = params[table][name]
        pending += [f"policies/{words['from']}", words.get("on", "")]
    for table in TABLES:
        params[table] = {
            name: words for name, words in params[table].items() if f"{table}/{name}" in selected
        }
    return params


def select_sums(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with only the episodes on sums, before and after GRPO in that environment.

    The model as it is replaces the baseline.
    """
    rows = [f"episodes/{name}" for name in params["episodes"] if name.startswith(f"{SUMS}-")]
    return keep_rows(params, rows) | {"baseline": "as-is"}


def select_long(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with SFT, GRPO of 24 and of 120 steps, and SFT that goes on."""
    params = keep_rows(params, [f"policies/{name}" for name in LONG_POLICIES])
    params["compute"] |= FAST_CPU
    return params


def vary_rate(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with seed 0, and only a row of each method of CHOICE for each rate.

    The dev problems decide. So the test problems, which are not used, get the fewest samples that
    an evaluation takes, and no other temperature is tried.
    """
    params = keep_rows(params, [f"policies/{method}" for method in CHOICE]) | {"seeds": [0]}
    policies = params["policies"]
    rows = dict[str, Any]()
    for method, rates in CHOICE.items():
        for rate in rates:
            rows[f"{method}-{rate:g}"] = {**policies[method], "optim": {"learning_rate": rate}}
    params["sampling"]["test"]["num_samples"] = 4
    params["evaluation"]["ks"] = [1]
    params["temperatures"]["tried"] = []
    return params | {"policies": {"sft": policies["sft"], **rows}}


if __name__ == "__main__":
    sys.exit(main())
