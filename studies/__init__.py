"""Experiments on a finished run of the pipeline.

`stages` is imported first: it fixes with which instructions torch and numpy compute, which they
read when they are loaded.
"""

import stages  # noqa: F401
