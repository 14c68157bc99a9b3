"""Questions about the rows of a file, with a look-up in it as a tool.

Options: `path` of a file under data/raw (CSV, JSON lines or another form of data/README.md), and
the names of two columns, `key` and `value`, for: what is the <value> of <key>?
"""

from stages.environments.environment import Message, Reply, Row, Start, write_message
from stages.environments.lookup_table import read_table
from stages.environments.problem_draws import draw_problem
from stages.environments.tool_functions import Tools, write_call


class Lookup:
    """Environment of one question: any number of look-ups, then the answer."""

    def __init__(self, *, path: str, key: str, value: str) -> None:
        self.table = read_table(path, key, value)
        self.tools = Tools(self.table.look_up)

    def start(self, row: Row, seed: int) -> Start:
        """The question, which depends only on the row."""
        (self.name,) = draw_problem(row, list(self.table.texts))
        question = f"What is the {self.table.value} of {self.name}? End with ####."
        return [write_message("user", question)], self.tools.schemas

    def step(self, message: Message) -> Reply:
        """Results of look-ups; at the end the reward, 1 for the right answer."""
        if results := self.tools.answer(message):
            return Reply(messages=results)
        return Reply(reward=self.table.score(self.name, message["content"]), done=True)

    def demonstrate(self, row: Row, seed: int) -> list[Message]:
        """A look-up and the answer."""
        self.start(row, seed)
        answer = write_message("assistant", f"#### {self.table.texts[self.name]}")
        return [write_call("look_up", name=self.name), answer]
