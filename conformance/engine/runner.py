"""The scripted model runner: does to a SchedulerOutput what a worker would, and is strict.

It keeps a request's tokens and a simulated KV cache by itself, as a worker does, so a scheduler
that hands out the wrong block, skips a chunk or forgets a token is caught here and not believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from conformance.engine.model import VOCAB, ScriptedModel
from conformance.engine.observe import SampleJudge

__all__ = ["Batch", "EngineFault", "ScriptedRunner"]


class EngineFault(AssertionError):
    """A step that no worker could run, or that would give wrong tokens."""


@dataclass(slots=True)
class _Resident:
    tokens: list[int]
    key: int
    table: list[int]
    chain: list[int] = field(default_factory=list)
    """chain[p] stands for all tokens up to position p: what the KV at p depends on."""
    full: list[int] = field(default_factory=list)
    """The chain at the last position of each full block."""
    end: int = 0
    """Positions computed, this step's included."""


@dataclass(slots=True)
class Batch:
    """A dispatched step whose tokens are not sampled yet."""

    request_ids: list[str]
    samples: dict[str, int]
    """request id -> position of its sampled token."""


class ScriptedRunner:
    """`execute` then `sample`, for each step in the order of dispatch."""

    def __init__(
        self,
        model: ScriptedModel,
        *,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        lora_slots: int = 0,
        check_kv: bool = True,
    ) -> None:
        self.model = model
        self.scripts: dict[str, dict[int, int]] = {}
        self._judge = SampleJudge()
        self._residents: dict[str, _Resident] = {}
        self._loras: dict[str, int] = {}
        self._kv: dict[int, int] = {}
        """slot -> chain of what was written there last."""
        self._full: dict[int, int | None] = {}
        """block -> chain at its last position, None once anything else was written to it."""
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._lora_slots = lora_slots
        self._check_kv = check_kv

    def __len__(self) -> int:
        """Requests that the worker remembers."""
        return len(self._residents)

    def execute(self, output: Any) -> Batch:
        """Run one SchedulerOutput. EngineFault if it cannot be run as it stands."""
        for request_id in output.finished_req_ids:
            self._residents.pop(request_id, None)
            self._loras.pop(request_id, None)
            self.scripts.pop(request_id, None)
        samples = self._judge.judge(output)
        scheduled = output.num_scheduled_tokens
        if len(scheduled) > self._max_num_seqs:
            raise EngineFault(f"{len(scheduled)} requests in a batch of {self._max_num_seqs}")
        if output.total_num_scheduled_tokens > self._max_num_batched_tokens:
            raise EngineFault(
                f"{output.total_num_scheduled_tokens} tokens in a batch of "
                f"{self._max_num_batched_tokens}"
            )
        if output.total_num_scheduled_tokens != sum(scheduled.values()):
            raise EngineFault("total_num_scheduled_tokens is not the sum of the requests' tokens")
        for new in output.scheduled_new_reqs:
            self._admit(new)
            self._write(new.req_id, new.num_computed_tokens, scheduled[new.req_id])
        self._run_cached(output.scheduled_cached_reqs, scheduled)
        if self._check_kv:
            # After all writes, as in a worker's layer: a newcomer may share the blocks that
            # another request of this very batch fills.
            for request_id in scheduled:
                self._attend(request_id)
        if self._lora_slots:
            loras = {lora for i in scheduled if (lora := self._loras.get(i, 0))}
            if len(loras) > self._lora_slots:
                raise EngineFault(f"adapters {sorted(loras)} in {self._lora_slots} slots")
        return Batch(list(scheduled), samples)

    def sample(self, batch: Batch, grammar: Any | None) -> ModelRunnerOutput:
        """The tokens of a batch; `grammar` is the scheduler's GrammarOutput or None."""
        if not batch.request_ids:
            return EMPTY_MODEL_RUNNER_OUTPUT
        rows: dict[str, int] = {}
        if grammar is not None:
            rows = {i: n for n, i in enumerate(grammar.structured_output_request_ids)}
        tokens: list[list[int]] = []
        for request_id in batch.request_ids:
            position = batch.samples.get(request_id)
            if position is None:
                tokens.append([])
                continue
            resident = self._residents[request_id]
            token = self.scripts.get(request_id, {}).get(position)
            if token is None:
                token = self.model.token(resident.key, position)
            if request_id in rows:
                allowed = _unpack(grammar.grammar_bitmask[rows[request_id]])
                token = allowed[token % len(allowed)]
            # A position sampled again (its first token was dropped) replaces what stood there.
            del resident.tokens[position:]
            del resident.chain[position:]
            del resident.full[position // self._block_size :]
            resident.tokens.append(token)
            tokens.append([token])
        return ModelRunnerOutput(
            req_ids=batch.request_ids,
            req_id_to_index={i: n for n, i in enumerate(batch.request_ids)},
            sampled_token_ids=tokens,
        )

    def _admit(self, new: Any) -> None:
        prompt = list(new.prompt_token_ids)
        seed = new.sampling_params.seed
        table = list(new.block_ids[0])
        self._residents[new.req_id] = _Resident(prompt, self.model.key(prompt, seed), table)
        if new.lora_request is not None:
            self._loras[new.req_id] = new.lora_request.lora_int_id

    def _run_cached(self, cached: Any, scheduled: dict[str, int]) -> None:
        for request_id, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            resident = self._residents.get(request_id)
            if resident is None:
                raise EngineFault(f"{request_id} is scheduled as known but never was admitted")
            if request_id in cached.resumed_req_ids:
                resident.table = list(blocks[0])
            elif blocks is not None:
                resident.table.extend(blocks[0])
            known = cached.all_token_ids.get(request_id)
            if known is not None and known != resident.tokens[: len(known)]:
                raise EngineFault(f"{request_id}: the scheduler's tokens are not the sampled ones")
            self._write(request_id, computed, scheduled[request_id])

    def _write(self, request_id: str, computed: int, count: int) -> None:
        resident = self._residents[request_id]
        end = computed + count
        if count < 1 or end > len(resident.tokens):
            raise EngineFault(
                f"{request_id}: tokens {computed}..{end} scheduled, {len(resident.tokens)} exist"
            )
        size = self._block_size
        table = resident.table
        if end > len(table) * size:
            raise EngineFault(f"{request_id}: {end} tokens in {len(table)} blocks of {size}")
        resident.end = end
        if not self._check_kv:
            return
        chain, full = resident.chain, resident.full
        for position in range(len(chain), end):
            before = chain[-1] if chain else 0
            chain.append(hash((before, resident.tokens[position])))
            if position % size == size - 1:
                full.append(chain[-1])
        for position in range(computed, end):
            block, offset = table[position // size], position % size
            self._kv[block * size + offset] = chain[position]
            self._full[block] = chain[position] if offset == size - 1 else None

    def _attend(self, request_id: str) -> None:
        """Every position computed so far must have the KV that this request needs there."""
        resident = self._residents[request_id]
        size, table = self._block_size, resident.table
        blocks, rest = divmod(resident.end, size)
        # One value a block answers for all of its positions, so this stays cheap.
        if list(map(self._full.get, table[:blocks])) == resident.full[:blocks] and (
            not rest
            or self._kv.get(table[blocks] * size + rest - 1) == resident.chain[resident.end - 1]
        ):
            return
        raise EngineFault(
            f"{request_id}: the KV of its first {resident.end} positions in blocks "
            f"{table[: blocks + 1]} is not its own"
        )


def _unpack(row: Any) -> list[int]:
    words = [int(w) & 0xFFFFFFFF for w in row]
    return [t for t in range(VOCAB) if words[t // 32] >> (t % 32) & 1]
