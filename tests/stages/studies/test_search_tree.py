from tiny_rollouts import make_prompts

from stages.studies.search_tree import Candidate, Search

(PROMPT,) = make_prompts(1)  # of 2 tokens


def grown(parent, piece, score, *, finish="step", tree=0, steps=None):
    """Each piece is a step, but for those that say otherwise."""
    before = parent.ids if parent else ()
    return Candidate(
        tree=tree,
        parent=parent,
        piece=list(piece),
        ids=(*before, *piece),
        finish_reason=finish,
        steps=steps or [*(parent.steps if parent else []), list(piece)],
        step_scores=[*(parent.step_scores if parent else []), score],
        score=score,
    )


def test_a_finished_solution_stays_in_the_competition():
    search = Search(prompt=PROMPT)
    early = grown(None, [3, 1], 0.6, finish="stop")
    better, worse = grown(None, [4], 0.9), grown(None, [5], 0.5)
    search.choose([early, better, worse], keep=1, distinct=False)
    assert search.live == search.kept == [better]
    # What looked better leads to nothing: the solution that had lost its place has it again.
    bad = [grown(better, [6], 0.2), grown(better, [7], 0.3)]
    search.choose(bad, keep=1, distinct=False)
    assert search.kept == [early]
    assert search.live == []
    assert search.solutions() == [early]
    assert search.depth == 2


def test_a_finished_solution_with_a_place_is_not_gone_on_with():
    search = Search(prompt=PROMPT)
    early = grown(None, [3, 1], 0.9, finish="stop")
    others = [grown(None, [4], 0.8), grown(None, [5], 0.7)]
    search.choose([*others, early], keep=2, distinct=False)
    assert search.kept == [early, others[0]]
    assert search.live == [others[0]]
    last = grown(others[0], [6, 1], 0.85, finish="stop")
    search.choose([last], keep=2, distinct=False)
    assert search.solutions() == [early, last]


def test_at_the_limit_on_steps_what_has_a_place_is_a_solution():
    search = Search(prompt=PROMPT)
    done, live = grown(None, [3, 1], 0.5, finish="stop"), grown(None, [4], 0.8)
    lost = grown(None, [5], 0.4)
    search.choose([done, live, lost], keep=1, distinct=False)
    assert search.solutions() == [live, done]


def test_each_tree_goes_on_with_its_own_best():
    search = Search(prompt=PROMPT)
    first = [grown(None, [4], 0.9, tree=0), grown(None, [5], 0.8, tree=0)]
    second = [grown(None, [4], 0.1, tree=1), grown(None, [6], 0.2, tree=1)]
    search.choose([*first, *second], keep=1, distinct=False)
    assert search.live == [first[0], second[1]]


def test_copies_have_one_place_if_asked_to():
    for distinct, places in ((True, 1), (False, 2)):
        search = Search(prompt=PROMPT)
        twins = [grown(None, [4], 0.9), grown(None, [4], 0.9)]
        search.choose([*twins, grown(None, [5], 0.1)], keep=2, distinct=distinct)
        assert search.live[:places] == twins[:places]
        assert (search.live[1].ids == (5,)) == distinct


def test_of_equal_scores_the_solution_with_a_place_comes_first():
    search = Search(prompt=PROMPT)
    twins = [grown(None, [5, 1], 0.9, finish="stop"), grown(None, [4, 1], 0.9, finish="stop")]
    search.choose(twins[:1], keep=1, distinct=False)
    search.kept = []
    search.choose(twins[1:], keep=1, distinct=False)
    assert search.kept == [twins[0]]
    assert search.solutions() == twins


def test_the_cost_counted_by_hand():
    search = Search(prompt=PROMPT)
    search.request()  # the prompt: 2
    kept, lost = grown(None, [4, 9], 0.9), grown(None, [5, 9], 0.5)
    done = grown(None, [3, 1], 0.1, finish="stop")
    search.choose([kept, lost, done], keep=1, distinct=False)
    search.request()  # prompt and the kept step: 4
    end, twin = (grown(kept, [6, 7, 1], 0.9, finish="stop") for _ in range(2))
    cut = grown(kept, [8, 8, 8], 0.3, finish="length")
    search.choose([end, twin, cut], keep=1, distinct=False)
    assert search.live == []
    cost = search.cost()
    assert cost.depth == 2
    assert cost.read_tokens == 2 + 4
    assert cost.read_tokens_once == 2
    assert cost.generated_tokens == 3 * 2 + 3 * 3
    # Only the lost step leads to no solution: the one that was cut is one, and so is the guess.
    assert cost.dropped_tokens == 2
    # prompt, three steps of 2 tokens with their STEP, and two different ones of 3
    assert cost.scored_tokens_once == 2 + 3 * 3 + 2 * 4
    assert cost.scored_tokens == 0, "counted by the loop, which knows what the model reads"
