// Which rank says what several ranks find out. For processes that end after it.
//
// mpirun ends all ranks when one has failed, also one that is about to say why. Those that are silent therefore stay there for some seconds, in
// which they are ended as a rule. Under other launchers they go at once.
#pragma once

#include <torchbridge/core/env_map.h>

namespace torchbridge {

// Of what every rank finds out by itself: rank 0, or a process whose rank cannot be told, says it at once. Under mpirun it may be just rank 0
// that is missing: there the first three of the others speak in turn, if they are still there then.
bool speaks_for_all(const EnvMap& environment);

// Another rank says it.
void leave_the_word(const EnvMap& environment);

}  // namespace torchbridge
