#include "trainer_template/runtime/formats/safetensors_file.h"

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

SafetensorsHeader header_of(std::string_view bytes, const std::filesystem::path& path) {
  if (bytes.starts_with("PK\x03\x04")) {  // a zip archive
    auto target = path;
    throw TrainError(
        formatted("{} is a file of torch.save: convert it by python -m torchbridge.convert {} {}",
                  path.string(), path.string(), target.replace_extension("safetensors").string()));
  }
  auto header = parse_header(bytes, bytes.size());
  if (!header) throw TrainError(path.string() + " " + header.error().message);
  return *std::move(header);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, Links links) {
  auto file = std::make_shared<const MappedFile>(path, links);
  bytes_ = text_of(*file);
  owner_ = std::move(file);
  header_ = header_of(bytes_, path);
}

SafetensorsFile::SafetensorsFile(std::shared_ptr<FileImage> image,
                                 const std::filesystem::path& path)
    : owner_(image), bytes_(image->bytes()), header_(header_of(bytes_, path)) {}

std::string_view SafetensorsFile::bytes(const TensorEntry& entry) const {
  return bytes_.substr(header_.size + entry.begin, entry.end - entry.begin);
}

}  // namespace torchbridge::train
