from stages import recipe_budgets

PLAN = {"train_dpo": {"dpo": {}}, "train_ppo": {}, "train_grpo": {"grpo": {}}}


def test_budgets_of_planned_entries_are_right():
    content = {"plan": PLAN, "train_dpo": {"token_budgets": {"dpo": 5}}, "train_grpo": {}}
    assert recipe_budgets.find_problems(content) == []


def test_a_budget_that_would_end_nothing_is_told():
    content = {"plan": PLAN, "train_ppo": {"token_budgets": {"dpo": 5}}}
    (problem,) = recipe_budgets.find_problems(content)
    assert problem == "train_ppo.token_budgets.dpo: the plan has no such entry of train_ppo"
