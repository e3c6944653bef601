#include "trainer_template/runtime/checkpoint_format/manifest.h"

#include <set>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/checkpoint_format/checksum.h"

namespace torchbridge::train {

using nlohmann::json;

namespace {

constexpr std::string_view kChecksumBegin = ",\n  \"xxh3_128\": \"", kChecksumEnd = "\"\n}\n";

// nlohmann's own conversion silently truncates fractions and numbers that do not fit.
template <class Integer>
Integer integer(const json& value) {
  if (value.is_number_unsigned()) {
    if (const auto number = value.get<std::uint64_t>(); std::in_range<Integer>(number))
      return static_cast<Integer>(number);
  } else if (value.is_number_integer()) {
    if (const auto number = value.get<std::int64_t>(); std::in_range<Integer>(number))
      return static_cast<Integer>(number);
  }
  throw std::invalid_argument(
      formatted("is invalid: it has {} where an integer in the range of its type is expected",
                printable(value.dump(-1, ' ', true, json::error_handler_t::replace))));
}

json to_json(const FileRecord& file) {
  json record = {{"name", file.name}, {"size", file.size}};
  if (!file.xxh3.empty()) record["xxh3_128"] = file.xxh3;
  for (const FilePart& part : file.parts) record["parts"].push_back({part.size, part.xxh3});
  return record;
}

// Throws json::exception, or std::invalid_argument with the error of the record.
FileRecord file_from(const json& record) {
  FileRecord file{.name = record.at("name"),
                  .size = integer<std::uint64_t>(record.at("size")),
                  .xxh3 = record.value("xxh3_128", "")};
  if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos) {
    throw std::invalid_argument(
        formatted("names a file outside of its folder: '{}'", printable(file.name)));
  }
  std::uint64_t left = file.size;
  for (const json& entry : record.value("parts", json::array())) {
    const FilePart& part = file.parts.emplace_back(
        FilePart{.size = integer<std::uint64_t>(entry.at(0)), .xxh3 = entry.at(1)});
    if (part.size > left)
      throw std::invalid_argument(
          formatted("has parts that are longer than '{}'", printable(file.name)));
    left -= part.size;
  }
  const bool is_covered = file.parts.empty() ? !file.xxh3.empty() : left == 0;
  if (!is_covered)
    throw std::invalid_argument(
        formatted("has no checksum for every byte of '{}'", printable(file.name)));
  return file;
}

json to_json(const OptimizerRecord& optimizer) {
  json groups = json::array();
  for (const auto& [name, options, parameters] : optimizer.groups) {
    groups.push_back({{"name", name}, {"options", options}, {"parameters", parameters}});
  }
  return {{"kind", optimizer.kind}, {"groups", groups}};
}

OptimizerRecord optimizer_from(const json& record) {
  OptimizerRecord optimizer{.kind = record.at("kind"), .groups = {}};
  for (const json& group : record.at("groups")) {
    optimizer.groups.push_back({.name = group.at("name"),
                                .options = group.at("options"),
                                .parameters = group.at("parameters")});
  }
  return optimizer;
}

TrainState state_from(const json& document) {
  TrainState state;
  state.run = document.value("run", "");
  state.step = integer<std::int64_t>(document.at("step"));
  state.position = {.epoch = integer<std::int64_t>(document.at("epoch")),
                    .consumed = integer<std::int64_t>(document.at("epoch_samples_consumed"))};
  state.samples_seen = integer<std::int64_t>(document.at("samples_seen"));
  state.train_set = document.value("train_set_fingerprint", "");
  state.names = {.classes = document.value("classes", state.names.classes),
                 .columns = document.value("columns", state.names.columns)};
  for (const json& bucket : document.at("ddp_buckets")) {
    auto& indices = state.buckets.emplace_back();
    for (const json& index : bucket) indices.push_back(integer<std::size_t>(index));
  }
  state.parts = document.value("state", PartNumbers());
  return state;
}

void check_names(const std::vector<FileRecord>& files) {
  std::set<std::string> names;
  for (const FileRecord& file : files) {
    if (!names.insert(file.name).second)
      throw std::invalid_argument(formatted("names '{}' twice", printable(file.name)));
  }
}

std::string checksum_entry(std::string_view body) {
  return std::string(kChecksumBegin) + checksum_of(body) + std::string(kChecksumEnd);
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  const TrainState& state = manifest.state;
  json files = json::array();
  for (const FileRecord& file : manifest.files) files.push_back(to_json(file));
  json document = {
      {"format", "torchbridge-checkpoint"},
      {"version", Manifest::kVersion},
      {"step", state.step},
      {"epoch", state.position.epoch},
      {"epoch_samples_consumed", state.position.consumed},
      {"samples_seen", state.samples_seen},
      {"world_size", manifest.world_size},
      {"options", manifest.options},
      {"versions", manifest.versions},
      {"ddp_buckets", state.buckets},
      {"state", state.parts},
      {"optimizer", to_json(manifest.optimizer)},
      {"files", files},
  };
  if (manifest.seed) document["sampler_seed"] = *manifest.seed;
  if (!manifest.begun_by.empty()) document["begun_by"] = manifest.begun_by;
  if (!state.run.empty()) document["run"] = state.run;
  if (!state.train_set.empty()) document["train_set_fingerprint"] = state.train_set;
  if (!state.names.classes.empty()) document["classes"] = state.names.classes;
  if (!state.names.columns.empty()) document["columns"] = state.names.columns;
  constexpr std::string_view kEnd = "\n}";
  std::string text = document.dump(2, ' ', false, json::error_handler_t::replace);
  text.resize(text.size() - kEnd.size());
  return text + checksum_entry(text);
}

bool has_valid_checksum(std::string_view text) {
  static const std::size_t size = checksum_entry("").size();
  return text.size() >= size &&
         text.substr(text.size() - size) == checksum_entry(text.substr(0, text.size() - size));
}

Result<Manifest> manifest_from_json(std::string_view text) try {
  const json document = json::parse(text);
  if (document.at("format") != "torchbridge-checkpoint")
    return Error{"is not a checkpoint's manifest"};
  if (document.at("version") != Manifest::kVersion) {
    return Error{formatted(
        "has format version {}, this program reads {}",
        printable(document.at("version").dump(-1, ' ', true, json::error_handler_t::replace)),
        Manifest::kVersion)};
  }
  Manifest manifest;
  manifest.world_size = integer<int>(document.at("world_size"));
  manifest.begun_by = document.value("begun_by", "");
  if (const auto seed = document.find("sampler_seed"); seed != document.end())
    manifest.seed = integer<std::uint64_t>(*seed);
  document.at("options").get_to(manifest.options);
  document.at("versions").get_to(manifest.versions);
  manifest.state = state_from(document);
  if (document.contains("optimizer")) manifest.optimizer = optimizer_from(document["optimizer"]);
  for (const json& record : document.at("files")) manifest.files.push_back(file_from(record));
  check_names(manifest.files);
  const auto& [epoch, consumed] = manifest.state.position;
  if (manifest.state.step < 0 || epoch < 0 || consumed < 0 || manifest.world_size < 1) {
    return Error{"has a negative position or a world size below 1"};
  }
  return manifest;
} catch (const json::exception& error) {
  return Error{formatted("is invalid: {}", printable(error.what()))};
} catch (const std::invalid_argument& error) {
  return Error{error.what()};
}

}  // namespace torchbridge::train
