"""Outputs appear whole or not at all."""

import pytest

from stages.runtime import outputs, process


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_only_when_the_block_ends(tmp_path):
    path = tmp_path / "folder" / "rows.jsonl"
    with outputs.replace(path) as temporary:
        temporary.write_text("rows")
        assert temporary.parent == path.parent
        assert not path.exists()
    assert path.read_text() == "rows"
    assert names(path.parent) == ["rows.jsonl"]


def test_a_failure_leaves_the_former_output_and_no_rest(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("former")
    with pytest.raises(FileNotFoundError), outputs.replace(path) as temporary:
        (temporary / "half").write_text("its folder was never made")
    assert path.read_text() == "former"
    assert names(tmp_path) == ["rows.jsonl"]


def test_a_half_written_file_is_removed(tmp_path):
    def write(path):
        with outputs.replace(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write(tmp_path / "rows.jsonl")
    assert names(tmp_path) == []


def test_a_read_only_hard_link_is_replaced_and_its_twin_keeps_its_content(tmp_path):
    twin = tmp_path / "cache"
    twin.write_text("cached")
    twin.chmod(0o444)
    path = tmp_path / "rows.jsonl"
    path.hardlink_to(twin)
    with outputs.replace(path) as temporary:
        temporary.write_text("new")
    assert (path.read_text(), twin.read_text()) == ("new", "cached")


def test_a_symbolic_link_is_replaced_not_followed(tmp_path):
    twin = tmp_path / "cache"
    twin.write_text("cached")
    path = tmp_path / "rows.jsonl"
    path.symlink_to(twin)
    with outputs.replace(path) as temporary:
        temporary.write_text("new")
    assert not path.is_symlink()
    assert twin.read_text() == "cached"


@pytest.mark.parametrize("former", ["folder", "file", "nothing"])
def test_a_folder_takes_the_place_of_whatever_was_there(tmp_path, former):
    path = tmp_path / "policy"
    if former == "folder":
        path.mkdir()
        (path / "stale").write_text("stale")
        (path / "stale").chmod(0o444)
    elif former == "file":
        path.write_text("stale")
    with outputs.replace(path) as temporary:
        temporary.mkdir()
        (temporary / "weights").write_text("new")
    assert names(path) == ["weights"]
    assert names(tmp_path) == ["policy"]


def test_what_a_killed_process_left_is_cleared(tmp_path):
    leftover = tmp_path / ".policy.partial"
    leftover.mkdir()
    (leftover / "stale").write_text("stale")
    path = tmp_path / "policy"
    with outputs.replace(path) as temporary:
        temporary.mkdir()
        (temporary / "weights").write_text("new")
    assert names(path) == ["weights"]


def test_writing_nothing_is_an_error(tmp_path):
    nothing = pytest.raises(AssertionError, match="nothing was written")
    with nothing, outputs.replace(tmp_path / "rows.jsonl"):
        pass


def test_json_is_indented_and_ends_with_a_line(tmp_path):
    path = tmp_path / "deep" / "metrics.json"
    outputs.write_json(path, {"b": 1, "a": [0.5, None]})
    assert path.read_text() == '{\n  "b": 1,\n  "a": [\n    0.5,\n    null\n  ]\n}\n'


def go_on(folder, begun, *, fail_at=None, size=5):
    def work(start):
        begun.append(start)
        for index in range(start, size):
            if index == fail_at:
                raise RuntimeError("as asked")
            yield f"part {index}"

    return outputs.keep_parts(folder, work)


EXPECTED = [f"part {index}" for index in range(5)]


def test_what_was_kept_is_read_and_the_rest_computed(tmp_path):
    begun, seen = [], []
    with pytest.raises(RuntimeError):
        seen.extend(go_on(tmp_path / "parts", begun, fail_at=3))
    assert list(go_on(tmp_path / "parts", begun)) == EXPECTED
    assert begun == [0, 3]
    assert list(go_on(tmp_path / "parts", begun)) == EXPECTED
    assert begun == [0, 3, 5]


def test_no_part_is_kept_after_a_request_to_end_that_the_work_caught(tmp_path, monkeypatch):
    parts = go_on(tmp_path / "parts", [])
    assert next(parts) == "part 0"
    monkeypatch.setattr(process, "_stop_request", process._StopRequest(requested=True))
    with pytest.raises(process.Stopped):
        next(parts)
    monkeypatch.undo()
    begun = []
    assert list(go_on(tmp_path / "parts", begun)) == EXPECTED
    assert begun == [1]


def test_a_part_is_kept_before_it_is_used_and_half_a_part_never(tmp_path):
    parts = go_on(tmp_path / "parts", [])
    assert next(parts) == "part 0"
    (tmp_path / "parts/.000001.part.partial").write_text("par")
    parts.close()
    assert list(go_on(tmp_path / "parts", [])) == EXPECTED


@pytest.mark.parametrize("damage", ["torn", "flipped", "gone"])
def test_a_damaged_part_is_made_again_with_those_after_it(damage, tmp_path, caplog):
    begun = []
    assert list(go_on(tmp_path, begun)) == EXPECTED
    path = sorted(tmp_path.glob("*.part"))[2]
    match damage:
        case "torn":
            path.write_bytes(path.read_bytes()[:-1])
        case "flipped":
            path.write_bytes(path.read_bytes().replace(b"2", b"3"))
        case "gone":
            path.unlink()
    assert list(go_on(tmp_path, begun)) == EXPECTED
    assert begun == [0, 2]
    assert "is damaged: it is made again" in caplog.text
    assert len(list(tmp_path.glob("*.part"))) == 5
