from stages.reports import cost_tables, stage_costs

POLICY = {
    "parameters": 1000, "trained_parameters": 1000, "body": 800, "output": 150,
    "trained_body": 800, "trained_output": 150,
}  # fmt: skip
FROZEN = {"trained_parameters": 0, "trained_body": 0, "trained_output": 0}
PPO = {
    "generated_tokens": 60,
    "trained_tokens": 60,
    "work": {
        "policy": POLICY
        | {
            "sampled": {"positions": 90, "outputs": 60},
            "trained": {"positions": 100, "outputs": 60},
        },
        "scorer": POLICY | FROZEN | {"output": 0, "read": {"positions": 100, "outputs": 0}},
    },
}
RECORD = {"seconds": 3.0, "peak_memory_bytes": 500 * 2**20, "memory_at_start_bytes": 400 * 2**20}


def test_the_operations_of_a_hand_worked_stage():
    cost = stage_costs.read(PPO, RECORD)
    sampled = 2 * (800 * 90 + 150 * 60)
    trained = 6 * (800 * 100 + 150 * 60)
    assert cost.models["policy"].flops == sampled + trained
    assert cost.models["scorer"].flops == 2 * 800 * 100
    assert stage_costs.total_flops(cost) == sampled + trained + 160_000
    # 4 bytes a weight of both models, 12 more of the one that is trained
    assert stage_costs.model_bytes(cost) == 4 * 2000 + 12 * 1000
    assert stage_costs.throughput(cost) == {"generated": 20.0, "trained": 20.0}
    assert cost.grown_memory_bytes == 100 * 2**20


def test_what_nobody_measured_is_none_and_not_zero():
    cost = stage_costs.read({"trained_tokens": 0}, {"seconds": 1.0, "peak_memory_bytes": None})
    assert cost.peak_memory_bytes is cost.grown_memory_bytes is cost.peak_gpu_memory_bytes is None
    assert cost.models == {}
    row = cost_tables.by_stage({"label_preferences/sft": cost}).splitlines()[-1]
    assert row == "| label_preferences/sft | 1.0 | none | none | 0 | 0 | none | none |"


def test_an_endpoint_has_no_operations():
    assert stage_costs.read({"generated_tokens": 7, "work": {}}, RECORD).models == {}


def test_entries_together_are_sums_and_the_largest_peak():
    one = stage_costs.read(PPO, RECORD)
    other = stage_costs.read(PPO, RECORD | {"peak_memory_bytes": 700 * 2**20})
    found = stage_costs.together([one, other])
    assert found["flops"] == 2 * stage_costs.total_flops(one)
    assert found["peak_memory_bytes"] == 700 * 2**20
    assert (found["generated_tokens"], found["seconds"]) == (120, 6.0)


def test_methods_stand_side_by_side():
    ppo = stage_costs.read(PPO, RECORD)
    dpo = stage_costs.read(PPO | {"work": {"policy": PPO["work"]["policy"]}}, RECORD)
    costs = {"train_ppo/a": ppo, "train_dpo/b": dpo, "train_sft/s": dpo}
    header, _, first, second = cost_tables.side_by_side(
        {"ppo": "train_ppo/a", "dpo": "train_dpo/b"}, costs
    ).splitlines()
    assert header.count("|") == first.count("|") == second.count("|")
    assert "ppo (train_ppo)" in first
    assert "policy 0.00 M*, scorer 0.00 M |" in first
    section = cost_tables.section(
        {"sft": ["train_sft/s"], "ppo": ["train_sft/s", "train_ppo/a"]},
        {"ppo": "train_ppo/a"},
        costs,
    )
    assert "| ppo: train_sft/s, train_ppo/a | 120 | 120 |" in section
    assert cost_tables.LEGEND in section
