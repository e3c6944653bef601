// torchbridge-ckpt list | verify | show
#include <cstdio>
#include <filesystem>

#include <CLI/CLI.hpp>
#include <torchbridge/errors.h>

#include "bridge/program/pages.h"
#include "bridge/program/program.h"
#include "trainer_template/ckpt/look.h"

using torchbridge::train::ExitCode;

int main(int argc, char** argv) {
  CLI::App app("Looks at checkpoints.", "torchbridge-ckpt");
  torchbridge::set_up(app);
  app.require_subcommand(1);
  std::filesystem::path path;
  bool good = true;

  auto* list_command = app.add_subcommand("list", "The checkpoints in a folder");
  list_command->add_option("folder", path)->required();
  list_command->callback([&] { good = list(path); });
  auto* verify_command =
      app.add_subcommand("verify",
                         "Compare all checksums: of a checkpoint, or of all in a "
                         "folder; exit code 1 for a fault");
  verify_command->add_option("path", path)->required();
  verify_command->callback([&] { good = verify(path); });
  auto* show_command = app.add_subcommand("show", "What is in a checkpoint or a .safetensors file");
  show_command->add_option("path", path)->required();
  show_command->callback([&] { show(path); });
  try {
    if (const auto page = torchbridge::page_asked_for(app, argc, argv))
      return std::fputs(page->c_str(), stdout), 0;
    app.parse(argc, argv);
    return static_cast<int>(good ? ExitCode::kDone : ExitCode::kFailed);
  } catch (const CLI::ParseError& error) {
    if (const auto text = torchbridge::help_or_version(app, error)) {
      std::fputs(text->c_str(), stdout);
      return static_cast<int>(ExitCode::kDone);
    }
    std::fprintf(stderr, "torchbridge-ckpt: %s (see --help)\n",
                 torchbridge::command_line_error(app, error).c_str());
    return static_cast<int>(ExitCode::kBadOptions);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torchbridge-ckpt: %s\n", error.what());
    return static_cast<int>(ExitCode::kFailed);
  }
}
