"""Reward models as stages: preference models and ensembles of them, outcome and process models."""

from dataclasses import replace

import pytest
import stage_inputs
import torch
from collated import collate
from safetensors.torch import load_file
from stage_inputs import OPTIM, PRESETS, SEED, end
from tiny_checkpoints import CPU, compute

from stages.loops import reward
from stages.models import process_head, scalar_head
from stages.models.batch import Group
from stages.models.process_head import TokenizedSolution
from stages.models.scalar_head import ScalarHead
from stages.records import lines
from stages.records.preferences import Preference
from stages.records.steps import StepLabels
from stages.rewards import pool_scores, reward_file
from stages.rewards.pool_scores import Aggregation
from stages.rows import DATA

REWARD = DATA / "rewards/new"
OUTPUT = REWARD / str(SEED)
PAIRS, SOLUTIONS = DATA / f"pairs/old/{SEED}", DATA / f"steps/old/{SEED}"
QUALITY = {"num_bins": 4, "length_tolerance": 2, "length_edges": [-3, 0]}
SIZES = {"num_epochs": 1, "batch_size": 4, "optim": OPTIM}
PREFERENCE = PRESETS["bradley_terry"] | SIZES | {
    "members": 1, "aggregate": {"kind": "mean"}, "flip_percent": 0, "quality": QUALITY,
}  # fmt: skip
OUTCOME = PRESETS["outcome"] | {
    "max_per_problem": 4, "one_class_weight": 0.0, "num_epochs": 8, "batch_size": 5,
    "optim": OPTIM, "quality": QUALITY,
}  # fmt: skip
PROCESS = PRESETS["process"] | {"num_epochs": 30, "batch_size": 2, "optim": OPTIM}
pytestmark = pytest.mark.usefixtures("stage_world")


def train(kind, on, preset):
    """The metrics of its steps, and metrics.json."""
    stage_inputs.run_stage(f"reward_{kind}", stage_inputs.make_words(f"reward_{kind}", on), preset)
    journal = DATA / f"journals/reward/new/journal-seed-{SEED}.jsonl"
    return stage_inputs.read_steps(journal), stage_inputs.metrics(OUTPUT)


def load_weights(name="model"):
    return load_file(OUTPUT / name / "model.safetensors")


def test_members_differ_in_head_and_order_and_the_first_is_the_model_alone():
    alone, metrics = train("preference", "pairs/old", PREFERENCE)
    first = load_weights()
    assert (metrics["pairs"], metrics["heldout"]["pairs"]) == (5, 3)
    spent = [step["tokens/trained"] for step in alone]
    assert metrics["trained_tokens"] == sum(spent)
    steps, metrics = train("preference", "pairs/old", PREFERENCE | {"members": 2})
    again, second = load_weights("model/0"), load_weights("model/1")
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["score.weight"], second["score.weight"])
    tokens = [step["tokens/trained"] for step in steps]
    assert tokens[: len(spent)] == spent
    assert metrics["trained_tokens"] == sum(tokens)
    assert metrics["work"]["reward"]["trained"]["positions"] > 0


def test_members_begin_with_heads_of_their_seeds():
    still = PREFERENCE | {"members": 2, "optim": OPTIM | {"learning_rate": 1e-12}}
    train("preference", "pairs/old", still)
    heads = [load_weights(f"model/{member}")["score.weight"] for member in range(2)]
    assert not torch.allclose(*heads, atol=1e-3)


def test_flipped_labels_are_those_of_every_member_and_of_training_alone(monkeypatch):
    seen, original = [], reward.train

    def watch(model, pairs, *rest):
        seen.append([pair.probability for pair in pairs])
        return original(model, pairs, *rest)

    monkeypatch.setattr(reward, "train", watch)
    lines.write_lines(PAIRS / "train.jsonl",
                      stage_inputs.make_pairs(stage_inputs.make_prompts("train", 8)))  # fmt: skip
    train("preference", "pairs/old", PREFERENCE | {"members": 2, "flip_percent": 25})
    train("preference", "pairs/old", PREFERENCE | {"flip_percent": 50})
    assert [row.count(0.0) for row in seen] == [2, 2, 4]
    assert seen[0] == seen[1]
    assert all(more <= less for less, more in zip(seen[0], seen[2], strict=True))


def test_an_ensemble_scores_by_the_rule_in_its_reward_json():
    train("preference", "pairs/old", PREFERENCE | {"members": 3, "aggregate": {"kind": "min"}})
    content = reward_file.read_reward(REWARD)
    assert (content.kind, content.model, content.aggregate.kind) == ("preference", "reward", "min")
    assert content.composition.kinds() == {"scorer"}
    path = reward_file.model_path(REWARD, SEED)
    pairs = list(lines.read_lines(PAIRS / "train.jsonl", Preference))
    batch = collate(reward.make_pair_groups(pairs, range(len(pairs))), 64, 0, CPU)

    def score(folder):
        return scalar_head.load_ensemble(folder, content.aggregate, compute(), CPU)(batch)

    alone = torch.stack([score(path / str(member)).values for member in range(3)])
    assert torch.equal(score(path).values, alone.amin(0))
    assert score(path).disagreement.mean() > 0


def test_quality_is_measured_on_the_held_out_pairs():
    heldout = [replace(pair, probability=0.9)
               for pair in lines.read_lines(PAIRS / "heldout.jsonl", Preference)]  # fmt: skip
    lines.write_lines(PAIRS / "heldout.jsonl", heldout)
    quality = train("preference", "pairs/old", PREFERENCE)[1]["heldout"]
    assert (quality["pairs"], quality["problems"], quality["undecided_pairs"]) == (3, 3, 0)
    # - 0.9 log 0.9 - 0.1 log 0.1
    assert quality["label_entropy"]["value"] == pytest.approx(0.325083, abs=1e-6)
    assert quality["negative_log_likelihood"]["value"] >= quality["label_entropy"]["value"]
    differences = [len(pair.chosen_ids) - len(pair.rejected_ids) for pair in heldout]
    bins = {"<= -4": range(-99, -3), "-3 .. -1": range(-3, 0), ">= 0": range(99)}
    by_length = quality["accuracy_by_length_difference"]
    counts = {name: sum(difference in inside for difference in differences)
              for name, inside in bins.items()}  # fmt: skip
    assert {name: value["pairs"] if value else 0 for name, value in by_length.items()} == counts


def test_pairs_of_no_seed_serve_every_seed_and_none_need_be_held_out():
    PAIRS.rename(DATA / "pairs/people")
    lines.write_lines(DATA / "pairs/people/heldout.jsonl", [])
    _, metrics = train("preference", "pairs/people", PREFERENCE | {"members": 2})
    assert (metrics["pairs"], metrics["heldout"]) == (5, {"pairs": 0})


def write_verdicts(side, verdicts):
    """Right (+) completions end in an even token, wrong (-) ones in an odd one."""
    prompts = [replace(prompt, id=name, prompt_ids=[2, 3 + i % 2], answer="7") for i, (name, prompt)
               in enumerate(zip(verdicts, stage_inputs.make_prompts("train", len(verdicts)),
                                strict=True))]  # fmt: skip
    completions = [
        replace(
            stage_inputs.make_completion(name, index, f"#### {7 if verdict == '+' else 8}"),
            completion_ids=[4 + 2 * ((i + index) % 8) + (verdict == "-"), 1],
        )
        for i, (name, text) in enumerate(verdicts.items())
        for index, verdict in enumerate(text)
    ]
    stage_inputs.write_side(side, prompts, completions)


def test_an_outcome_model_learns_what_is_right_of_problems_with_both():
    both = {f"p{i}": ("+-+-", "-+-+")[i % 2] for i in range(20)}
    write_verdicts("train", both | {"r": "++++", "w": "----"})
    write_verdicts("heldout", {"a": "+--+", "b": "++++", "c": "-+--"})
    steps, metrics = train("outcome", "pools/old", OUTCOME)
    assert (metrics["problems"], metrics["completions"], len(steps)) == (20, 80, 8 * 4)
    assert (metrics["generated_tokens"], metrics["trained_tokens"]) == (0, 8 * 2 * 80)
    heldout = metrics["heldout"]
    assert (heldout["problems"], heldout["problems_with_both"]) == (3, 2)
    right_share = (2 / 4 + 1 + 1 / 4) / 3
    assert heldout["right_share"]["value"] == pytest.approx(right_share, abs=1e-6)
    assert heldout["auc"]["value"] == 1.0
    content = reward_file.read_reward(REWARD)
    assert (content.kind, content.model) == ("outcome", "reward")
    model = scalar_head.load_scalar_model(OUTPUT / "model", compute(), CPU).eval()
    group = Group(prompt_ids=[2, 3], completions=[[8, 1], [7, 1]], indices=[0, 1])
    right, wrong = ScalarHead(model)(collate([group], 64, 0, CPU)).tolist()
    assert right > 0 > wrong
    weighted = OUTCOME | {"one_class_weight": 0.5, "num_epochs": 1}
    assert train("outcome", "pools/old", weighted)[1]["problems"] == 22


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_an_outcome_model_without_right_and_wrong_of_any_problem_is_refused(weight):
    write_verdicts("train", {"r": "++", "w": "--"})
    with pytest.raises(ValueError, match="none of 2"):
        train("outcome", "pools/old", OUTCOME | {"one_class_weight": weight})
    assert not REWARD.exists()


def test_a_process_model_learns_which_steps_are_right_and_its_folder_alone_scores():
    # Of equations that it learns, behind other prompts.
    heldout = [row for row in read_solutions("heldout") if row.id != "dev-0"]
    others = [replace(row, index=row.index + 2, labels=[None] * 2) for row in heldout]
    lines.write_lines(SOLUTIONS / "heldout.jsonl", [*heldout, *others])
    _, metrics = train("process", "steps/old", PROCESS)
    labelled = [row for row in read_solutions("heldout") if row.labels[0] is not None]
    assert metrics["solutions"] == len(read_solutions("train"))
    assert metrics["heldout"]["solutions"] == len(labelled) == 4
    assert (metrics["generated_tokens"], metrics["trained_tokens"] > 0) == (0, True)
    assert metrics["heldout"]["truth"]["balanced_accuracy"] >= 0.75
    assert metrics["heldout"]["labels"]["auroc_within_problem"] == 1.0
    # Each aggregation tells right from wrong here, so the first of them is taken.
    accuracy = metrics["accuracy"]
    assert accuracy["best_of"] == accuracy["weighted"] == dict.fromkeys(accuracy["best_of"], 1.0)
    assert pool_scores.read_aggregation(OUTPUT) == Aggregation(best_of="last", weighted="last")
    scorer = process_head.load_process_scorer(reward_file.model_path(REWARD, SEED), compute(), CPU)
    row = read_solutions("train")[0]
    steps = scorer.split(end("".join(row.steps)))
    (scores,) = scorer([TokenizedSolution(prompt_ids=row.prompt_ids, steps=steps)])
    assert len(steps) == 2
    assert min(scores) > 0.5
    content = reward_file.read_reward(REWARD)
    assert (content.kind, content.model) == ("process", "process")
    assert content.composition.kinds() == {"process"}


def read_solutions(side):
    return list(lines.read_lines(SOLUTIONS / f"{side}.jsonl", StepLabels))


def hold_out_what_is_learned():
    lines.write_lines(SOLUTIONS / "heldout.jsonl", read_solutions("train")[:2])


@pytest.mark.parametrize(("edit", "changes", "mentions"), [
    (hold_out_what_is_learned, {}, "1 in both"), (lambda: None, {"step_token": "ки"}, "step_token"),
], ids=["test problems", "step token"])  # fmt: skip
def test_a_process_model_of_test_problems_or_without_its_token_is_refused(edit, changes, mentions):
    edit()
    with pytest.raises(ValueError, match=mentions):
        train("process", "steps/old", PROCESS | changes)
    assert not REWARD.exists()
