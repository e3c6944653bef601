#include "trainer_template/runtime/run/stopped_rank_watch.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/core/launcher.h"
#include "bridge/host/process_tree.h"
#include "bridge/launch/error_reporter.h"
#include "bridge/launch/launch.h"
#include "bridge/net/address.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kPeriod{500};

// The process that started this one, if that is one of a launcher which starts all ranks of a node.
int starter_of_ranks() {
  const auto ancestors = this_and_ancestors();
  if (ancestors.size() < 2) return 0;
  const bool is_launcher = starts_ranks(ancestors[1].name) || ancestors[1].name == "slurmstepd";
  return is_launcher ? static_cast<int>(ancestors[1].id) : 0;
}

std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Of all its threads. bridge/host's children_of() would read each process of the node.
std::vector<int> children(int parent) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(parent) + "/task", error)) {
    std::istringstream ids(read_all(task.path() / "children"));
    for (int id = 0; ids >> id;) found.push_back(id);
  }
  return found;
}

// 'T' of proc(5): a signal has stopped it; a debugger's 't' does not count.
bool is_stopped(const fs::path& process) {
  const std::string stat = read_all(process / "stat");
  const auto end = stat.rfind(") ");  // a name may hold a parenthesis
  return end != std::string::npos && stat.compare(end + 2, 1, "T") == 0;
}

int rank_of(const fs::path& process) {
  std::vector<std::string> variables;
  std::istringstream text(read_all(process / "environ"));
  for (std::string variable; std::getline(text, variable, '\0');) variables.push_back(variable);
  std::vector<const char*> environment;
  for (const std::string& variable : variables) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  return presumed_rank(EnvMap::from(environment.data()));
}

}  // namespace

StoppedRankWatch::StoppedRankWatch(const EnvMap& environment, milliseconds limit) {
  if (limit.count() > 0 && starter_of_ranks() != 0) thread_ = std::thread([=, this] { watch(environment, limit); });
}

StoppedRankWatch::~StoppedRankWatch() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StoppedRankWatch::watch(const EnvMap& environment, milliseconds limit) {
  const int starter = starter_of_ranks();
  std::map<int, milliseconds> stopped_for;
  std::unique_lock lock(mutex_);
  // Turns are counted, not time: while this process is stopped itself, as all are when a job is suspended, there are
  // none.
  while (!ended_.wait_for(lock, kPeriod, [this] { return is_over_; })) {
    std::map<int, milliseconds> still;
    for (const int id : children(starter)) {
      const fs::path process = "/proc/" + std::to_string(id);
      if (!is_stopped(process)) continue;
      still[id] = stopped_for[id] + kPeriod;
      if (still[id] <= limit) continue;
      const std::string message = "rank " + std::to_string(rank_of(process)) + " on " + host_name() +
                                  " has been stopped for " + seconds(limit) + " while the ranks start (process " +
                                  std::to_string(id) + ", state T): continue that process, or end it";
      if (should_report({.message = message, .only_here = true}, environment))
        print_error(presumed_rank(environment), message);
      _exit(static_cast<int>(ExitCode::kFailed));
    }
    stopped_for = std::move(still);
  }
}

}  // namespace torchbridge::train
