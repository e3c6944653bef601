// "did you mean ...?" for a name that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace torchbridge {

// The name that `text` needs the fewest insertions, deletions, changes and swaps of neighbouring
// characters to become (the restricted distance of Damerau and Levenshtein, in which letters of
// either case are the same), the first of several; empty where that is more than a third of the
// longer one's characters.
std::string nearest_name(std::string_view text, std::span<const std::string> names);

// "; did you mean 'NAME'?", or nothing.
std::string did_you_mean(std::string_view text, std::span<const std::string> names);

}  // namespace torchbridge
