#include "trainer_template/runtime/checkpoint/load.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros_like.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/checkpoint/generators.h"
#include "trainer_template/runtime/checkpoint/safetensors.h"
#include "trainer_template/runtime/checkpoint/tied_weights.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/optim/state_pieces.h"

namespace torchbridge::train {
namespace {

// Null if the file must be mapped.
std::shared_ptr<FileImage> image_of(const SelectedCheckpoint& checkpoint, const std::string& file) {
  const auto image = checkpoint.images.find(file);
  return image == checkpoint.images.end() ? nullptr : image->second;
}

NamedTensors tensors_in(const SelectedCheckpoint& checkpoint, const std::string& file) {
  const std::filesystem::path path = checkpoint.folder / file;
  const auto image = image_of(checkpoint, file);
  return image ? read_safetensors(image, path) : read_safetensors(path, Links::kRejected);
}

std::vector<std::string> optimizer_files(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const FileRecord& file : manifest.files) {
    if (is_optimizer_file(file.name)) names.push_back(file.name);
  }
  return names;
}

// The state of a parameter that is not contiguous is copied, while the state of the others would
// keep the whole image in memory.
bool is_laid_out_as_files(Optimizer& optimizer) {
  for (const ParameterGroup* group : optimizer.groups()) {
    for (const auto& [name, parameter] : group->parameters) {
      if (!parameter.is_contiguous()) return false;
    }
  }
  return true;
}

// The tensors of a file by the model's names. Batch normalisation of before PyTorch 0.4.1 counted
// no batches: as in Python's _load_from_state_dict the count is 0 where it is missing.
NamedTensors fitted_tensors(const NamedTensors& file, const ModelTensors& model,
                            const std::string& what) {
  constexpr std::string_view kCount = "num_batches_tracked";
  NamedTensors tensors = without_aliases(file, model, what);
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  for (const auto& [name, buffer] : model.buffers) {
    if (!name.ends_with(kCount) || names.contains(name)) continue;
    const std::string mean = name.substr(0, name.size() - kCount.size()) + "running_mean";
    if (names.contains(mean)) tensors.emplace_back(name, at::zeros_like(buffer));
  }
  return tensors;
}

// Buffers may be infinite, as masks are. `what`: "weights".
void check_finite(const NamedTensors& tensors, const char* what, const std::string& file) {
  for (const auto& [name, tensor] : tensors) {
    if (!at::isfinite(tensor.detach()).all().item<bool>())
      throw TrainError(formatted("{}: '{}' has {} that are NaN or infinite", file, name, what));
  }
}

using NameSet = std::unordered_set<std::string>;

// Of DistributedDataParallel and of torch.compile.
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod."};
// What the model of another program may have before the names of this one: nothing, nanoGPT's and
// transformers' module.
constexpr std::string_view kOuterNames[] = {"", "transformer.", "model."};

std::string_view without_wrappers(std::string_view name) {
  for (bool has_one = true; has_one;) {
    has_one = false;
    for (const std::string_view wrapper : kWrappers) {
      if (!name.starts_with(wrapper)) continue;
      name.remove_prefix(wrapper.size());
      has_one = true;
    }
  }
  return name;
}

NameSet names_of(const ModelTensors& model) {
  NameSet names;
  for (const auto& [name, tensor] : model.all()) names.insert(name);
  for (const auto& [name, first] : model.aliases) names.insert(name);
  return names;
}

NamedTensors without(std::string_view outer, const NamedTensors& tensors) {
  NamedTensors shorter;
  for (const auto& [name, tensor] : tensors) {
    std::string_view rest = without_wrappers(name);
    // Lightning's module holds the wrapped model: "model._orig_mod.".
    if (rest.starts_with(outer)) rest = without_wrappers(rest.substr(outer.size()));
    shorter.emplace_back(rest, tensor);
  }
  return shorter;
}

// How many tensors the model knows; 0 if two of them have the same name.
std::size_t known_in(const NamedTensors& tensors, const NameSet& known) {
  NameSet seen;
  std::size_t count = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(name).second) return 0;
    count += known.count(name);
  }
  return count;
}

// Of what Session::keep() has saved: the tensors "NAME.TENSOR" of the one name with all parameters
// of the model. Else the tensors as they are.
NamedTensors without_kept_name(const NamedTensors& tensors, const ModelTensors& model) {
  std::map<std::string_view, NamedTensors> by_name;
  for (const auto& [full, tensor] : tensors) {
    const std::string_view name = std::string_view(full).substr(0, full.find('.'));
    if (name.size() < full.size()) by_name[name].emplace_back(full.substr(name.size() + 1), tensor);
  }
  NameSet parameters;
  for (const auto& [name, tensor] : model.parameters) parameters.insert(name);
  const NamedTensors* found = nullptr;
  for (const auto& [name, kept] : by_name) {
    if (known_in(kept, parameters) < parameters.size()) continue;
    if (found) return tensors;
    found = &kept;
  }
  return found ? *found : tensors;
}

}  // namespace

NeededFiles needed_files(Optimizer& optimizer, ProcessGroup& group) {
  if (!group.device().is_cpu()) return {};
  return [is_whole = optimizer.shards() == 1 &&
                     is_laid_out_as_files(optimizer)](const Manifest& manifest) {
    std::vector<std::string> needed = {kModelFile};
    const std::vector<std::string> state = optimizer_files(manifest);
    if (is_whole && state.size() == 1) needed.push_back(state.front());
    return needed;
  };
}

void load_checkpoint(const SelectedCheckpoint& checkpoint, const ModelTensors& model,
                     Optimizer& optimizer, ProcessGroup& group) {
  const Manifest& manifest = checkpoint.manifest;
  all_or_none(group, [&] {
    const std::string what = "checkpoint " + checkpoint.folder.string();
    copy_tensors(fitted_tensors(tensors_in(checkpoint, kModelFile), model, what), model.all(),
                 what);
    StatePieces state(optimizer.ranges());
    const std::vector<std::string> files = optimizer_files(manifest);
    for (const std::string& file : files) state.add(tensors_in(checkpoint, file));
    // Of ours none was saved; Python does not look.
    if (manifest.is_of_python()) {
      check_finite(model.parameters, "weights", what);
      for (const std::string& file : files)
        check_finite(tensors_in(checkpoint, file), "values", what);
    }
    if (files.size() == 1 && image_of(checkpoint, files.front())) {
      optimizer.adopt_state(state.take());
    } else {
      optimizer.load_state(state.take());
    }
    // With another number of ranks the saved generators do not belong to these ranks.
    if (manifest.world_size != group.world_size()) return;
    restore_generators(tensors_in(checkpoint, rank_file(group.rank())), group.device());
  });
}

NamedTensors tensors_of_file(const SelectedCheckpoint& checkpoint, const std::string& file) {
  const auto& files = checkpoint.manifest.files;
  return std::ranges::count(files, file, &FileRecord::name) > 0 ? tensors_in(checkpoint, file)
                                                                : NamedTensors();
}

void init_from(const std::filesystem::path& file, const ModelTensors& model, ProcessGroup& group) {
  all_or_none(group, [&] {
    copy_tensors(fitted_tensors(fitted_names(read_safetensors(file), model), model, file.string()),
                 model.all(), file.string());
    check_finite(model.parameters, "weights", file.string());
  });
}

NamedTensors fitted_names(const NamedTensors& tensors, const ModelTensors& model) {
  const NameSet known = names_of(model);
  NamedTensors best = tensors;
  std::size_t most = known_in(tensors, known);
  for (const std::string_view outer : kOuterNames) {
    NamedTensors shorter = without(outer, tensors);
    const std::size_t count = known_in(shorter, known);
    if (count <= most) continue;
    most = count;
    best = std::move(shorter);
  }
  return most > 0 ? best : without_kept_name(tensors, model);
}

}  // namespace torchbridge::train
