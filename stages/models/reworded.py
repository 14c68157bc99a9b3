"""The prompt of one question around another question: template and special tokens as they were."""

from collections.abc import Sequence

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import prompting
from stages.records.prompt import Prompt
from stages.rewards.feedback.untrusted_text import defuse


def reword(
    prompts: Sequence[Prompt], questions: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> list[list[int]]:
    """Token ids of each prompt with its question replaced by the one in the same place.

    What spells a special token in a new question is taken apart: none may be read as one.

    Raises:
        ValueError: a prompt in which its own question does not stand exactly once.
    """
    specials = prompting.special_texts(tokenizer)
    texts = []
    for prompt, question in zip(prompts, questions, strict=True):
        before, *after = prompt.prompt.split(prompt.question)
        if len(after) != 1:
            raise ValueError(
                f"problem '{prompt.id}': expected its question once in its prompt, found it "
                f"{len(after)} times: other questions cannot be put in its place. Use a "
                f"prompt_template, and a chat template, that leave the question as it is, once."
            )
        texts.append(before + defuse(question, specials) + after[0])
    return prompting.ids(texts, tokenizer)
