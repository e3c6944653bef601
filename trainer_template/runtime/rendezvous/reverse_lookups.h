// TCPStore asks the resolver for the name of each address that connects to it, one after the other in the thread that
// serves all, for messages that are rarely printed. Where the site's name server does not answer such questions, each
// takes 10 s.
#pragma once

namespace torchbridge::train {

// From here on libtorch gets numbers where it asks for names of addresses; what other code asks is answered as ever.
// Works where this is linked into the program itself, not into a library that is loaded later.
void no_reverse_lookups();

}  // namespace torchbridge::train
