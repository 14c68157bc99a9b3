from stages.reports import seed_costs
from stages.reports.stage_costs import StageCost


def cost(generated, trained, seconds):
    return StageCost(
        seconds=seconds,
        peak_memory_bytes=None,
        grown_memory_bytes=None,
        peak_gpu_memory_bytes=None,
        generated_tokens=generated,
        trained_tokens=trained,
        models={},
    )


def test_what_came_before_is_apart_and_the_overshoot_is_a_share_of_the_budget():
    paid = {
        "sample_candidates/sft-preference": cost(300, 0, 2.0),
        "train_reward_model/sft-0": cost(0, 100, 3.0),
        "train_ppo/ppo": cost(320, 330, 5.04),
    }
    assert seed_costs.row("ppo", 7, paid, "train_ppo/ppo", 1000) == {
        "policy": "ppo",
        "seed": 7,
        "before": 400,
        "generated": 320,
        "trained": 330,
        "total": 1050,
        "overshoot": 0.05,
        "seconds": 10.0,
    }
