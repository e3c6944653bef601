#include "bridge/binding/visible_gpus.h"

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

std::vector<std::string> numbers_below(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t n = 0; n < count; ++n) names.push_back(std::to_string(n));
  return names;
}

// CUDA takes blanks around a name: "0, 1".
// The values that Slurm sets for a job without GPUs; NoDevFiles is from old versions.
bool means_none(std::string_view text) {
  return text.empty() || text == "-1" || text == "NoDevFiles";
}

Status check_names(std::string_view text, const std::vector<std::string>& names) {
  const auto wrong = [&](const char* why) {
    return Error{formatted("CUDA_VISIBLE_DEVICES='{}': {}", printable(text), why)};
  };
  if (names.size() > static_cast<std::size_t>(kMaxGpus)) return wrong("more GPUs than a node has");
  auto sorted = names;
  std::ranges::sort(sorted);
  if (sorted.front().empty()) return wrong("an empty name");
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    return wrong("a GPU is named twice: name each GPU once");
  return Ok{};
}

VisibleGpus::Kind kind_of(int visible, int tasks, int on_node) {
  if (on_node == 0)
    return visible == 1 && tasks > 1 ? VisibleGpus::Kind::kOwn : VisibleGpus::Kind::kShared;
  if (visible == on_node) return VisibleGpus::Kind::kShared;
  return visible * tasks <= on_node ? VisibleGpus::Kind::kOwn : VisibleGpus::Kind::kUnclear;
}

// The names that `all` gives this task, if each task is given as many, in the order of the local
// ranks.
bool holds_own(const std::vector<std::string>& all, const VisibleGpus& visible,
               const Layout& layout) {
  const std::size_t first = static_cast<std::size_t>(layout.local_rank) * visible.names.size();
  return all.size() >= first + visible.names.size() &&
         std::equal(visible.names.begin(), visible.names.end(),
                    all.begin() + static_cast<std::ptrdiff_t>(first));
}

// The machine's usable GPUs, named in the format of the task's own names; empty where their UUIDs
// are not known.
std::vector<std::string> machine_names(const Topology& topology,
                                       const std::vector<std::string>& like) {
  const auto usable = topology.usable_gpus();
  if (like.empty() || are_indices(like)) return numbers_below(usable.size());
  std::vector<std::string> names;
  for (const Gpu* gpu : usable) {
    if (gpu->uuid.empty()) return {};
    names.push_back(gpu->uuid);
  }
  const bool known = std::ranges::all_of(
      like, [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); });
  return known ? names : std::vector<std::string>();
}

// A task's single GPU stays the one that LOCAL_RANK indexes, as with --gpu-bind=map_gpu.
void keep_own_index(std::vector<std::string>& names, const VisibleGpus& visible,
                    const Layout& layout) {
  if (visible.names.size() != 1) return;
  const auto own = std::ranges::find(names, visible.names.front());
  if (own != names.end()) std::iter_swap(own, names.begin() + layout.local_rank);
}

}  // namespace

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view name : split_at(text, ',')) names.emplace_back(trimmed(name, " \t"));
  return names;
}

bool are_indices(const std::vector<std::string>& names) {
  return std::ranges::all_of(
      names, [](const auto& name) { return parse_integer(name, 0, kMaxGpus).has_value(); });
}

Result<VisibleGpus> visible_gpus(const EnvMap& environment, const Layout& layout,
                                 const Topology& topology) {
  VisibleGpus visible;
  const auto on_node = environment.integer("SLURM_GPUS_ON_NODE", 0, kMaxGpus);
  if (!on_node) return on_node.error();
  visible.on_node = static_cast<int>(on_node->value_or(0));
  const auto text = environment.get("CUDA_VISIBLE_DEVICES");
  if (text && means_none(*text)) return VisibleGpus{};
  if (text) {
    visible.names = split_names(*text);
    if (const auto checked = check_names(*text, visible.names); !checked) return checked.error();
    const int count = static_cast<int>(visible.names.size());
    if (visible.on_node > 0 || count > 1) visible.on_node = std::max(visible.on_node, count);
    visible.kind = kind_of(count, layout.local_world_size, visible.on_node);
    return visible;
  }
  // --gpu-bind=none: Slurm counts the GPUs and names none.
  const auto usable = topology.usable_gpus().size();
  if (!environment.has("SLURM_JOB_ID")) visible.on_node = static_cast<int>(usable);
  if (static_cast<int>(usable) == visible.on_node) visible.names = numbers_below(usable);
  return visible;
}

Result<std::vector<std::string>> step_gpus(const VisibleGpus& visible, const EnvMap& environment,
                                           const Layout& layout, const Topology& topology) {
  const auto usable = topology.usable_gpus().size();
  const auto wanted = static_cast<std::size_t>(visible.on_node);
  const std::string advice =
      ": ask for them with --gpus-per-node or --gres instead of --gpus-per-task, or give "
      "gpus=virtual";
  if (usable > 0 && usable < wanted) {
    return Error{
        formatted("this task may open {} of the {} that the step has on this node: the others are "
                  "hidden from it{}",
                  counted(static_cast<std::int64_t>(usable), "GPU"), wanted, advice)};
  }
  if (usable == wanted && usable > 0) {
    auto names = machine_names(topology, visible.names);
    if (!names.empty()) return keep_own_index(names, visible, layout), names;
  }
  // Slurm writes SLURM_JOB_GPUS on the first node of the job, and the others inherit it.
  std::vector<std::vector<std::string>> candidates;
  for (const char* name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    candidates.push_back(split_names(environment.get(name).value_or("")));
  }
  if (are_indices(visible.names)) candidates.push_back(numbers_below(wanted));
  const auto tasks = static_cast<std::size_t>(layout.local_world_size);
  for (auto& names : candidates) {
    if (names.size() < std::max(wanted, tasks) || !holds_own(names, visible, layout)) continue;
    // No task can confirm the rest.
    names.resize(std::min(names.size(), tasks * visible.names.size()));
    return std::move(names);
  }
  return Error{formatted(
      "this task sees GPU {}, and the other GPUs of the step on this node are not known{}",
      printable(joined(visible.names, ",")), advice)};
}

}  // namespace torchbridge
