"""Work that this process has done inside of calls that take minutes, for lines of progress alone.

No output may depend on it. What counts adds to `COUNTS`; `loops/run` reads it, by its unit:

    rows          read from files of data
    texts         tokenized
    completions   sampled to their end
    messages      answered by a judge
    tokens        read in micro-batches, of completions that are scored or learned from
"""

from collections import Counter

COUNTS: Counter[str] = Counter()
