#include <torchbridge/core/binding.h>

namespace torchbridge {
namespace {

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return parts;
}

std::string gpus(std::size_t count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

// Tasks of the node outnumber the GPUs that each of them sees.
std::string shortage(const Layout& layout, std::size_t visible) {
  return std::to_string(layout.local_world_size) + " tasks on this node, and each sees " + gpus(visible);
}

Status bind_gpus(const EnvMap& environment, const Layout& layout, GpuRule rule, Binding& binding) {
  const auto visible_text = environment.get("CUDA_VISIBLE_DEVICES");
  if (rule == GpuRule::kNone || !visible_text || visible_text->empty()) return Ok{};
  const auto visible = split_at_commas(*visible_text);
  const auto tasks = static_cast<std::size_t>(layout.local_world_size);

  if (rule == GpuRule::kVirtual) {
    if (visible.size() > 1 && visible.size() < tasks) return Error{"gpus=virtual: " + shortage(layout, visible.size())};
    const auto device = visible.size() == 1 ? visible.front() : visible[layout.local_rank];
    binding.variables.emplace_back("CUDA_VISIBLE_DEVICES", device);
    binding.variables.emplace_back("LOCAL_RANK", "0");
    return Ok{};
  }
  if (visible.size() >= tasks) return Ok{};
  if (rule == GpuRule::kAll) {
    const auto step_text = environment.get("SLURM_STEP_GPUS").value_or("");
    if (split_at_commas(step_text).size() < tasks) return Error{"gpus=all: " + shortage(layout, visible.size())};
    binding.variables.emplace_back("CUDA_VISIBLE_DEVICES", step_text);
    return Ok{};
  }
  binding.note = shortage(layout, visible.size()) +
                 ": programs that use the GPU of number LOCAL_RANK will not find it; see gpus=virtual and gpus=all";
  return Ok{};
}

void bind_threads(const EnvMap& environment, const Layout& layout, const Options& options, Binding& binding) {
  if (options.omp.kind == OmpRule::Kind::kKeep) return;
  if (environment.has("OMP_NUM_THREADS") && !options.override_user) return;
  std::string threads;
  if (options.omp.kind == OmpRule::Kind::kNumber) threads = std::to_string(options.omp.number);
  if (options.omp.kind == OmpRule::Kind::kCpus) threads = environment.get("SLURM_CPUS_PER_TASK").value_or("1");
  if (options.omp.kind == OmpRule::Kind::kTorchrun && layout.local_world_size > 1) threads = "1";
  if (!threads.empty()) binding.variables.emplace_back("OMP_NUM_THREADS", threads);
}

}  // namespace

Result<Binding> binding_of(const EnvMap& environment, const Layout& layout, const Options& options) {
  Binding binding;
  if (const auto bound = bind_gpus(environment, layout, options.gpus, binding); !bound) return bound.error();
  bind_threads(environment, layout, options, binding);
  return binding;
}

}  // namespace torchbridge
