from functools import partial

import pytest
import torch
from collated import collate
from tiny_checkpoints import CPU, EOS, FAMILIES, PAD, VOCAB, checkpoint, compute, exact, random_ids
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from stages.algorithms.ensemble import mean, mean_minus_std, minimum
from stages.models import model_tokenizer, policy, scalar_head
from stages.models.batch import Group, micro_batches
from stages.models.scalar_head import ScalarHead


def make_groups():
    generator = torch.Generator().manual_seed(0)
    return [
        Group(
            prompt_ids=random_ids(generator, 4),
            completions=[[*random_ids(generator, 3), EOS], random_ids(generator, 6)],
            indices=[0, 1],
        ),
        Group(prompt_ids=random_ids(generator, 7), completions=[[EOS]], indices=[2]),
    ]


def make_model(family):
    """With a head that is no longer zero."""
    model = scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU).eval()
    torch.nn.init.normal_(model.score.weight, generator=torch.Generator().manual_seed(1))
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_head_gives_every_completion_reward_0_and_every_state_value_0(family):
    model = scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU)
    batch = collate(make_groups(), 64, PAD, CPU)
    assert ScalarHead(model)(batch).tolist() == [0.0, 0.0, 0.0]
    assert not ScalarHead(model)(batch, each_token=True).any()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_of_a_seed_is_that_seeds_and_of_the_scale_of_its_width(family):
    def draw(seed):
        path = checkpoint(family)
        return scalar_head.init_scalar_model(path, PAD, compute(), CPU, head_seed=seed).score.weight

    assert torch.equal(draw(3), draw(3))
    heads = torch.cat([draw(seed) for seed in range(100)])
    assert len(heads.unique(dim=0)) == 100
    # 100 heads of 16 numbers with variance 1 / 17: the mean square has a relative error of 3.5 %.
    assert heads.square().mean().item() == pytest.approx(1 / 17, rel=0.15)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row_tokens", [0, 64])
def test_the_reward_is_what_transformers_own_forward_gives_right_padded_rows(family, row_tokens):
    model = make_model(family)
    groups = make_groups()
    rows = [[*group.prompt_ids, *ids] for group in groups for ids in group.completions]
    width = max(len(row) for row in rows) + 2
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    expected = model(ids, attention_mask=(ids != PAD).long()).logits.squeeze(-1)
    actual = ScalarHead(model)(collate(groups, row_tokens, PAD, CPU))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_value_is_the_head_at_the_position_before_the_token(family):
    model = make_model(family)
    groups = make_groups()
    batch = collate(groups, 64, PAD, CPU)
    result = ScalarHead(model)(batch, each_token=True)
    rows = [(group.prompt_ids, ids) for group in groups for ids in group.completions]
    for row, (prompt, completion) in zip(result, rows, strict=True):
        hidden = model.base_model(torch.tensor([[*prompt, *completion]])).last_hidden_state
        scalars = model.score(hidden)[0, len(prompt) - 1 : -1, 0]
        torch.testing.assert_close(row[: len(completion)], scalars, rtol=1e-4, atol=1e-5)
        assert not row[len(completion) :].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frozen_models_body_is_in_the_compute_dtype_and_its_head_in_float32(family, tmp_path):
    model = make_model(family)
    policy.save_model(model, model_tokenizer.train_tokenizer(["a few words"], 700), tmp_path)
    half = compute(dtype="bfloat16")
    (frozen,) = scalar_head.load_ensemble(tmp_path, minimum, half, CPU).members
    assert {weight.dtype for weight in frozen.base_model.parameters()} == {torch.bfloat16}
    assert torch.equal(frozen.model.score.weight, model.score.weight)
    batch = collate(make_groups(), 64, PAD, CPU)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        actual, expected = frozen(batch), ScalarHead(model)(batch)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row_tokens", [0, 64])
def test_rewards_and_values_of_a_packed_row_are_those_of_rows_of_their_own(family, row_tokens):
    model = exact(make_model(family))
    groups = make_groups()
    alone = collate(groups, 0, PAD, CPU)
    settings = compute(row_tokens=row_tokens, pack_tokens=64)
    (packed,) = micro_batches(groups[::-1], settings, PAD, CPU)
    assert len(packed.input_ids) == 1
    order = torch.tensor(packed.indices).argsort()
    for each_token in (False, True):
        read = partial(ScalarHead(model), each_token=each_token)
        expected, actual = read(alone), read(packed)[order]
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_is_safetensors_that_transformers_and_we_load_as_the_same_function(
    family, tmp_path
):
    model = make_model(family)
    policy.save_model(model, model_tokenizer.train_tokenizer(["a few words"], 700), tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    assert not list(tmp_path.glob("*.bin"))
    batch = collate(make_groups(), 64, PAD, CPU)
    expected = ScalarHead(model)(batch)
    again = scalar_head.load_scalar_model(tmp_path, compute(), CPU).eval()
    torch.testing.assert_close(ScalarHead(again)(batch), expected)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert theirs.config.num_labels == 1
    assert theirs.config.pad_token_id == PAD


@pytest.mark.parametrize("family", FAMILIES)
def test_the_body_is_the_policys(family):
    reward = scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU)
    body = policy.load_policy(checkpoint(family), compute(), CPU).base_model.state_dict()
    for name, weight in reward.base_model.state_dict().items():
        assert torch.equal(weight, body[name]), name


GROUP = Group(prompt_ids=[5, 6], completions=[[7, 8, 1], [9]], indices=[0, 1])
BATCH = collate([GROUP], 64, PAD, CPU)


def save_member(path, seed):
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    model.save_pretrained(path)
    return model.eval()


def load_members(path, aggregate):
    return scalar_head.load_ensemble(path, aggregate, compute(), CPU)


def test_an_ensemble_scores_as_its_members_aggregated(tmp_path):
    members = [save_member(tmp_path / str(number), seed=number) for number in range(3)]
    alone = torch.stack([ScalarHead(model)(BATCH) for model in members])
    assert (alone.std(0) > 0.1).all()
    for aggregate in (mean, minimum, partial(mean_minus_std, k=1.0)):
        ensemble = load_members(tmp_path, aggregate)
        for scores in (ensemble(BATCH), ensemble.score_groups([GROUP])):
            torch.testing.assert_close(scores.values, aggregate(alone))
            torch.testing.assert_close(scores.disagreement, alone.std(0, correction=0))


def test_a_reward_model_alone_scores_by_its_head_and_agrees_with_itself(tmp_path):
    model = save_member(tmp_path, seed=1)
    for aggregate in (mean, minimum):
        result = load_members(tmp_path, aggregate)(BATCH)
        assert torch.equal(result.values, ScalarHead(model)(BATCH))
        assert result.disagreement.tolist() == [0.0, 0.0]


def test_members_are_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 2, 0):
        save_member(tmp_path / str(number), seed=number)
    assert [path.name for path in scalar_head.find_member_folders(tmp_path)] == ["0", "2", "10"]


def test_no_gradient_flows_and_training_mode_is_left(tmp_path):
    save_member(tmp_path, seed=1)
    models = load_members(tmp_path, mean)
    models.members[0].train()
    assert not models(BATCH).values.requires_grad
    assert not models.members[0].training


@pytest.mark.parametrize("inside", [[], ["notes"], ["0", "latest"], ["0", "1.5"]])
def test_a_folder_that_is_neither_is_refused(tmp_path, inside):
    for name in inside:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    with pytest.raises(ValueError, match=r"expected in .* a model .* found"):
        scalar_head.find_member_folders(tmp_path)


def test_a_member_without_a_model_and_a_path_that_is_not_there_are_refused(tmp_path):
    save_member(tmp_path / "0", seed=0)
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match=r"found \['0', '1'\]"):
        scalar_head.find_member_folders(tmp_path)
    with pytest.raises(ValueError, match="found nothing"):
        scalar_head.find_member_folders(tmp_path / "missing")


@pytest.mark.parametrize("max_tokens", [1, 4096])
def test_any_split_into_groups_and_any_numbers_of_theirs_give_the_same_scores(tmp_path, max_tokens):
    save_member(tmp_path, seed=1)
    ensemble = scalar_head.load_ensemble(tmp_path, minimum, compute(max_tokens=max_tokens), CPU)
    # Micro-batches have the longest first: in the second split that is the last number.
    expected = ensemble(BATCH).values
    splits = [([7, 8, 1], 4), ([9], 9)], [([9], 4), ([7, 8, 1], 9)]
    for split, order in zip(splits, ([0, 1], [1, 0]), strict=True):
        groups = [
            Group(prompt_ids=[5, 6], completions=[ids], indices=[number]) for ids, number in split
        ]
        torch.testing.assert_close(ensemble.score_groups(groups).values, expected[order])
    torch.testing.assert_close(ensemble.score_groups([GROUP]).values, expected)


@pytest.mark.parametrize("has_begin", [True, False])
def test_other_tools_read_the_same_score_though_padding_was_the_end(tmp_path, has_begin):
    inner = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(VOCAB)}))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    begin = {"bos_token": "<2>"} if has_begin else {}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<1>", pad_token="<1>", **begin
    )
    pad = model_tokenizer.set_separate_pad(tokenizer)
    assert pad == (2 if has_begin else VOCAB)
    model = scalar_head.init_scalar_model(checkpoint("gpt2"), pad, compute(), CPU, head_seed=1)
    groups = make_groups()
    expected = ScalarHead(model.eval())(collate(groups, 64, PAD, CPU))
    policy.save_model(model, tokenizer, tmp_path)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    words = AutoTokenizer.from_pretrained(tmp_path)
    texts = [
        " ".join(f"<{i}>" for i in (*group.prompt_ids, *ids))
        for group in groups
        for ids in group.completions
    ]
    inputs = words(texts, padding=True, return_tensors="pt")
    assert inputs["input_ids"].shape == (3, 10)
    actual = theirs(**inputs).logits.squeeze(-1)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
