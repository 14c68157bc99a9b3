"""Episodes of several turns, in which a policy acts in an environment and learns from its rewards.

    player = Player(factory=Calculator, renderer=renderer, limits=limits)
    batch = player.play(sampler, decode, rows, temperature=1.0, group_size=8, step=0, seed=0)
    task = make_task(player, rows)               # what `loops/rl.train` trains on

Each turn the policy samples a message, the environment answers it, and the tokens of the answer are
appended to the sampled ones, which are never rendered again. A rollout is a whole episode: its
`Sample` holds the sampled tokens, which enter all losses and metrics, and separately those of the
environment (`insertions`), which are only context. The episodes of a group start with the same
messages.

If an environment raises, hangs, or returns a reward that is not a number, the episode has failed,
through no fault of the policy: it is stored and counted, but left out of baselines, losses and
means. With too many failures the run stops.

An episode is a function of weights, row, seed and step. Where several ranks train a model, each
samples a share of the prompts, and the environments run on rank 0.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse
from typing import Any

import torch

from stages.environments.closing import close_environment, finish_environment
from stages.environments.environment import (
    Environment,
    check_reply,
    check_start,
    to_json,
)
from stages.environments.limits import EpisodeLimits
from stages.environments.time_limit import FAILURES, TimeLimitError, call_within
from stages.loops.method import Method
from stages.loops.rollouts import (
    Decode,
    RolloutConfig,
    Rollouts,
    Task,
    count_tool_calls,
)
from stages.models import sharding
from stages.models.turn_rendering import TurnRenderer
from stages.own_modules import describe_error
from stages.records.episodes import ERROR, FAILED, LIMITED, Ending, Episode, split_tokens
from stages.records.problems import Prompt
from stages.rewards.completion_rewards import CompletionRewards
from stages.sampler import Sample, Sampler, open_session
from stages.seeding import derive_seed

EnvironmentRow = Mapping[str, Any]
"""Row for `Environment.start`, with at least an `id`."""
JsonMessage = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """Checked reply of an environment, or the error of the call."""

    messages: list[JsonMessage] = field(default_factory=list[JsonMessage])
    tools: list[dict[str, Any]] | None = None
    reward: float = 0.0
    done: bool = False
    error: str | None = None


@dataclass(kw_only=True, slots=True)
class _EpisodeInProgress:
    """Episode that is being played."""

    row: EnvironmentRow
    index: int
    env_seed: int
    environment: Environment | None = None
    """None before it starts, after it was closed, and on ranks other than the first."""
    messages: list[JsonMessage] = field(default_factory=list[JsonMessage])
    num_start_messages: int = 0
    tools: list[dict[str, Any]] | None = None
    prompt_ids: list[int] = field(default_factory=list[int])
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    sampled: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    rewards: list[float] = field(default_factory=list[float])
    ending: Ending | None = None
    is_finished: bool = False
    """Whether the environment's `finish` has been called for an episode that a limit ended."""
    error: str | None = None

    def end(self, ending: Ending, error: str | None = None) -> None:
        """End the episode; turns without a reward get reward 0."""
        self.ending, self.error = ending, error
        self.rewards += [0.0] * (len(self.sampled) - len(self.rewards))

    def make_sample(self) -> Sample:
        """The episode's sampled tokens, and the environment's tokens as insertions."""
        sampled_ids, insertions = split_tokens(self.token_ids, self.sampled)
        return Sample(
            token_ids=sampled_ids,
            logprobs=self.logprobs,
            finish_reason="length" if self.ending == "tokens" else "stop",
            insertions=tuple((place, tuple(ids)) for place, ids in insertions),
        )

    def make_record(self, limits: EpisodeLimits) -> Episode:
        """The episode's record for a file."""
        assert self.ending is not None
        reward = math.fsum(self.rewards)
        return Episode(
            id=self.row["id"], index=self.index, env_seed=self.env_seed, messages=self.messages,
            num_start_messages=self.num_start_messages, tools=self.tools,
            prompt_ids=self.prompt_ids, token_ids=self.token_ids, sampled=self.sampled,
            rewards=self.rewards, reward=reward,
            success=self.ending != FAILED and limits.is_success(reward),
            ending=self.ending, error=self.error,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Player:
    """Player of episodes: environment, renderer of its messages, and limits."""

    factory: Callable[[], Environment]
    """Function that makes the environment of an episode."""
    renderer: TurnRenderer
    limits: EpisodeLimits
    env_seed: int | None = None
    """Seed from which the environments' seeds are derived; None: the seed of `play`."""

    def check(self, row: EnvironmentRow) -> None:
        """Raise a ValueError if no episode can start from a row, or none can have several turns."""
        episodes = [_EpisodeInProgress(row=row, index=0, env_seed=0)]
        with ExitStack() as stack:
            stack.callback(self._close, episodes)
            answer = self._call(partial(self._start_environment, episodes[0]))
        if answer.error is None:
            episodes[0].messages, episodes[0].tools = answer.messages, answer.tools
            self._render_start(episodes)
        if problem := answer.error or episodes[0].error:
            raise ValueError(f"no episode can start from row '{row['id']}': {problem}")
        if self.limits.max_turns > 1 or answer.tools:
            self.renderer.check(answer.tools)
        if self.limits.on_bad_call == "reply" and answer.tools:
            bad = [{"role": "assistant", "content": "4"}, _describe_bad_call("")]
            messages = [*answer.messages, *bad, bad[0]]
            try:
                self.renderer.render_new(messages, bad[1:], answer.tools)
            except ValueError as error:  # Mistral's templates refuse a result without a call
                raise ValueError(f"on_bad_call: reply: {error}. Set it to end") from error

    def play(
        self,
        sampler: Sampler,
        decode: Decode,
        rows: Sequence[EnvironmentRow],
        *,
        temperature: float,
        group_size: int,
        step: int,
        seed: int,
    ) -> Rollouts:
        """Play `group_size` episodes from each row, in order of rows; `temperature` 0: greedily.

        The environment's seed is a function of (`env_seed`, or else `seed`, step, row), the same
        for all members of a group. The random stream of a turn is one of (seed, step, row, member,
        turn); that of the first turn is the one of a completion without an environment. A turn that
        is truncated at a limit of tokens is not a message: it ends the episode, and the environment
        does not get it. If a limit ends an episode, the reward of the environment's `finish` is
        added at the last sampled token; without `finish`, none is added. A ValueError names an
        episode if more than `max_failed_share` of them fail.
        """
        root = seed if self.env_seed is None else self.env_seed
        episodes = [
            _EpisodeInProgress(
                row=row, index=j, env_seed=derive_seed(root, "environment", step, row["id"])
            )
            for row in rows
            for j in range(group_size)
        ]
        groups = [episodes[i : i + group_size] for i in range(0, len(episodes), group_size)]
        with ExitStack() as stack:
            stack.callback(self._close, episodes)  # closes the open ones in any case
            self._start(groups, episodes)
            with open_session(sampler):
                for turn in range(self.limits.max_turns):
                    # In the first turn the members of a group continue the same prompt.
                    active = groups if turn == 0 else [[episode] for episode in episodes]
                    active = [group for group in active if any(map(_is_active, group))]
                    if not active:
                        break
                    firsts = [next(filter(_is_active, group)) for group in active]
                    names = [
                        (first.row["id"], *([first.index, turn] * (turn > 0))) for first in firsts
                    ]
                    sampled = sampler.sample(
                        [[*first.prompt_ids, *first.token_ids] for first in firsts],
                        [derive_seed(seed, "rollout", step, *name) for name in names],
                        num_samples=len(active[0]),
                        temperature=temperature,
                        max_new_tokens=[
                            min(self.limits.max_turn_tokens, self._num_free_tokens(first))
                            for first in firsts
                        ],
                    )
                    for group, samples in zip(active, sampled, strict=True):
                        for episode, sample in zip(group, samples, strict=True):
                            if _is_active(episode):
                                self._read_turn(episode, sample, decode)
                    self._step(episodes, is_last=turn + 1 == self.limits.max_turns)
        prompt_ids = [
            next((each.prompt_ids for each in group if each.prompt_ids), []) for group in groups
        ]
        return Rollouts(
            prompts=[
                make_prompt(row, ids, decode) for row, ids in zip(rows, prompt_ids, strict=True)
            ],
            groups=[i for i, group in enumerate(groups) for _ in group],
            numbers=[episode.index for episode in episodes],
            samples=[episode.make_sample() for episode in episodes],
            texts=[decode(episode.token_ids) for episode in episodes],
            episodes=[episode.make_record(self.limits) for episode in episodes],
        )

    def _start(
        self, groups: Sequence[Sequence[_EpisodeInProgress]], episodes: Sequence[_EpisodeInProgress]
    ) -> None:
        """Start each episode's environment; a group has to start with equal messages."""
        self._ask(episodes, self._start_environment, episodes)
        for group in groups:
            started = [episode for episode in group if _is_active(episode)]
            for episode in started:
                if (episode.messages, episode.tools) != (started[0].messages, started[0].tools):
                    problem = "starts differently from another episode of this row with this seed"
                    episode.end(FAILED, problem)
            if started:
                self._render_start(started)
        self._close(filterfalse(_is_active, episodes))
        self._check_failures(episodes)

    def _render_start(self, episodes: Sequence[_EpisodeInProgress]) -> None:
        """Set the prompt of episodes that start with equal messages."""
        first, limit, problem = episodes[0], self.limits.max_tokens, None
        try:
            prompt_ids = self.renderer.render_start(first.messages, first.tools)
        except ValueError as error:
            prompt_ids, problem = [], f"its first messages cannot be rendered: {error}"
        if len(prompt_ids) >= limit:
            problem = f"its start has {len(prompt_ids)} tokens, the limit max_tokens is {limit}"
        for episode in filter(_is_active, episodes):
            if problem is None:
                episode.prompt_ids = [*prompt_ids]
            else:
                episode.end(FAILED, problem)

    def _read_turn(self, episode: _EpisodeInProgress, sample: Sample, decode: Decode) -> None:
        """Add a sampled turn to an episode, which it may end."""
        start = len(episode.token_ids)
        episode.token_ids += sample.token_ids
        episode.logprobs += sample.logprobs
        episode.sampled.append((start, len(episode.token_ids)))
        text: JsonMessage = {"role": "assistant", "content": decode(sample.token_ids)}
        if sample.ending == "length":
            episode.messages.append(text)
            episode.end("tokens")
            return
        try:
            message = to_json(self.renderer.read_reply(sample.token_ids, episode.tools))
        except ValueError as error:
            if self.limits.on_bad_call == "reply":
                episode.messages.append(text | {ERROR: str(error)})
            else:
                episode.messages.append(text)
                episode.end("parse_error", str(error))
            return
        episode.messages.append(message)
        if (
            count_tool_calls(episode.messages[episode.num_start_messages :])
            > self.limits.max_tool_calls
        ):
            episode.end("tool_calls")

    def _step(self, episodes: Sequence[_EpisodeInProgress], *, is_last: bool) -> None:
        """Pass the last message of each episode that goes on to its environment's `step`."""
        active = [episode for episode in episodes if _is_active(episode)]
        answers = self._ask(active, self._step_environment, episodes)
        for episode, answer in zip(active, answers, strict=True):
            if not _is_active(episode):
                continue
            episode.rewards.append(answer.reward)
            new_ids: list[int] = []
            if answer.done:
                episode.end("done")
            elif is_last:
                episode.end("turns")
            else:
                try:
                    new_ids = [
                        *self.renderer.complete_turn(episode.token_ids),
                        *self.renderer.render_new(episode.messages, answer.messages, episode.tools),
                    ]
                except ValueError as error:
                    episode.end(FAILED, f"its messages cannot be rendered: {error}")
            episode.messages += answer.messages
            if _is_active(episode):
                if len(new_ids) < self._num_free_tokens(episode):
                    episode.token_ids += new_ids
                else:
                    episode.end("tokens")
        self._finish(episodes)
        self._close(filterfalse(_is_active, episodes))
        self._check_failures(episodes)

    def _finish(self, episodes: Sequence[_EpisodeInProgress]) -> None:
        """Add the reward of the environment's `finish` to episodes that a limit has ended."""
        limited = [
            episode for episode in episodes if episode.ending in LIMITED and not episode.is_finished
        ]
        answers = self._ask(limited, self._finish_environment, episodes)
        for episode, answer in zip(limited, answers, strict=True):
            episode.is_finished = True
            episode.rewards[-1] += answer.reward

    def _close(self, episodes: Iterable[_EpisodeInProgress]) -> None:
        """Close the environments of episodes, each once."""
        for episode in episodes:
            environment, episode.environment = episode.environment, None
            if environment is not None:
                close_environment(environment, self.limits.timeout_seconds)

    def _num_free_tokens(self, episode: _EpisodeInProgress) -> int:
        return self.limits.max_tokens - len(episode.prompt_ids) - len(episode.token_ids)

    def _ask(
        self,
        episodes: Sequence[_EpisodeInProgress],
        call: Callable[[_EpisodeInProgress], _Answer],
        every: Sequence[_EpisodeInProgress],
    ) -> list[_Answer]:
        """Answers of the episodes' environments, on every rank; a failure ends the episode."""
        answers: list[_Answer] = []
        if sharding.get_rank() == 0:
            num_failed = sum(episode.ending == FAILED for episode in every)
            num_allowed = self._num_failures_allowed(every) - num_failed
            for episode in episodes:
                answers.append(self._call(partial(call, episode)))
                num_allowed -= answers[-1].error is not None
                if num_allowed < 0:  # others may hang as long
                    break
        answers = sharding.broadcast_from_rank0(answers)
        for episode, answer in zip(episodes, answers, strict=False):
            if answer.error is not None:
                episode.end(FAILED, answer.error)
            elif not episode.sampled:
                episode.messages, episode.num_start_messages = answer.messages, len(answer.messages)
                episode.tools = answer.tools
        self._check_failures(every)
        return answers

    def _call(self, function: Callable[[], _Answer]) -> _Answer:
        try:
            return call_within(self.limits.timeout_seconds, function)
        except TimeLimitError:
            return _Answer(error=f"no answer within {self.limits.timeout_seconds:g} s")
        except FAILURES as error:
            return _Answer(error=describe_error(error))

    def _start_environment(self, episode: _EpisodeInProgress) -> _Answer:
        episode.environment = self.factory()
        row = copy.deepcopy(dict(episode.row))
        messages, tools = check_start(episode.environment.start(row, episode.env_seed))
        return _Answer(messages=messages, tools=tools)

    def _step_environment(self, episode: _EpisodeInProgress) -> _Answer:
        assert episode.environment is not None
        if (problem := episode.messages[-1].get(ERROR)) is not None:
            return _Answer(messages=[_describe_bad_call(problem)])
        reply = check_reply(episode.environment.step(copy.deepcopy(episode.messages[-1])))
        return _Answer(
            messages=[dict(message) for message in reply.messages],
            reward=reply.reward,
            done=reply.done,
        )

    def _finish_environment(self, episode: _EpisodeInProgress) -> _Answer:
        return _Answer(reward=finish_environment(episode.environment) or 0.0)

    def _num_failures_allowed(self, episodes: Sequence[_EpisodeInProgress]) -> int:
        """Number of episodes that may fail: at least one if any may, but never all."""
        share = self.limits.max_failed_share
        return min(len(episodes) - 1, max(math.floor(share * len(episodes)), int(share > 0)))

    def _check_failures(self, episodes: Sequence[_EpisodeInProgress]) -> None:
        """A ValueError if more episodes failed than `max_failed_share` allows."""
        failed = [episode for episode in episodes if episode.ending == FAILED]
        if len(failed) > self._num_failures_allowed(episodes):
            first = failed[0]
            raise ValueError(
                f"the environment failed in {len(failed)} of {len(episodes)} episodes, more than "
                f"max_failed_share {self.limits.max_failed_share:g} allows. Episode {first.index} "
                f"of row '{first.row['id']}', env_seed {first.env_seed}, in turn "
                f"{len(first.sampled)}: {first.error}"
            )


def make_task(player: Player, rows: Sequence[EnvironmentRow]) -> Task:
    """Task of `loops/rl`: episodes that start from `rows`, and the rewards of their environments.

    In the loop's configuration, `max_new_tokens` has to be `limits.max_sampled_tokens()`, the
    largest number of tokens that a policy samples in an episode; the limit of a turn is in
    `limits`. The sampler and the model need `limits.max_tokens` positions. `check_method` refuses
    presets that cannot learn here.
    """
    rows_by_id = {row.get("id"): row for row in rows}
    if not rows or len(rows_by_id) < len(rows) or not all(isinstance(i, str) for i in rows_by_id):
        raise ValueError(
            f"expected rows with a unique text `id` each, found {len(rows)} rows "
            f"and {len(rows_by_id)} ids"
        )
    player.check(rows[0])

    def draw(
        sampler: Sampler,
        decode: Decode,
        prompts: Sequence[Prompt],
        *,
        config: RolloutConfig,
        group_size: int | None,
        step: int,
        seed: int,
    ) -> Rollouts:
        return player.play(
            sampler,
            decode,
            [rows_by_id[prompt.id] for prompt in prompts],
            temperature=0.0 if group_size is None else config.temperature,
            group_size=1 if group_size is None else group_size,
            step=step,
            seed=seed,
        )

    starts = [make_prompt(row, [], lambda _: "") for row in rows]
    return Task(prompts=starts, reward=reward_turns, check_answers=check_success, draw=draw)


def check_method(method: Method) -> None:
    """Raise a ValueError for a preset that cannot learn from an environment's rewards."""
    if method.advantage == "gae" and method.value_init == "reward_model":
        raise ValueError(
            "value_init is reward_model, and an environment has none: take a preset with "
            "value_init policy, such as ppo_environment"
        )


def reward_turns(batch: Rollouts) -> CompletionRewards:
    """Rewards of turns: the last turn's as completion reward, the others as step rewards."""
    assert batch.episodes is not None
    ends = torch.zeros_like(batch.mask())
    rewards = torch.zeros(ends.shape)
    for row, episode in enumerate(batch.episodes):
        num_tokens = 0
        for (start, end), reward in list(zip(episode.sampled, episode.rewards, strict=True))[:-1]:
            num_tokens += end - start
            ends[row, num_tokens - 1] = True
            rewards[row, num_tokens - 1] = reward
    return CompletionRewards(
        totals=[episode.rewards[-1] if episode.rewards else 0.0 for episode in batch.episodes],
        step_rewards=rewards,
        step_ends=ends,
    )


def check_success(batch: Rollouts) -> list[bool]:
    """Whether each episode is a success."""
    assert batch.episodes is not None
    return [episode.success for episode in batch.episodes]


def _describe_bad_call(problem: str) -> JsonMessage:
    """Message to the policy after a call that cannot be parsed, unless it ends the episode."""
    return {"role": "tool", "content": f"error: {problem}"}


def _is_active(episode: _EpisodeInProgress) -> bool:
    return episode.ending is None


def make_prompt(row: EnvironmentRow, prompt_ids: list[int], decode: Decode) -> Prompt:
    """Prompt of the episodes of a row; without tokens if none has started."""
    question = row.get("question")
    return Prompt(
        id=row["id"], task="play", question=question if isinstance(question, str) else "",
        prompt=decode(prompt_ids), prompt_ids=prompt_ids, answer=None,
    )  # fmt: skip
