"""Problems of a file as an environment of one turn: a second test set for policies.

Options: `path` of a file under data/raw with the columns `question` and `answer`, and `template`,
the message, such as `data.prompt_template`. A row's problem is the one at its index in the file, so
`starts: {train: 1, dev: 1, test: 298}` tests the 3rd to the 300th. A reply is right if its stated
answer, or else its last number, is the gold answer: the format as such earns nothing.
"""

from stages.environments.environment import Message, Reply, Row, Start, write_message
from stages.environments.lookup_table import read_table
from stages.models.prompting import PLACEHOLDER, fill_template
from stages.rewards.answer_checker import is_leniently_correct


class ProblemFile:
    """A problem of the file."""

    def __init__(self, *, path: str, template: str = PLACEHOLDER) -> None:
        self.table = read_table(path, "question", "answer")
        self.questions, self.template = list(self.table.texts), template

    def start(self, row: Row, seed: int) -> Start:
        """The problem at the row's index."""
        if row["index"] >= len(self.questions):
            raise ValueError(
                f"expected {row['index'] + 1} problems or more, since `starts` has so many rows, "
                f"found {len(self.questions)} in the file: lower `starts` in the preset"
            )
        self.question = self.questions[row["index"]]
        return [write_message("user", fill_template(self.template, self.question))], None

    def step(self, message: Message) -> Reply:
        """Reward 1 for the right answer."""
        gold = self.table.texts[self.question]
        return Reply(reward=float(is_leniently_correct(message["content"] or "", gold)), done=True)
