"""One micro-batch of groups, whatever its size; the stages make theirs by a budget of tokens."""

from stages.models import batch


def collate(groups, row_tokens, pad_id, device):
    """Not packed; see `batch.micro_batches`."""
    rows = [[part] for group in groups for part in batch.row_parts(group, row_tokens)]
    return batch.make_batch([rows], pad_id, device)
