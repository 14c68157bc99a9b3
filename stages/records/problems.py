"""Rows: problems, prompts, demonstrations, and rejected rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

OMITTED = "omitted"
"""Metadata of a field that is not written if it is None."""
THOUGHTS = {
    "<think>": "</think>",  # DeepSeek-R1, Qwen3, GLM, Phi-4, Nemotron
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # EXAONE Deep
    "<reasoning>": "</reasoning>",
    "<|begin_of_thought|>": "<|end_of_thought|>",  # Sky-T1, OpenThinker
    "[THINK]": "[/THINK]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi
    "<seed:think>": "</seed:think>",  # Seed-OSS
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A Reasoning
    "<|inner_prefix|>": "<|inner_suffix|>",  # Apertus
    "<|channel|>analysis": "<|channel|>final",  # gpt-oss
    "<|channel|>commentary": "<|channel|>final",
}
"""Mark at the start of a model's thought -> mark at its end."""
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Keys of a message, in data and chat templates, for the reasoning beside its content."""
TEACHER = "model"
"""Folder of the teacher beside the demonstrations that it wrote."""
NO_SOLUTIONS = (
    "The source has neither solutions nor replies: name their column in data.source.columns, or "
    "let policies learn from rewards alone (from: base)"
)
INSTEAD = (
    "conversations have no gold answer. Take the tables of data/README.md, 'Conversations without "
    "gold answers': people's or a judge's pairs, and a reward learned from them; or problems with "
    "answers"
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call of a tool by the assistant."""

    name: str
    arguments: str
    """JSON text of an object."""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation."""

    role: str
    """Role: `system`, `user`, `assistant`, or `tool` for the result of a call."""
    content: str
    is_imitated: bool = True
    """Whether SFT learns an assistant's turn; otherwise it is only context."""
    calls: tuple[ToolCall, ...] = ()
    """Tools that the assistant calls in this turn."""
    reasoning: str = ""
    """Thoughts of the assistant before the content."""
    answers: ToolCall | None = None
    """Call that a tool's result answers; None: unknown."""

    @property
    def is_text(self) -> bool:
        """Whether role and content are all of it: otherwise only a chat template renders it."""
        return self.role != "tool" and not self.calls and not self.reasoning


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Problem of a source: a question, perhaps with gold answer and solution; or a conversation."""

    id: str
    """Unique within the source."""
    question: str
    """Plain text, without any prompt format."""
    answer: str | None
    """Final answer as the source states it, for example `1,234` or `3/4`; None: no answer can be
    checked."""
    solution: str | None
    """Demonstration to imitate, ending with its final answer (`#### 42`), right or wrong; None if
    the source has none: the problem is then only a prompt."""
    split: str | None
    """Split, `test` or `train`, if the source fixes it; None: by the hash of the question."""
    line: int
    """Line or row number in the file, from 1."""
    file: str = "generated"
    """Name of its file."""
    turns: tuple[Turn, ...] | None = None
    """Turns of a conversation before the solution, a user's or a tool's result last; None: only
    `question`."""
    tools: str | None = None
    """JSON text of the schemas of the tools that the assistant may call."""
    reply: Turn | None = None
    """Turn whose text is `solution`, if it has more than text; else None."""

    @property
    def is_text(self) -> bool:
        """Whether the conversation is text: without tools, calls, results and reasoning."""
        turns = self.turns or ()
        return self.tools is None and self.reply is None and all(turn.is_text for turn in turns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """Problem with its prompt: a row of `data/prompts/<split>.jsonl`."""

    id: str
    task: str
    """Task of the model: `solve` a problem, `chat` (write the next turn of a conversation), or
    `play` an episode of an environment."""
    question: str
    prompt: str
    """Rendered text (template, chat template, begin-of-sequence token included)."""
    prompt_ids: list[int]
    """Tokens of `prompt`: no later stage tokenises it again."""
    answer: str | None
    """Gold final answer; None: no answer can be checked."""
    answer_forms: Sequence[str] | None = field(default=None, metadata={OMITTED: True})
    """Forms of `data.answer_forms` in which an answer is parsed; None: every form with a name."""

    @property
    def gold(self) -> str:
        """Gold answer; a ValueError if there is none."""
        if self.answer is None:
            raise ValueError(
                f"expected problems with an answer that can be checked, found none of prompt "
                f"'{self.id}': {INSTEAD}"
            )
        return self.answer

    def whole(self, completion: str) -> str:
        """Completion, after the mark of a thought with which the prompt ends, if it does."""
        return find_begun_thought(self.prompt) + completion


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """Demonstration of any task, as text."""

    id: str
    task: str
    """Task: `judge`, `critique`, `revise`."""
    message: str
    """Message to the model, without chat template."""
    reply: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstration:
    """Prompt with a completion to imitate: a row of `demonstrations.jsonl`."""

    id: str
    task: str
    prompt: str
    prompt_ids: list[int]
    completion: str
    completion_ids: list[int]
    """Tokens of `completion`, followed by the token that ends a turn or a sequence."""
    insertions: Sequence[tuple[int, Sequence[int]]] | None = field(
        default=None, metadata={OMITTED: True}
    )
    """Tokens between several turns, which are context and not imitated: the number of
    `completion_ids` before them, and their ids."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    """Rejected row: its file, line and reason."""

    file: str
    """Name of the file in its folder, or of the hub data set's split."""
    line: int
    """Line number, from 1."""
    reason: str
    """Reason: expected and found."""
    content: str
    """Text of the row, at most 500 characters."""


def find_begun_thought(prompt: str) -> str:
    """Start mark of a thought at the end of a prompt, as chat templates write it; else empty."""
    return next((begin for begin in THOUGHTS if prompt.rstrip().endswith(begin)), "")


def find_open_thought(reply: str) -> str:
    """Start mark of a thought that a reply begins and does not end; else empty."""
    text = reply.lstrip()
    opened = (begin for begin in THOUGHTS if text.startswith(begin))
    return next((begin for begin in opened if THOUGHTS[begin] not in text), "")


def split_thought(reply: str) -> tuple[str, str]:
    """Thought at the start of a reply, or all of it if the thought does not end, and the rest.

    The end mark suffices to find a thought, since the prompt may have the start mark.
    """
    text = reply.lstrip()
    for begin, end in THOUGHTS.items():
        if text.startswith(begin) or (end in text and begin not in text):
            thought, _, content = text.removeprefix(begin).partition(end)
            return thought.strip(), content.lstrip()
    return "", reply
