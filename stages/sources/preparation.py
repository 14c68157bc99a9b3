"""What of a source becomes prompts and demonstrations."""

from pydantic import Field, model_validator

from stages.params import Params
from stages.sources import catalogue, splitting
from stages.sources.feedback_tasks import MixtureConfig


class PreparationConfig(Params):
    """Where problems come from and how they are asked."""

    source: catalogue.SourceConfig
    """The source; `kind` says which."""
    prompt_template: str = Field(pattern=r"\{question\}")
    """The prompt, `{question}` being the question; with a chat template, the user's message."""
    mixture: MixtureConfig | None
    """Demonstrations of judging, criticising and revising besides; null: none."""
    shares: splitting.Shares
    """Shares of the problems in the splits other than train."""
    max_prompt_tokens: int = Field(gt=0)
    """Problems with a longer prompt are rejected."""
    max_completion_tokens: int = Field(gt=0)
    """Problems of the train split with a longer solution are rejected."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share of rejected rows; above it the source is refused."""

    @model_validator(mode="after")
    def _the_source_can_make_the_mixture(self) -> "PreparationConfig":
        catalogue.check_mixture(self.source, self.mixture)
        return self

    @property
    def max_message_tokens(self) -> int:
        """Longest prompt of the mixture's tasks, 0 where there are none."""
        return self.mixture.max_prompt_tokens if self.mixture else 0
