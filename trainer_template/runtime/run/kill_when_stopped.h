// Ends a process that is stopped on its way from the last collective to its end.
#pragma once

#include <chrono>

namespace torchbridge::train {

// From now on a child process kills this one (SIGKILL) once it has been stopped, as by SIGSTOP, for
// `limit`, also while its static objects are destroyed. The other ranks have ended by then, no
// heartbeat is left that could show it, and its launcher would wait for it for ever. A process that
// runs, however slowly, is not killed, nor one whose machine stands still, nor one that is stopped
// with its child, as a job that Slurm suspends. The child ends with the thread that calls this,
// which has to be the main thread. Call it once.
void kill_when_stopped(std::chrono::milliseconds limit);

}  // namespace torchbridge::train
