import pytest

from stages.engines.answer_cache import AnswerCache


def test_an_answer_is_found_by_the_whole_content_of_its_request(tmp_path):
    cache = AnswerCache(tmp_path)
    assert cache.get({"message": "x", "model": "m"}) is None
    cache.put({"message": "x", "model": "m"}, {"mass": 0.9})
    assert cache.get({"model": "m", "message": "x"}) == {"mass": 0.9}
    assert cache.get({"message": "x", "model": "n"}) is None
    assert cache.get({"message": "y", "model": "m"}) is None


def test_nothing_half_written_is_left(tmp_path):
    cache = AnswerCache(tmp_path)
    for number in range(3):
        cache.put({"message": "é"}, {"mass": number})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.suffix for path in files] == [".json"]
    assert cache.get({"message": "é"}) == {"mass": 2}


@pytest.mark.parametrize("content", ["{", "[]", '{"request": {"message": "y"}, "answer": {}}'])
def test_a_file_that_is_something_else_is_told(tmp_path, content):
    cache = AnswerCache(tmp_path)
    cache.put({"message": "x"}, {"mass": 1})
    (path,) = tmp_path.rglob("*.json")
    path.write_text(content)
    with pytest.raises(ValueError, match="delete this file"):
        cache.get({"message": "x"})
