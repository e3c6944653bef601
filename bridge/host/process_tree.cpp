#include "bridge/host/process_tree.h"

#include <unistd.h>

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "bridge/base/take_until.h"
#include "bridge/host/text_file.h"

namespace torchbridge {
namespace {

struct StatLine {
  std::string name;
  char state = 0;  // 'R', 'S', 'D', ...
  int parent = 0;
  std::int64_t cpu_ticks = 0;  // of it and of the children that it has waited for
  std::int64_t start_ticks = 0;
};

// Fields after the name, by the numbers of proc(5).
constexpr int kState = 3, kParent = 4, kUserTime = 14, kChildrensSystemTime = 17, kStart = 22;

// "12 (a name) with (parentheses)) S 7 ...": the name ends at the last parenthesis.
std::optional<StatLine> read_stat(std::int64_t id) {
  const auto content = read_text("/proc/" + std::to_string(id) + "/stat");
  if (!content || !*content) return std::nullopt;  // it may end while it is read
  const std::string& text = **content;
  const auto open = text.find('('), close = text.rfind(')');
  if (open == text.npos || close == text.npos || close + 4 >= text.size()) return std::nullopt;
  StatLine line{text.substr(open + 1, close - open - 1)};
  std::string_view rest = std::string_view(text).substr(close + 2);
  line.state = rest.front();
  for (int field = kState; field <= kStart; ++field) {
    const auto value = parse_integer(take_until(rest, ' '), 0, INT64_MAX).value_or(0);
    if (field == kParent) line.parent = static_cast<int>(value);
    if (field >= kUserTime && field <= kChildrensSystemTime) line.cpu_ticks += value;
    if (field == kStart) line.start_ticks = value;
  }
  return line;
}

template <class Use>
void for_each_process(Use&& use) {
  const auto names = names_in("/proc");
  if (!names) return;
  for (const std::string& name : *names) {
    const auto id = parse_integer(name, 1, INT32_MAX);
    if (const auto process = id ? read_stat(*id) : std::nullopt)
      use(static_cast<int>(*id), *process);
  }
}

// Each thread has a list of its own.
std::vector<int> listed_children(int id) {
  std::vector<int> found;
  const std::string folder = "/proc/" + std::to_string(id) + "/task/";
  const auto threads = names_in(folder);
  if (!threads) return found;
  for (const std::string& thread : *threads) {
    const auto list = read_text(folder + thread + "/children");
    if (!list || !*list) continue;
    for (std::string_view rest = **list; !rest.empty();) {
      if (const auto child = parse_integer(take_until(rest, ' '), 1, INT32_MAX))
        found.push_back(static_cast<int>(*child));
    }
  }
  return found;
}

}  // namespace

std::string step_in_title(std::string_view command_line) {
  constexpr std::string_view kBegin = "slurmstepd: [";
  const auto end = command_line.find(']');
  if (!command_line.starts_with(kBegin) || end == command_line.npos) return "";
  return std::string(command_line.substr(kBegin.size(), end - kBegin.size()));
}

std::vector<ProcessEntry> this_and_ancestors() {
  constexpr std::size_t kDeepest = 256;
  std::vector<ProcessEntry> found;
  for (std::int64_t id = getpid(); id > 0 && found.size() < kDeepest;) {
    const auto process = read_stat(id);
    if (!process) break;
    found.push_back({id, process->name});
    if (process->name == "slurmstepd") {
      const auto command_line = read_text("/proc/" + std::to_string(id) + "/cmdline");
      if (command_line && *command_line) found.back().step = step_in_title(**command_line);
    }
    id = process->parent;
  }
  return found;
}

// The kernel gives the first namespace of processes this number: PROC_PID_INIT_INO in its
// include/linux/proc_ns.h.
bool has_process_ids_of_host() {
  char name[32] = "";
  return readlink("/proc/self/ns/pid", name, sizeof name - 1) > 0 &&
         std::string_view(name) == "pid:[4026531836]";
}

EnvMap environment_of(std::int64_t id) {
  constexpr std::size_t kLongest = 1 << 26;  // the kernel's own limit follows from the stack's
  const auto text = read_text("/proc/" + std::to_string(id) + "/environ", kLongest);
  if (!text || !*text) return {};
  std::vector<const char*> variables;
  for (const auto variable : split_at(**text, '\0')) variables.push_back(variable.data());
  variables.push_back(nullptr);
  return EnvMap::from(variables.data());
}

std::string process_name(int id) { return read_stat(id).value_or(StatLine{}).name; }

bool is_in_uninterruptible_sleep(int id) { return read_stat(id).value_or(StatLine{}).state == 'D'; }

std::int64_t start_ticks(int id) { return read_stat(id).value_or(StatLine{}).start_ticks; }

bool is_stopped(int id) { return read_stat(id).value_or(StatLine{}).state == 'T'; }

std::vector<std::string> names_of_ancestors(const std::vector<ProcessEntry>& processes) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < processes.size(); ++i) names.push_back(processes[i].name);
  if (is_in_step_of_slurm()) names.emplace_back("slurmstepd");
  return names;
}

std::string step_of_cgroup() {
  const auto cgroups = read_text("/proc/self/cgroup");
  return cgroups && *cgroups ? step_in_cgroups(**cgroups) : "";
}

bool is_in_step_of_slurm() {
  const std::string step = step_of_cgroup();
  return !step.empty() && parse_integer(step.substr(step.find('.') + 1), 0, INT64_MAX);
}

std::string step_in_cgroups(std::string_view cgroups) {
  constexpr std::string_view kJob = "job_", kStep = "/step_";
  constexpr std::size_t kSluidSize = 14;  // "sEKNKTV3WPV500"
  while (!cgroups.empty()) {
    const std::string_view line = take_until(cgroups, '\n');
    const auto step = line.rfind(kStep);  // the innermost: a Slurm may run in a job of another
    if (step == line.npos) continue;
    std::string_view job = line.substr(0, step), id = line.substr(step + kStep.size());
    job.remove_prefix(std::min(job.rfind('/') + 1, job.size()));
    id = take_until(id, '/');
    id = take_until(id, '+');  // a component's number
    const bool is_number = parse_integer(id, 0, INT64_MAX).has_value();
    if (!is_number && id != "batch" && id != "extern" && id != "interactive") continue;
    if (job.starts_with(kJob)) {
      job.remove_prefix(kJob.size());
      if (!parse_integer(job, 0, INT64_MAX)) continue;
    } else if (job.size() != kSluidSize || job.front() != 's') {
      continue;
    }
    return std::string(job) + "." + std::string(id);
  }
  return "";
}

std::vector<int> children_of(int id) {
  std::vector<int> children;
  for_each_process([&](int child, const StatLine& process) {
    if (process.parent == id) children.push_back(child);
  });
  return children;
}

std::vector<int> descendants_of(int id, int but) {
  std::vector<int> family{id};
  for (std::size_t i = 0; i < family.size(); ++i) {
    for (const int child : listed_children(family[i])) {
      if (child != but) family.push_back(child);
    }
  }
  family.erase(family.begin());
  return family;
}

double cpu_seconds_of(const std::vector<int>& ids) {
  std::vector<std::pair<int, std::int64_t>> left;  // to be counted: process and CPU time
  for (const int id : ids) left.emplace_back(id, read_stat(id).value_or(StatLine{}).cpu_ticks);
  // One pass, however many there are: a node has thousands of processes.
  std::multimap<int, std::pair<int, std::int64_t>> children;  // by parent
  for_each_process([&](int id, const StatLine& process) {
    children.emplace(process.parent, std::pair(id, process.cpu_ticks));
  });
  std::int64_t ticks = 0;
  while (!left.empty()) {
    const auto [id, own_ticks] = left.back();
    left.pop_back();
    ticks += own_ticks;
    const auto [first, last] = children.equal_range(id);
    for (auto child = first; child != last; ++child) left.push_back(child->second);
    children.erase(first, last);
  }
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace torchbridge
