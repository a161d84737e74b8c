"""100,000 users pass by 10,240 residents, 51 of them eligible: `python -m benchmarks.scale`."""

from __future__ import annotations

import logging

from benchmarks.scale.run import passage
from benchmarks.scenes import Scene

FEW, MANY = 4_000, 100_000
SCENES = (Scene(1_024, 1_024 - 51), Scene(10_240, 10_240 - 51))


def main() -> None:
    logging.disable(logging.WARNING)  # what vLLM says about each config that it is given
    print(
        "| residents | users that passed | opcodes of a step then | schedule() with 250 arrivals |"
    )
    print("| --- | --- | --- | --- |")
    for scene in SCENES:
        for users in (FEW, MANY):
            made = passage(users, scene)
            first, last = made.cpu_us[0] / 1e3, made.cpu_us[-1] / 1e3
            print(
                f"| {scene.residents:,} | {users:,} | {made.opcodes:,} "
                f"| {first:.1f} ms at first, {last:.1f} ms at last |"
            )


if __name__ == "__main__":
    main()
