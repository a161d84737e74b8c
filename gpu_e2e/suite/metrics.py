"""The server's own metrics: what it says is running, waiting, and held of its KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

_NAMES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "preemptions": "vllm:num_preemptions_total",
    "generated": "vllm:generation_tokens_total",
}


@dataclass(frozen=True, slots=True)
class Metrics:
    """Requests, a share of the KV cache (0 to 1), and totals since the start."""

    running: float
    waiting: float
    kv_usage: float
    preemptions: float
    generated: float

    @property
    def idle(self) -> bool:
        return self.running == 0 and self.waiting == 0


def parse(text: str) -> Metrics:
    """From the Prometheus text format; a family's samples are summed. A missing one is an error."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{" if "{" in line else " ")
        for field, wanted in _NAMES.items():
            if name == wanted:
                found[field] = found.get(field, 0.0) + float(rest.rpartition(" ")[2])
    missing = [wanted for field, wanted in _NAMES.items() if field not in found]
    if missing:
        raise ValueError(f"the server's metrics lack {', '.join(missing)}")
    return Metrics(**found)


async def fetch(root_url: str) -> Metrics:
    """What /metrics says now."""
    async with httpx.AsyncClient(timeout=30.0) as client:
        answer = await client.get(root_url + "/metrics")
        answer.raise_for_status()
        return parse(answer.text)
