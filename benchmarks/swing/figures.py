"""How much a series swings, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.swing.run import STEPS_PER_S


@dataclass(frozen=True)
class Swing:
    """Of the batch size over whole seconds."""

    mean: float
    """Requests in a step."""
    peak_to_mean: float
    at_1_hz: float
    """Amplitude of the part with a period of 1 s, as a part of the mean: 2 at the very most."""
    strongest_hz: float
    strongest: float
    """The frequency with the largest amplitude, and that, as a part of the mean."""


def spectrum(sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies in Hz above 0, and the amplitude at each as a part of the mean."""
    series = np.asarray(sizes, dtype=float)
    amplitudes = 2 * np.abs(np.fft.rfft(series)) / len(series)
    amplitudes[-1] /= 1 if len(series) % 2 else 2  # the highest one has no twin
    frequencies = np.fft.rfftfreq(len(series), 1 / STEPS_PER_S)
    return frequencies[1:], amplitudes[1:] / series.mean()


def swing(sizes: Sequence[int]) -> Swing:
    """The figures of a series of whole seconds. ValueError for a part of one: 1 Hz is no bin."""
    if not sizes or len(sizes) % STEPS_PER_S:
        raise ValueError(f"{len(sizes)} steps are not whole seconds of {STEPS_PER_S}")
    frequencies, amplitudes = spectrum(sizes)
    mean = sum(sizes) / len(sizes)
    # A train of pulses is as strong at the multiples of its frequency: the lowest one is its own.
    strongest = int(np.argmax(amplitudes >= 0.99 * amplitudes.max()))
    return Swing(
        mean=mean,
        peak_to_mean=max(sizes) / mean,
        at_1_hz=float(amplitudes[np.argmin(np.abs(frequencies - 1))]),
        strongest_hz=float(frequencies[strongest]),
        strongest=float(amplitudes[strongest]),
    )
