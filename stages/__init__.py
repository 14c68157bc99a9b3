"""LLM post-training as reproducible, cached stages.

This file runs before every import of a stage's process, which import torch and transformers; both
of its parts make that faster, and `runtime.runs.start` takes both back.
"""

import gc
import sys

COLLECTOR = gc.get_threshold()
"""The garbage collector's thresholds as the interpreter has them. The imports make a million
objects that live until the process ends; looking through them for garbage, again and again, takes
a fifth of the start-up."""
gc.set_threshold(50_000, 20, 50)

HIDDEN = "sklearn"
"""transformers imports it where it is installed (MLflow brings it), and pandas with it, for one
function of assisted generation, which no stage uses: a sixth of the start-up. So it is not there
while `python -m stages.<stage>` imports; in anybody else's process it is."""
if sys.argv[0] == "-m":
    sys.modules[HIDDEN] = None  # type: ignore[assignment]
