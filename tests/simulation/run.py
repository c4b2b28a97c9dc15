"""Seeds by the thousand: `python -m tests.simulation.run --seeds 2000`, or `make simulation SEEDS=2000`.

A seed that fails prints its trace; `--seed N` runs it again, with `--verbose` as it goes. `--transactions`
has groups and transactional producers as its load, and their coordinators.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.transaction_world import TransactionWorld
from tests.simulation.world import World, simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=None, help="this one only")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long")
    parser.add_argument("--transactions", action="store_true", help="with coordinators and their clients")
    parser.add_argument("--verbose", action="store_true", help="print the trace as it goes")
    parser.add_argument("--lines", type=int, default=150, help="of the trace of a failure, at most")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    kind = TransactionWorld if arguments.transactions else World
    began, faults, acks, done, failed = time.process_time(), 0, 0, 0, []
    for seed in seeds:
        if arguments.seconds is not None and time.process_time() - began > arguments.seconds:
            break
        outcome = simulate(seed, verbose=arguments.verbose, kind=kind)
        done += 1
        faults += outcome.world.faults
        acks += outcome.world.acknowledged
        if outcome.problem is not None:
            failed.append(seed)
            if not arguments.verbose and arguments.lines:
                print("\n".join(outcome.world.lines[-arguments.lines :]))
            print(f"seed {seed}: {outcome.problem!r}", flush=True)
    what = "transactions" if arguments.transactions else "records"
    took = time.process_time() - began
    print(
        f"{done} seeds from {seeds.start} on, {faults} faults, {acks} acknowledged {what}, "
        f"{len(failed)} failed {failed[:20]}; {took:.1f} s of processor time, "
        f"{took / max(done, 1) * 1000:.0f} ms each"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
