#include "trainer_template/runtime/formats/token_file.h"

#include <algorithm>
#include <bit>
#include <string>

#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are mapped as they are in the file");

constexpr std::uint32_t kMagic = 20240520, kMagicOfFourBytes = 20240801, kVersion = 1;
constexpr std::uint64_t kHeaderSize = 1024, kFieldsSize = 12;

// REQUIRES: offset + 4 <= bytes.size().
std::uint32_t little_endian(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return bytes[offset] | bytes[offset + 1] << 8 | bytes[offset + 2] << 16 | std::uint32_t{bytes[offset + 3]} << 24;
}

std::string differs(std::uint64_t offset, const std::string& what, std::uint64_t value, const std::string& expected) {
  return "byte " + std::to_string(offset) + ": " + what + " " + std::to_string(value) + ", expected " + expected;
}

Result<TokenLayout> llm_c_layout(std::span<const std::uint8_t> head, std::uint64_t file_size) {
  if (file_size < kHeaderSize || head.size() < kFieldsSize) {
    return Error{"ends at byte " + std::to_string(file_size) + ", within the header of " + std::to_string(kHeaderSize) +
                 " bytes"};
  }
  if (little_endian(head, 0) != kMagic) {
    return Error{differs(0, "magic number", little_endian(head, 0), std::to_string(kMagic) + " (llm.c's token files)")};
  }
  if (little_endian(head, 4) != kVersion)
    return Error{differs(4, "version", little_endian(head, 4), std::to_string(kVersion))};
  const std::uint64_t count = little_endian(head, 8);
  const std::uint64_t expected = kHeaderSize + 2 * count;
  if (count == 0) return Error{differs(8, "number of tokens", 0, "at least 1")};
  if (file_size != expected) {
    return Error{differs(
        8, "number of tokens", count,
        "a file of " + std::to_string(expected) + " bytes for it, but the file has " + std::to_string(file_size))};
  }
  return TokenLayout{kHeaderSize, count};
}

}  // namespace

Result<TokenLayout> token_layout(std::span<const std::uint8_t> head, std::uint64_t file_size, TokenFormat format) {
  const std::uint32_t first = head.size() >= 4 ? little_endian(head, 0) : 0;
  if (format == TokenFormat::kLlmC || (format == TokenFormat::kAuto && first == kMagic))
    return llm_c_layout(head, file_size);
  if (format == TokenFormat::kAuto && first == kMagicOfFourBytes) {
    return Error{differs(0, "magic number", first,
                         std::to_string(kMagic) + ": tokens of four bytes (Llama 3) are not supported")};
  }
  if (file_size == 0) return Error{"is empty"};
  if (file_size % 2 != 0) {
    return Error{"ends at byte " + std::to_string(file_size) + ", within a token: expected two bytes each"};
  }
  return TokenLayout{0, file_size / 2};
}

TokenFile::TokenFile(const std::filesystem::path& path, TokenFormat format) : path_(path), file_(path) {
  const auto bytes = file_.bytes();
  const auto layout = token_layout(bytes.first(std::min<std::size_t>(bytes.size(), kFieldsSize)), bytes.size(), format);
  if (!layout) throw TrainError(path.string() + ": " + layout.error().message);
  tokens_ = {reinterpret_cast<const std::uint16_t*>(bytes.data() + layout->offset), layout->count};
}

std::uint64_t TokenFile::byte_of(std::int64_t token) const {
  return reinterpret_cast<const std::uint8_t*>(tokens_.data() + token) - file_.bytes().data();
}

}  // namespace torchbridge::train
