// Keeps what another run has written when its file is to be written anew.
#pragma once

#include <filesystem>
#include <string>

namespace torchbridge::train {

// Copies the file, beside itself, to the first of FILE.aside-1, FILE.aside-2 ... that is not there, and says so with
// the reason: "'m.jsonl' is of another run: kept as 'm.jsonl.aside-1'". On disk when it returns. Throws TrainError,
// which names the option, where that fails; then the file is as it was.
void keep_aside(const std::filesystem::path& file, const std::string& reason, const char* option);

}  // namespace torchbridge::train
