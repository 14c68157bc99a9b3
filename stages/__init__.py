"""LLM post-training as reproducible, cached stages.

This file runs before every import of a stage's process. Importing torch and transformers makes a
million objects that live until the process ends; looking through them for garbage, again and again,
takes a fifth of the start-up. `runtime.runs.start` sets the collector back.
"""

import gc

COLLECTOR = gc.get_threshold()
"""As the interpreter has it."""
gc.set_threshold(50_000, 20, 50)
