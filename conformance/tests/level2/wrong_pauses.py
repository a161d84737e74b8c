"""Faults in what a pause does to a request. Every scheduler implemented here is *wrong*."""

from vllm.v1.request import RequestStatus
from wrong import around, fault


def throttled(scheduler):
    """Residents out of quota."""
    everyone = scheduler.residents.everyone()
    return [r for r in everyone if r.output_rate_line.user.ready_ns is not None]


@fault("S3-WHOLE-2")
def answers_are_cut_when_quota_is_out(scheduler):
    @around(scheduler, "schedule")
    def _(original, *args):
        for request in throttled(scheduler):
            if request.num_output_tokens > 3:
                request.max_tokens = request.num_output_tokens + 1
        return original(*args)


@fault("S3-WHOLE-2")
def the_answer_ends_where_quota_does(scheduler):
    @around(scheduler, "schedule")
    def _(original, *args):
        output = original(*args)
        for request in throttled(scheduler):
            if request.num_output_tokens > 5:
                scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_LENGTH_CAPPED)
        return output


@fault("S3-PAUSE-2")
def who_is_throttled_loses_its_place(scheduler):
    @around(scheduler, "schedule")
    def _(original, *args):
        for request in throttled(scheduler)[:1]:
            if not request.num_output_placeholders:
                scheduler.running = scheduler.residents.everyone()
                scheduler.running.remove(request)
                scheduler._reordered = True
                scheduler._preempt_throttled(request)
        return original(*args)


@fault("S3-CLIP-2")
def a_prompt_waits_whole_for_quota(scheduler):
    @around(scheduler, "_limit_chunk")
    def _(original, request, num_computed, num_new):
        user = request.output_rate_line.user
        if user.limited and not user.left:
            return 0
        return original(request, num_computed, num_new)


@fault("S3-CLIP-2")
def a_prompt_stops_two_short(scheduler):
    @around(scheduler, "_limit_chunk")
    def _(original, request, num_computed, num_new):
        count = original(request, num_computed, num_new)
        clipped = count and num_computed + count == request.num_tokens - 1 < num_computed + num_new
        return count - 1 if clipped else count


@fault("S3-UNCUT-2")
def a_prompt_is_cut_where_it_may_not_be(scheduler):
    class Chunked:
        def __init__(self, config):
            self.config = config

        def __getattr__(self, name):
            return True if name == "enable_chunked_prefill" else getattr(self.config, name)

    # Only for its own questions: stock's waiting loop goes by the budget.
    limit = type(scheduler)._limit_chunk

    def cut(request, num_computed, num_new):
        real, scheduler.scheduler_config = (
            scheduler.scheduler_config,
            Chunked(scheduler.scheduler_config),
        )
        try:
            return limit(scheduler, request, num_computed, num_new)
        finally:
            scheduler.scheduler_config = real

    scheduler._limit_chunk = cut
    scheduler._has_room_without_quota = lambda: True


@fault("S3-END-2")
def a_stop_at_the_first_token_is_overlooked(scheduler):
    @around(scheduler, "_update_request_with_output")
    def _(original, request, *args, **kwargs):
        tokens, stopped = original(request, *args, **kwargs)
        if stopped and request.num_output_tokens == 1 and request.max_tokens > 1:
            request.status, request.stop_reason = RequestStatus.RUNNING, None
            stopped = False
        return tokens, stopped


@fault("S3-ABORT-2")
def an_abort_while_throttled_waits_for_quota(scheduler):
    pending = []

    @around(scheduler, "finish_requests")
    def _(original, ids, status):
        ids = [ids] if isinstance(ids, str) else list(ids or scheduler.requests)
        held = {r.request_id for r in throttled(scheduler)} & set(ids)
        pending.extend(held)
        return original([i for i in ids if i not in held], status)

    finish = type(scheduler).finish_requests

    @around(scheduler, "schedule")
    def _(original, *args):
        held = {r.request_id for r in throttled(scheduler)}
        for name in [name for name in pending if name not in held]:
            pending.remove(name)
            finish(scheduler, name, RequestStatus.FINISHED_ABORTED)
        return original(*args)


@fault("S3-PREEMPTED-2")
def a_preempted_request_forgets_its_last_token(scheduler):
    @around(scheduler, "_preempt_request")
    def _(original, request, *args, **kwargs):
        original(request, *args, **kwargs)
        if request.num_output_tokens and not request.num_in_flight_tokens:
            request._all_token_ids.pop()
            request._output_token_ids.pop()


@fault("S3-GRAMMAR-2")
def a_grammar_starts_anew_after_a_pause(scheduler):
    @around(scheduler, "schedule")
    def _(original, *args):
        for request in throttled(scheduler):
            structured = request.structured_output_request
            if structured is not None and structured.grammar:
                structured.grammar.reset()
        return original(*args)


@fault("S3-ENGINE-PAUSE-2")
def a_pause_of_the_engine_ends_who_is_throttled(scheduler):
    @around(scheduler, "set_pause_state")
    def _(original, state):
        original(state)
        for request in throttled(scheduler)[:1]:
            scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)


@fault("S3-RESET-2")
def a_reset_overlooks_who_is_parked(scheduler):
    from vllm.v1.core.sched.scheduler import Scheduler

    def reset(*args, **kwargs):
        parked = throttled(scheduler)
        scheduler.running = [r for r in scheduler.residents.everyone() if r not in parked]
        scheduler._reordered = True
        return Scheduler.reset_prefix_cache(scheduler, *args, **kwargs)

    scheduler.reset_prefix_cache = reset


@fault("S3-LOST-2")
def one_user_a_step_is_woken(scheduler):
    turns = scheduler.turns

    @around(turns, "wake")
    def _(original, now_ns):
        woken = original(now_ns)
        for user in {line.user: None for line in woken[1:] if line.user is not woken[0].user}:
            turns.sleep(user, now_ns + 1)
        return [line for line in woken if line.user.ready_ns is None]


@fault("S3-LEAK-2")
def a_place_is_never_given_back(scheduler):
    @around(scheduler, "_free_request_blocks")
    def _(original, request):
        if request.request_id != "r7":
            original(request)


@fault("S3-LEAK-2")
def idle_users_are_never_forgotten(scheduler):
    from wrong import own_limiter

    own_limiter(scheduler).cleanup_idle_users = lambda now_ns: 0


@fault("S5-PLACEHOLDER-2")
def a_prompt_stopped_one_short_counts_a_placeholder(scheduler):
    @around(scheduler, "_update_after_schedule")
    def _(original, output):
        original(output)
        for name in output.num_scheduled_tokens:
            request = scheduler.requests[name]
            if request.is_prefill_chunk and request.output_rate_line.user.limited:
                request.num_output_placeholders -= 1


@fault("S5-SAME-2", "S3-WHOLE-2")
def async_answers_are_one_token_shorter(scheduler):
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    if isinstance(scheduler, AsyncScheduler):

        @around(scheduler, "add_request")
        def _(original, request):
            request.max_tokens = max(1, request.max_tokens - 1)
            original(request)
