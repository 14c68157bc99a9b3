"""What the entries of a recipe say, a class for each stage's: words, most of which name something.

A word that names a model, pairs, step labels or demonstrations is their folder under data/
(`train_sft/sft/policy`, `label_preferences/sft`); `prepare_data/tokenizer` is the base model,
`no_model` (a file that says so) none at all.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from stages.params import Params

Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_/-]*$")]
"""Words are arguments of a command line: no spaces, no quotes."""
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
"""Of an entry or an ensemble, each of which is one folder: no slash."""
FilePath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
"""A file, relative to the repository."""


def importable(word: str) -> str:
    """A word that Python can import a file by; rewards/own_reward.py, which does, has the same."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", word):
        raise ValueError(
            "expected the name of a Python file: lower-case letters, digits and underscores, a "
            "letter first"
        )
    return word


Module = Annotated[str, AfterValidator(importable)]
"""A file of the user's own, without its `.py`."""


class Sft(Params):
    """An entry of train_sft."""

    preset: Word
    """An entry of the section `sft`."""
    start: Word
    """The model that is trained: a policy, or the base model."""
    demonstrations: Word
    """The folder of demonstrations.jsonl: `prepare_data`, or an entry of select_demonstrations or
    revise_answers."""


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


class JudgedPairs(Pairs):
    """An entry of judge_preferences."""

    judge: Word
    """Who judges: a policy, or `no_model` for an endpoint."""


class RevisedPairs(Pairs):
    """An entry of revise_answers."""

    policy: Word
    """Who criticises and revises."""


class Imported(Params):
    """An entry of import_preferences or import_steps."""

    source: Word
    """An entry of the section of the stage's name, which says how to read the file."""
    file: FilePath
    """The file, relative to the repository."""


class RewardModel(Params):
    """An entry of train_reward_model: one member of an ensemble."""

    start: Word
    """The policy whose body it gets."""
    pairs: Word
    """The folder of the pairs it is trained on."""
    heldout: Word
    """The folder of the held-out pairs it is tested on."""
    ensemble: Name
    """The ensemble that it belongs to."""
    member: int = Field(ge=0)
    """Its number there; seeds the order of the pairs and the head."""
    flip: int = Field(ge=0, le=50)
    """Per cent of the training pairs whose label is flipped; 0 but for a study of noise."""


class OutcomeReward(Params):
    """An entry of train_outcome_reward."""

    start: Word
    """The policy whose body it gets."""
    pool: Word
    """An entry of sample_candidates, of the split `preference`."""
    heldout: Word
    """An entry of sample_candidates, of the split `dev`."""


class Steps(Params):
    """An entry of label_steps."""

    pool: Word
    """An entry of sample_candidates."""
    policy: Word
    """Who completes the prefixes."""
    split: Word
    """The split that the pool is of; also the entry of the section `label_steps`."""


class ProcessReward(Params):
    """An entry of train_process_reward."""

    start: Word
    """The policy whose body it gets."""
    steps: Word
    """The folder of the labelled steps it is trained on."""
    heldout: Word
    """The folder of the labelled steps it is tested on."""


class ProcessEvaluation(Params):
    """An entry of evaluate_process_reward."""

    model: Word
    """A process reward model."""
    dev: Word
    """The folder of step labels that the threshold is chosen on."""
    test: Word
    """The folder of step labels whose truth is known."""


class Reference(Params):
    """An entry of compute_ref_logprobs."""

    policy: Word
    """The policy that is to be a reference."""
    pairs: Word
    """The folder of the pairs."""


class Dpo(Params):
    """An entry of train_dpo."""

    preset: Word
    """An entry of the section `preference`."""
    start: Word
    """The policy that is trained, which is also the reference."""
    pairs: Word
    """The folder of the pairs."""
    reference: Word
    """The entry of compute_ref_logprobs for this policy and these pairs."""


class OnlineRl(Params):
    """An entry of train_ppo or train_grpo."""

    preset: Word
    """An entry of the section `ppo` or `group_rl`."""
    start: Word
    """The policy that is trained, which is also the reference; for train_grpo with a model.path
    also the base model."""
    reward: Word
    """An entry of the section `rewards`: what is maximised."""
    scorer: Word
    """The model that the reward asks: a reward model, an ensemble, an outcome or a process reward
    model, a policy that judges, or `no_model`."""
    own: Module
    """The file in stages/rewards/own/ that the reward asks; `none` where it asks none."""


class Scores(Params):
    """An entry of score_candidates."""

    pool: Word
    """An entry of sample_candidates, of the split `test`."""
    scorer: Word
    """What scores: a reward model, an ensemble, an outcome or process reward model, or a policy
    (its mean log-prob of a token)."""


class BestOfN(Params):
    """An entry of evaluate_best_of_n."""

    policy: Word
    """Who answers."""
    reward_model: Word
    """A reward model, or `no_model`."""
    ensemble: Word
    """An ensemble, or `no_model`."""
    split: Word
    """Whose problems are answered: `dev` or `preference`, never `test`, by which no n may be
    chosen."""


class CheckpointEvaluation(Params):
    """An entry of evaluate_checkpoints; its name is the run's in reports."""

    run: Word
    """The entry of train_dpo, train_ppo or train_grpo whose checkpoints they are."""
    reference: Word
    """The policy that it started from: step 0, and what the divergence is measured from."""
    reward_model: Word
    """A reward model, or `no_model`."""
    ensemble: Word
    """An ensemble, or `no_model`."""
    split: Word
    """Whose problems are answered: `dev` or `preference`, never `test`, by which no step may be
    chosen."""


class Evaluation(Params):
    """An entry of evaluate_policy; its name is the policy's in reports."""

    pool: Word
    """An entry of sample_candidates, of the split `test`."""
    scores: Word
    """An entry of score_candidates, of this pool: what best-of-n chooses by."""
