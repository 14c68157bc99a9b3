"""Episodes of a policy, or of the environment's own script, in an environment.

    python -m stages play_policy <episodes> --by policy --from .. --on environments/.. --split test
    python -m stages play_script <episodes> --by script --from .. --on environments/.. --split train

`by: policy` plays `num_episodes` episodes from each row of the split. The environment's seed
depends only on the row, so all seeds play the same problems, as intervals over seeds and problems
presuppose. Random streams depend on the seed, the row, the episode's number and the turn, not on
the policy: policies are compared on the same starts and random numbers. `by: script` plays the
environment's own demonstration of each row, in the tokens of the policy `from`. Both write, for
each seed, `episodes.jsonl`, and in metrics.json the shares of success and of each ending. The first
also writes `starts.jsonl`, from which the report knows the starts with the same problem.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from stages import rows, stage
from stages.engines.loading import SamplingConfig
from stages.environments import checks, definition
from stages.environments.definition import EnvironmentFile, EnvironmentRow
from stages.environments.problem_digest import digest_problem
from stages.loops import work
from stages.loops.episodes import Player
from stages.loops.run import Run
from stages.loops.work import Step
from stages.models import model_tokenizer, row_policy, size
from stages.models.turn_rendering import TurnRenderer, render_episode
from stages.records.episodes import (
    EPISODES,
    FAILED,
    STARTS,
    Episode,
    StartProblem,
    summarise_episodes,
)
from stages.seeding import derive_seed

# Starts per call of the engine: enough to fill its batches, few enough to show progress.
CHUNK = 64
ENV_SEED = 0
"""Seed of the environments in all seed runs."""
Play = Callable[[Sequence[EnvironmentRow]], list[Episode]]
"""Function that plays the episodes of some starts."""


CONFIGS = {name: SamplingConfig for name, module in rows.ENTRY_POINTS.items() if module == "play"}


def main(*words: str) -> None:
    """Write the episodes of each seed."""
    stage.run(write_episodes, words, CONFIGS, gpu=True)


def write_episodes(run: Run) -> dict[str, Any]:
    """Play the episodes of one seed; returns their metrics."""
    row = run.row
    environment = definition.read_environment(row.source)
    starts = definition.read_rows(row.source, row.preset)
    renderer = TurnRenderer(row_policy.load_row_tokenizer(row.policy, run.seed))
    if row.by == "script":
        play, num_each = partial(play_scripts, environment, renderer, run.seed), 1
    else:
        num_each = row.overrides.get("num_episodes", environment.preset.num_episodes)
        play = load_policy(run, environment, renderer, num_each)
    chunks = [starts[i : i + CHUNK] for i in range(0, len(starts), CHUNK)]

    def work_from(first: int) -> Iterator[Step]:
        for index, chunk in list(enumerate(chunks))[first:]:
            episodes = play(chunk)
            played = [episode.success for episode in episodes if episode.ending != FAILED]
            metrics = {"episode/success": fmean(played)} if played else {}
            passes = count_work(episodes) if row.by == "policy" else {}
            yield Step(index=index, metrics=metrics | passes, rows=episodes)

    sizes = [num_each * len(chunk) for chunk in chunks]
    parts = run.parts("episodes", work_from, Episode)
    steps = list(run.track(parts, label=row.preset, unit="episodes", sizes=sizes, after=0))
    episodes = [episode for step in steps for episode in step.rows]
    run.write(EPISODES, episodes)
    metrics = {"starts": len(starts), "episodes": len(episodes), **summarise_episodes(episodes)}
    if row.by == "script":
        return metrics
    factory, seconds = definition.load_factory(environment), environment.preset.timeout_seconds
    env_seeds = {episode.id: episode.env_seed for episode in episodes}
    run.write(STARTS, (
        StartProblem(id=start["id"], problem=digest_problem(
            factory, start, env_seeds[start["id"]], seconds))
        for start in starts
    ))  # fmt: skip
    sizes_by_model = {"policy": size.measure_policy(row.policy, run.seed, run.config.model)}
    return metrics | {
        "generated_tokens": sum(episode.num_sampled_tokens for episode in episodes),
        "work": work.sum_work([step.metrics for step in steps], sizes_by_model),
    }


def load_policy(
    run: Run, environment: EnvironmentFile, renderer: TurnRenderer, num_each: int
) -> Play:
    """Function that plays `num_each` episodes of this seed's policy from each start."""
    config, preset = run.config, environment.preset
    factory = definition.load_factory(environment)
    player = Player(factory=factory, renderer=renderer, limits=preset, env_seed=ENV_SEED)
    player.check(definition.read_rows(run.row.source, run.row.preset)[0])
    sampler = config.load_sampler(run.row.policy, run.seed, preset.max_tokens)
    decode = model_tokenizer.make_decode(renderer.tokenizer)

    def play(starts: Sequence[EnvironmentRow]) -> list[Episode]:
        batch = player.play(
            sampler,
            decode,
            starts,
            temperature=run.row.overrides.get("temperature", preset.temperature),
            group_size=num_each,
            step=0,
            seed=derive_seed(run.seed, "play"),
        )
        assert batch.episodes is not None
        return list(batch.episodes)

    return play


def play_scripts(
    environment: EnvironmentFile,
    renderer: TurnRenderer,
    seed: int,
    starts: Sequence[EnvironmentRow],
) -> list[Episode]:
    """The environment's demonstration of each start; a ValueError if one exceeds the limits."""
    factory, preset = definition.load_factory(environment), environment.preset
    episodes: list[Episode] = []
    for start in starts:
        env_seed = derive_seed(seed, "environment", "script", start["id"])
        played = checks.play_demonstration(factory, start, env_seed, preset)
        episode = render_episode(renderer, played)
        longest = max(end - begin for begin, end in episode.sampled)
        total = len(episode.prompt_ids) + len(episode.token_ids)
        if longest > preset.max_turn_tokens or total > preset.max_tokens:
            raise ValueError(
                f"the demonstration of row '{start['id']}' takes {total} tokens, {longest} of them "
                f"in a turn: expected at most max_tokens {preset.max_tokens} and max_turn_tokens "
                f"{preset.max_turn_tokens}. Raise these in the environment's preset"
            )
        episodes.append(episode)
    return episodes


def count_work(episodes: Sequence[Episode]) -> dict[str, int]:
    """Forward passes of the policy.

    Positions: each start's prompt once, and the `token_ids` of each episode without the last one,
    which nothing has to read. Outputs: the sampled tokens.
    """
    prompts = {episode.id: len(episode.prompt_ids) for episode in episodes}
    num_tokens = sum(len(episode.token_ids) - 1 for episode in episodes if episode.sampled)
    return work.count_passes(
        "policy",
        "sampled",
        positions=sum(prompts.values()) + num_tokens,
        outputs=sum(episode.num_sampled_tokens for episode in episodes),
    )
