"""Problems and what is asked of them: from a source's problem to its prompt and demonstration."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A question with a known final answer and, perhaps, a worked solution."""

    id: str
    """Unique within the source."""
    question: str
    """Plain text, without any prompt format."""
    answer: str
    """The final answer as the source states it, for example `1,234` or `3/4`."""
    solution: str | None
    """A demonstration to imitate, ending with its final answer (`#### 42`), right or wrong;
    None when the source has none: the problem is then a prompt only."""
    split: str | None
    """`test` or `train` where the source fixes it; None: by the hash of the question."""
    line: int
    """Where it came from: line or row number in the source, from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One row of `data/prepare_data/prompts/<split>.jsonl`."""

    id: str
    task: str
    """What is asked of the model; `solve` for a problem to be answered."""
    question: str
    prompt: str
    """The rendered text (template, chat template, begin-of-sequence token included)."""
    prompt_ids: list[int]
    """`prompt` tokenised, once, here: no later stage tokenises it again."""
    answer: str
    """The gold final answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """A demonstration of any task, in text."""

    id: str
    task: str
    """What is asked: `judge`, `critique`, `revise`."""
    message: str
    """The whole message to the model; nothing is put around it but a chat template."""
    reply: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstration:
    """One row of `demonstrations.jsonl` (the prompt/completion shape)."""

    id: str
    task: str
    prompt: str
    prompt_ids: list[int]
    completion: str
    completion_ids: list[int]
    """`completion` tokenised, followed by the end-of-sequence token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    """Where a rejected row stood and why it was rejected."""

    file: str
    """The file's name (not its path), or the name of the hub data set's split."""
    line: int
    """From 1."""
    reason: str
    """What was expected and what was found."""
    content: str
    """The row as read, cut to 500 characters."""
