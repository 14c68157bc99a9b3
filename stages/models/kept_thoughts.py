"""Chat template whose earlier turns stay as they were sampled, thoughts included.

Templates of thinking models leave the thoughts out of earlier turns (Qwen3 once the user writes
again, DeepSeek-R1 always). In an episode of several turns a policy would then read other tokens in
use than in training, so such a template is refused (`turn_rendering`). `keep_thoughts` wraps it in
another template (kept_thoughts.chat.j2), for everything that reads chat templates. The wrapper
renders each turn of the assistant as the model's template renders a last turn, with its thoughts,
and the text between two turns as that template does. A conversation without earlier turns of the
assistant is rendered as before. A client may send the thoughts beside the content
(`reasoning_content`) or in it, as they were sampled.

The wrapped template has to end every turn of the assistant with the same token.
"""

import json
from pathlib import Path

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models.model_tokenizer import end_id, rewrite_template
from stages.models.turn_rendering import TurnRenderer
from stages.records.problems import THOUGHTS

KEEP = "keep_thoughts"
"""Value of `model.chat_template` that asks for it."""
WRAPPER = Path(__file__).with_suffix(".chat.j2")
FIRST_WORDS = "{%- macro original("


def keep_thoughts(tokenizer: PreTrainedTokenizerBase) -> None:
    """Wrap the chat template, or each of several, in place; a wrapped one stays as it is.

    A ValueError if it has no thoughts, or does not fit episodes of several turns when wrapped.
    """
    templates = str(tokenizer.chat_template)
    if FIRST_WORDS in templates:
        return
    marks = next((marks for marks in THOUGHTS.items() if marks[1] in templates), None)
    if marks is None:
        raise ValueError(
            f"model.chat_template: expected a chat template with thoughts, found none of "
            f"{', '.join(sorted(set(THOUGHTS.values())))} in it. Set it to null."
        )
    literals = {
        "@BEGIN_THOUGHT@": marks[0], "@END_THOUGHT@": marks[1],
        "@END_TURN@": str(tokenizer.convert_ids_to_tokens(end_id(tokenizer))),
    }  # fmt: skip
    wrapper = WRAPPER.read_text(encoding="utf-8").removesuffix("\n")
    for place, literal in literals.items():
        wrapper = wrapper.replace(place, json.dumps(literal, ensure_ascii=False))
    # Jinja drops a newline at the end of a template, but not at that of a macro.
    rewrite_template(tokenizer, lambda text: wrapper.replace("@ORIGINAL@", text.removesuffix("\n")))
    try:
        TurnRenderer(tokenizer).check(None)
    except ValueError as error:
        raise ValueError(
            f"model.chat_template: expected a template whose thoughts can be kept, found: "
            f"{error} Name a template of your own: data/raw/<file>.jinja"
        ) from error
