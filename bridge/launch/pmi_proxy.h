// Ends a PMI-1 session for a program that does not know that one was begun.
#pragma once

namespace torchbridge {

// Hydra kills the other ranks when a process that sent PMI commands exits without cmd=finalize, and
// accepts no command after cmd=finalize. Whether the program that follows, in this process or by
// exec, uses MPI is not known in advance. So a small process is put between: it forwards every
// command and, if the program ends without one, sends cmd=finalize for it. Afterwards `descriptor`
// leads to that process, under the same number. It is not a child of the program, is in a session
// of its own, holds none of the program's files, and ends with it or with the launcher. Where it
// cannot be started, nothing changes.
void start_pmi_proxy(int descriptor);

}  // namespace torchbridge
