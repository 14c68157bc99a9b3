"""Products too hard to do by head, such as 13 * 14 - 170, with a calculator as a tool or without.

Options: `largest`, of the two factors; `largest_result`, of the whole, which is at least 1;
`tools: false` for the same problems without the calculator.
"""

from stages.environments.arithmetic import calculate
from stages.environments.environment import Message, Reply, Row, Start, write_message
from stages.environments.problem_draws import draw_problem
from stages.environments.tool_functions import Tools, write_call
from stages.rewards.answer_checker import is_correct


class Environment:
    """A problem: calls of the calculator, as many as the policy likes, then the answer."""

    def __init__(self, *, largest: int = 99, largest_result: int = 20, tools: bool = True) -> None:
        self.parts = [range(2, largest + 1)] * 2 + [range(1, largest_result + 1)]
        self.tools = Tools(calculate) if tools else Tools()

    def start(self, row: Row, seed: int) -> Start:
        """The problem is of the row alone."""
        first, second, result = draw_problem(row, *self.parts)
        self.task = f"{first} * {second} - {first * second - result}".replace("- -", "+ ")
        return [write_message("user", f"{self.task} = ? End with ####.")], self.tools.schemas

    def step(self, message: Message) -> Reply:
        """Results of calls; 1 for the right answer at the end."""
        if results := self.tools.answer(message):
            return Reply(messages=results)
        return Reply(reward=float(is_correct(message["content"], calculate(self.task))), done=True)

    def demonstrate(self, row: Row, seed: int) -> list[Message]:
        """A call, where there is the tool, and the answer."""
        calls = [write_call("calculate", expression=self.task)] if self.start(row, seed)[1] else []
        return [*calls, write_message("assistant", f"#### {calculate(self.task)}")]
