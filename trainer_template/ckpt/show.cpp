#include "trainer_template/ckpt/show.h"

#include <cstdio>
#include <set>
#include <string>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/state_entries.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"
#include "trainer_template/runtime/formats/safetensors_file.h"
#include "trainer_template/runtime/formats/torch_archive.h"

using namespace torchbridge;
using namespace torchbridge::train;
using Kind = PickledValue::Kind;

namespace {

std::string tensor_text(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape) text += (text.empty() ? "" : ", ") + std::to_string(length);
  return dtype + " [" + text + "]";
}

void line(int depth, const std::string& text) { std::printf("%*s%s\n", 2 * depth, "", text.c_str()); }

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

template <class Map>
void show_map(const char* title, const Map& map) {
  if (map.empty()) return;
  line(0, title);
  for (const auto& [key, value] : map) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      line(1, printable(key) + " " + number_text(value));
    } else {
      line(1, printable(key) + " " + printable(value));
    }
  }
}

void show_safetensors(const std::filesystem::path& path, Links links, int depth) {
  const SafetensorsFile file(path, links);
  for (const auto& [key, value] : file.header().metadata)
    line(depth, "(" + printable(key) + " " + printable(value) + ")");
  for (const TensorEntry& entry : file.header().tensors)
    line(depth, printable(entry.name) + "  " + tensor_text(entry.dtype, entry.shape));
}

void show_checkpoint(const std::filesystem::path& folder) {
  const auto manifest = read_manifest(folder);
  if (!manifest) throw TrainError(folder.string() + ": " + manifest.error().message);
  const TrainState& state = manifest->state;
  line(0, "step " + std::to_string(state.step) + ", epoch " + std::to_string(state.position.epoch) + ", " +
              std::to_string(state.position.consumed) + " samples into it, " + std::to_string(state.samples_seen) +
              " samples in all");
  line(0, "written by " + std::to_string(manifest->world_size) + " ranks, seed " + std::to_string(state.seed));
  if (!state.run.empty()) line(0, "run " + printable(state.run));
  if (!state.train_set.empty()) line(0, "fingerprint of the training set " + printable(state.train_set));
  show_map("options", manifest->options);
  show_map("versions", manifest->versions);
  show_map("state", state_entries(state));
  for (const auto& [name, options, parameters] : manifest->optimizer.groups) {
    show_map(("optimizer " + printable(manifest->optimizer.kind) + ", group " + printable(name) + " of " +
              std::to_string(parameters.size()) + " parameters")
                 .c_str(),
             options);
  }
  for (const FileRecord& file : manifest->files) {
    line(0, file.name + "  " + std::to_string(file.size) + " bytes");
    if (file.name.ends_with(".safetensors")) show_safetensors(folder / file.name, Links::kRejected, 1);
  }
}

std::string scalar_text(const PickledValue& value) {
  switch (value.kind) {
    case Kind::kBool:
      return value.integer ? "True" : "False";
    case Kind::kInteger:
      return std::to_string(value.integer);
    case Kind::kFloat:
      return number_text(value.number);
    case Kind::kText:
      return "'" + printable(value.text) + "'";
    case Kind::kTensor:
      return tensor_text(value.tensor.dtype, value.tensor.shape);
    case Kind::kName:
      return printable(value.text);
    case Kind::kStorage:
      return "storage of " + value.tensor.dtype;
    default:
      return "None";
  }
}

// Containers may share values: the items of each are printed once, or the output could grow exponentially.
void show_value(const std::string& key, const PickledValue& value, int depth, std::set<const PickledValue*>& shown) {
  if (!value.is(Kind::kDict) && !value.is(Kind::kList) && !value.is(Kind::kTuple))
    return line(depth, key + "  " + scalar_text(value));
  if (!value.items.empty() && !shown.insert(&value).second) return line(depth, key + "  (the same as above)");
  const bool dict = value.is(Kind::kDict);
  const std::size_t step = dict ? 2 : 1;
  line(depth, key + "  " +
                  (dict                    ? "dict"
                   : value.is(Kind::kList) ? "list"
                                           : "tuple") +
                  " of " + std::to_string(value.items.size() / step));
  for (std::size_t i = 0; i < value.items.size(); i += step) {
    const std::string name = !dict                             ? std::to_string(i)
                             : value.items[i]->is(Kind::kText) ? printable(value.items[i]->text)
                                                               : std::to_string(value.items[i]->integer);
    show_value(name, *value.items[i + step - 1], depth + 1, shown);
  }
}

}  // namespace

void show(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return show_checkpoint(path);
  if (!is_torch_file(path)) return show_safetensors(path, Links::kFollowed, 0);
  const TorchArchive archive(path);
  const Pickled content = archive.content();
  std::set<const PickledValue*> shown;
  show_value(path.filename().string(), *content, 0, shown);
}
