"""Worker side of vLLM's weight transfer if trainer and worker are one process.

`load_weights` does not suffice: on a CPU vLLM packs matrices and drops the originals, so each layer
is restored, loaded and packed again (vLLM's layerwise reload).
"""

# Checked where vLLM is not installed, too.
# pyright: reportMissingImports=false

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader import reload

BACKEND = "in_process"


@dataclass
class InitInfo(WeightTransferInitInfo):
    """No fields: there is no other process to connect to."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """Update with all weights."""

    weights: Iterator[tuple[str, Tensor]]
    """Names and values, as in a checkpoint."""


class InProcess(WeightTransferEngine[InitInfo, UpdateInfo]):
    """Weight transfer engine that reads weights of the same process, one at a time."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Nothing to do."""

    def start_weight_update(self) -> None:
        """Prepare every layer for new weights."""
        # vLLM warns of each layer without weights, such as a tied output layer; `receive_weights`
        # finds the missing weights that matter.
        logging.getLogger(reload.layerwise.__name__).setLevel(logging.ERROR)
        self._expected = {name for name, _ in self.model.named_parameters()}
        reload.initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Load all weights; a ValueError if one is missing: its layer would stay stale."""
        loaded: set[str] = self.model.load_weights(update_info.weights)  # pyright: ignore[reportCallIssue]
        if missing := self._expected - loaded:
            raise ValueError(
                f"the policy has no weights for vLLM's {', '.join(sorted(missing))}: vLLM reads "
                f"this architecture otherwise than transformers. Set engine: transformers."
            )

    def finish_weight_update(self) -> None:
        """Pack the layers again, also an output layer that shares the embedding's weights.

        The reload skips it, since it has no weights, and would leave the old packed ones.
        """
        reload.finalize_layerwise_reload(self.model, self.model_config)
        for layer in self.model.modules():
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)

    def shutdown(self) -> None:
        """Nothing to free."""


WeightTransferEngineFactory.register_engine(BACKEND, InProcess)


def transfer_config() -> WeightTransferConfig:
    """Argument of `vllm.LLM` that makes `InProcess` its weight transfer."""
    return WeightTransferConfig(backend=BACKEND)
