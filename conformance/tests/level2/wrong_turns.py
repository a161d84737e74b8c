"""Faults in pace and turns. Every scheduler implemented here is *wrong*."""

from fractions import Fraction

from wrong import around, fault, own_limiter

from sched_adapter.turns import Line


def lines_of(scheduler, kind):
    """Make all lines of this scheduler ones of `kind`."""

    @around(scheduler.turns, "join")
    def _(original, *args):
        line = original(*args)
        line.__class__ = kind
        return line


@fault("S2-ROTATE-2")
def no_rotation(scheduler):
    class Fixed(Line):
        __slots__ = ()

        def serve(self, request, step):
            self.residents[request] = step

    lines_of(scheduler, Fixed)


@fault("S2-ROTATE-2", "S2-CHILDREN-2")
def the_turn_moves_by_two(scheduler):
    class Fixed(Line):
        __slots__ = ()

        def serve(self, request, step):
            super().serve(request, step)
            if len(self.residents) > 2:
                super().serve(next(iter(self.residents)), step)

    lines_of(scheduler, Fixed)


@fault("S2-PRIORITY-2")
def rotation_across_priorities(scheduler):
    @around(scheduler.turns, "join")
    def _(original, name, level, limited):
        return original(name, 0, limited)


@fault("S2-TURN-2")
def waiting_streams_come_after_running_ones(scheduler):
    class Fixed(Line):
        __slots__ = ()

        def in_turn(self, *args):
            picks = list(super().in_turn(*args))
            yield from (pick for pick in picks if pick is not None)
            yield from (pick for pick in picks if pick is None)

    lines_of(scheduler, Fixed)


@fault("S4-TURNS-2")
def users_are_served_in_the_order_of_arrival(scheduler):
    scheduler.turns.to_the_end = lambda line: None


@fault("S4-BUDGET-2")
def turns_stand_still_where_tokens_are_short(scheduler):
    settlement, turns = scheduler.settlement, scheduler.turns
    only_tokens = False

    @around(settlement, "_compose")
    def _(original, *args):
        nonlocal only_tokens
        enough_places = not settlement.step.crowded
        original(*args)
        only_tokens = enough_places and settlement.step.crowded

    @around(turns, "to_the_end")
    def _(original, line):
        if not only_tokens:
            original(line)


@fault("S2-SHARE-2")
def a_quota_for_each_stream(scheduler):
    limited = scheduler._is_limited

    @around(scheduler.turns, "join")
    def _(original, name, level, _):
        if not limited(name):
            return original(name, level, limited)
        count = sum(user.startswith(f"{name}#") for user in scheduler.turns.users)
        own = f"{name}#{count}"
        scheduler.limiter.set_rate(own, scheduler.limiter.rate_of(name), 0)
        return original(own, level, limited)


@fault("S2-ANONYMOUS-2")
def who_gives_no_name_has_no_limit(scheduler):
    limited = scheduler._is_limited
    scheduler._is_limited = lambda user: user != "__anonymous__" and limited(user)


@fault("S3-RESUME-2", "S2-EVEN-2")
def it_comes_back_late(scheduler):
    limiter = own_limiter(scheduler)
    late = 25_000_000

    def ready_at_ns(user, now_ns):
        ready = limiter.inner.ready_at_ns(user, now_ns)
        return ready + late if ready > now_ns else ready

    limiter.ready_at_ns = ready_at_ns


@fault("S2-REACH-2")
def a_twentieth_of_the_rate_is_kept_back(scheduler):
    @around(scheduler.turns, "join")
    def _(original, name, level, limited):
        if limited(name):
            limits = scheduler.limiter
            limits.set_rate(name, limits.rate_of(name) * Fraction(19, 20), 0)
        return original(name, level, limited)


@fault("S2-CLOCK-2")
def the_clock_is_believed(scheduler):
    clock = scheduler._clock

    class Plain:
        source = clock.source

        def read(self):
            return self.source()

        peek = read

    scheduler._clock = Plain()

    @around(scheduler, "schedule")
    def _(original, *args):
        # The clock that the engine set after the scheduler was made.
        Plain.source = staticmethod(clock.source)
        return original(*args)


@fault("S3-WAIT-2")
def it_sleeps_in_schedule(scheduler):
    import time

    @around(scheduler, "schedule")
    def _(original, *args):
        output = original(*args)
        if not output.num_scheduled_tokens:
            time.sleep(0.001)
        return output


@fault("S3-WAIT-2", "S2-EVEN-2")
def it_lets_the_clock_go_on_in_schedule(scheduler):
    @around(scheduler, "schedule")
    def _(original, *args):
        output = original(*args)
        if not output.num_scheduled_tokens:
            scheduler.clock.advance(50_000_000)
        return output


@fault("S3-WAIT-2")
def it_asks_for_a_wait_while_there_is_work(scheduler):
    scheduler.output_rate_wait_s = lambda: 0.05


@fault("S5-CLASS-2")
def never_an_async_scheduler(scheduler):
    from sched_adapter.scheduler import SyncOutputRateScheduler

    scheduler.__class__ = SyncOutputRateScheduler


@fault("S5-DEPTH-2")
def a_request_waits_for_its_own_result(scheduler):
    @around(scheduler.settlement, "settle")
    def _(original, *args):
        step = original(*args)
        step.everybody = False
        step.running = [r for r in step.running if not r.num_output_placeholders]
        return step
