"""Tokenizers: a model's, or one trained for the tiny model.

The trained one is byte-level BPE with a token for every integer from 0 to 199: with a token for
each digit, a small model learns arithmetic too slowly for reinforcement learning in minutes. It
encodes and decodes any text without loss.
"""

import datetime
import functools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.records.problems import THOUGHTS

Words = ParamSpec("Words")
Value = TypeVar("Value")
NUM_INTEGERS = 200
PAD, EOS, STEP = "<|pad|>", "<|end|>", "<|step|>"
# A number includes the space before it, as words do; longer numbers split from the left, three
# digits at a time; a newline is a separate token.
PRE_TOKEN = Regex(r"\n| ?\d{1,3}| ?[^\s\d\p{P}\p{S}]+| ?[\p{P}\p{S}]+|\s")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Tokenizer with merges learned from `texts` and a fixed list of numbers.

    Vocabulary: pad, end-of-sequence and step tokens (the last for process rewards), the 256 bytes,
    the numbers 0 to 199 with and without a leading space, then merges learned from `texts`.
    """
    pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(PRE_TOKEN, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    numbers = [str(number) for number in range(NUM_INTEGERS)]
    merges = []
    for text in numbers[10:]:
        merges.append((text[:-1], text[-1]))
        if int(text) >= 110:
            # 10 is merged before 11, so 110 is left as 1 and 10.
            merges.append((text[0], text[1:]))
    merges += [("Ġ", number) for number in numbers]
    tokens = [PAD, EOS, STEP, *sorted(alphabet), *numbers[10:], *(f"Ġ{text}" for text in numbers)]
    vocab = {token: index for index, token in enumerate(tokens)}
    room = vocab_size - len(vocab)
    if room < 0:
        raise ValueError(
            f"vocab_size is {vocab_size}; the bytes, numbers and special tokens alone need "
            f"{len(vocab)}: raise model.tiny.vocab_size."
        )
    trainee = Tokenizer(models.BPE())
    trainee.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r" ?\d+"), behavior="removed"), pre_tokenizer]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=room + 256, initial_alphabet=alphabet, show_progress=False
    )
    trainee.train_from_iterator(texts, trainer=trainer)
    for first, second in json.loads(trainee.to_str())["model"]["merges"][:room]:
        if first + second not in vocab:
            vocab[first + second] = len(vocab)
        merges.append((first, second))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, additional_special_tokens=[STEP],
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def load_tokenizer(
    path: str | Path, revision: str | None = None, chat_template: str | None = None
) -> PreTrainedTokenizerBase:
    """Tokenizer at `path`, with an end and a pad token; code in that folder is never run.

    `chat_template`: text that replaces its chat template.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(path), revision=revision or "main", trust_remote_code=False
        )
        # It is saved with every policy, and would be true if HF_HUB_OFFLINE is set.
        tokenizer.init_kwargs["local_files_only"] = False
        if chat_template is not None:
            tokenizer.chat_template = chat_template
        pin_date(tokenizer)
        if tokenizer.chat_template is not None:
            text = tokenizer.apply_chat_template(PROBE, add_generation_prompt=True, tokenize=False)
            if PROBE[0]["content"] not in str(text):
                raise ValueError(f"its chat template renders nothing of the text {PROBE[0]}")
    except Exception as error:  # the libraries raise all kinds
        raise ValueError(
            f"no tokenizer could be loaded from '{path}': {' '.join(str(error).split()):.200}. "
            f"Expected the model's own, chat template included, beside its weights: save it there "
            f"with save_pretrained, or correct model.path in params.yaml."
        ) from error
    check_reply_end(tokenizer, str(path))
    if tokenizer.pad_token_id is None:
        # Padding is masked everywhere, so any token serves.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


DAY = datetime.date(2024, 7, 26)
"""Today's date in a chat template that asks for it: the default of Llama 3.1's template."""
_DATE_CALL = re.compile(r"\bstrftime_now\s*\(\s*(['\"])((?:(?!\1).)*)\1\s*\)")
_PINNED = f"{{# today is {DAY:%d %B %Y} +#}}"


def pin_date(tokenizer: PreTrainedTokenizerBase) -> None:
    """Replace the date that a chat template reads from the clock by `DAY`, in place.

    Otherwise a policy's prompts in training, sampling and serving would change every day. The date
    is written into the template, which is saved with every policy. A ValueError if the template
    asks for it in a format that is not a literal text.
    """
    if not _asks_for_date(tokenizer):
        return
    rewrite_template(
        tokenizer,
        lambda text: _PINNED + _DATE_CALL.sub(_write_date, text),
    )
    if _asks_for_date(tokenizer):
        raise ValueError("its chat template asks for the date in a format that is no literal text")


def _write_date(call: re.Match[str]) -> str:
    # Within the quotes of the format, so that its escapes stay valid.
    return f"{call[1]}{DAY.strftime(call[2])}{call[1]}"


def _asks_for_date(tokenizer: PreTrainedTokenizerBase) -> bool:
    # An alias counts, too. Exports of version 0.2 define a macro of that name.
    return bool(re.search(r"(?<!macro )strftime_now(?!\s+is\b)", str(tokenizer.chat_template)))


def rewrite_template(tokenizer: PreTrainedTokenizerBase, rewrite: Callable[[str], str]) -> None:
    """Replace the chat template, or each of several, by its `rewrite`, in place."""
    templates: Any = tokenizer.chat_template
    if isinstance(templates, dict):
        tokenizer.chat_template = {name: rewrite(text) for name, text in templates.items()}
    else:
        tokenizer.chat_template = rewrite(templates)


def has_pinned_date(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the chat template's date is `DAY`."""
    return _PINNED in str(tokenizer.chat_template)


SWITCH = "enable_thinking"
FIXED = re.compile(r"^\{% set enable_thinking = (true|false) \+%\}")
USED_TEMPLATES = ("default", "tool_use")
"""Names of the templates that transformers renders, of several; the second if there are tools."""
PROBE: list[dict[str, str]] = [{"role": "user", "content": "Hi"}]
REPLY = {"role": "assistant", "content": "Hello there"}


def set_thinking(tokenizer: PreTrainedTokenizerBase, *, thinking: bool) -> None:
    """Fix the value of `enable_thinking` in the chat template, or in each of several, in place.

    The value is written at the start of the template, which is saved with every policy: so
    training, sampling, judging and serving have the same prompts. A ValueError if a template that
    is used does not name the switch, as Qwen3's does.
    """
    templates: Any = tokenizer.chat_template
    by_name = templates if isinstance(templates, dict) else {"default": templates}
    used = [name for name in USED_TEMPLATES if by_name.get(name) is not None]
    unswitched = [name for name in used if SWITCH not in FIXED.sub("", by_name[name])]
    if unswitched or not used:
        place = f" ({unswitched[0]})" if len(used) > 1 else ""
        raise ValueError(
            f"model.thinking: expected a chat template with the switch enable_thinking, found "
            f"{f'one{place} that ignores it' if used else 'none'}. Set it to null."
        )
    start = f"{{% set enable_thinking = {str(thinking).lower()} +%}}"
    rewrite_template(tokenizer, lambda text: start + FIXED.sub("", text))


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Id of the padding token, or else of the end token, since padding is masked everywhere."""
    token_id = tokenizer.pad_token_id
    return token_id if isinstance(token_id, int) else eos_id(tokenizer)


def set_separate_pad(tokenizer: PreTrainedTokenizerBase) -> int:
    """Give the tokenizer a padding token that ends no completion, in place; returns its id.

    transformers takes a reward model's score at the last token that is not padding: one token early
    if the end token is the padding. The padding is a token with `pad` in its name, or else the
    unknown or the begin token, which end no completion; if there is none, as for GPT-2, one is
    added.
    """
    ends = end_ids(tokenizer)
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in ends:
        tokens = sorted(tokenizer.added_tokens_decoder.items())
        named = [i for i, token in tokens if token.special and "pad" in token.content.lower()]
        usual = [*named, tokenizer.unk_token_id, tokenizer.bos_token_id]
        free = [i for i in usual if isinstance(i, int) and i not in ends]
        tokenizer.add_special_tokens(
            {"pad_token": tokenizer.convert_ids_to_tokens(free[0]) if free else PAD}  # pyright: ignore[reportArgumentType]
        )
    return pad_id(tokenizer)


def eos_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Id of the end-of-sequence token; a ValueError if there is none."""
    if not isinstance(tokenizer.eos_token_id, int):
        raise ValueError(
            f"the tokenizer at '{tokenizer.name_or_path}' has no end-of-sequence token: a "
            f"completion could never end. Set `eos_token` in its tokenizer_config.json."
        )
    return tokenizer.eos_token_id


def check_ids(
    rows: Iterable[Sequence[int]], tokenizer: PreTrainedTokenizerBase, size: int, model: str
) -> None:
    """Raise a ValueError if a token of `rows`, an end or the padding has none of `size` embeddings.

    Some tokenizers have such tokens, as Gemma 3's for images: harmless if no text has them.
    """
    always = (*end_ids(tokenizer), pad_id(tokenizer))
    largest = max(max(ids, default=0) for ids in (always, *rows))
    if largest >= size:
        token = tokenizer.convert_ids_to_tokens(largest)
        raise ValueError(
            f"{model}: expected tokens below {size}, the vocab_size of its config.json, found "
            f"{largest}, {token!r}, in the texts or as their end or padding: the tokenizer is "
            f"another model's, or was given tokens without resize_token_embeddings. Save there "
            f"the one that belongs to it."
        )


def end_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Id of the token that ends a completion: the template's end of turn, or the end of sequence.

    The end of turn of Gemma, `<end_of_turn>`, of Phi, `<|end|>`, and of Qwen's base models,
    `<|im_end|>`, is another token than the end of sequence.
    """
    turn_end = _turn_end_id(tokenizer)
    return eos_id(tokenizer) if turn_end is None else turn_end


def end_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids at which sampling stops: end of sequence and end of turn."""
    ends = (tokenizer.eos_token_id, _turn_end_id(tokenizer))
    return frozenset(token_id for token_id in ends if isinstance(token_id, int))


def is_of_thought(token: str) -> bool:
    """Whether a special token is, or begins (gpt-oss), a mark at the start or end of a thought."""
    return any(mark.startswith(token) for ends in THOUGHTS.items() for mark in ends)


def make_decode(
    tokenizer: PreTrainedTokenizerBase, spelled: str = ""
) -> Callable[[Sequence[int]], str]:
    """Function from token ids to text, without special tokens except the marks of a thought.

    An answer within a thought does not count, so the text has to show where the thought ends.
    Special tokens in `spelled` stay, too.
    """
    tokens = tokenizer.added_tokens_decoder.items()
    special = {token_id for token_id, token in tokens if token.special}
    special |= set(tokenizer.all_special_ids)
    shown = {
        i for i, token in tokens
        if i in special and (is_of_thought(token.content) or token.content in spelled)
    }  # fmt: skip

    def decode(token_ids: Sequence[int]) -> str:
        ids = list(token_ids)
        if shown.isdisjoint(ids):
            return str(tokenizer.decode(ids, skip_special_tokens=True))
        return str(tokenizer.decode([i for i in ids if i not in special or i in shown]))

    return decode


def once_per_template(
    function: Callable[Concatenate[PreTrainedTokenizerBase, Words], Value],
) -> Callable[Concatenate[PreTrainedTokenizerBase, Words], Value]:
    """`function`, cached per tokenizer and chat template, since the template may be replaced."""

    @functools.lru_cache(maxsize=8)  # each holds a tokenizer
    def make_compute(tokenizer: PreTrainedTokenizerBase, _template: str) -> Callable[..., Value]:
        return functools.lru_cache(maxsize=1024)(functools.partial(function, tokenizer))

    @functools.wraps(function)
    def look_up(
        tokenizer: PreTrainedTokenizerBase, *words: Words.args, **more: Words.kwargs
    ) -> Value:
        return make_compute(tokenizer, str(tokenizer.chat_template))(*words, **more)

    return look_up


@once_per_template
def _turn_end_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Token that the chat template writes after every assistant's turn, the last one included.

    None: there is no template, or it writes plain text there, another token after the last turn (as
    gpt-oss does, with the end of sequence), or the beginning of the next turn.
    """
    ends = list[int | None]()
    for following in ([], PROBE):
        text = _render_after_reply(tokenizer, following)
        if text is None:
            return None
        tokens, text = tokenizer.added_tokens_decoder.items(), text.lstrip()
        starts = {token.content: i for i, token in tokens if text.startswith(token.content)}
        ends.append(starts[max(starts, key=len)] if starts else None)
    return ends[0] if ends[0] == ends[1] else None


def _render_after_reply(
    tokenizer: PreTrainedTokenizerBase, following: Sequence[dict[str, str]]
) -> str | None:
    """Text that the chat template (the default of several) writes after a reply, with `following`.

    None: there is no template, or it refuses the turns. Empty: it does not render the reply.
    """
    templates: Any = tokenizer.chat_template
    template = templates.get("default") if isinstance(templates, dict) else templates
    if template is None:
        return None
    turns = [*PROBE, REPLY, *following]
    try:
        text = tokenizer.apply_chat_template(turns, chat_template=template, tokenize=False)
    except Exception:  # noqa: BLE001 - a template that takes only one turn raises all kinds
        return None
    _, reply, after = str(text).rpartition(REPLY["content"])
    return after if reply else ""


def check_reply_end(tokenizer: PreTrainedTokenizerBase, path: str) -> None:
    """Raise a ValueError if the chat template has text between a reply and the token that ends it.

    A completion is the reply and that token, so a policy would learn to leave the text out.
    """
    eos = eos_id(tokenizer)
    if end_id(tokenizer) != eos:
        return  # an end of a turn follows the reply at once
    token = str(tokenizer.convert_ids_to_tokens(eos))
    tail, end, _ = (_render_after_reply(tokenizer, []) or "").partition(token)
    if end and tail.strip():
        raise ValueError(
            f"the tokenizer at '{path}': expected a chat template that writes {token!r} after a "
            f"reply, found {tail.strip()!r:.60} before it, which no completion would have. Take it "
            f"out of chat_template, and write it into the replies of the data."
        )


def check_same_vocabulary(
    student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase, names: tuple[str, str]
) -> None:
    """Raise a ValueError unless student and teacher, called `names`, have the same vocabulary."""
    of_student, of_teacher = student.get_vocab(), teacher.get_vocab()
    if of_student == of_teacher:
        return
    tokens = of_student.keys() | of_teacher.keys()
    differing = sorted(token for token in tokens if of_student.get(token) != of_teacher.get(token))
    token = differing[0]
    raise ValueError(
        f"expected one vocabulary of student {names[0]} and teacher {names[1]}, since the teacher "
        f"judges the student's tokens; found {len(differing)} tokens that differ, such as "
        f"{token!r}: id {of_student.get(token)} and {of_teacher.get(token)}. Take a teacher that "
        f"starts from the same base model."
    )
