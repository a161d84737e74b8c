"""Faults in what is charged, when, and given back. Every scheduler implemented here is *wrong*."""

from wrong import around, charge, each_sampled, fault, give_back, own_limiter, renew


@fault("S1-CHUNK-2", "S1-LEDGER-2")
def prompt_chunks_are_charged(scheduler):
    @around(scheduler, "_charge_dispatched")
    def _(original, step, output):
        original(step, output)
        for name in output.num_scheduled_tokens:
            request = scheduler.requests[name]
            if request.is_prefill_chunk and request.output_rate_line.user.limited:
                charge(scheduler, step, request)


@fault("S1-CHUNK-2")
def prompt_chunks_are_charged_outside_the_books(scheduler):
    @around(scheduler, "_charge_dispatched")
    def _(original, step, output):
        original(step, output)
        for name in output.num_scheduled_tokens:
            request = scheduler.requests[name]
            if request.is_prefill_chunk and request.output_rate_line.user.limited:
                scheduler.limiter.try_take(request.output_rate_line.user.name, step.now_ns)


@fault("S1-FIRST-2", "S1-LEDGER-2")
def the_first_token_is_free(scheduler):
    @around(scheduler, "_charge_dispatched")
    def _(original, step, output):
        original(step, output)
        for request in each_sampled(scheduler, step, output):
            if request.num_computed_tokens <= request.num_prompt_tokens:
                give_back(scheduler, step.now_ns, request)


@fault("S1-DECODE-2")
def every_token_costs_two(scheduler):
    @around(scheduler, "_charge_dispatched")
    def _(original, step, output):
        original(step, output)
        for request in each_sampled(scheduler, step, output):
            charge(scheduler, step, request)


@fault("S1-PREFIX-2")
def a_cache_hit_is_charged_by_its_length(scheduler):
    @around(scheduler.kv_cache_manager, "record_prefix_cache_stats")
    def _(original, request, hits):
        if hits and request.output_rate_line.user.limited:
            charge(scheduler, scheduler._step, request)
        return original(request, hits)


@fault("S1-RECOMPUTE-2", "S1-LEDGER-2")
def a_resumed_request_is_charged_again(scheduler):
    @around(scheduler, "_charge_dispatched")
    def _(original, step, output):
        original(step, output)
        for name in output.scheduled_cached_reqs.resumed_req_ids:
            charge(scheduler, step, scheduler.requests[name])


@fault("S1-ALLOCATE-2", "S1-EVICT-2", "S1-LEDGER-2")
def nothing_is_refunded(scheduler):
    limiter = own_limiter(scheduler)
    limiter.refund = lambda user, now_ns: None
    scheduler.books.refund = lambda user, tokens: None


@fault("S1-ALLOCATE-2")
def a_refund_is_only_written_down(scheduler):
    own_limiter(scheduler).refund = lambda user, now_ns: None


@fault("S1-EVICT-2")
def a_preempted_request_is_refunded_twice(scheduler):
    @around(scheduler, "_preempt_request")
    def _(original, request, *args, **kwargs):
        original(request, *args, **kwargs)
        give_back(scheduler, scheduler.books.now_ns, request)


@fault("S1-KEPT-2")
def an_aborted_token_is_refunded(scheduler):
    @around(scheduler, "_free_request")
    def _(original, request, *args, **kwargs):
        if request.num_in_flight_tokens:
            give_back(scheduler, scheduler.books.now_ns, request)
        return original(request, *args, **kwargs)


@fault("S1-LATE-2")
def a_late_token_is_charged_again(scheduler):
    @around(scheduler, "_preempt_request")
    def _(original, request, *args, **kwargs):
        if request.output_rate_line.user.limited:
            charge(scheduler, scheduler._step, request)
        original(request, *args, **kwargs)


@fault("S1-UNLIMITED-2")
def who_has_no_rate_is_charged_too(scheduler):
    @around(scheduler, "_charge_dispatched")
    def _(original, step, output):
        original(step, output)
        for name in output.num_scheduled_tokens:
            scheduler.books.take(scheduler.requests[name].output_rate_line.user.name, 1)


@fault("S1-IDENTITY-2")
def the_identity_is_read_in_every_step(scheduler):
    from sched_adapter import identity

    @around(scheduler, "schedule")
    def _(original, *args):
        for request in list(scheduler.requests.values()):
            line = request.output_rate_line
            if identity.user_of(request) != line.user.name:
                seat = line.residents.pop(request, None)
                scheduler._join(request)
                scheduler._leave(line)
                if seat is not None:
                    request.output_rate_line.residents[request] = seat
        return original(*args)


@fault("S1-SESSION-2")
def a_session_is_nobodys_from_its_second_turn(scheduler):
    @around(scheduler, "_update_request_as_session")
    def _(original, session, update):
        update.sampling_params.extra_args = None
        original(session, update)


@fault("S5-DISPATCH-2")
def it_charges_when_the_result_is_in(scheduler):
    limiter, due = own_limiter(scheduler), []

    def grant(user, count, now_ns):
        granted = limiter.inner.try_take_many(user, count, now_ns)
        for _ in range(granted):  # it only looks
            limiter.inner.refund(user, now_ns)
        due.extend([user] * granted)
        return granted

    limiter.try_take_many = grant
    limiter.try_take = lambda user, now_ns: grant(user, 1, now_ns) == 1

    def refund(user, now_ns):
        due.remove(user)

    limiter.refund = refund

    @around(scheduler, "update_from_output")
    def _(original, *args):
        for user in due:
            limiter.inner.try_take(user, scheduler.books.now_ns)
        due.clear()
        return original(*args)


@fault("S5-DISPATCH-2")
def it_asks_the_limiter_about_results(scheduler):
    @around(scheduler, "update_from_output")
    def _(original, output, result):
        for name in output.num_scheduled_tokens:
            if name in scheduler.requests:
                user = scheduler.requests[name].output_rate_line.user.name
                scheduler.limiter.ready_at_ns(user, scheduler.books.now_ns)
        return original(output, result)


@fault("S5-LOOKAHEAD-2")
def the_look_ahead_is_refunded(scheduler):
    @around(scheduler, "_handle_stopped_request")
    def _(original, request):
        if request.num_output_placeholders:
            give_back(scheduler, scheduler.books.now_ns, request)
        return original(request)


@fault("S2-FORGET-2", "S2-BOUND-2")
def the_quota_is_forgotten_with_the_last_request(scheduler):
    @around(scheduler, "_leave")
    def _(original, line):
        original(line)
        if line.user.name not in scheduler.turns.users:
            renew(scheduler)


@fault("S2-FORGET-2")
def the_quota_is_forgotten_at_a_preemption(scheduler):
    @around(scheduler, "_preempt_request")
    def _(original, request, *args, **kwargs):
        original(request, *args, **kwargs)
        renew(scheduler)


@fault("S2-ENGINE-PAUSE-2")
def a_pause_saves_up_quota(scheduler):
    @around(scheduler, "set_pause_state")
    def _(original, state):
        original(state)
        if not state:
            renew(scheduler)


@fault("S2-BOUND-2", "S2-TIMELINE-2", "S3-RESUME-2")
def one_more_than_the_quota(scheduler):
    limiter = own_limiter(scheduler)

    def more(user, count, now_ns):
        taken = limiter.inner.try_take_many(user, count, now_ns)
        return min(count, taken + 1) if taken else 0

    limiter.try_take_many = more
