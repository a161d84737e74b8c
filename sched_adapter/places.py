"""Who has to make room for whom: throttled residents for users that have quota.

A user with quota that finds no place, or no blocks, takes them from residents
parked for lack of quota.  Who was preempted and let in again is spared until its
next token, as long as its user has quota for one: nobody is thrown out and let
in over and over, and nobody who cannot run holds what others need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vllm.v1.request import Request

from sched_adapter.residents import Residents
from sched_adapter.step import Step
from sched_adapter.turns import Line, Turns, User
from sched_adapter.victims import Holder, choose


def entitled(user: User[Request]) -> bool:
    """Whether a throttled resident has to make room for a waiting request of this user.

    A user that is itself short of quota gets one place so, not more: otherwise two
    such users would preempt each other at every token.
    """
    return not user.out_of_quota and (not user.short or not user.residents)


class Places:
    """The places of ``residents``, and whose are to be had; ``preempt(request)`` takes one away."""

    def __init__(
        self, residents: Residents, turns: Turns[Request], preempt: Callable[[Request], None]
    ) -> None:
        self._residents = residents
        self._turns = turns
        self._preempt = preempt

    def spared(self, request: Request) -> bool:
        """Whether it was let in again, and its user, short of quota, has a token to give it."""
        user = request.output_rate_line.user
        short = user.limited and user.short and not user.out_of_quota
        return short and request in self._residents.owed

    def throttled(
        self, step: Step, level: int, but: User[Request] | None = None, prompts: bool = False
    ) -> Iterator[Request]:
        """Residents parked for lack of quota, of priority ``level`` or worse, not ``but``'s.

        With ``prompts``, also those that the step lets compute a prompt without quota.
        """
        running = set(step.running)
        if prompts:
            running.difference_update(step.last)
        for request in self._residents.everyone():
            line = request.output_rate_line
            user = line.user
            if (
                request not in running
                and user is not but
                and line.level >= level
                and user.limited
                and (user.ready_ns is not None or (user.asked == step.number and user.short))
                and not self.spared(request)
            ):
                yield request

    def could_be_had(self, step: Step, line: Line[Request]) -> bool:
        """Whether a waiting request of ``line`` may find a place although none is free.

        Its user is entitled. Asked before the step has its list: some of a user's residents will
        be parked if they are more than its tokens.
        """
        if not (self._turns.asleep or step.parked):
            return False
        holders = (r.output_rate_line.user for r in self.throttled(step, line.level, line.user))
        return any(user.out_of_quota or user.granted < user.residents for user in holders)

    def make_room(self, step: Step) -> None:
        """Preempt throttled residents for requests that this step may admit beyond the places."""
        over = sum(line.admit for line in step.open) - step.free
        for line in reversed(step.open):
            if over > 0 and not entitled(line.user):
                over -= line.pass_over(min(line.admit, over), step.number)
        for line in reversed(step.open):
            while over > 0 and line.admit:
                over -= 1
                victims = choose(
                    (
                        Holder(request, 1, request.num_computed_tokens)
                        for request in self.throttled(step, line.level, but=line.user)
                    ),
                    1,
                )
                if victims:
                    self._preempt(victims[0])
                    step.free += 1
                else:
                    line.pass_over(1, step.number)
