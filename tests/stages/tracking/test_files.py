"""Which outputs are copied into MLflow."""

from pathlib import Path

from stages.tracking import files
from stages.tracking.lockfile import Artifact, Entry


def entry(*outs: Path) -> Entry:
    return Entry(
        stage="a",
        command="a",
        params={},
        deps=[],
        outs=[Artifact(path=path, digest="0") for path in outs],
        input_key="0",
        lock_hash="0",
        result_hash="0",
    )


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


def test_of_a_folder_of_ensembles_no_file_of_a_model_is_copied(tmp_path):
    models = [f"{ensemble}/{number}" for ensemble in ("large", "small") for number in (0, 1)]
    for model in models:
        write(tmp_path / "ensembles" / model, "config.json", "tokenizer.json", "model.safetensors")
    write(
        tmp_path, "report.html", "metrics.json", "plots/a.png", "run/run.json", "run/journal.jsonl"
    )
    outs = [
        tmp_path / name for name in ("ensembles", "report.html", "metrics.json", "plots", "run")
    ]
    found = {
        path.relative_to(tmp_path).as_posix(): folder for path, folder in files.small(entry(*outs))
    }
    assert found == {
        "report.html": None,
        "metrics.json": None,
        "plots/a.png": "plots",
        "run/run.json": "run",
        "run/journal.jsonl": "run",
    }
    # The members are outputs, and models in MLflow, of the stages that trained them.
    assert list(files.checkpoints(entry(*outs))) == []


def test_cards_beside_other_stages_outputs_do_not_overwrite_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cards = [Path("data/train_dpo", name, "model_card.md") for name in ("dpo", "ai")]
    for path in (*cards, Path("data/a/report.md")):
        write(path.parent, path.name)
    found = dict(files.small(entry(*cards, Path("data/a/report.md"))))
    assert found == {
        cards[0]: "train_dpo/dpo",
        cards[1]: "train_dpo/ai",
        Path("data/a/report.md"): None,
    }
