// What the command lines of all programs have in common, on CLI11.
#pragma once

namespace CLI {
class App;
}

namespace torchbridge {

// Of an option that is given several times the last value counts. To be called before options and subcommands are added, which inherit it.
void set_up(CLI::App& app);

}  // namespace torchbridge
