"""Which model is trained."""

from stages.models.tiny import TinyConfig
from stages.params import Params


class ModelConfig(Params):
    """The model that the pipeline starts from."""

    path: str | None
    """A folder or hub id of a transformers causal language model with its tokenizer;
    null: the small `tiny` Llama, trained from scratch with its own tokenizer."""
    tiny: TinyConfig
    """Its shape; not used when `path` is given."""

    def check_length(self, num_tokens: int) -> None:
        """Raise a ValueError if prepared rows of `num_tokens` are longer than the tiny model's."""
        if self.path is None and num_tokens > self.tiny.max_length:
            raise ValueError(
                f"prepare_data allows rows of {num_tokens} tokens (max_prompt_tokens + "
                f"max_completion_tokens), the model {self.tiny.max_length} "
                f"(model.tiny.max_length): lower the former or raise the latter"
            )
