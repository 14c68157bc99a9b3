"""Counters of work within calls that take minutes, only for the display of progress.

No output may depend on them. Code that does the work adds to `COUNTS`, by unit; `loops/run` reads
it:

    rows          read from files of data
    texts         tokenized
    completions   sampled to their end
    messages      answered by a judge
    tokens        read in micro-batches, of completions that are scored or learned from
"""

from collections import Counter

COUNTS: Counter[str] = Counter()
