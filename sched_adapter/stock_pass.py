"""Stock's scheduling pass over the requests of one step, and its questions on the way.

Where not everybody takes part, stock vLLM (0.32.0) sees the step's own list
instead of all residents, and asks here how many tokens a request may compute,
whether a waiting one is ready, and for KV blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import Request, RequestStatus

from sched_adapter.membership import Membership
from sched_adapter.places import Places, entitled
from sched_adapter.pressure import blocks_missing, holders
from sched_adapter.settlement import Settlement
from sched_adapter.step import Capacity, Step
from sched_adapter.victims import choose

#: One place in this many is kept for users that have quota.
RESERVE = 8


class SchedulingPass(Membership):
    """What stock's ``schedule()`` finds while ``_only_those_in(step)`` lasts."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        self.places = Places(self.residents, self.turns, self._preempt_throttled)
        self.settlement = Settlement(
            self.limiter,
            self.turns,
            self.residents,
            self.places,
            self._capacity(),
            fail_open=self.fail_open,
            on_take=self.books.take,
            on_take_all=self.books.take_all,
            first_of=self.waiting.first_of,
        )
        self._seed_forbids = vllm_config.device_config.device_type == "cpu"
        self._step: Step = self.settlement.step  # the one that is being scheduled
        self._reordered = False  # self.running is not what stock's would be

    @contextmanager
    def _only_those_in(self, step: Step) -> Iterator[None]:
        """Show stock's scheduling pass the step's requests, and nobody else."""
        self._step = step
        if step.everybody:
            if self._reordered:
                self.running = self.residents.everyone()
                self._reordered = False
            yield
            return
        manager = self.kv_cache_manager
        places = self.settlement.capacity.places
        parked = len(self.residents) - len(step.running)
        self._reordered, self._allocate = True, manager.allocate_slots
        self.running = step.running.copy()
        self.max_num_active_reqs = min(places, self.max_num_running_reqs - parked)
        self._reserve_prefill_lookahead = self._limit_chunk
        manager.allocate_slots = self._allocate_slots
        for queue in (self.waiting, self.kv_holding_waiting):
            queue.stage(step.open, self._has_room_without_quota)
        try:
            yield
        finally:
            for queue in (self.waiting, self.kv_holding_waiting):
                queue.unstage()
            del self._reserve_prefill_lookahead, manager.allocate_slots
            self.max_num_active_reqs = places

    def _limit_chunk(self, request: Request, num_computed: int, num_new: int) -> int:
        """In place of ``_reserve_prefill_lookahead``: no sampled token without quota.

        Stock asks it last for every request, in both loops.  A step samples iff it
        reaches the end of the known tokens; without quota a prompt stops one short
        of it, or waits whole where prefill may not be chunked.
        """
        num_new = super()._reserve_prefill_lookahead(request, num_computed, num_new)
        user = request.output_rate_line.user
        if not user.limited or not num_new:
            return num_new
        step = self._step
        pledged = user.left and request not in step.unpledged
        if num_computed + num_new >= request.num_tokens:
            if pledged:
                user.left -= 1
                return num_new
            if not self.scheduler_config.enable_chunked_prefill or self._seeded(request):
                return 0
            last = request.num_tokens - max(1, self.num_prefill_lookahead)
            num_new = max(0, last - num_computed)
        elif pledged and self.residents.is_back(request):
            user.left -= 1  # set aside, though this chunk does not use it
        if user.out_of_quota and request.status == RequestStatus.RUNNING:
            num_new = min(num_new, step.spare)
            if num_new and not self._fits(request, num_new):
                step.running.remove(request)  # it waits, and is a victim like any that is parked
                step.last = [other for other in step.last if other is not request]
                return 0
            step.spare -= num_new
        return num_new

    def _fits(self, request: Request, num_new: int) -> bool:
        """Whether there are blocks for it: without quota nobody is preempted, itself neither."""
        lookahead = {"num_lookahead_tokens": self.num_lookahead_tokens}
        return blocks_missing(self.kv_cache_manager, request, (num_new,), lookahead) <= 0

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        ready: bool = super()._handle_blocked_waiting_request(request)
        user = request.output_rate_line.user
        if not ready or self._step.everybody or not user.limited or user.left:
            return ready
        if not self._seeded(request) and self._tokens_to_compute(request) > 1:
            return True
        for queue in (self.waiting, self.kv_holding_waiting):
            queue.shut(request.output_rate_line)
        return False

    def _seeded(self, request: Request) -> bool:
        """Whether a seed forbids that the prompt stops one short of its end to wait for quota.

        It does on the CPU: the worker of vLLM 0.32.0 takes a generator back by what a chunk drew,
        which PyTorch's generator for the CPU cannot do, and that ends the engine.
        """
        return self._seed_forbids and request.sampling_params.seed is not None

    def _tokens_to_compute(self, request: Request) -> int:
        """What a waiting request has left to compute after the prefix cache."""
        computed = request.num_computed_tokens
        manager = self.kv_cache_manager
        if not computed and manager.prefix_cache_lookup_enabled(request):
            # The coordinator's own look-up: the manager's may emit KV events.
            computed = manager.coordinator.find_longest_cache_hit(
                request.block_hashes, request.num_tokens - 1
            )[1]
        return request.num_tokens - computed

    def _has_room_without_quota(self) -> bool:
        """Whether a request out of quota may take a place, to compute its prompt."""
        held = len(self.residents) + self._step.admitted + self.num_waiting_for_streaming_input
        return (
            self.scheduler_config.enable_chunked_prefill
            and held < self.max_num_running_reqs - self.settlement.capacity.reserve
        )

    def _allocate_slots(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """In place of the KV manager's: where blocks are short, throttled residents give way."""
        blocks = self._allocate(request, *args, **kwargs)
        if blocks is None and (victims := self._victims(request, args, kwargs)):
            for victim in victims:
                self._preempt_throttled(victim)
            blocks = self._allocate(request, *args, **kwargs)
        while blocks is None and (other := self._instead_of_spared(request)):
            self._preempt_throttled(other)
            for queue in (self.waiting, self.kv_holding_waiting):
                queue.close()  # as in stock: nobody is admitted where a served one gave way
            blocks = self._allocate(request, *args, **kwargs)
        if blocks is not None and request.status != RequestStatus.RUNNING:
            self._step.admitted += 1
            line = request.output_rate_line
            line.admit = max(0, line.admit - 1)
        return blocks

    def _victims(
        self, request: Request, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Request]:
        line = request.output_rate_line
        if line.user.out_of_quota:
            return []
        if request.status == RequestStatus.RUNNING:
            # Stock would take the worst priority of those running: only then ours come first.
            level = max(other.output_rate_line.level for other in self.running)
            throttled = self.places.throttled(self._step, level, prompts=True)
        elif entitled(line.user):
            throttled = self.places.throttled(self._step, line.level, but=line.user)
        else:
            return []
        manager = self.kv_cache_manager
        pool = holders(manager, throttled, kwargs)
        return choose(pool, blocks_missing(manager, request, args, kwargs)) if pool else []

    def _instead_of_spared(self, request: Request) -> Request | None:
        """Who gives way where stock would take one that is spared: none better, none served yet.

        Where that is ``request`` itself, stock is left to take it.
        """
        if request.status != RequestStatus.RUNNING:
            return None
        spared, by_priority = self.places.spared, self.policy == SchedulingPolicy.PRIORITY
        due = max(self.running, key=_rank) if by_priority else self.running[-1]
        if due is request or not spared(due):
            return None
        level = due.output_rate_line.level
        begin = self.running.index(request)
        others = [
            other
            for other in self.running[begin + 1 :]
            if other.output_rate_line.level >= level and not spared(other)
        ]
        if others:
            return max(others, key=_rank) if by_priority else others[-1]
        if request.output_rate_line.level >= level and not spared(request):
            self.running[begin:] = [r for r in self.running[begin:] if not spared(r)]
        return None

    def _capacity(self) -> Capacity:
        scheduler = self.scheduler_config
        tokens = self.max_num_scheduled_tokens
        threshold = scheduler.long_prefill_token_threshold
        capped = 0 < threshold < tokens and not self.adaptive_long_prefill_threshold
        return Capacity(
            places=self.max_num_active_reqs,
            residents=self.max_num_running_reqs,
            reserve=max(1, self.max_num_running_reqs // RESERVE),
            tokens=tokens,
            chunk=threshold if capped else tokens,
            max_model_len=self.max_model_len,
            max_loras=self.lora_config.max_loras if self.lora_config else None,
        )


def _rank(request: Request) -> tuple[int, float]:
    """By which stock chooses whom to preempt under PRIORITY: the highest one."""
    return request.priority, request.arrival_time
