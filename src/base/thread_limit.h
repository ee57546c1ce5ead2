// How many threads the system lets this process have. oneTBB throws when it cannot make a worker,
// which ends a program without exceptions, so the pool asks before TBB does.
#pragma once

namespace volta {

/// How many of `wanted` further threads can exist at once, found by creating them; they have ended
/// when this returns. Fewer than wanted when a limit is met: `ulimit -u`, a container's pids.max,
/// the address space.
int creatable_threads(int wanted);

}  // namespace volta
