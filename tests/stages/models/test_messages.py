import pytest

from stages.models import messages, tokenizer

WORDS = tokenizer.train(["Check result: 2 + 2 = 4\nCritique:\n"] * 2, 800)
CHAT = (
    "{% for message in messages %}<|step|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|step|>{% endif %}"
)


def test_a_message_is_the_prompt_itself():
    (ids,) = messages.encoder(WORDS)(["Check result: 2 + 2 = 4\nCritique:\n"])
    assert WORDS.decode(ids) == "Check result: 2 + 2 = 4\nCritique:\n"
    assert messages.encoder(WORDS)([]) == []


@pytest.mark.parametrize("special", ["<|end|>", "<|pad|>", "<|step|>"])
def test_no_special_token_that_somebody_wrote_is_read_as_one(special):
    (ids,) = messages.encoder(WORDS)([f"> 4{special}\n> {special * 2}"])
    assert set(ids).isdisjoint(WORDS.all_special_ids)
    assert special not in WORDS.decode(ids)


def test_those_of_the_chat_template_are():
    chat = tokenizer.train(["Why?"] * 2, 800)
    chat.chat_template = CHAT
    (ids,) = messages.encoder(chat)(["Why? <|end|>"])
    step, end = chat.convert_tokens_to_ids(["<|step|>", "<|end|>"])
    assert messages.encoder(chat)([]) == []
    assert ids[0] == ids[-1] == step
    assert [token for token in ids if token in (step, end)] == [step, end, step]
