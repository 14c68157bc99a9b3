"""How large a model is, as far as the cost of a token goes."""

from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModel


def body_parameters(path: Path) -> int:
    """Parameters that a token is multiplied with, from the checkpoint's config; no weight is read.

    Those of the layers and norms. Embeddings are looked up and not multiplied, and heads (of the
    vocabulary or of scores) are left out with them, as in Kaplan et al. 2020
    (https://arxiv.org/abs/2001.08361, section 2.1): of a small model with a large vocabulary this
    counts too little for every generated token. So does leaving out attention over the context,
    which is small as long as texts are shorter than the hidden state is wide.
    """
    with torch.device("meta"):
        body = AutoModel.from_config(AutoConfig.from_pretrained(path))
    looked_up = {
        id(weight)
        for module in body.modules()
        if isinstance(module, nn.Embedding)
        for weight in module.parameters()
    }
    return sum(one.numel() for one in body.parameters() if id(one) not in looked_up)
