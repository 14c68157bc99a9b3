"""What the entries of a recipe say that measure, and train nothing: a class for each stage's."""

from stages.params import Params
from stages.recipe_entries import FilePath, Word


class ProcessEvaluation(Params):
    """An entry of evaluate_process_reward."""

    model: Word
    """A process reward model."""
    dev: Word
    """The folder of step labels that the threshold is chosen on."""
    test: Word
    """The folder of step labels whose truth is known."""


class Scores(Params):
    """An entry of score_candidates: what scores one pool; each model may be `no_model`, not all."""

    pool: Word
    """An entry of sample_candidates."""
    split: Word
    """The split that it is of."""
    ensemble: Word
    """An ensemble of reward models."""
    reward_model: Word
    """A reward model."""
    outcome: Word
    """An outcome reward model."""
    process: Word
    """A process reward model."""


class Aggregations(Params):
    """An entry of choose_aggregation."""

    pool: Word
    """An entry of sample_candidates, of the split `dev`."""
    scores: Word
    """What a process model made of it: `score_candidates/<entry>/scores`."""


class Search(Params):
    """An entry of search_solutions."""

    preset: Word
    """An entry of the section `search`."""
    policy: Word
    """Who writes the steps."""
    process: Word
    """The process reward model that chooses among them."""
    split: Word
    """Whose problems."""


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
    """What can choose among it: `score_candidates/<entry>/scores`, or `no_scores`."""
    aggregation: Word
    """How scores of steps become one: `choose_aggregation/<entry>/choice`, or `no_choice`."""


class Probing(Params):
    """An entry of probe_policy; its name is that of the policy's entry of evaluate_policy."""

    policy: Word
    """Who is probed."""
    pool: Word
    """Its entry of sample_candidates, of the split `test`."""
    reward_model: Word
    """A reward model that is tried with padded answers, or `no_model`."""
    process: Word
    """A process reward model that is tried with other steps, or `no_model`."""
    judge: Word
    """A policy that judges, and is attacked by its answers, or `no_model`."""
    transfer: FilePath
    """A file of other problems, as `probe_policy.transfer` says, or `data/no_file`."""
    refusals: FilePath
    """XSTest's file of requests, or `data/no_file`; asked of policies with a chat template."""
