"""Rows that name nothing or each other in a circle, and names that are no folder's."""

from pathlib import Path

from bad_inputs.case import PARAMS, Case, both, edit, key, row, whole

NAMES = {
    "..": "..", ".": ".", "a/b": "a/b", "../../x": "../../x", "/tmp/x": "/tmp/x", "a dot": ".x",
    "a dash": "-x", "a space": "a b", "nothing": "", "a newline": "a\nb", "a NUL": "a\0b",
    "a tab": "a\tb", "an escape": "a\x1b[2J", "a Cyrillic e": "gr\u0435po",
    "the Kelvin sign": "\u212a", "a zero-width space": "grpo\u200b", "a full-width g": "\uff47rpo",
    "an accent apart": "gre\u0301po", "right to left": "a\u202eb", "an emoji": "\U0001f642",
    "300 characters": "x" * 300,
    "HTML": "<b>x</b>", "a quote": "a'b", "a dollar": "${seeds}", "a star": "a*", "an at": "a@b",
    "a colon": "a:b", "a backslash": "a\\b", "a pipe": "a|b", "base": "base", "capitals": "SFT",
}  # fmt: skip
CASES = [
    Case("from a policy that no row makes", row("policies", "x", from_="sfft")),
    Case("on a reward that no row makes", row("policies", "x", on="rewards/rules")),
    Case("on a table that it cannot read", row("policies", "x", on="pairs/verifier")),
    Case("on a path out of data", row("policies", "x", on="../../etc/passwd")),
    Case(
        "on raw with ..",
        row("pairs", "judge", by="people", preset="hh_rlhf", on="raw/../../secret"),
    ),
    Case(
        "on a raw folder",
        both(
            lambda: Path("data/raw/x").mkdir(parents=True),
            row("pairs", "judge", by="people", preset="hh_rlhf", on="raw/x"),
        ),
    ),
    Case(
        "on a raw that is the folder itself",
        both(
            lambda: Path("data/raw").mkdir(parents=True),
            row("pairs", "judge", by="people", preset="hh_rlhf", on="raw"),
        ),
    ),
    Case(
        "on an absolute path",
        row("pairs", "judge", by="people", preset="hh_rlhf", on="/etc/passwd"),
    ),
    Case(
        "on a raw file that is not there",
        row("pairs", "judge", by="people", preset="hh_rlhf", on="raw/hh.jsonl"),
    ),
    Case("a kind that is none", row("policies", "x", train="gpro")),
    Case("a kind with ..", row("policies", "x", train="../x")),
    Case("a preset that is none", row("policies", "x", preset="dapoo")),
    Case("a preset of another kind", row("policies", "x", preset="simpo")),
    Case("a word too many", row("policies", "x", seed="3")),
    Case("a word that lacks", edit(PARAMS, lambda c: c["policies"]["grpo"].pop("on"))),
    Case("an empty word", row("policies", "x", on="")),
    Case("a number for a word", row("policies", "x", from_=3)),
    Case("null for a row", key("policies.sft", None)),
    Case("a list for a row", key("policies.sft", ["sft", "base"])),
    Case("a list for a table", key("policies", ["sft"])),
    Case("null for a table", key("pools", None)),
    Case(
        "a number for a name",
        edit(PARAMS, lambda c: c["policies"].update({7: c["policies"]["grpo"]})),
    ),
    Case(
        "true for a name",
        edit(PARAMS, lambda c: c["policies"].update({True: c["policies"]["grpo"]})),
    ),
    Case("from itself", row("policies", "grpo", from_="grpo")),
    Case(
        "two in a circle",
        both(row("policies", "x", from_="grpo"), row("policies", "grpo", from_="x")),
    ),
    Case(
        "a circle through four tables",
        row("policies", "sft", train="grpo", preset="dapo", from_="grpo", on="rewards/preference"),
    ),
    Case("a pool of the test", row("pools", "sft", split="test")),
    Case(
        "a recipe that is not there",
        edit("dvc.yaml", lambda c: c.update(vars=["stages/recipes/gone.yaml"])),
    ),
    Case(
        "a recipe that is empty",
        both(
            whole("stages/recipes/mine.yaml", ""),
            edit("dvc.yaml", lambda c: c.update(vars=["stages/recipes/mine.yaml"])),
        ),
    ),
    Case(
        "a recipe whose row says something else",
        both(
            whole(
                "stages/recipes/mine.yaml",
                "tables: {mine: stages/recipes/mine.yaml}\npolicies:\n"
                "  sft: {train: sft, preset: cold_start, from: base, on: demonstrations}\n",
            ),
            edit("dvc.yaml", lambda c: c.update(vars=["stages/recipes/mine.yaml"])),
        ),
    ),
    *(Case(f"the name {item}", row("policies", name)) for item, name in NAMES.items()),
    Case(
        "a reward of a reserved name",
        row("rewards", "longest", by="rule", preset="rule", from_="base", on="prompts"),
    ),
    Case("baseline with ..", key("baseline", "../x")),
]
