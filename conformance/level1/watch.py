"""Watch the grants of a limiter whose settings change, and judge every window across changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from conformance.contract import Contract
from conformance.level1.histories import Move, Player
from conformance.level1.settings import S
from conformance.rules import Trial


@dataclass(frozen=True)
class _Grants:
    """Grants of one user at one instant under one setting."""

    at_ns: int
    count: int
    rate: Fraction
    burst_ns: int
    highest: tuple[Fraction, int]
    """The highest rate and burst since the grants before these."""


class Watch:
    """One limiter, played on, with a record of what it granted and under which settings."""

    def __init__(
        self,
        contract: Contract,
        trial: Trial,
        default: Fraction,
        rates: Mapping[str, Any],
        burst_ns: int,
        now_ns: int = 0,
    ) -> None:
        self.contract = contract
        self.trial = trial
        self.player = Player(contract.limiter(default, rates=rates, burst_ns=burst_ns), now_ns)
        self._grants: dict[str, list[_Grants]] = {}
        self._highest: dict[str, tuple[Fraction, int]] = {}

    def pause(self, ns: int) -> None:
        self.player.play(("pause", ns))

    def take(self, user: str, wanted: int) -> int:
        """Try up to `wanted` takes; how many passed."""
        taken = 0
        while taken < wanted and self.player.play(("try_take", user)):
            taken += 1
        if taken:
            self.note(user, taken)
        return taken

    def note(self, user: str, count: int) -> None:
        """Note grants of this instant; a negative count takes refunded ones back."""
        rate = self.player.limiter.rate_of(user)
        if rate is None:
            return  # nothing is promised
        burst_ns = self.player.limiter.burst_ns
        highest, most = self._highest.pop(user, (rate, burst_ns))
        seen = max(highest, rate), max(most, burst_ns)
        now = self.player.now_ns
        self._grants.setdefault(user, []).append(_Grants(now, count, rate, burst_ns, seen))

    def change(self, move: Move) -> None:
        """A change of the settings."""
        self.player.play(move)
        for user in list(self._grants):
            rate = self.player.limiter.rate_of(user)
            if rate is None:
                self.forget(user)  # a window across a time without limit holds any number
                continue
            highest, burst_ns = self._highest.get(user, (rate, 0))
            most = max(burst_ns, self.player.limiter.burst_ns)
            self._highest[user] = max(highest, rate), most

    def forget(self, user: str) -> None:
        """Judge no window of this user that began before now."""
        self._grants.pop(user, None)
        self._highest.pop(user, None)

    def judge(self, why: str = "") -> None:
        """Hold every closed window from one grant to another to the promise."""
        for user, grants in self._grants.items():
            for first in range(len(grants)):
                self._judge_from(user, grants[first:], why)

    def _judge_from(self, user: str, grants: list[_Grants], why: str) -> None:
        start, held = grants[0], 0
        rate, burst_ns = start.rate, start.burst_ns
        changed = False
        for grant in grants:
            held += grant.count
            if grant is not start:
                same = grant.highest == (start.rate, start.burst_ns) == (grant.rate, grant.burst_ns)
                changed = changed or not same
                rate = max(rate, grant.highest[0])
                burst_ns = max(burst_ns, grant.highest[1])
            width = grant.at_ns - start.at_ns
            promised = self.contract.bound(width, rate, burst_ns)
            if changed:
                spread = int(width * rate / S) + self.contract.bound(0, rate, burst_ns)
                promised = max(promised, spread)
            if held > promised:
                self.trial.broken(
                    user=user,
                    at=f"window [{start.at_ns}, {grant.at_ns}] ns, "
                    + (f"settings changed in it {why}, " if changed else "settings as they are, ")
                    + f"at most {rate} tok/s and burst {burst_ns} ns",
                    seen=f"{held} grants",
                    promised=f"at most {promised}",
                )
