"""The limits of one engine: validated, immutable, and carried to the process that needs them.

Everything that reads limits (flags, offline `additional_config`, the admin's door) ends in an
`OutputRateConfig`; everything that applies them starts from one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from sched_adapter import identity

DEFAULT_LIMITER: Final = "gcra"
DEFAULT_BURST_NS: Final = 100_000_000
AUTO_BURST_LIMITERS: Final = frozenset({"gcra", "token_bucket"})
WINDOW_LIMITER: Final = "rolling_window"
ON_FAULT: Final = ("open", "closed")

# Where the limits travel. A plain attribute of the SchedulerConfig, since (vLLM 0.32.0)
# - pickle carries it to a spawned engine or API server: it is in the instance's __dict__;
# - no hash sees it: SchedulerConfig.compute_hash names its factors one by one;
# - vllm.config.utils.replace(vllm_config, ...), which every multimodal model calls while it is
#   built, passes the SchedulerConfig on as it is, but refuses a VllmConfig with a stray attribute.
_CARRIER: Final = "_output_rate"


@dataclass(frozen=True)
class OutputRateConfig:
    """Limits and how they are kept.

    Args:
        default_rate: output tokens per second of each user without a rate of its own; None
            leaves those users unlimited.
        rates: output tokens per second by user name.
        limiter: a backend's name, as `limiters.make_limiter` takes it.
        burst_ns: tolerance in ns; a full quota is `1 + burst × rate` tokens.
        window_ns: the rolling window's window in ns; None leaves its default (the burst).
        options: further keywords of the backend; plain JSON values.
        record_path: file for the engine's record; None keeps none.
        on_fault: what the users of a backend that raises or answers nonsense get meanwhile:
            "open", they go on without a limit, or "closed", they wait. Built-in backends do
            neither.

    Raises:
        ValueError, TypeError: in one line, for anything that no limiter could be made from.
            Rates may be given as int, Fraction, float or decimal string; they are kept exact.
    """

    default_rate: Fraction | None = None
    rates: Mapping[str, Fraction] = field(default_factory=dict)
    limiter: str = DEFAULT_LIMITER
    burst_ns: int = DEFAULT_BURST_NS
    window_ns: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    record_path: str | None = None
    on_fault: str = "open"

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen
        if self.default_rate is not None:
            set_field(self, "default_rate", _rate(self.default_rate, "default_rate"))
        if not isinstance(self.rates, Mapping):
            raise TypeError(
                f"rates cannot be a {type(self.rates).__name__}: give a mapping of user to rate"
            )
        rates: dict[str, Fraction] = {}
        for user, rate in self.rates.items():
            try:
                identity.check(user)
            except ValueError as error:
                raise ValueError(f"rates: {error}") from None
            rates[user] = _rate(rate, f"rates[{user!r}]")
        set_field(self, "rates", rates)
        if not isinstance(self.limiter, str) or not self.limiter:
            raise ValueError(f"limiter cannot be {self.limiter!r}: give a backend's name")
        _check_ns("burst_ns", self.burst_ns, least=0)
        if self.window_ns is not None:
            _check_ns("window_ns", self.window_ns, least=1)
            if self.limiter != WINDOW_LIMITER:
                raise ValueError(
                    f"a window of {self.window_ns} ns has no meaning for limiter "
                    f"{self.limiter!r}: choose {WINDOW_LIMITER!r}, or leave the window out"
                )
        _check_options(self.options)
        set_field(self, "options", dict(self.options))
        if self.options.get("auto_burst") and self.limiter not in AUTO_BURST_LIMITERS:
            raise ValueError(
                f"an automatic burst has no meaning for limiter {self.limiter!r}: choose "
                f"{' or '.join(sorted(AUTO_BURST_LIMITERS))}, or give the burst in milliseconds"
            )
        if self.record_path is not None and not isinstance(self.record_path, str):
            raise TypeError(f"record_path cannot be {self.record_path!r}: give a file's name")
        if self.on_fault not in ON_FAULT:
            raise ValueError(f"on_fault cannot be {self.on_fault!r}: give {' or '.join(ON_FAULT)}")

    @property
    def enabled(self) -> bool:
        """Whether anybody is limited; if not, the stock scheduler runs untouched."""
        return self.default_rate is not None or bool(self.rates)

    def make_limiter(self) -> Any:
        """A fresh limiter of these limits (`limiters.Limiter`).

        Raises:
            ValueError, TypeError: an unknown backend, or an option that it does not take.
        """
        from limiters import make_limiter

        options = dict(self.options)
        if self.window_ns is not None:
            options["window_ns"] = self.window_ns
        return make_limiter(
            self.limiter,
            default_rate=self.default_rate,
            rates=self.rates,
            burst_ns=self.burst_ns,
            **options,
        )

    def to_json(self) -> dict[str, object]:
        """The same limits in plain JSON types; a rate is the string "p" or "p/q"."""
        return {
            "default_rate": None if self.default_rate is None else str(self.default_rate),
            "rates": {user: str(rate) for user, rate in self.rates.items()},
            "limiter": self.limiter,
            "burst_ns": self.burst_ns,
            "window_ns": self.window_ns,
            "options": dict(self.options),
            "record_path": self.record_path,
            "on_fault": self.on_fault,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OutputRateConfig:
        """The inverse of `to_json`; ValueError, TypeError as for the class itself."""
        fields = dict(data)
        if fields.get("default_rate") is not None:
            fields["default_rate"] = Fraction(fields["default_rate"])
        fields["rates"] = {u: Fraction(rate) for u, rate in fields.get("rates", {}).items()}
        return cls(**fields)


def attach(vllm_config: Any, config: OutputRateConfig) -> None:
    """Let `config` travel with a `VllmConfig`, into every process that it is sent to.

    Changes no hash of the VllmConfig. The last call counts.
    """
    setattr(vllm_config.scheduler_config, _CARRIER, config.to_json())


def limited(vllm_config: Any) -> bool:
    """Whether limits are attached to a `VllmConfig`; cheap enough for every request."""
    return getattr(getattr(vllm_config, "scheduler_config", None), _CARRIER, None) is not None


def of(vllm_config: Any) -> OutputRateConfig | None:
    """The limits attached to a `VllmConfig`; None if there are none."""
    data = getattr(getattr(vllm_config, "scheduler_config", None), _CARRIER, None)
    return None if data is None else OutputRateConfig.from_json(data)


def _rate(value: object, where: str) -> Fraction:
    from limiters import parse_rate

    try:
        return parse_rate(value)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise type(error)(f"{where}: {error}") from None


def _check_ns(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} cannot be {value!r}: give whole nanoseconds")
    if value < least:
        raise ValueError(f"{name} cannot be {value}: give at least {least} ns")


def _check_options(options: object) -> None:
    # Only plain JSON types survive the way to the engine's process.
    try:
        if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
            raise TypeError
        json.dumps(dict(options))
    except (TypeError, ValueError):
        raise TypeError(
            f"options cannot be {options!r:.200}: give names with plain JSON values"
        ) from None
    for name in ("name", "default_rate", "rates", "burst_ns"):  # make_limiter's own
        if name in options:
            raise ValueError(f"options cannot hold {name!r}: give it as a setting of its own")
