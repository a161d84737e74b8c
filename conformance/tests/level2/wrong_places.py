"""Faults in what a throttled user costs the others. Every scheduler implemented here is *wrong*."""

from vllm.v1.request import RequestStatus
from wrong import around, fault


@fault("S4-STOCK-2")
def limits_never_reached_turn_the_list_around(scheduler):
    @around(scheduler, "schedule")
    def _(original, *args):
        scheduler.running.sort(key=lambda request: request.output_rate_line.user.name)
        return original(*args)


@fault("S4-BESIDE-2")
def a_denial_ends_the_step(scheduler):
    @around(scheduler.settlement, "settle")
    def _(original, *args):
        step = original(*args)
        if scheduler.turns.asleep:
            del step.running[2:]
        return step


@fault("S4-HEAD-2")
def others_are_blocked_behind_a_throttled_request(scheduler):
    queue = scheduler.waiting

    @around(queue, "_admissible")
    def _(original):
        found = original()
        first = next(iter(queue), None)
        if first is not None and queue._open is not None and found is not first:
            return None if first.output_rate_line.user.ready_ns is not None else found
        return found


@fault("S4-QUEUE-2")
def the_queue_is_scanned_in_every_step(scheduler):
    @around(scheduler, "schedule")
    def _(original, *args):
        oldest = 0
        for request in scheduler.waiting:
            oldest = max(oldest, request.num_prompt_tokens)
        return original(*args)


@fault("S4-CAP-2")
def throttled_residents_count_against_the_cap(scheduler):
    @around(scheduler.turns, "deal")
    def _(original, places, offer):
        held = sum(u.residents for u in scheduler.turns.users.values() if u.ready_ns is not None)
        return original(max(1, places - held), offer)


@fault("S4-CAP-2")
def the_cap_is_not_kept(scheduler):
    @around(scheduler.turns, "deal")
    def _(original, places, offer):
        return original(places + 2, offer)


@fault("S4-PLACES-2")
def a_flood_fills_the_house(scheduler):
    scheduler.settlement.capacity.reserve = 0
    scheduler.places.could_be_had = lambda step, line: False


@fault("S4-VICTIM-2", "S4-KV-2")
def the_last_in_line_gives_way(scheduler):
    scheduler._victims = lambda request, args, kwargs: []


@fault("S4-VICTIM-PRIORITY-2", "S4-KV-2")
def a_better_priority_gives_way(scheduler):
    @around(scheduler.places, "throttled")
    def _(original, step, level, but=None, prompts=False):
        return original(step, -1, but, prompts)


@fault("S4-KV-2")
def more_give_way_than_needed(scheduler):
    @around(scheduler, "_victims")
    def _(original, request, args, kwargs):
        if not original(request, args, kwargs):
            return []
        level = request.output_rate_line.level
        return list(scheduler.places.throttled(scheduler.settlement.step, level))


@fault("S4-KV-2")
def all_who_were_let_in_again_keep_their_places(scheduler):
    scheduler.places.spared = scheduler.residents.owed.__contains__

    @around(scheduler.turns, "deal")
    def _(original, places, offer):
        scheduler.settlement.step.owed.clear()
        return original(places, offer)


@fault("S4-THRASH-2")
def a_victim_comes_back_without_quota(scheduler):
    queue = scheduler.waiting

    @around(queue, "_admissible")
    def _(original):
        found = original()
        if found is None and queue._open is not None and scheduler._has_room_without_quota():
            return next((r for r in queue if r.status == RequestStatus.PREEMPTED), None)
        return found


@fault("S4-ALONE-2")
def background_work_has_turns_of_its_own(scheduler):
    @around(scheduler.settlement, "settle")
    def _(original, *args):
        step = original(*args)
        if scheduler.turns.asleep and step.number % 5 == 0:
            step.running.clear()
        return step


@fault("S4-LORA-2")
def a_throttled_adapter_holds_its_slot(scheduler):
    @around(scheduler, "_handle_blocked_waiting_request")
    def _(original, request):
        held = scheduler.residents._adapters
        other = request.lora_request and request.lora_request.lora_int_id not in held
        return not (held and other) and original(request)


@fault("S4-LORA-2")
def adapters_are_not_counted(scheduler):
    scheduler.settlement.capacity.max_loras = None
