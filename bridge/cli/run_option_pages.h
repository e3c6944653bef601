// What torchbridge run prints about its options, from their table.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace torchbridge {

// The table as a command of CLI11, for help and pages; it does not parse.
std::shared_ptr<CLI::App> run_command(const std::string& name);

// The page of --help=FORMAT: "" the help for a terminal, of at most 100 columns; "man" the man page
// (roff); "markdown" the tables of docs/use/run_options.md; "json" the table, for the test that
// compares it with torchrun's. Nothing for another format.
std::optional<std::string> run_option_page(std::string_view format);

// Those but "".
std::vector<std::string> run_option_page_formats();

}  // namespace torchbridge
