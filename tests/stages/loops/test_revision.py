from functools import partial
from itertools import pairwise

import torch
from tiny_checkpoints import CPU, compute

from stages.engines import transformers
from stages.loops import revision
from stages.loops.revision import RevisionConfig
from stages.models import model_tokenizer, policy, prompting
from stages.models.row_policy import TinyConfig, build_tiny
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards.feedback import prompts
from stages.rewards.feedback.principles import CONSTITUTIONS
from stages.rewards.feedback.revisions import DraftAnswer

WORDS = model_tokenizer.train_tokenizer(
    ["Check result: Anna has 3 apples.\n> #### 3\nCritique:\n"] * 2, 700
)
SHAPE = TinyConfig(
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    intermediate_size=32,
    max_length=256,
    vocab_size=700,
)


def make_sampler():
    torch.manual_seed(0)
    model = policy.prepare_model(build_tiny(SHAPE, WORDS, 0), compute(), CPU)
    return transformers.make_sampler(model, WORDS, max_batch=64)


SAMPLER = make_sampler()
DECODE, ENCODE = (
    model_tokenizer.make_decode(WORDS),
    partial(prompting.tokenize_messages, tokenizer=WORDS),
)


def answer(number: int) -> DraftAnswer:
    prompt = Prompt(
        id=f"p{number // 2}",
        task="solve",
        question=f"Anna has {number // 2} apples.",
        prompt="",
        prompt_ids=[5],
        answer=str(number // 2),
    )
    completion = Completion(
        id=prompt.id,
        index=number % 2,
        completion=f"#### {number}",
        completion_ids=[number, 1],
        logprob_sum=-1.0,
        finish_reason="stop",
        seed=0,
    )
    return DraftAnswer(prompt, completion)


ANSWERS = [answer(number) for number in range(8)]


def config(**changes):
    settings = {
        "constitution": "correct",
        "style": "short",
        "num_rounds": 3,
        "max_per_problem": 2,
        "temperature": 1.0,
        "max_prompt_tokens": 200,
        "max_new_tokens": 6,
    }
    return RevisionConfig(**(settings | changes))


def steps(answers=ANSWERS, seed=0, split="train", **changes):
    result = revision.rounds(SAMPLER, DECODE, ENCODE, answers, config(**changes), seed, split)
    return list(result)


def test_each_round_revises_the_last_rounds_revision():
    result = steps()
    assert [step.index for step in result] == [0, 1, 2]
    assert [row.original for row in result[0].rows] == [a.completion.completion for a in ANSWERS]
    for before, after in pairwise(result):
        assert [row.revision for row in before.rows] == [row.original for row in after.rows]
        assert {row.round for row in after.rows} == {after.index + 1}
    for step in result:
        assert [(row.id, row.index) for row in step.rows] == [
            (a.completion.id, a.completion.index) for a in ANSWERS
        ]


def test_texts_are_those_of_the_sampled_tokens_which_are_kept():
    rows = [row for step in steps() for row in step.rows]
    assert rows
    for row in rows:
        assert row.revision == DECODE(row.revision_ids)
        assert row.critique == DECODE(row.critique_ids)
        assert (row.revision_finish == "stop") == (row.revision_ids[-1] == WORDS.eos_token_id)
    drawn = sum(len(row.critique_ids) + len(row.revision_ids) for row in rows)
    assert sum(step.metrics["tokens/generated"] for step in steps()) == drawn


def test_what_is_asked_is_the_critique_and_then_the_revision_given_it():
    """Greedy decoding, asked by hand with the rows' own principle, answer and critique."""
    questions = {a.prompt.id: a.prompt.question for a in ANSWERS}

    def ask(message):
        ((sample,),) = SAMPLER.sample(
            ENCODE([message]), [0], num_samples=1, temperature=0.0, max_new_tokens=6
        )
        return sample.token_ids

    for style in ("short", "full"):
        settings = {"temperature": 0.0, "num_rounds": 1, "style": style, "max_prompt_tokens": 250}
        (step,) = steps(ANSWERS[::4], **settings)
        principles = {principle.name: principle for principle in CONSTITUTIONS["correct"]}
        for row in step.rows:
            question_and_answer = (questions[row.id], row.original)
            principle = principles[row.principle]
            critique = prompts.critique_message(style, *question_and_answer, principle)
            assert ask(critique) == row.critique_ids
            assert row.version == prompts.REVISION_VERSIONS[style]
            wanted = prompts.revision_message(style, *question_and_answer, row.critique, principle)
            assert ask(wanted) == row.revision_ids


def test_an_answers_rounds_do_not_depend_on_the_other_answers():
    alone = [row for step in steps(ANSWERS[3:4]) for row in step.rows]
    among = [row for step in steps() for row in step.rows if (row.id, row.index) == ("p1", 1)]
    assert alone == among
    assert steps() == steps()


def test_principles_are_drawn_for_each_round_and_problem():
    rows = [row for step in steps() for row in step.rows]
    names = {principle.name for principle in CONSTITUTIONS["correct"]}
    assert {row.principle for row in rows} == names
    assert len({row.principle for row in rows if (row.id, row.index) == ("p0", 0)}) > 1
    for changed in (steps(seed=1), steps(split="heldout")):
        assert [r.revision for s in changed for r in s.rows] != [row.revision for row in rows]
    harmless = {row.principle for step in steps(constitution="harmless") for row in step.rows}
    assert harmless <= {principle.name for principle in CONSTITUTIONS["harmless"]}


def test_an_answer_whose_request_is_too_long_is_left_out_from_then_on():
    long = DraftAnswer(
        ANSWERS[0].prompt,
        Completion(
            id="p0",
            index=0,
            completion="3 + 4 = 7\n" * 40,
            completion_ids=[3, 1],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        ),
    )
    result = steps([long, *ANSWERS[2:]])
    assert [len(step.rows) for step in result] == [6, 6, 6]
    assert all(row.id != "p0" for step in result for row in step.rows)
    assert [row.revision for row in result[2].rows] == [row.revision for row in steps()[2].rows[2:]]
    assert [step.rows for step in steps([long])] == [[], [], []]
