"""MATH-APS: trees of solutions, with the share of right completions at each node.

    {"question": "...", "reasoning_steps": {"text": "<question>", "mc_value": 0.75, "children":
        [{"text": "...", "mc_value": 1.0, "children": []}]}}
    {"question": "...", "reasoning_steps": [{"solution_prefix": "<question>", "mc_value": 0.75},
        {"solution_prefix": "<question>...", "mc_value": 1.0}]}

The second form lists every node with its whole text. A node's parent is the longest other text that
it begins with, up to the end of a word ("x = 12" is not a child of "x = 1"), else the question. So
both forms hold the same tree. A text that is listed several times was estimated several times: its
value is the mean, over as many times the completions.

The root is the question, not a step. Each path from it to a leaf is a solution. A node's label is
its value or, if hard, whether that is above `hard_above`. A node on several paths is one estimate,
and with `shared_steps: once` it counts only in the first path. A leaf with a boxed answer is a
finished solution, right if its value is above 0: nothing is left to complete.

OmegaPRM, "Improve Mathematical Reasoning in Language Models by Automated Process Supervision"
(Luo et al. 2024), https://arxiv.org/abs/2406.06592; the files are those of openr.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, ClassVar, Literal

from pydantic import Field

from stages.config import Params
from stages.records.steps import RawSteps
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

BOX = "\\boxed"


@dataclass(slots=True)
class Node:
    """Node of a tree: the text that it adds, and the estimates of its value."""

    text: str
    values: list[float]
    children: list["Node"] = field(default_factory=list)


class MathApsConfig(Params):
    """Conversion of Monte-Carlo values to labels."""

    columns: ClassVar = ("question", "reasoning_steps")
    kind: Literal["math_aps"]
    labels: Literal["soft", "hard"]
    hard_above: float = Field(ge=0, lt=1)
    """Value above which a hard label is 1; 0: if any completion was right."""
    num_completions: int = Field(gt=0)
    """Completions per value, of which the value is a share; 32 in openr's sample."""
    shared_steps: Literal["once", "repeat"]

    def solutions(self, fields: Mapping[str, Any], line: int, file: str = "") -> list[RawSteps]:
        """Every path from the root to a leaf, in the order of the tree."""
        question, nodes = raw_rows.read_verbatim(fields, "question"), fields.get("reasoning_steps")
        root = _root_of_tree(nodes) if isinstance(nodes, dict) else _root_of_list(nodes, question)
        solutions, labelled = [], set[int]()
        for path in _paths(root):
            already_labelled = labelled if self.shared_steps == "once" else ()
            labels = [None if id(node) in already_labelled else self._label(node) for node in path]
            labelled.update(id(node) for node in path)
            finished = BOX in path[-1].text
            solutions.append(RawSteps(
                line=line, file=file, question=question.strip(), labels=labels,
                steps=[node.text for node in path], source=self.kind, finished=finished,
                num_completions=[self.num_completions * len(node.values) for node in path],
                correct=max(path[-1].values) > 0 if finished else None,
            ))  # fmt: skip
        if not solutions:
            raise RejectedError("no steps: the tree is its root alone")
        return solutions

    def _label(self, node: Node) -> float:
        for value in node.values:
            hits = value * self.num_completions
            if abs(hits - round(hits)) > 1e-6:
                raise RejectedError(
                    f"no share: mc_value {value} is none of num_completions, {self.num_completions}"
                )
        mean = fmean(node.values)
        return mean if self.labels == "soft" else float(mean > self.hard_above)


def _paths(root: Node) -> Iterator[list[Node]]:
    # No recursion: the tree of a bad file may be deeper than Python's stack.
    pending = [[child] for child in reversed(root.children)]
    while pending:
        path = pending.pop()
        if not path[-1].children:
            yield path
        pending += [[*path, child] for child in reversed(path[-1].children)]


def _root_of_tree(top: Mapping[str, Any]) -> Node:
    root = Node("", [_value(top)])
    pending = [(root, top)]
    while pending:
        parent, source = pending.pop()
        children = _nodes(source.get("children"), "'children'")
        parent.children = [
            Node(raw_rows.read_text(node, "text"), [_value(node)]) for node in children
        ]
        pending += zip(parent.children, children, strict=True)
    return root


def _root_of_list(entries: Any, question: str) -> Node:
    root = Node("", [])
    places: dict[str, Node] = {question: root}
    nodes = _nodes(entries, "'reasoning_steps' (no tree)")
    # Shorter texts first, whatever the order in the file: a parent comes before its children.
    for entry in sorted(
        nodes, key=lambda entry: len(raw_rows.read_verbatim(entry, "solution_prefix"))
    ):
        prefix = raw_rows.read_verbatim(entry, "solution_prefix")
        if prefix == question:
            continue
        if prefix in places:
            places[prefix].values.append(_value(entry))
            continue
        if not prefix.startswith(question):
            raise RejectedError(f"no question: a prefix begins otherwise: {prefix!r:.60}")
        above = [text for text in places if _continues(prefix, text) or text == question]
        parent = max(above, key=len)
        step = raw_rows.read_text({"step": prefix[len(parent) :]}, "step")
        places[prefix] = Node(step, [_value(entry)])
        places[parent].children.append(places[prefix])
    return root


def _continues(text: str, start: str) -> bool:
    added = text[len(start) :]
    in_a_word = start[-1:].isalnum() and added[:1].isalnum()
    return text.startswith(start) and not in_a_word


def _value(node: Mapping[str, Any]) -> float:
    value = node.get("mc_value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RejectedError(f"no value: 'mc_value' should be from 0 to 1 and is {value!r:.60}")
    return float(value)


def _nodes(value: Any, what: str) -> list[dict[str, Any]]:
    nodes = raw_rows.check_type(value, list, what)
    return [raw_rows.check_type(node, dict, f"a node of {what}") for node in nodes]
