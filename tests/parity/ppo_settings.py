"""What both sides of the comparison of PPO know."""

from tiny_checkpoints import VOCAB

NUM_PROMPTS = 8
# Not a token of the model's: TRL takes a padding token that is sampled as the end.
PADDING = VOCAB
TEMPERATURE, KL_COEF, GAMMA, LAM = 0.7, 0.05, 0.98, 0.9
CLIP, CLIP_VALUE, VALUE_WEIGHT = 0.2, 0.2, 0.1
# Fixed in TRL.
WHITEN_EPS = 1e-8
# Two passes over one rollout batch in one micro-batch: the second is off policy.
SETTINGS = {
    "per_device_train_batch_size": NUM_PROMPTS,
    "num_mini_batches": 1,
    "num_ppo_epochs": 2,
    "total_episodes": NUM_PROMPTS,
    "local_rollout_forward_batch_size": NUM_PROMPTS,
    "num_sample_generations": 0,
    "response_length": 24,
    "learning_rate": 3e-3,
    "temperature": TEMPERATURE,
    "kl_coef": KL_COEF,
    "gamma": GAMMA,
    "lam": LAM,
    "cliprange": CLIP,
    "cliprange_value": CLIP_VALUE,
    "vf_coef": VALUE_WEIGHT,
}
# The names of the trainer's local variables that are compared.
STATE = (
    "queries", "responses", "logprobs", "ref_logprobs", "values", "scores", "rewards",
    "advantages", "returns", "padding_mask", "padding_mask_p1", "loss", "pg_loss", "vf_loss",
)  # fmt: skip
