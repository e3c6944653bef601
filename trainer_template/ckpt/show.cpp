#include "trainer_template/ckpt/show.h"

#include <cstdio>
#include <string>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/visible_text.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"
#include "trainer_template/runtime/formats/safetensors_file.h"

using namespace torchbridge;
using namespace torchbridge::train;

namespace {

std::string tensor_text(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(length);
  return dtype + " [" + text + "]";
}

std::string whole(const std::string& text) { return visible_line(text, text.size()); }

void line(int depth, const std::string& text) {
  std::printf("%*s%s\n", 2 * depth, "", text.c_str());
}

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
  line(0, formatted("step {}, epoch {}, {} samples into it, {} samples in all", state.step,
                    state.position.epoch, state.position.consumed, state.samples_seen));
  line(0, formatted("written by {} ranks{}", manifest->world_size,
                    manifest->seed ? formatted(", seed {}", *manifest->seed) : ""));
  if (!state.run.empty()) line(0, formatted("run {}", printable(state.run)));
  if (!manifest->begun_by.empty())
    line(0, formatted("begun by --resume {}", whole(manifest->begun_by)));
  if (!state.train_set.empty())
    line(0, formatted("fingerprint of the training set {}", printable(state.train_set)));
  const auto& [classes, columns] = state.names;
  if (!classes.empty()) line(0, formatted("classes {}", joined(classes, ", ", whole)));
  if (!columns.empty()) line(0, formatted("columns {}", joined(columns, ", ", whole)));
  show_map("options", manifest->options);
  show_map("versions", manifest->versions);
  show_map("state", state.parts);
  for (const auto& [name, options, parameters] : manifest->optimizer.groups) {
    show_map(formatted("optimizer {}, group {} of {} parameters",
                       printable(manifest->optimizer.kind), printable(name), parameters.size())
                 .c_str(),
             options);
  }
  for (const FileRecord& file : manifest->files) {
    line(0, formatted("{}  {} bytes", file.name, file.size));
    if (file.name.ends_with(".safetensors"))
      show_safetensors(folder / file.name, Links::kRejected, 1);
  }
}

}  // namespace

void show(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return show_checkpoint(path);
  show_safetensors(path, Links::kFollowed, 0);
}
