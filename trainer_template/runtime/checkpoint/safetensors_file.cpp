#include <torchbridge/train/checkpoint/safetensors_file.h>

#include <torchbridge/train/errors.h>

namespace torchbridge::train {
namespace {

std::string_view text_of(const MappedFile& file) { return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}; }

SafetensorsHeader header_of(const MappedFile& file, const std::filesystem::path& path) {
  auto header = parse_header(text_of(file), file.bytes().size());
  if (!header) throw TrainError(path.string() + " " + header.error().message);
  return *std::move(header);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, Links links) : file_(path, links), header_(header_of(file_, path)) {}

std::string_view SafetensorsFile::bytes(const TensorEntry& entry) const {
  return text_of(file_).substr(header_.size + entry.begin, entry.end - entry.begin);
}

}  // namespace torchbridge::train
