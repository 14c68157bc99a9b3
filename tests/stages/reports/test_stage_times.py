from stages.reports import stage_times


def test_stages_are_ordered_by_what_their_entries_took_together():
    found = stage_times.table(
        {"prepare_data": 3.0, "train_dpo/a": 2.0, "train_sft/sft": 1.5, "train_dpo/b": 2.25}
    )
    assert found.splitlines()[2:] == [
        "| train_dpo | 4.2 | a 2.0, b 2.2 |",
        "| prepare_data | 3.0 |  |",
        "| train_sft | 1.5 | sft 1.5 |",
        "| all | 8.8 | |",
    ]
