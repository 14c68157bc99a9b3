"""How good revisions are, measured against the answer checker, which made none of them.

Harsher: models trained too long on a constitution scold and refuse in set phrases (Bai et al.
2022, https://arxiv.org/abs/2212.08073, section 4.3). Longer: judges and people prefer length,
whatever it says.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stages.records.preferences import Preference
from stages.rewards import answer_checker
from stages.rewards.feedback.revised_answers import Revised

SCOLDING = re.compile(
    r"\b(?:i (?:cannot|can't|can not|won't|will not)|i'?m sorry|as an ai|inappropriate|unethical|"
    r"immoral|offensive|harmful|illegal|unacceptable|disrespectful|seek (?:professional )?help)\b",
    re.IGNORECASE,
)
"""Phrases of refusing and lecturing."""


def summarise(answers: Sequence[Revised]) -> dict[str, int | float | dict[str, int | float]]:
    """Counts, and shares of what they are counted among.

    `accuracy` is that of the answers which went through all rounds: of the originals and after
    each round. `label_right` is, of the pairs in which one answer is right and the other
    wrong, the share in which the right one is preferred; `decided_pairs` counts these.
    """
    outcomes = Counter(answer.outcome for answer in answers)
    whole = [answer for answer in answers if answer.outcome != "too_long"]
    pairs = [(answer, pair) for answer in whole if (pair := answer.preference()) is not None]
    verdicts = [
        (is_right(answer, pair.chosen), is_right(answer, pair.rejected)) for answer, pair in pairs
    ]
    decided = [chosen for chosen, rejected in verdicts if chosen != rejected]
    changed = sum(answer.revisions[-1].revision != answer.original.completion for answer in whole)
    return {
        "answers": len(answers),
        "pairs": len(pairs),
        "left_out_unchanged": outcomes["unchanged"],
        "left_out_empty": outcomes["empty"],
        "left_out_cut": outcomes["cut"],
        "left_out_too_long": outcomes["too_long"],
        "changed": share(changed, len(whole)),
        "accuracy": accuracies(whole),
        "decided_pairs": len(decided),
        "label_right": share(sum(decided), len(decided)),
        "longer": share(sum(len(p.chosen_ids) > len(p.rejected_ids) for _, p in pairs), len(pairs)),
        "harsher": share(sum(is_harsher(pair) for _, pair in pairs), len(pairs)),
    }


def check_pairs(answers: Sequence[Revised], pool: Path) -> None:
    """Raise a ValueError if there is not a single pair."""
    outcomes = Counter(answer.outcome for answer in answers)
    if not outcomes["pair"]:
        raise ValueError(
            f"{pool}: expected answers that were revised into others, found none: "
            f"{dict(outcomes)}. Take a policy that has learned to revise (prepare_data.mixture, or "
            f"a model that follows instructions with style: full), or raise max_new_tokens, "
            f"max_prompt_tokens or temperature of revise_answers."
        )


def accuracies(answers: Sequence[Revised]) -> dict[str, int | float]:
    """Share of right answers: the originals, and after each round."""
    texts = {"original": [answer.original.completion for answer in answers]}
    for number in range(answers[0].num_rounds if answers else 0):
        texts[f"round_{number + 1}"] = [answer.revisions[number].revision for answer in answers]
    return {
        name: share(sum(map(is_right, answers, column)), len(column))
        for name, column in texts.items()
    }


def is_right(answer: Revised, text: str) -> bool:
    """The answer checker's verdict on another answer to the same problem."""
    return answer_checker.is_correct(text, answer.prompt.answer)


def is_harsher(pair: Preference) -> bool:
    """Whether the preferred answer scolds or refuses in more phrases than the other."""
    return len(SCOLDING.findall(pair.chosen)) > len(SCOLDING.findall(pair.rejected))


def share(count: int, total: int) -> float:
    """`count` / `total`, 0 of nothing."""
    return round(count / total, 6) if total else 0.0
