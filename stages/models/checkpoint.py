"""Read a checkpoint whole: a weight that is not in the file is an error, not a random number."""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging


def read(
    auto_class: Any, path: str | Path, *, new: frozenset[str], **settings: Any
) -> PreTrainedModel:
    """The model of `auto_class` (an AutoModelFor...) at `path`, a folder or a hub id.

    Weights are read from safetensors, in float32; attention is PyTorch's, which takes
    the boolean masks of shared rows (eager attention would add them to the scores).

    Args:
        new: names of weights that are meant to be missing: a new head.

    Raises:
        ValueError: any other weight is missing, or one has another shape.
    """
    # What the report and the bar say is checked below, or is noise in a log.
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model, report = auto_class.from_pretrained(
            str(path),
            dtype=torch.float32,
            use_safetensors=True,
            attn_implementation="sdpa",
            output_loading_info=True,
            **settings,
        )
    finally:
        logging.set_verbosity(verbosity)
    wrong = (set(report["missing_keys"]) - new) | {str(key) for key in report["mismatched_keys"]}
    if wrong:
        raise ValueError(
            f"{path}: weights missing or of another shape: {', '.join(sorted(wrong))}. The "
            f"checkpoint is not a whole {auto_class.__name__}: save it again with "
            f"save_pretrained, or name another in params.yaml."
        )
    return model
