"""Problems with a product, such as 11 * 12 - 119, with a calculator as a tool or without.

Results are from 1 to 20. Options: `largest`: limit of the two factors; `guess_share`: share of
demonstrations that answer without a call, as people do; `tools: false`: the same problems without
the calculator.
"""

from stages.environments.arithmetic import calculate
from stages.environments.environment import Message, Reply, Row, Start, write_message
from stages.environments.problem_draws import draw_problem
from stages.environments.tool_functions import Tools, write_call


class Calculator:
    """Environment of one problem: any number of calls of the calculator, then the answer."""

    def __init__(self, *, largest: int = 99, guess_share: float = 0, tools: bool = True) -> None:
        self.parts = [range(2, largest + 1), range(2, largest + 1), range(1, 21)]
        self.tools, self.guess_share = Tools(*[calculate] * tools), guess_share

    def start(self, row: Row, seed: int) -> Start:
        """The problem, which depends only on the row."""
        first, second, self.result = draw_problem(row, *self.parts)
        self.task = f"{first} * {second} - {first * second - self.result}".replace("- -", "+ ")
        return [write_message("user", f"{self.task} = ? End with ####.")], self.tools.schemas

    def step(self, message: Message) -> Reply:
        """Results of calls; at the end the reward, 1 for the right answer."""
        if results := self.tools.answer(message):
            return Reply(messages=results)
        return Reply(reward=float(message["content"].endswith(f"#### {self.result}")), done=True)

    def demonstrate(self, row: Row, seed: int) -> list[Message]:
        """A call, if there is the tool and the seed selects one, and the answer."""
        can_call = self.start(row, seed)[1] is not None and seed % 100 >= 100 * self.guess_share
        calls = [write_call("calculate", expression=self.task)] * can_call
        return [*calls, write_message("assistant", f"#### {self.result}")]
