#include "bridge/supervision/worker_command.h"

#include <elf.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

// torch wraps the script in its `record`, which writes the error file.
constexpr char kRunPath[] =
    "import runpy, sys\n"
    "sys.argv = sys.argv[1:]\n"
    "run = lambda: runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "try:\n"
    "    from torch.distributed.elastic.multiprocessing.errors import record\n"
    "except ImportError:\n"
    "    record = lambda function: function\n"
    "record(run)()\n";

bool is_in_path(const std::string& name, const EnvMap& environment) {
  std::string_view rest = environment.get("PATH").value_or("");
  while (!rest.empty()) {
    const auto folder = take_until(rest, ':');
    if (access((std::string(folder) + "/" + name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The Python of the environment of venv or conda that `command` lies in, or nothing. Not of a link
// that leads into one: pipx and `uv tool install` make an environment without torch for the command
// alone, and a link to it in PATH.
std::string python_beside(const std::string& command) {
  const auto slash = command.rfind('/');
  if (slash == command.npos) return "";
  const std::string folder = command.substr(0, slash), python = folder + "/python";
  const bool is_environment = access((folder + "/../pyvenv.cfg").c_str(), F_OK) == 0 ||
                              access((folder + "/../conda-meta").c_str(), F_OK) == 0;
  return is_environment && access(python.c_str(), X_OK) == 0 ? python : "";
}

std::string python(const RunOptions& options, const EnvMap& environment) {
  if (const auto chosen = environment.get("PYTHON_EXEC"); chosen && !chosen->empty())
    return std::string(*chosen);
  if (const std::string beside = python_beside(options.called_as); !beside.empty()) return beside;
  return is_in_path("python", environment) ? "python" : "python3";
}

std::string first_bytes(const std::string& file) {
  char bytes[4] = {};
  std::ifstream(file, std::ios::binary).read(bytes, sizeof bytes);
  return {bytes, sizeof bytes};
}

// Of what the kernel could execute Python gets a zip, and a script in this folder to which no PATH
// leads.
bool is_python_script(const std::string& program, const EnvMap& environment) {
  if (program.ends_with(".py")) return true;
  const bool is_name = program.find('/') == std::string::npos;
  if (is_name && is_in_path(program, environment)) return false;
  std::error_code error;
  if (std::filesystem::is_directory(program, error))
    return access((program + "/__main__.py").c_str(), F_OK) == 0;
  if (!std::filesystem::is_regular_file(program, error)) return false;
  if (access(program.c_str(), X_OK) != 0) return true;
  const std::string begin = first_bytes(program);
  return begin == "PK\x03\x04" || (is_name && begin != ELFMAG);
}

std::vector<std::string> interpreter(const RunOptions& options, const EnvMap& environment) {
  switch (options.program_kind) {
    case RunOptions::Program::kNoPython:
      return {};
    case RunOptions::Program::kModule:
      return {python(options, environment), "-u", "-m"};
    case RunOptions::Program::kRunPath:
      return {python(options, environment), "-u", "-c", kRunPath};
    case RunOptions::Program::kByName:
      break;
  }
  if (!is_python_script(options.program.front(), environment)) return {};
  return {python(options, environment), "-u"};
}

}  // namespace

std::string with_macro(std::string text, std::string_view macro, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(macro, at)) != text.npos; at += value.size())
    text.replace(at, macro.size(), value);
  return text;
}

std::vector<std::string> worker_command(const RunOptions& options, const EnvMap& environment,
                                        int local_rank) {
  std::vector<std::string> command = interpreter(options, environment);
  const std::string number = std::to_string(local_rank);
  command.push_back(options.program.front());
  if (options.passes_local_rank) command.push_back("--local-rank=" + number);
  for (std::size_t i = 1; i < options.program.size(); ++i)
    command.push_back(with_macro(options.program[i], "${local_rank}", number));
  return command;
}

bool is_run_by_python(const RunOptions& options, const EnvMap& environment) {
  return !interpreter(options, environment).empty();
}

std::string program_name(const RunOptions& options) {
  const std::string& program = options.program.front();
  return options.program_kind == RunOptions::Program::kModule
             ? program
             : std::filesystem::path(program).filename().string();
}

}  // namespace torchbridge
