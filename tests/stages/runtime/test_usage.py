"""Samples of processor and memory while a seed run works."""

import time

from stages.runtime import journal, usage


def test_a_busy_process_uses_a_core_and_holds_its_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "SECONDS", 0.2)
    path = tmp_path / "usage.jsonl"
    with usage.sampling(path):
        ballast = bytearray(200 * usage.MEGABYTE)
        end = time.monotonic() + 60
        while not (path.exists() and path.read_text().count("\n") >= 3):
            assert time.monotonic() < end, "no three rows in a minute"
    rows = list(journal.read_rows(path))
    assert [row.index for row in rows] == list(range(len(rows)))
    # at most this thread and the sampler's, on a machine that others may use
    assert 0.05 < rows[-1].metrics["cpu_cores"] < 2
    assert rows[-1].metrics["memory_megabytes"] > len(ballast) / usage.MEGABYTE
    assert len(list(tmp_path.iterdir())) == 1


def test_a_short_run_leaves_no_file(tmp_path):
    with usage.sampling(tmp_path / "usage.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []
