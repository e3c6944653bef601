// torchbridge-ckpt list | verify | show | convert
#include <cstdio>
#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>

#include "bridge/program/program.h"
#include "trainer_template/ckpt/from_torch.h"
#include "trainer_template/ckpt/look.h"
#include "trainer_template/ckpt/show.h"
#include "trainer_template/ckpt/to_torch.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/formats/torch_archive.h"

using torchbridge::train::ExitCode;

namespace {

struct Conversion {
  std::filesystem::path from, to, optimizer;
};

void convert(const Conversion& conversion) {
  const auto is_torch = [](const std::filesystem::path& path) {
    return path.extension() == ".pt" || path.extension() == ".pth";
  };
  std::error_code ignored;
  const bool from_torch =
      !std::filesystem::is_directory(conversion.from, ignored) && torchbridge::train::is_torch_file(conversion.from);
  if (is_torch(conversion.to) == from_torch) {
    throw torchbridge::train::TrainError(
        "convert reads a checkpoint or .safetensors and writes .pt, or reads .pt and writes .safetensors");
  }
  if (from_torch) return convert_from_torch(conversion.from, conversion.to, conversion.optimizer);
  if (!conversion.optimizer.empty()) throw torchbridge::train::TrainError("--optimizer needs a .pt file as input");
  convert_to_torch(conversion.from, conversion.to);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Looks at checkpoints and converts them.", "torchbridge-ckpt");
  torchbridge::set_up(app);
  app.require_subcommand(1);
  std::filesystem::path path;
  Conversion conversion;
  bool good = true;

  auto* list_command = app.add_subcommand("list", "The checkpoints in a folder");
  list_command->add_option("folder", path)->required();
  list_command->callback([&] { good = list(path); });
  auto* verify_command = app.add_subcommand(
      "verify", "Compare all checksums: of a checkpoint, all in a folder, a .pt file; exit code 1 for a fault");
  verify_command->add_option("path", path)->required();
  verify_command->callback([&] { good = verify(path); });
  auto* show_command = app.add_subcommand("show", "What is in a checkpoint, a .safetensors or a .pt file");
  show_command->add_option("path", path)->required();
  show_command->callback([&] { show(path); });
  auto* convert_command = app.add_subcommand("convert", "A checkpoint or .safetensors to .pt, a .pt to .safetensors");
  convert_command->add_option("from", conversion.from)->required();
  convert_command->add_option("to", conversion.to, "A new file")->required();
  convert_command->add_option("--optimizer", conversion.optimizer,
                              "Write the optimizer's state of a .pt to this .safetensors file");
  convert_command->callback([&] { convert(conversion); });

  try {
    app.parse(argc, argv);
    return static_cast<int>(good ? ExitCode::kDone : ExitCode::kFailed);
  } catch (const CLI::ParseError& error) {
    if (const auto text = torchbridge::help_or_version(app, error)) {
      std::fputs(text->c_str(), stdout);
      return static_cast<int>(ExitCode::kDone);
    }
    std::fprintf(stderr, "torchbridge-ckpt: %s (see --help)\n", torchbridge::command_line_error(app, error).c_str());
    return static_cast<int>(ExitCode::kBadOptions);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torchbridge-ckpt: %s\n", error.what());
    return static_cast<int>(ExitCode::kFailed);
  }
}
