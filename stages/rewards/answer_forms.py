r"""Forms of final answers: those of `data.answer_forms`, and those that prompts ask for.

| form | a statement |
|---|---|
| `hash` | `#### 42` |
| `boxed` | `\boxed{42}`, `\fbox{42}` |
| `tag` | `<answer>42</answer>` |
| `sentence` | `The answer is 42.`, `The correct option is B` |
| `label` | `Answer: 42` on a line of its own, after one of the words in `LABELS` |
| a text that ends with a colon, `Result:` | as `label`, with this text |

After a label the answer may be on the next line, also if the label is a heading without a colon:
`### Answer`, `**Final Answer**`.

If a prompt asks for a form that the answer checker does not read, every answer counts as wrong;
`UnlistedForms` looks for such prompts.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from stages.config import suggest

LABELS = (
    "Answer", "Final Answer", "The Answer", "The Final Answer", "答案", "最终答案", "Réponse",
    "Réponse finale", "La réponse", "Antwort", "Die Antwort", "Endgültige Antwort", "Respuesta",
    "Respuesta final", "La respuesta", "Ответ", "Окончательный ответ",
)  # fmt: skip
"""Words that state an answer when a colon follows: English, Chinese, French, German, Spanish,
Russian, in any case."""
OPENINGS = {
    "hash": r"(?<!#)####(?!#)",
    "boxed": r"\\(?:boxed|fbox)(?=[ {\d])",
    "tag": r"<answer>",
    "sentence": r"[Aa]nswer is\b|(?:[Cc]orrect|[Rr]ight|[Bb]est) (?:option|choice) is\b",
}
"""Form -> pattern of the beginning of a statement."""
LABEL = "label"
FORMS = (*OPENINGS, LABEL)
COLONS = (":", "：")
MAX_LABEL = 40
"""Largest number of characters of a custom label."""


def check_form(form: str) -> str:
    """The form; a ValueError unless it is a name in `FORMS` or a label with a colon."""
    is_label = form.endswith(COLONS) and len(form.strip()) > 1 and "\n" not in form
    if form in FORMS or (is_label and len(form) <= MAX_LABEL):
        return form
    word = re.sub(r"\W", "", form).lower()
    raise ValueError(
        f"expected one of {', '.join(FORMS)}, or a label of your own that ends with a colon "
        f"(`'Result:'`), found {form!a:.60}{suggest(word, FORMS, otherwise='')}"
    )


@cache
def compile_openings(forms: tuple[str, ...]) -> re.Pattern[str]:
    """Pattern of the beginning of a statement in any of these forms."""
    plain = "|".join(OPENINGS[form] for form in forms if form in OPENINGS) or "(?!)"
    labels = list_labels(forms)
    if not labels:
        return re.compile(plain)
    words = "|".join(map(re.escape, labels))
    label = rf"^[ \t>*_#-]*(?:{words})[ \t*_]*[:：][ \t*_]*"
    heading = rf"^[ \t>]*(?:#{{1,6}}[ \t]*|[*_]{{2}})[*_]*(?:{words})[ \t*_]*\n"
    return re.compile(rf"(?im:{heading})|{plain}|(?im:{label})")


def list_labels(forms: Iterable[str]) -> list[str]:
    """Labels of these forms, without colons."""
    custom_labels = [form[:-1].strip() for form in forms if form.endswith(COLONS)]
    return [*(LABELS if LABEL in forms else ()), *custom_labels]


# --- What prompts ask for

_REQUESTS = {
    "hash": re.compile(r"(?<!#)####(?!#)"),
    "boxed": re.compile(r"\\(?:boxed|fbox)\b"),
    "tag": re.compile(r"</?answer>"),
    # In quotes, as words to write, not as a part of a question: `If the answer is odd, ...`
    "sentence": re.compile(r"[\"'`“‘*]\s*(?:So |Therefore,? )?[Tt]he (?:\w+ )?answer is\b"),
}
_LABELLED = re.compile(
    rf"(?i:(?<!\w)({'|'.join(LABELS)}))[*_]*[:：][*_]*[ \t]*(?:\[|<|\{{|\(|\$|\\|X\b|[\"'`”’])"
)
_OWN_LABEL = re.compile(
    r"\b(?i:lines?|ends?|ending|finish|conclude|format|form|write|start|begin|after|with)\b"
    r"[^\n\"'`“]{0,40}[\"'`“]([A-Z][\w ]{1,30}?)[:：]"
)
"""A label that an instruction quotes: `Write 'Result: <number>' on the last line`."""


def find_requested(prompt: str) -> dict[str, str]:
    """Form that a prompt asks for -> the prompt's words."""
    requests = {
        form: match for form, pattern in _REQUESTS.items() if (match := pattern.search(prompt))
    }
    labelled = [_LABELLED, _OWN_LABEL] if any(colon in prompt for colon in COLONS) else []
    for match in (match for pattern in labelled for match in pattern.finditer(prompt)):
        requests.setdefault(f"{match[1].capitalize()}:", match)
    return {
        form: prompt[max(0, match.start() - 50) : match.end() + 30].strip()
        for form, match in requests.items()
    }


@dataclass(slots=True)
class UnlistedForms:
    """Counter of forms that prompts ask for but `forms` does not list."""

    forms: Sequence[str]
    num_prompts: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    places: dict[str, str] = field(default_factory=dict[str, str])
    """Form -> words of the first prompt that asks for it."""

    def add(self, prompt: str) -> None:
        """Count the forms that a prompt asks for."""
        self.num_prompts += 1
        for form, words in find_requested(prompt).items():
            if form not in self.forms and not self._has_label(form):
                self.places.setdefault(form, words)
                self.counts[form] = self.counts.get(form, 0) + 1

    def _has_label(self, form: str) -> bool:
        labels = {label.lower() for label in list_labels(self.forms)}
        return form.removesuffix(":").lower() in labels

    def describe(self) -> list[str]:
        """A warning for each form."""
        return [
            f"{count} of {self.num_prompts} prompts ask for an answer in the form '{form}' "
            f"({self.places[form]!r}), which the answer checker does not read: add it to "
            f"data.answer_forms, or ask for one of {', '.join(self.forms)} (data.prompt_template)"
            for form, count in self.counts.items()
        ]
