"""Settle, once a step, who may be served: users are asked for quota, not requests.

Where nobody is short of quota and all residents fit, the answer is "everybody",
and stock vLLM schedules as if we were not there.  Otherwise the step gets a
list of its own: whose turn it is, how many of its waiting requests a line may
admit, and what is left over for prompts of users out of quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter

from vllm.v1.request import Request

from limiters import Limiter
from sched_adapter.guard import Guard, LimiterFault
from sched_adapter.places import Places, entitled
from sched_adapter.residents import Residents, limited_users, within_adapters
from sched_adapter.step import Capacity, Step
from sched_adapter.turns import UNLIMITED, Line, Turns, User

#: Users with no more streams than this, on average, are asked for all at once.
FEW_STREAMS = 8

#: What could not be admitted gets only places left over for this many steps.
RETRY_STEPS = 8


def finishing(request: Request, max_model_len: int) -> bool:
    """Whether all of the request's tokens are dispatched (async scheduling runs ahead)."""
    placeholders: int = request.num_output_placeholders
    computed: int = request.num_computed_tokens
    last = request.num_prompt_tokens + request.max_tokens
    return (placeholders > 0 and computed + 2 - placeholders >= last) or (
        computed >= max_model_len - 1
    )


class Settlement:
    """Decides over ``turns`` and ``residents`` with the quota that ``limiter`` grants.

    ``on_take(user, tokens)`` and ``on_take_all({user: tokens})`` hear of each charge,
    ``first_of(line, count)`` shows waiting requests.
    """

    def __init__(
        self,
        limiter: Limiter | Guard,
        turns: Turns[Request],
        residents: Residents,
        places: Places,
        capacity: Capacity,
        *,
        fail_open: bool,
        on_take: Callable[[str, int], None],
        on_take_all: Callable[[Counter[str]], None],
        first_of: Callable[[Line[Request], int], list[Request]],
    ) -> None:
        self.limiter = limiter
        self.turns = turns
        self.residents = residents
        self.places = places
        self.capacity = capacity
        self.fail_open = fail_open
        self._on_take = on_take
        self._on_take_all = on_take_all
        self._first_of = first_of
        self.step = Step(0, 0, 0, 0)

    def settle(self, now_ns: int, free: int) -> Step:
        """Who takes part in the step at ``now_ns``; ``free`` places may go to waiting ones."""
        step = self.step = Step(self.step.number + 1, now_ns, free, free)
        if self._nobody_is_short():
            step.everybody = True
            return step
        places = self.capacity.places
        served = self._all_awake_take()
        if served is not None:
            self._compose(served, places - len(served))
            return step
        for request in self.residents.owed:
            line = request.output_rate_line
            if line.user.limited:
                step.owed.setdefault(line, []).append(request)
        dealt, step.crowded = self.turns.deal(places, self._offer)
        if not step.crowded and free:
            dealt += self.turns.deal(places - len(dealt), self._offer_again)[0]
        picks = []
        for line, pick in dealt:
            step.dealt.append((line, pick))
            if pick is not None:
                picks.append(pick)
            else:
                if not line.admit:
                    step.open.append(line)
                line.admit += 1
        self._compose(picks, places - len(dealt))
        self.places.make_room(step)
        return step

    # Quota

    def _ask(self, user: User[Request]) -> None:
        """Take what the user's streams could use in this step, as far as its quota goes."""
        step = self.step
        user.asked = step.number
        user.pledged = 0
        if not user.limited:
            user.granted = user.left = UNLIMITED
            return
        wanted = user.residents + min(user.queued, max(step.free, 1))
        wanted = min(wanted, self.capacity.places)
        try:
            if wanted > 1:
                granted = self.limiter.try_take_many(user.name, wanted, step.now_ns)
            else:
                granted = int(wanted == 1 and self.limiter.try_take(user.name, step.now_ns))
        except LimiterFault:
            if self.fail_open:
                step.failed_open.append(user)
                user.granted = user.left = UNLIMITED
                user.short = False
                return
            granted = 0
        if granted:
            self._on_take(user.name, granted)
        step.asked.append(user)
        user.granted = user.left = granted
        user.short = granted < wanted
        if user.short and granted < user.residents:
            step.parked = True

    def _nobody_is_short(self) -> bool:
        residents, limited = self.residents, self.turns.limited_awake
        if self.turns.asleep or len(residents) > self.capacity.places or self._adapters_abound():
            return False
        many_users = len(limited) * FEW_STREAMS >= len(residents)
        if (
            limited
            and many_users
            and not self.step.free
            and self._all_take(len(residents), *residents.takers())
        ):
            return True
        for user in limited:
            self._ask(user)
            if user.short:
                return False
        return True

    def _ask_everybody(self) -> None:
        """Who could give way is known when every user awake was asked."""
        step = self.step
        if not step.all_asked:
            step.all_asked = True
            for user in self.turns.limited_awake:
                if user.asked != step.number:
                    self._ask(user)

    def _all_awake_take(self) -> list[Request] | None:
        """All residents of users awake, if they can be served without dealing turns.

        Nobody among them waits for a place or was short of quota when last asked, and there
        is room for one token of each; then one question answers for all.  Who was asked in
        this step before is never charged twice: asking ended at somebody who was short.
        """
        if self.residents.prefilling or self._adapters_abound():
            return None
        lines = list(chain.from_iterable(self.turns.rings.values()))
        if any(line.queued or line.user.short for line in lines):
            return None
        served = list(chain.from_iterable(map(attrgetter("residents"), lines)))
        room = min(self.capacity.places, self.capacity.tokens)
        takers = limited_users(served)
        if len(served) > room or not self._all_take(len(served), takers, Counter(takers)):
            return None
        for line in lines:
            user = line.user
            if user.limited and user.asked != self.step.number:
                user.asked = self.step.number
                user.granted = user.left = UNLIMITED  # what was taken is in `step.taken`
                self.step.asked.append(user)
        return served

    def _adapters_abound(self) -> bool:
        """Whether the residents use more LoRA adapters than fit in a step."""
        most = self.capacity.max_loras
        return most is not None and self.residents.num_adapters > most

    def _all_take(self, present: int, takers: list[str], taken: Counter[str]) -> bool:
        """One question for all these users: a token for each time named, or nothing is taken."""
        if isinstance(self.limiter, Guard):  # whose backend may fail in the middle of it
            return False
        if not self.limiter.try_take_all(takers, self.step.now_ns):
            return False
        self.step.taken, self.step.present = taken, present
        self._on_take_all(taken)
        return True

    # Turns

    def _offer(self, line: Line[Request]) -> Iterator[Request | None]:
        """What the line would do with its places; a token is pledged to whoever may sample.

        Who was let in again comes first, and has a token set aside while its prompt is computed
        once more: it must not hold its place without one.
        """
        user, step = line.user, self.step
        if user.asked != step.number:
            self._ask(user)
        if not user.granted:
            return
        seats = 0
        if not self._missed_lately(line):
            seats = step.free or int(line.queued > 0 and self._could_be_had(line))
        had, owed = True, step.owed.get(line, ())
        for request in owed:
            if user.pledged == user.granted:
                return
            user.pledged += 1
            yield request
        for request in line.in_turn(seats, step.number, self.turns.caught_up):
            if request is None:
                had = step.vacant > 0 or (had and self._could_be_had(line))
                if not had:
                    continue
            elif finishing(request, self.capacity.max_model_len) or (
                owed and request in self.residents.owed  # it came first
            ):
                continue
            elif self._in_mid_prompt(request):  # nothing to sample, so no token either
                yield request
                continue
            if user.pledged == user.granted:
                return
            user.pledged += 1
            if request is None and step.vacant:
                step.vacant -= 1
            yield request

    def _offer_again(self, line: Line[Request]) -> Iterator[None]:
        """Places that are left over, for what could not be admitted lately."""
        user = line.user
        if self._missed_lately(line):
            for _ in range(min(self.step.vacant, line.queued)):
                if user.pledged == user.granted or not self.step.vacant:
                    return
                user.pledged += 1
                self.step.vacant -= 1
                yield None

    def _could_be_had(self, line: Line[Request]) -> bool:
        if not entitled(line.user):
            return False
        self._ask_everybody()
        return self.places.could_be_had(self.step, line)

    def _missed_lately(self, line: Line[Request]) -> bool:
        """Whether a waiting request of the line stands back: no blocks, no grammar, no adapter.

        A place held for it in vain is one that a resident could have used.
        """
        return line.missed is not None and self.step.number - line.missed < RETRY_STEPS

    def _in_mid_prompt(self, request: Request) -> bool:
        left: int = request.num_tokens - request.num_computed_tokens
        return left > self.capacity.chunk and request.is_prefill_chunk

    def _compose(self, picks: list[Request], places: int) -> None:
        """The step's list: those whose turn it is, then prompts, of users out of quota last."""
        step, residents, capacity = self.step, self.residents, self.capacity
        last: list[Request] = []
        if residents.prefilling:
            picked = set(picks)
            for request in residents.prefilling:
                if request not in picked and places > 0:
                    user = request.output_rate_line.user
                    if user.out_of_quota or user.asked != step.number:
                        last.append(request)
                    else:
                        picks.append(request)
                        step.unpledged.add(request)
                    places -= 1
        wanted = len(picks)
        for request in residents.prefilling:
            wanted += min(request.num_tokens - request.num_computed_tokens, capacity.chunk) - 1
        for request in last:
            wanted -= min(request.num_tokens - request.num_computed_tokens, capacity.chunk) - 1
        for line in step.open if last else ():
            wanted += sum(r.num_tokens for r in self._first_of(line, line.admit))
        step.spare = capacity.tokens - wanted
        if step.spare >= 0:
            picks = residents.in_order(picks)
        else:  # by turn, so that a prompt does not take the budget of those behind it every time
            step.crowded = True
        if step.spare > 0:
            step.last = last
            picks += last
        if capacity.max_loras is not None and self._adapters_abound():
            by_pledge = sorted(picks, key=step.unpledged.__contains__)
            fitting = set(within_adapters(by_pledge, capacity.max_loras))
            picks = [request for request in picks if request in fitting]
        step.running = picks
