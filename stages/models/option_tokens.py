"""The tokens of a vocabulary that spell an option."""

from collections.abc import Sequence

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

AROUND = " \t\r\n()[]{}<>.,:;*\"'`"
"""What may stand around an option without changing what it is: "(1)", " 1.", "**1"."""


def option_tokens(tokenizer: PreTrainedTokenizerBase, options: Sequence[str]) -> list[list[int]]:
    """For each option the ids of every token that reads as it, in ascending order.

    A token reads as an option when its decoded text, without spaces, brackets, stops and quotes
    around it, equals the option. Special tokens never do.

    Raises:
        ValueError: an option that no token spells.
    """
    special = set(tokenizer.all_special_ids)
    found: dict[str, list[int]] = {option: [] for option in options}
    for token_id in sorted(set(tokenizer.get_vocab().values()) - special):
        text = str(tokenizer.decode([token_id])).strip(AROUND)
        if text in found:
            found[text].append(token_id)
    missing = [option for option, ids in found.items() if not ids]
    if missing:
        raise ValueError(
            f"expected one token for each of the options {list(options)}, found none for "
            f"{missing} in the judge's vocabulary: judge with a model whose tokenizer has them."
        )
    return [found[option] for option in options]
