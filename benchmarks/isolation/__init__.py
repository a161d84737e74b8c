"""What the engine itself does to an interactive user beside others that are limited.

The scheduler and the real model worker in one process, without HTTP: an engine that serves the
interactive user alone and one that serves it beside a flood take turns step by step, so what the
machine gives and takes it gives and takes to both. Each has a clock of its own, which goes on only
while that engine works, or at once to the next event when it would sleep. So nothing here is what
a server's processes, sockets and wake-ups cost; `gpu_e2e` measures those.

On the CPU a step that is dispatched is also carried out by then, so that with async scheduling a
first token comes out a step later than without.
"""
