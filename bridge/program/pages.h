// A program's command line for man and for shells, from its one table in CLI11.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace torchbridge {

// "man": a man page (roff); "bash", "zsh", "fish", "tcsh": the shell's completion. Nothing for
// another format. Of a command that is set to positionals_at_end() the first word that is no option
// belongs to a program, as all that follows it.
std::optional<std::string> page_of(const CLI::App& app, std::string_view format);

// The page that the arguments ask for by --help=FORMAT alone; nothing where they do not.
std::optional<std::string> page_asked_for(const CLI::App& app, int argc, char** argv);

// An option's values as --help shows them: "INT", "sgd|adam", "N|auto". What has no upper case is
// meant literally.
std::string value_text(const CLI::Option& option);

// Quoted for a shell.
std::string shell_word(std::string_view text);

}  // namespace torchbridge
