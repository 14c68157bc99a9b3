"""The steps of a sampled completion, in its own tokens."""

from collections.abc import Callable, Sequence


def split_steps(
    token_ids: Sequence[int], decode: Callable[[Sequence[int]], str], separator: str
) -> list[list[int]]:
    r"""Token ids of each step; joined they are `token_ids`.

    A step ends with the token that completes `separator` in the text since the step's start,
    even if that token goes on beyond it (`\n\nSo`): a token is never cut in two, and nothing is
    tokenised again. A step of white space alone belongs to the step before it; at the very
    start, where there is none, to the one that follows. So does the end-of-sequence token,
    whose text is empty, where it stands alone behind a separator.

    Args:
        token_ids: a completion as sampled.
        decode: tokens to text without special tokens.
        separator: what stands between two steps, for example a newline.

    Raises:
        ValueError: the separator is empty.
    """
    if not separator:
        raise ValueError(
            "expected a separator of at least one character between steps, found an empty one: "
            r'set `separator`, for example "\n"'
        )
    steps: list[list[int]] = []
    current: list[int] = []
    for token_id in token_ids:
        current.append(token_id)
        text = decode(current)
        # At the start nothing stands before a blank step: it waits for the text that follows.
        if separator in (text if steps else text.lstrip()):
            _close(steps, current, text)
            current = []
    if current:
        _close(steps, current, decode(current))
    return steps


def _close(steps: list[list[int]], ids: list[int], text: str) -> None:
    if steps and not text.strip():
        steps[-1] += ids
    else:
        steps.append(ids)
