// Whether the sender of a signal has given it to every process of the job.
#pragma once

#include <sys/signalfd.h>

#include <chrono>

namespace torchbridge {

// True for Slurm's step daemon (scancel, --signal, the time limit) and systemd, which go through
// the processes of a step or unit. The first process of the step may be the only one that they
// signal (`scancel --batch`, proctrack/cgroup without SignalChildrenProcesses): it cannot tell by
// this.
bool signals_each_process(const signalfd_siginfo& signal);

// Between the first and the last process of one node that get such a signal, on a loaded machine.
inline constexpr std::chrono::milliseconds kSignalSpread{500};

}  // namespace torchbridge
