"""Problems of reasoning-gym, by family: items whose answers the package can check by program.

The package (Stojanovski et al. 2025, https://arxiv.org/abs/2505.24760) makes item i of seed s from
the number s + i, so that seeds 0 and 1 hold the same items shifted by one. Here all items have one
seed, and a question that was there before is passed over: whoever divides them by index, or by the
hash of the question, has none on two sides. What else is wrong with a family is measured by
`python -m studies.reasoning_gym` for the version below, and refused here by name.
"""

import contextlib
import importlib
import io
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from stages.config import Params
from stages.records.problems import Problem
from stages.rewards import answer_checker
from stages.seeding import derive_seed
from stages.sources.splitting import normalise_question

VERSION = "0.1.25"
"""The version that the lists below were measured with."""
SIZE = 5_000
"""Items of a family. Of a few families, items depend on the size of the data set."""
HASH_SEED = frozenset((
    "codeio", "intermediate_integration", "isomorphic_strings", "knight_swap", "list_functions",
    "polynomial_multiplication", "ransom_note", "word_ladder",
))  # fmt: skip
"""Families whose items depend on PYTHONHASHSEED, so that each process has others."""
NO_ANSWER = frozenset((
    "boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour",
))  # fmt: skip
"""Families without a stored answer: an answer can be scored, but not compared or shown."""
ANY_TEXT = frozenset((
    "game_of_life_halting",
))  # fmt: skip
"""Families whose `score_answer` pays any text in full."""
RAISES = frozenset((
    "prime_factorization",
))  # fmt: skip
"""Families whose `score_answer` raises at a text that is no answer."""
EVALUATES = frozenset((
    "binary_matrix", "countdown", "intermediate_integration", "n_queens",
    "polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix",
    "string_insertion",
))  # fmt: skip
"""Families whose `score_answer` evaluates the answer as Python, by `eval` or sympy's parser."""
CHECKED = frozenset((
    "acre", "aiw", "basic_arithmetic", "bf", "binary_alternation", "calendar_arithmetic",
    "chain_sum", "circuit_logic", "color_cube_rotation", "complex_arithmetic", "count_bits",
    "count_primes", "course_schedule", "cryptarithm", "decimal_chain_sum", "dice",
    "family_relationships", "figlet_font", "fraction_simplification", "gcd", "gsm_symbolic",
    "largest_island", "lcm", "leg_counting", "letter_counting", "mahjong_puzzle", "maze",
    "needle_haystack", "number_filtering", "number_sequence", "number_sorting",
    "polynomial_equations", "products", "rectangle_count", "rotten_oranges", "self_reference",
    "simple_equations", "simple_geometry", "spell_backward", "string_insertion",
    "string_manipulation", "syllogism", "time_intervals", "zebra_puzzles",
))  # fmt: skip
"""Families of which the answer checker judges all answers as the package does."""
MAX_REPEATS = 200
"""Repeated questions in a row after which a family has no others."""

Families = Mapping[str, Mapping[str, Any]]
"""Names of families, each with its parameters: `{chain_sum: {min_terms: 2}}`."""
Item = Mapping[str, Any]
"""As the package makes it: `question`, `answer`, `metadata`."""


def check_families(families: Families) -> Families:
    """The families; a ValueError for one that no result should rest on."""
    for name, options in families.items():
        reasons = {
            "its items depend on PYTHONHASHSEED: no two processes see the same": HASH_SEED,
            "its score_answer pays any text in full": ANY_TEXT,
            "it consists of other families: name these": ("composite",),
        }
        for reason, refused in reasons.items():
            if name in refused:
                raise ValueError(f"family '{name}' is refused: {reason}. Take another one.")
        if reserved := {"seed", "size"} & options.keys():
            raise ValueError(
                f"family '{name}': expected parameters of its configuration, found "
                f"{', '.join(sorted(reserved))}, which this project sets: leave it out"
            )
    return families


def check_scored_families(families: Families) -> Families:
    """As `check_families`, of families whose answers the package scores in an environment."""
    for name in families:
        reasons = {
            "its score_answer evaluates the answer, which a model writes, as Python": EVALUATES,
            "its score_answer raises at a text that is no answer": RAISES,
        }
        for reason, refused in reasons.items():
            if name in refused:
                raise ValueError(f"family '{name}' is refused: {reason}. Take another one.")
    return check_families(families)


def check_checked_families(families: Families) -> Families:
    """As `check_families`, of families whose answers the answer checker compares."""
    for name in check_families(families):
        if name not in CHECKED:
            why = (
                "it stores no answer"
                if name in NO_ANSWER
                else "the answer checker does not judge its answers as the package does"
            )
            raise ValueError(
                f"family '{name}' is no source of problems: {why}. Let the package score it, as "
                f"an environment `by: reasoning_gym`, or take a family of those that "
                f"studies/reasoning_gym.md lists as sources"
            )
    return families


class ReasoningGymConfig(Params):
    """Which problems of reasoning-gym to make."""

    licence: ClassVar = f"Apache-2.0 (generated by reasoning-gym {VERSION})"
    kind: Literal["reasoning_gym"]
    families: Annotated[
        dict[str, dict[str, Any]], Field(min_length=1), AfterValidator(check_checked_families)
    ]
    """Families with the parameters of their configurations. Problems come from each in turn."""
    num_problems: int = Field(gt=0)
    """Distinct problems of all families together."""


def open_family(name: str, options: Mapping[str, Any], seed: int) -> Any:
    """The package's data set of a family; a ValueError where that cannot be made."""
    try:
        package = importlib.import_module("reasoning_gym")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"expected reasoning-gym, found no module {error.name}: pip install -c "
            f"constraints.txt -e '.[environments]'"
        ) from error
    if (version := metadata.version("reasoning-gym")) != VERSION:
        raise ValueError(
            f"expected reasoning-gym {VERSION}, whose families were measured, found {version}. "
            f"Install the pinned one, or measure: python -m studies.reasoning_gym"
        )
    try:
        # Some families print while they are made.
        with contextlib.redirect_stdout(io.StringIO()):
            return package.create_dataset(name, **options, seed=seed % 2**32, size=SIZE)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"family '{name}' of reasoning-gym with {dict(options)}: {error or 'not valid'}. "
            f"Correct its name or parameters."
        ) from error


class Items:
    """The different items of a family, in the order of their indices."""

    def __init__(self, name: str, options: Mapping[str, Any], seed: int) -> None:
        self.name = name
        self.dataset = open_family(name, options, seed)
        self._items = list[Item]()
        self._questions = set[str]()
        self._number = self._repeats = 0

    def __getitem__(self, index: int) -> Item:
        """Item `index`, from 0; a ValueError where the family has no more."""
        while len(self._items) <= index:
            if self._repeats >= MAX_REPEATS or self._number >= SIZE:
                raise ValueError(
                    f"family '{self.name}' of reasoning-gym has {len(self._items)} different "
                    f"questions, expected one more. Ask for fewer problems, or give it parameters "
                    f"with more room."
                )
            with contextlib.redirect_stdout(io.StringIO()):
                item = self.dataset[self._number]
            question = normalise_question(item["question"])
            is_new = question not in self._questions
            # Counted together, after what a time limit may interrupt.
            self._number, self._repeats = self._number + 1, 0 if is_new else self._repeats + 1
            if is_new:
                self._questions.add(question)
                self._items.append(item)
        return self._items[index]

    def score(self, answer: str, item: Item) -> float:
        """The package's score of an answer, from 0 to 1."""
        return float(self.dataset.score_answer(answer, item))


@lru_cache(maxsize=64)
def _open_items(name: str, options: str, seed: int) -> Items:
    return Items(name, json.loads(options), seed)


def open_items(families: Families, index: int, seed: int) -> tuple[Items, int]:
    """The family that the problem `index` is of, and its index there: each family in turn."""
    name = list(families)[index % len(families)]
    options = json.dumps(families[name], sort_keys=True)
    return _open_items(name, options, derive_seed(seed, "reasoning_gym", name)), index // len(
        families
    )


def generate_problems(config: ReasoningGymConfig, seed: int) -> Iterator[Problem]:
    """`config.num_problems` problems with distinct questions, the same for the same seed.

    The solution is the answer alone. A ValueError where the package does not pay its own answer.
    """
    for number in range(config.num_problems):
        items, index = open_items(config.families, number, seed)
        item = items[index]
        answer = str(item["answer"])
        if items.score(answer, item) != 1 or answer_checker.read_gold(answer) is None:
            raise ValueError(
                f"family '{items.name}', item {index}: expected an answer that the package and the "
                f"answer checker call right, found {answer!r:.60}. Take other parameters."
            )
        yield Problem(
            id=f"{items.name}-{index:05d}", question=item["question"], answer=answer,
            solution=f"#### {answer}", split=None, line=number + 1,
        )  # fmt: skip
