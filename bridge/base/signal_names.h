// Names of signals: abbreviations as glibc's sigabbrev_np gives them from 2.32 on.
#pragma once

#include <string>
#include <string_view>

namespace torchbridge {

// "TERM" for 15; empty for a signal without a name, as those of real time.
std::string_view signal_abbreviation(int signal);

// "signal 9 (Killed)", as strsignal() calls it.
std::string signal_text(int signal);

}  // namespace torchbridge
