// Copies a file of another run before it is overwritten.
#pragma once

#include <filesystem>
#include <string>

namespace torchbridge::train {

// Copies the file to the first of FILE.aside-1, FILE.aside-2 ... that does not exist, and prints
// the reason on stderr: "'m.jsonl' belongs to another run: copied to 'm.jsonl.aside-1'". The copy
// is on disk when it returns. Throws TrainError, which names the option, if that fails; the file is
// then unchanged.
void back_up(const std::filesystem::path& file, const std::string& reason, const char* option);

}  // namespace torchbridge::train
