"""Near copies of test questions in the training data, by common 8-grams.

A text is a near copy of a test question if it has more than half of the question's different
8-grams of words. A word is a run of letters and digits in lower case; in scripts without spaces,
two characters, about a word's length. So numbers count: a template with other numbers is another
question, unless it is long and few of its words are numbers. A question of fewer than 8 words has
no 8-gram, and no near copies. An 8-gram in more than 1 % of the test questions, and in at least
three, is the data set's template or instruction, and does not count.

Lambert et al. 2024, "Tulu 3: Pushing Frontiers in Open Language Model Post-Training", section 3.2
(https://arxiv.org/abs/2411.15124), compare test instances with single training instances by 8-grams
with a limit of half of the words covered. Departure: ours counts 8-grams, which templates that
differ in every number do not share. The Language Model Evaluation Harness uses 13-grams (Brown et
al. 2020, appendix C), of which most word problems have few.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

N = 8
MAX_SHARE = 0.5
MAX_FREQUENCY, MIN_COUNT = 0.01, 3
"""A template's 8-gram is in more than this share, and at least this number, of questions."""
_NO_SPACES = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
)
"""Scripts without spaces: Thai, Lao, Burmese, Khmer, kana, Chinese characters."""
_WORD = re.compile(rf"[{_NO_SPACES}]{{1,2}}|[^\W{_NO_SPACES}]+")


def split_words(text: str) -> list[str]:
    """The words of a text, without case, punctuation and Unicode variants."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def ngrams(text: str) -> Iterator[tuple[str, ...]]:
    """The 8-grams of a text's words."""
    words = split_words(text)
    return zip(*(words[start:] for start in range(N)), strict=False)


def find_near_copies(texts: Iterable[str], questions: Sequence[str]) -> Iterator[int | None]:
    """Index of the question of which each text is the nearest copy; None: of no question."""
    grams = [set(ngrams(question)) for question in questions]
    frequencies = Counter(gram for of_question in grams for gram in of_question)
    limit = max(MIN_COUNT - 1, MAX_FREQUENCY * len(questions))
    grams = [{gram for gram in of_question if frequencies[gram] <= limit} for of_question in grams]
    index = defaultdict[tuple[str, ...], list[int]](list)
    for number, of_question in enumerate(grams):
        for gram in of_question:
            index[gram].append(number)
    for text in texts:
        counts = Counter[int]()
        for gram in set(filter(index.__contains__, ngrams(text))):
            counts.update(index[gram])
        shares = {number: count / len(grams[number]) for number, count in counts.items()}
        nearest = max(shares, key=lambda number: (shares[number], -number), default=None)
        yield nearest if nearest is not None and shares[nearest] > MAX_SHARE else None
