"""Turn a source of problems into prompts by split and demonstrations, once, in tokens.

Reads the source that params.yaml names (generated word problems, GSM8K, a JSON-lines file,
a hub data set). Writes the prompts of the splits train, preference, dev and test, which
share no question; the demonstrations for SFT (the solutions of the train split); the
tokenizer; a data card; and every rejected row with its line and reason. A source of which
too much is bad, or whose solutions the answer checker cannot read, is refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import model_validator
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import params, rows
from stages.models import prompting
from stages.models.start import ModelConfig
from stages.params import Params
from stages.records import lines
from stages.rewards import answer_checker
from stages.runtime import outputs, process, runs
from stages.sources import catalogue, splitting
from stages.sources.catalogue import PreparationConfig

PREPARED = rows.DATA / "prepared"


class Config(Params):
    """What prepare_data reads of params.yaml."""

    data_seed: int
    model: ModelConfig
    data: PreparationConfig

    @model_validator(mode="after")
    def _rows_fit_the_model(self) -> "Config":
        longest = max(self.data.max_prompt_tokens, self.data.max_message_tokens)
        self.model.check_length(longest + self.data.max_completion_tokens)
        return self


def main() -> None:
    """Write prompts, demonstrations, tokenizer, data card and quarantine."""
    with runs.start("prepare_data") as run:
        config = params.load(Config)
        section, source, seed = config.data, config.data.source, config.data_seed
        screened = catalogue.screen(source, catalogue.problems(source, seed))
        screened.check_share(section.max_bad_share)
        splits = splitting.split(screened.problems, section.shares)
        other = catalogue.exchanges(source, section.mixture, splits["train"], seed)
        texts = prompting.training_texts(splits["train"], section.prompt_template, other)
        tokenizer = config.model.tokenizer(texts)
        encoded = prompting.encode(
            splits,
            tokenizer,
            template=section.prompt_template,
            max_prompt_tokens=section.max_prompt_tokens,
            max_completion_tokens=section.max_completion_tokens,
            readable=answer_checker.states_an_answer,
        )
        rate = answer_checker.check_rate(len(encoded.demonstrations), encoded.unreadable)
        screened.reject(encoded.rejected)
        screened.check_share(section.max_bad_share)
        learned = prompting.demonstrate(other, tokenizer, section.max_message_tokens)
        demonstrations = [*encoded.demonstrations, *learned]
        card = {
            "source": source.kind,
            "licence": source.licence,
            "extraction_rate": rate,
            **screened.describe(),
            **splitting.describe(encoded.prompts, demonstrations),
        }
        written: dict[str, Sequence[Any]] = {
            f"prompts/{split}.jsonl": prompts for split, prompts in encoded.prompts.items()
        }
        written["demonstrations/demonstrations.jsonl"] = demonstrations
        written["prepared/quarantine.jsonl"] = screened.bad
        write(tokenizer, written, card)
        run.log(0, {f"rows/{name}": float(count) for name, count in card["counts"].items()})


def write(
    tokenizer: PreTrainedTokenizerBase, written: Mapping[str, Sequence[Any]], card: dict[str, Any]
) -> None:
    """Write every output; the data card, with the digests of the others, comes last."""
    for folder in {name.partition("/")[0] for name in written}:
        with outputs.replace(rows.DATA / folder) as temporary:
            temporary.mkdir()
            for path in [Path(name) for name in written if name.startswith(f"{folder}/")]:
                lines.write(temporary / path.name, written[path.as_posix()])
    with outputs.replace(base := rows.model(rows.BASE, 0)) as temporary:
        tokenizer.save_pretrained(temporary)
    card["sha256"] = splitting.digests(rows.DATA, [*written, str(base.relative_to(rows.DATA))])
    outputs.write_json(PREPARED / "data_card.json", card)


if __name__ == "__main__":
    process.run(main)
