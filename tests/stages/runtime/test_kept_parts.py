import pytest

from stages.runtime import kept_parts


def go_on(folder, begun, *, fail_at=None, size=5):
    def work(start):
        begun.append(start)
        for index in range(start, size):
            if index == fail_at:
                raise RuntimeError("as asked")
            yield f"part {index}"

    def read(index, path):
        text = path.read_text()
        assert text == f"part {index}"
        return text

    return kept_parts.go_on(folder, work, write=lambda path, part: path.write_text(part), read=read)


EXPECTED = [f"part {index}" for index in range(5)]


def test_what_was_kept_is_read_and_the_rest_computed(tmp_path):
    begun, seen = [], []
    with pytest.raises(RuntimeError):
        seen.extend(go_on(tmp_path / "parts", begun, fail_at=3))
    assert list(go_on(tmp_path / "parts", begun)) == EXPECTED
    assert begun == [0, 3]
    assert list(go_on(tmp_path / "parts", begun)) == EXPECTED
    assert begun == [0, 3, 5]


def test_a_part_is_kept_before_it_is_used_and_half_a_part_never(tmp_path):
    parts = go_on(tmp_path / "parts", [])
    assert next(parts) == "part 0"
    (tmp_path / "parts/.000001.part.partial").write_text("par")
    parts.close()
    assert list(go_on(tmp_path / "parts", [])) == EXPECTED
