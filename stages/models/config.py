"""Which model is trained."""

from pathlib import Path

from pydantic import model_validator

from stages.models.tiny import TinyConfig
from stages.params import Params


class ModelConfig(Params):
    """The model that the pipeline starts from."""

    path: str | None
    """A folder or hub id of a transformers causal language model with its tokenizer;
    null: the small `tiny` Llama, trained from scratch with its own tokenizer."""
    revision: str | None
    """The commit of a hub id, which may move otherwise; null for a folder."""
    tiny: TinyConfig
    """Its shape; not used when `path` is given."""

    @model_validator(mode="after")
    def _hub_ids_name_their_commit(self) -> "ModelConfig":
        if self.path is not None and self.revision is None and not Path(self.path).is_dir():
            raise ValueError(
                f"'{self.path}' is no folder here, so it is a hub id, and what that holds can "
                f"change: set model.revision to a commit"
            )
        return self

    def check_length(self, num_tokens: int) -> None:
        """Raise a ValueError if prepared rows of `num_tokens` are longer than the tiny model's."""
        if self.path is None and num_tokens > self.tiny.max_length:
            raise ValueError(
                f"prepare_data allows rows of {num_tokens} tokens (max_prompt_tokens + "
                f"max_completion_tokens), the model {self.tiny.max_length} "
                f"(model.tiny.max_length): lower the former or raise the latter"
            )
