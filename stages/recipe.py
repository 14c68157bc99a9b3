"""What a recipe of params.yaml says: which policies there are, and what each is made from.

A recipe holds, for each stage that has entries, a table of them. A word that names a model is
its folder under data/ (`train_sft/sft/policy`; `prepare_data/tokenizer` is the base model). An
entry is named `<stage>/<entry>`. Pure: it reads no file.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from stages.params import Params

PREPARE_DATA = "prepare_data"
POLICY_STAGES = ("train_sft", "train_dpo", "train_ppo", "train_grpo")

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_/-]*$")]
"""Words are arguments of a command line: no spaces, no quotes."""


class Sft(Params):
    """An entry of train_sft."""

    preset: Word
    """An entry of the section `sft`."""
    start: Word
    """The model that is trained: a policy, or the base model."""
    demonstrations: Word
    """The folder of demonstrations.jsonl: `prepare_data` or an entry of select_demonstrations."""


class Pool(Params):
    """An entry of sample_candidates."""

    policy: Word
    """Who answers: a policy, or, where there is a model.path, the base model."""
    split: Word
    """Which problems; also the entry of the section `sample_candidates`."""


class Selection(Params):
    """An entry of select_demonstrations."""

    pool: Word
    """An entry of sample_candidates."""
    split: Word
    """The split that it is of."""


class Pairs(Params):
    """An entry of label_preferences; both are entries of sample_candidates."""

    train: Word
    """A pool of the split `preference`."""
    heldout: Word
    """A pool of the split `dev`, to test reward models on."""


class RewardModel(Params):
    """An entry of train_reward_model."""

    start: Word
    """The policy whose body it gets."""
    pairs: Word
    """An entry of label_preferences."""


class Reference(Params):
    """An entry of compute_ref_logprobs."""

    policy: Word
    """The policy that is to be a reference."""
    pairs: Word
    """An entry of label_preferences."""


class Dpo(Params):
    """An entry of train_dpo."""

    preset: Word
    """An entry of the section `preference`."""
    start: Word
    """The policy that is trained, which is also the reference."""
    pairs: Word
    """An entry of label_preferences."""
    reference: Word
    """The entry of compute_ref_logprobs for this policy and these pairs."""


class Ppo(Params):
    """An entry of train_ppo."""

    preset: Word
    """An entry of the section `ppo`."""
    start: Word
    """The policy that is trained, which is also the reference."""
    reward: Word
    """The reward model."""


class Grpo(Params):
    """An entry of train_grpo."""

    preset: Word
    """An entry of the section `group_rl`."""
    start: Word
    """The policy that is trained, which is also the reference; or, with a model.path,
    the base model."""


class Evaluation(Params):
    """An entry of evaluate_policy and of score_candidates; its name is the policy's in reports."""

    pool: Word
    """An entry of sample_candidates, of the split `test`."""
    scorer: Word
    """What best-of-n chooses by: a reward model, or a policy (its mean log-prob of a token)."""


class Recipe(Params):
    """All entries of all stages; a stage without entries says `{}`."""

    train_sft: dict[Name, Sft]
    sample_candidates: dict[Name, Pool]
    select_demonstrations: dict[Name, Selection]
    label_preferences: dict[Name, Pairs]
    train_reward_model: dict[Name, RewardModel]
    compute_ref_logprobs: dict[Name, Reference]
    train_dpo: dict[Name, Dpo]
    train_ppo: dict[Name, Ppo]
    train_grpo: dict[Name, Grpo]
    evaluate_policy: dict[Name, Evaluation] = Field(min_length=1)
    baseline: Name
    """The entry of evaluate_policy which the others are compared with. A word, for DVC does not
    see the order of entries."""


def maker(word: str) -> str:
    """The entry that makes a folder: `train_sft/sft` of `train_sft/sft/policy`."""
    stage, *rest = word.split("/")
    return stage if stage == PREPARE_DATA else "/".join([stage, *rest[:1]])


def inputs(recipe: Recipe) -> dict[str, list[str]]:
    """Each entry -> the entries that it reads, in the order in which they are made."""
    found: dict[str, list[str]] = {}
    for name, pool in recipe.sample_candidates.items():
        found[f"sample_candidates/{name}"] = [maker(pool.policy)]
    for name, selection in recipe.select_demonstrations.items():
        found[f"select_demonstrations/{name}"] = [f"sample_candidates/{selection.pool}"]
    for name, pairs in recipe.label_preferences.items():
        pools = (pairs.train, pairs.heldout)
        found[f"label_preferences/{name}"] = [f"sample_candidates/{pool}" for pool in pools]
    for name, sft in recipe.train_sft.items():
        found[f"train_sft/{name}"] = [maker(sft.start), maker(sft.demonstrations)]
    for name, model in recipe.train_reward_model.items():
        read = [maker(model.start), f"label_preferences/{model.pairs}"]
        found[f"train_reward_model/{name}"] = read
    for name, reference in recipe.compute_ref_logprobs.items():
        read = [maker(reference.policy), f"label_preferences/{reference.pairs}"]
        found[f"compute_ref_logprobs/{name}"] = read
    for name, dpo in recipe.train_dpo.items():
        found[f"train_dpo/{name}"] = [
            maker(dpo.start),
            f"label_preferences/{dpo.pairs}",
            f"compute_ref_logprobs/{dpo.reference}",
        ]
    for name, ppo in recipe.train_ppo.items():
        found[f"train_ppo/{name}"] = [maker(ppo.start), maker(ppo.reward)]
    for name, grpo in recipe.train_grpo.items():
        found[f"train_grpo/{name}"] = [maker(grpo.start)]
    return found


def learned_from(recipe: Recipe) -> dict[str, list[str]]:
    """`inputs`, without the pools that pairs are only held out of."""
    found = inputs(recipe)
    for name, pairs in recipe.label_preferences.items():
        found[f"label_preferences/{name}"] = [f"sample_candidates/{pairs.train}"]
    return found


def lineage(entry: str, reads: Mapping[str, list[str]]) -> list[str]:
    """The entry and everything that it needs, each once, what is needed first.

    Raises:
        ValueError: an entry needs itself.
    """
    found: dict[str, None] = {}

    def visit(current: str, above: tuple[str, ...]) -> None:
        if current in above:
            raise ValueError(" -> ".join([*above[above.index(current) :], current]))
        if current not in found:
            for needed in reads.get(current, []):
                visit(needed, (*above, current))
            found[current] = None

    visit(entry, ())
    return list(found)


def evaluated(recipe: Recipe) -> dict[str, str]:
    """Each evaluated policy's name -> the entry that made it: the baseline, then by name.

    Nothing may depend on the order in which params.yaml lists them: DVC does not see it.
    """
    names = sorted(recipe.evaluate_policy, key=lambda name: (name != recipe.baseline, name))
    return {
        name: maker(recipe.sample_candidates[recipe.evaluate_policy[name].pool].policy)
        for name in names
    }


def rollout_entries(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """(name, entry) of every policy that was trained on rollouts of its own."""
    for stage in ("train_ppo", "train_grpo"):
        for name in sorted(getattr(recipe, stage)):
            yield name, f"{stage}/{name}"
