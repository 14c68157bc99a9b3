"""Messages that quote what somebody wrote, rendered and tokenised once."""

from collections.abc import Callable, Sequence

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import prompting
from stages.rewards.feedback.untrusted_text import defuse


def encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[str]], list[list[int]]]:
    """Messages to the ids of the prompts that they are (by the chat template where there is one).

    What spells a special token in a message is taken apart: none may be read as one.
    """
    specials = prompting.special_texts(tokenizer)

    def encode(messages: Sequence[str]) -> list[list[int]]:
        plain = [defuse(message, specials) for message in messages]
        return prompting.ids(prompting.render(plain, tokenizer, prompting.PLACEHOLDER), tokenizer)

    return encode
