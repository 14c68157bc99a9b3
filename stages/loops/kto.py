"""KTO (Ethayarajh et al. 2024): training on single completions, each desirable or undesirable."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.losses.preference_losses import kto_loss, kto_reference_point
from stages.loops import ref_logprobs, work
from stages.loops.preference import PreferenceConfig, PreferencePreset
from stages.loops.ref_logprobs import sequence_logprobs, sequence_logprobs_no_grad
from stages.loops.state import Metrics, State, optimise
from stages.loops.work import Step
from stages.models.batch import Group, model_batches
from stages.models.policy import Policy
from stages.records.preferences import Preference, UnpairedExample


def make_unpaired_examples(pairs: Iterable[Preference]) -> list[UnpairedExample]:
    """Distinct completions of pairs: the chosen are desirable, the rejected undesirable.

    They are in order of appearance. A completion that is chosen in one pair and rejected in
    another, as in a ranking of three, gives a desirable and an undesirable row. A ValueError for a
    soft label, and for episodes.
    """
    examples: dict[tuple[str, tuple[int, ...], bool], UnpairedExample] = {}
    for pair in pairs:
        if pair.probability != 1:
            raise ValueError(
                f"KTO takes pairs with hard labels, found a label of {pair.probability} from "
                f"'{pair.source}' at problem '{pair.id}': set labels: hard if a judge makes the "
                f"pairs; if people disagree, take a preset such as dpo, which learns from shares "
                f"of votes"
            )
        if pair.chosen_insertions is not None:
            raise ValueError(
                "KTO takes completions, found episodes with turns of an environment between them: "
                "take a preset with pairs, such as dpo"
            )
        for ids, desirable in ((pair.chosen_ids, True), (pair.rejected_ids, False)):
            row = UnpairedExample(
                id=pair.id, prompt_ids=pair.prompt_ids, completion_ids=ids, desirable=desirable
            )
            examples.setdefault((pair.id, tuple(ids), desirable), row)
    return list(examples.values())


class KtoReference(NamedTuple):
    """log p of completions under the frozen reference."""

    matched: Float[Tensor, " row"]
    """log p of every row's completion."""
    mismatched: Sequence[Float[Tensor, " _"]]
    """log p of each step's mismatched pairs (`make_mismatched_groups`)."""

    def all(self) -> list[Tensor]:
        """Every tensor, the rows' first."""
        return [self.matched, *self.mismatched]


def compute_reference(
    model: Policy,
    rows: Sequence[UnpairedExample],
    schedule: Sequence[Sequence[int]],
) -> KtoReference:
    """Reference log-probs, by `model` before its first step; `schedule`: rows of each step."""
    steps = [make_mismatched_groups(rows, numbers) for numbers in schedule]
    return KtoReference(
        matched=ref_logprobs.compute(model, ref_logprobs.list_unpaired_completions(rows)),
        mismatched=[sequence_logprobs_no_grad(model, groups) for groups in steps],
    )


def make_mismatched_groups(rows: Sequence[UnpairedExample], numbers: Sequence[int]) -> list[Group]:
    """Mismatched pairs for KTO's reference point: a row's prompt with the next row's completion.

    The last row's prompt has the first row's completion. Neighbours of the same problem are left
    out, so a step of one row has no pairs.
    """
    pairs = zip(numbers, [*numbers[1:], *numbers[:1]], strict=True)
    return make_single_groups(rows, [(i, j) for i, j in pairs if rows[i].id != rows[j].id])


def make_single_groups(
    rows: Sequence[UnpairedExample], pairs: Sequence[tuple[int, int]]
) -> list[Group]:
    """Groups of one completion: for each (i, j) the prompt of row i, the completion of row j."""
    return [
        Group(prompt_ids=rows[i].prompt_ids, completions=[rows[j].completion_ids], indices=[place])
        for place, (i, j) in enumerate(pairs)
    ]


def train(
    model: Policy,
    rows: Sequence[UnpairedExample],
    ref: KtoReference,
    schedule: Sequence[Sequence[int]],
    preset: PreferencePreset,
    config: PreferenceConfig,
    state: State | None = None,
) -> Iterator[Step]:
    """One optimizer step per list of row numbers in `schedule`; `model` is changed in place.

    Loss: mean of `kto_loss` over the step's rows. One reference point per optimizer step is
    computed before the first backward pass. Metrics call desirable rows `chosen` and undesirable
    ones `rejected`; a step without rows of a kind has no metrics of it.
    """

    def gradient(index: int, numbers: Sequence[int]) -> Metrics:
        mismatched_pairs = make_mismatched_groups(rows, numbers)
        mismatched = sequence_logprobs_no_grad(model, mismatched_pairs)
        point = kto_reference_point(mismatched, ref.mismatched[index])
        desirable = torch.tensor([rows[i].desirable for i in numbers])
        matched = ref.matched[numbers]
        policy_logprobs, losses = torch.zeros(2, len(numbers))
        groups = make_single_groups(rows, [(i, i) for i in numbers])
        batches = list(model_batches(model, groups))
        for batch in batches:
            logprobs = sequence_logprobs(model, batch)
            batch_losses, _ = kto_loss(
                logprobs,
                ref_logprobs=matched[batch.indices].to(logprobs.device),
                desirable=desirable[batch.indices].to(logprobs.device),
                reference_point=point.to(logprobs.device),
                **preset.hyperparameters(),
            )
            (batch_losses.sum() / len(numbers)).backward()
            policy_logprobs[batch.indices] = logprobs.detach().cpu()
            losses[batch.indices] = batch_losses.detach().cpu()
        log_ratios = policy_logprobs - matched
        return {
            "loss/preference": losses.mean().item(),
            "kl/reference_point": point.item(),
            "margin/accuracy": ((log_ratios > point) == desirable).float().mean().item(),
            **mean_by_desirability("log_ratios", log_ratios, desirable),
            **mean_by_desirability("logprobs", policy_logprobs, desirable),
            **work.count_trained("policy", batches),
            **ref_logprobs.count_read_passes(mismatched_pairs),
        }

    return optimise(model, config.optim, schedule, gradient, state)


def mean_by_desirability(
    family: str, values: Float[Tensor, " batch"], desirable: Bool[Tensor, " batch"]
) -> dict[str, float]:
    """Means over the desirable rows (`chosen`) and the undesirable ones (`rejected`), if any."""
    sides = {"chosen": values[desirable], "rejected": values[~desirable]}
    return {f"{family}/{side}": rows.mean().item() for side, rows in sides.items() if len(rows)}
