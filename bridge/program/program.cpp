#include <torchbridge/program/program.h>

#include <CLI/CLI.hpp>

namespace torchbridge {

void set_up(CLI::App& app) { app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast); }

}  // namespace torchbridge
