"""The declared numbers, and those that every backend owes: bound, evenness, reach."""

import math
from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance import contracts
from conformance.level1.grants import eager, edges, fullest, stepped, take_all, widest_gap
from conformance.level1.histories import pauses
from conformance.level1.settings import MS, SETTINGS, S, settings_for
from conformance.profiles import scaled
from conformance.rules import rule

ANY = 1_000_000  # streams: more than any quota here
TOKENS = 60
STARTS = (0, -1, S - 50 * MS, 7 * S // 10 + 1, -(2**40) - 1)
"""Where a run begins, since a fixed window has its edges somewhere."""


def make(contract, setting):
    return contract.limiter(setting.rate, burst_ns=setting.burst_ns)


def even_bound(setting, width_ns):
    return contracts.even_bound(width_ns, setting.rate, setting.burst_ns)


def hold_bound(contract, trial, hypothesis_settings, most):
    """No window of an eager user, nor of one who comes and goes, holds more than `most`."""
    for setting in settings_for(contract):
        for start in STARTS if setting.exact else STARTS[:2]:
            grants = eager(make(contract, setting), "a", setting, start, TOKENS)
            judge(trial, setting, most, grants)
    hold_bound_of_histories(contract, trial, scaled(hypothesis_settings, 1.5), most)


def judge(trial, setting, most, grants):
    window = fullest(grants, lambda width: most(setting, width))
    if window is not None:
        trial.broken(
            user="a",
            at=f"{window} at {setting}",
            seen=f"{window.grants} grants",
            promised=f"at most {window.promised}",
        )


def hold_bound_of_histories(contract, trial, profile, most):
    @profile
    @given(
        setting=st.sampled_from(settings_for(contract)),
        start=st.sampled_from(STARTS),
        moves=st.lists(
            st.tuples(pauses, st.integers(0, 30), st.integers(0, 2), st.booleans()), max_size=15
        ),
    )
    def run(setting, start, moves):
        limiter, now, grants = make(contract, setting), start, []
        for pause, wanted, refunds, clean in moves:
            now += pause
            taken = 0
            while taken < wanted and limiter.try_take("a", now):
                taken += 1
            back = min(refunds, taken)
            for _refund in range(back):
                limiter.refund("a", now)
            if clean:
                limiter.cleanup_idle_users(now)
            grants += [now] * (taken - back)
        judge(trial, setting, most, grants)

    run()


def most_in(contract, setting, width_ns):
    grants = eager(make(contract, setting), "a", setting, 0, 3 * TOKENS)
    return max(
        sum(start <= at <= start + width_ns for at in grants) for start in dict.fromkeys(grants)
    )


@rule("L-BOUND-1")
def test_L_BOUND_1_no_window_exceeds_the_declared_bound(contract, trial, hypothesis_settings):
    def most(setting, width_ns):
        return contract.bound(width_ns, setting.rate, setting.burst_ns)

    setting = SETTINGS[0]
    grants = eager(make(contract, setting), "a", setting, 0, 30)
    trial.pace(
        f"takes whenever it can, {setting.rate} tok/s",
        grants,
        lambda width: most(setting, width),
        float(setting.rate),
    )
    hold_bound(contract, trial, hypothesis_settings, most)
    trial.figure(
        f"most in 1 s at 10 tok/s {most_in(contract, setting, S)}, {most(setting, S)} declared"
    )


@rule("S2-WINDOW-1")
def test_S2_WINDOW_1_no_window_exceeds_the_common_bound(contract, trial, hypothesis_settings):
    setting = SETTINGS[0]
    trial.figure(
        f"most in 1 s at 10 tok/s {most_in(contract, setting, S)}, {even_bound(setting, S)} allowed"
    )
    hold_bound(contract, trial, hypothesis_settings, even_bound)


@rule("L-BOUND-1")
def test_L_BOUND_1_no_rounding_adds_up(contract, trial):
    """2000 tokens at rates whose interval is no whole number of ns."""
    for setting in settings_for(contract):
        if setting.exact or setting.rate < 1:
            continue
        limiter, now, grants = make(contract, setting), 0, []
        for _spell in range(2_000):
            if len(grants) >= 2_000:
                break
            taken = take_all(limiter, "a", now)
            grants += [now] * taken
            early = limiter.ready_at_ns("a", now) - 1
            if early > now and limiter.try_take("a", early):
                grants.append(early)
            now = max(early + 1, now + 1)
        window = fullest(
            grants, lambda w, s=setting: contract.bound(w, s.rate, s.burst_ns), starts=1
        )
        if window is not None:
            trial.broken(
                user="a",
                at=f"{window} at {setting}",
                seen=f"{window.grants} grants",
                promised=f"at most {window.promised}",
                note="an interval rounded down adds up",
            )


@rule("L-TIGHT-1")
def test_L_TIGHT_1_the_declared_bound_is_reached(contract, trial):
    for setting in settings_for(contract):
        grants = eager(make(contract, setting), "a", setting, 0, TOKENS)
        span = int(TOKENS * S / setting.rate)
        widths = {*edges(setting, TOKENS), *(at + off for at in grants for off in (-1, 0))}
        for width in sorted(w for w in widths if 0 <= w <= span):
            held = sum(at <= width for at in grants)
            promised = contract.bound(width, setting.rate, setting.burst_ns)
            # Each grant may be a ns late, since instants are whole.
            slack = 0 if setting.exact else min(width, promised)
            sure = contract.bound(width - slack, setting.rate, setting.burst_ns)
            trial.check(
                sure <= held,
                user="a",
                at=f"window [0, {width}] ns from a full quota at {setting}",
                seen=f"{held} grants to a user who takes whenever it can",
                promised=f"a bound of {promised}, which must be reached",
            )
    trial.figure(f"reached in every window tried at {len(settings_for(contract))} settings")


@rule("L-TIGHT-1")
def test_L_TIGHT_1_no_rounding_holds_back(contract, trial):
    """Over 2000 tokens a user loses at most a ns each."""
    for setting in settings_for(contract):
        if setting.exact or setting.rate < 1:
            continue
        limiter, now, last, count = make(contract, setting), 0, 0, 0
        for _spell in range(2_000):
            if count >= 2_000:
                break
            count += take_all(limiter, "a", now)
            last, now = now, max(now + 1, limiter.ready_at_ns("a", now))
        sure = contract.bound(max(0, last - 2_000), setting.rate, setting.burst_ns)
        trial.check(
            sure <= count,
            user="a",
            at=f"window [0, {last}] ns at {setting}",
            seen=f"{count} grants",
            promised=f"at least {sure}",
            note="an interval rounded up adds up",
        )


def waits(contract, start_ns=0):
    for setting in settings_for(contract):
        # Long enough to use up a full quota and to wait for the next tokens.
        tokens = max(TOKENS, 2 * contract.bound(0, *setting))
        grants = eager(make(contract, setting), "a", setting, start_ns, tokens)
        if len(grants) < 2:
            pytest.fail(f"{setting}: {len(grants)} grants in {tokens} intervals")
        yield setting, *widest_gap(grants)


@rule("L-EVEN-1")
def test_L_EVEN_1_the_declared_evenness_holds_and_is_reached(contract, trial):
    for setting, gap, start, end in waits(contract):
        promised = contract.evenness_ns(setting.rate, setting.burst_ns)
        at = f"from {start} to {end} ns at {setting}"
        trial.check(
            gap <= promised, user="a", at=at, seen=f"{gap} ns", promised=f"at most {promised} ns"
        )
        trial.check(
            gap >= promised - 1,
            user="a",
            at=at,
            seen=f"no wait longer than {gap} ns",
            promised=f"{promised} ns, which must be reached",
        )
        if setting == SETTINGS[0]:
            trial.figure(f"longest wait at 10 tok/s {gap / MS:g} ms, {promised / MS:g} declared")


@rule("S2-EVEN-1")
def test_S2_EVEN_1_no_wait_exceeds_the_common_evenness(contract, trial):
    for setting, gap, start, end in waits(contract):
        promised = math.ceil(max(S / setting.rate, setting.burst_ns))
        if setting == SETTINGS[0]:
            trial.figure(f"longest wait at 10 tok/s {gap / MS:g} ms, {promised / MS:g} allowed")
        trial.check(
            gap <= promised,
            user="a",
            at=f"from {start} to {end} ns at {setting}",
            seen=f"{gap} ns",
            promised=f"at most {promised} ns",
        )


@rule("L-REACH-1")
def test_L_REACH_1_the_declared_reach_is_paid_and_no_more(contract, trial):
    steps = 300
    for setting in settings_for(contract):
        for step in (7 * MS, 30 * MS, 33 * MS, 100 * MS, 250 * MS, max(1, setting.burst_ns)):
            for streams in (1, 4, ANY):
                reach = contract.reach(setting.rate, setting.burst_ns, step, streams)
                at = f"steps of {step} ns, {streams} streams, {setting}"
                if reach is None:
                    trial.check(
                        streams < ANY or step > setting.burst_ns,
                        user="a",
                        at=at,
                        seen="nothing promised",
                        promised="a reach for every step that the burst covers",
                    )
                    continue
                if reach * step * steps > 6_000 * S:
                    continue  # more takes than the figure is worth
                grants = stepped(make(contract, setting), "a", step, streams, steps)
                hold_reach(trial, at, reach, step, steps, grants, contract, setting)
                if (setting, step, streams) == (SETTINGS[0], 30 * MS, 4):
                    got = len(grants) * S / (steps * step)
                    trial.figure(f"10 tok/s, 30 ms steps: {got:.2f} tok/s, {float(reach):.2f} due")
                    trial.pace(
                        "4 streams, steps of 30 ms, 10 tok/s",
                        grants[:40],
                        lambda width: contract.bound(width, SETTINGS[0].rate, 100 * MS),
                        10.0,
                    )


def hold_reach(trial, at, reach, step, steps, grants, contract, setting):
    counts = Counter(grants)
    for index, got in enumerate(accumulate(counts[i * step] for i in range(steps))):
        until = (index + 1) * step  # just before the next step
        if got * S * reach.denominator < reach.numerator * until:
            trial.broken(
                user="a",
                at=f"[0, {until}) ns, {at}",
                seen=f"{got} grants",
                promised=f"at least {float(reach * until / S):.3f}",
            )
    most = reach * steps * step / S + contract.bound(0, setting.rate, setting.burst_ns) + 1
    trial.check(
        len(grants) <= most,
        user="a",
        at=f"{steps} {at}",
        seen=f"{len(grants)} grants",
        promised=f"{float(reach):g} tok/s, which allows {float(most):.2f}: declare what is paid",
    )
