// TCPStore resolves the name of each address that connects to it, one after the other in its only
// thread, for messages that are rarely printed. Where the site's name server does not answer
// reverse lookups, each takes 10 s.
#pragma once

namespace torchbridge::train {

// From here on libtorch gets numeric addresses instead of names; lookups of other code are
// unchanged. Works only where this is linked into the program itself, not into a library that is
// loaded later.
void no_reverse_lookups();

}  // namespace torchbridge::train
