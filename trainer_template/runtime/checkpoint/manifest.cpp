#include <torchbridge/train/checkpoint/manifest.h>

#include <nlohmann/json.hpp>

#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checksum.h>

namespace torchbridge::train {

using nlohmann::json;

namespace {

constexpr std::string_view kSealBegin = ",\n  \"xxh3_128\": \"", kSealEnd = "\"\n}\n";

std::string seal_of(std::string_view body) { return std::string(kSealBegin) + checksum_of(body) + std::string(kSealEnd); }

}  // namespace

std::string to_json(const Manifest& manifest) {
  json files = json::array();
  for (const FileRecord& file : manifest.files) {
    files.push_back({{"name", file.name}, {"size", file.size}, {"xxh3_128", file.xxh3}});
  }
  const json document = {
      {"format", "torchbridge-checkpoint"},
      {"version", Manifest::kVersion},
      {"step", manifest.step},
      {"epoch", manifest.position.epoch},
      {"epoch_samples_consumed", manifest.position.consumed},
      {"samples_seen", manifest.samples_seen},
      {"world_size", manifest.world_size},
      {"sampler_seed", manifest.sampler_seed},
      {"options", manifest.options},
      {"versions", manifest.versions},
      {"ddp_buckets", manifest.buckets},
      {"state", manifest.state},
      {"files", files},
  };
  constexpr std::string_view kEnd = "\n}";
  std::string text = document.dump(2, ' ', false, json::error_handler_t::replace);
  text.resize(text.size() - kEnd.size());
  return text + seal_of(text);
}

bool is_sealed(std::string_view text) {
  static const std::size_t size = seal_of("").size();
  return text.size() >= size && text.substr(text.size() - size) == seal_of(text.substr(0, text.size() - size));
}

Result<Manifest> manifest_from_json(std::string_view text) try {
  const json document = json::parse(text);
  if (document.at("format") != "torchbridge-checkpoint") return Error{"is not a checkpoint's manifest"};
  if (document.at("version") != Manifest::kVersion) {
    return Error{"has format version " + printable(document.at("version").dump(-1, ' ', true, json::error_handler_t::replace)) + ", this program reads " +
                 std::to_string(Manifest::kVersion)};
  }
  Manifest manifest;
  document.at("step").get_to(manifest.step);
  document.at("epoch").get_to(manifest.position.epoch);
  document.at("epoch_samples_consumed").get_to(manifest.position.consumed);
  document.at("samples_seen").get_to(manifest.samples_seen);
  document.at("world_size").get_to(manifest.world_size);
  document.at("sampler_seed").get_to(manifest.sampler_seed);
  document.at("options").get_to(manifest.options);
  document.at("versions").get_to(manifest.versions);
  document.at("ddp_buckets").get_to(manifest.buckets);
  if (document.contains("state")) document["state"].get_to(manifest.state);
  for (const json& file : document.at("files")) {
    const std::string& name = file.at("name").get_ref<const std::string&>();
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
      return Error{"names a file outside of its folder: '" + printable(name) + "'"};
    }
    manifest.files.push_back({name, file.at("size"), file.at("xxh3_128")});
  }
  if (manifest.step < 0 || manifest.position.epoch < 0 || manifest.position.consumed < 0 || manifest.world_size < 1) {
    return Error{"holds a negative position"};
  }
  return manifest;
} catch (const json::exception& error) {
  return Error{"cannot be understood: " + printable(error.what())};
}

}  // namespace torchbridge::train
