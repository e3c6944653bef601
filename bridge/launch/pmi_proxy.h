// Ends a PMI-1 conversation for a program that does not know that one was begun.
#pragma once

namespace torchbridge {

// Hydra kills the other ranks when a process that spoke to it exits without a word, and hears no more from one that
// said its good-bye. Whether the program that follows, in this process or by exec, is one of MPI's cannot be known
// beforehand. So a small process is put between: it passes on every word and, if none was said by the time the program
// ends, says good-bye for it. Afterwards `descriptor` leads to that process, under the same number. It is no child of
// the program's, is in a session of its own, holds none of its files, and ends with it or with the launcher. Where it
// cannot be started, nothing changes.
void start_pmi_proxy(int descriptor);

}  // namespace torchbridge
