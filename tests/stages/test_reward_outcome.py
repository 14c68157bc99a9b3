"""The entry point on a random checkpoint and a made-up pool, and what reads its model."""

import pytest
import stage_inputs
from collated import collate
from stage_inputs import SEED, WORDS
from tiny_checkpoints import COMPUTE, CPU, PAD, compute
from tiny_rollouts import OPTIM

from stages import reward_model
from stages.models import scalar_head
from stages.models.batch import Group
from stages.models.scalar_head import ScalarHead
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import reward_file
from stages.rows import DATA

OUTPUT = DATA / "rewards/new"
OWN = OUTPUT / str(SEED)
PRESET = {
    "max_per_problem": 4,
    "one_class_weight": 0.0,
    "num_epochs": 8,
    "batch_size": 5,
    "optim": OPTIM,
    "quality": {
        "num_bins": 4,
        "length_tolerance": 2,
        "length_edges": [0],
    },
}


def write_pool(side: str, verdicts: dict[str, str]) -> None:
    """Right (+) completions end in an even token, wrong (-) ones in an odd one."""
    prompts = [
        Prompt(id=item, task="solve", question="", prompt="", prompt_ids=[2, 3 + i % 2], answer="7")
        for i, item in enumerate(verdicts)
    ]
    completions = [
        Completion(
            id=item,
            index=index,
            completion=f"#### {7 if verdict == '+' else 8}",
            completion_ids=[4 + 2 * ((i + index) % 8) + (verdict == "-"), 1],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for i, (item, text) in enumerate(verdicts.items())
        for index, verdict in enumerate(text)
    ]
    stage_inputs.write_pool(side, prompts, completions)


def run(**changes):
    stage_inputs.configure(
        PRESET | changes,
        compute=COMPUTE,
        model=stage_inputs.MODEL,
        lora={"rank": 0, "alpha": 16},
        evaluation=stage_inputs.EVALUATION,
    )
    words = ["outcome" if word == "x" else word for word in WORDS]
    reward_model.main("reward_outcome", *words)
    return stage_inputs.metrics(OWN)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    monkeypatch.chdir(tmp_path)
    stage_inputs.write_policy()
    both = {f"p{i}": "+-+-"[i % 2 :] + "+-"[: i % 2] + "-" * (1 - i % 2) for i in range(20)}
    pool = {name: text[:4] for name, text in both.items()}
    write_pool("train", pool | {"r": "++++", "w": "----"})
    write_pool("heldout", {"a": "+--+", "b": "++++", "c": "-+--"})


def test_a_model_is_written_that_the_scorer_reads_and_its_quality_is_told():
    metrics = run()
    # Without r and w, which have one class; 8 epochs of 20 problems, 5 at a time.
    assert metrics["problems"] == 20
    journal = (DATA / f"journals/reward/new/journal-seed-{SEED}.jsonl").read_text().splitlines()
    assert len(journal) == 8 * 4
    assert metrics["generated_tokens"] == 0
    assert metrics["trained_tokens"] == 8 * 2 * metrics["completions"]
    heldout = metrics["heldout"]
    assert (heldout["problems"], heldout["problems_with_both"]) == (3, 2)
    assert heldout["right_share"]["value"] == pytest.approx((0.5 + 1 + 0.25) / 3, abs=1e-6)
    assert heldout["auc"]["value"] == 1.0
    assert (reward_file.read_reward(OUTPUT).kind, reward_file.read_reward(OUTPUT).model) == (
        "outcome",
        "reward",
    )
    model = scalar_head.load_scalar_model(OWN / "model", compute(), CPU).eval()
    group = Group(prompt_ids=[2, 3], completions=[[8, 1], [7, 1]], indices=[0, 1])
    right, wrong = ScalarHead(model)(collate([group], 64, PAD, CPU)).tolist()
    assert right > 0 > wrong


def test_problems_of_one_class_come_in_with_a_weight():
    assert run(one_class_weight=0.5)["problems"] == 22


def test_without_right_and_wrong_of_any_problem_there_is_nothing_to_learn():
    write_pool("train", {"r": "++", "w": "--"})
    for weight in (0.0, 1.0):
        with pytest.raises(ValueError, match="found none of 2"):
            run(one_class_weight=weight)
    assert not OUTPUT.exists()


def test_the_same_run_twice_writes_the_same_bytes():
    written = []
    for _ in range(2):
        run()
        files = [OWN / "model/model.safetensors", OWN / "metrics.json"]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
