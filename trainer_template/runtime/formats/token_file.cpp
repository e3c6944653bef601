#include "trainer_template/runtime/formats/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tokens are mapped as they are in the file");

constexpr std::uint32_t kMagic = 20240520, kMagicOfFourBytes = 20240801, kVersion = 1;
constexpr std::uint64_t kHeaderSize = 1024, kFieldsSize = 12;
constexpr char kOneByte[] = "one byte";

// REQUIRES: offset + 4 <= bytes.size().
std::uint32_t little_endian(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return bytes[offset] | bytes[offset + 1] << 8 | bytes[offset + 2] << 16 |
         std::uint32_t{bytes[offset + 3]} << 24;
}

bool is_numpy(std::span<const std::uint8_t> head) {
  constexpr std::uint8_t kStart[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  return head.size() >= sizeof kStart && std::ranges::equal(head.first(sizeof kStart), kStart);
}

std::string differs(std::uint64_t offset, const std::string& what, std::uint64_t value,
                    const std::string& expected) {
  return formatted("byte {}: {} {}, expected {}", offset, what, value, expected);
}

Result<TokenLayout> llm_c_layout(std::span<const std::uint8_t> head, std::uint64_t file_size) {
  if (file_size < kHeaderSize || head.size() < kFieldsSize) {
    return Error{
        formatted("ends at byte {}, within the header of {} bytes", file_size, kHeaderSize)};
  }
  if (little_endian(head, 0) != kMagic) {
    return Error{differs(0, "magic number", little_endian(head, 0),
                         formatted("{} (llm.c's token files)", kMagic))};
  }
  if (little_endian(head, 4) != kVersion)
    return Error{differs(4, "version", little_endian(head, 4), std::to_string(kVersion))};
  const std::uint64_t count = little_endian(head, 8);
  const std::uint64_t expected = kHeaderSize + 2 * count;
  if (count == 0) return Error{differs(8, "number of tokens", 0, "at least 1")};
  if (file_size != expected) {
    return Error{
        differs(8, "number of tokens", count,
                formatted("a file of {} bytes for it, but the file has {}", expected, file_size))};
  }
  return TokenLayout{kHeaderSize, count};
}

// What a file without a header holds if its first tokens cannot be of two bytes; empty if they can.
// Read as two bytes, the upper parts of wider tokens are below 4 (of vocabularies of up to 262144),
// and tokens of one byte come in pairs of small bytes, of which both have the same values. The
// upper byte of a token of two bytes has few values, or others than the lower one.
std::string other_width(std::span<const std::uint16_t> tokens) {
  constexpr std::size_t kEnough = 1024, kQuarter = kEnough / 4;
  constexpr std::uint16_t kLargeBytes = 0x8080;
  if (tokens.size() < kEnough) return {};
  std::array<std::size_t, 4> small{}, zeros{};
  std::array<std::size_t, 256> upper{}, lower{};
  std::size_t with_large_byte = 0;
  for (std::size_t i = 0; i < kEnough; ++i) {
    if (tokens[i] < 4) ++small[i % 4];
    if (tokens[i] == 0) ++zeros[i % 4];
    if ((tokens[i] & kLargeBytes) != 0) ++with_large_byte;
    ++upper[tokens[i] >> 8];
    ++lower[tokens[i] & 0xff];
  }
  if (small[1] == kQuarter) {
    if (small[3] == kQuarter && small[0] + small[2] < kQuarter) return "four bytes";
    if (zeros[2] == kQuarter && zeros[3] == kQuarter && small[0] < kQuarter / 2)
      return "eight bytes";
  }
  std::size_t common = 0;  // that the two distributions share, but for 0
  for (std::size_t value = 1; value < upper.size(); ++value)
    common += std::min(upper[value], lower[value]);
  return with_large_byte == 0 && common > kEnough / 2 ? kOneByte : "";
}

}  // namespace

Result<TokenLayout> token_layout(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                 TokenFormat format) {
  const std::uint32_t first = head.size() >= 4 ? little_endian(head, 0) : 0;
  if (format == TokenFormat::kLlmC || (format == TokenFormat::kAuto && first == kMagic))
    return llm_c_layout(head, file_size);
  if (format == TokenFormat::kAuto && first == kMagicOfFourBytes) {
    return Error{
        differs(0, "magic number", first,
                formatted("{}: tokens of four bytes (Llama 3) are not supported", kMagic))};
  }
  if (format == TokenFormat::kAuto && is_numpy(head)) {
    return Error{
        "is a NumPy file (.npy), expected the tokens alone: write it with "
        "array.astype('uint16').tofile(FILE)"};
  }
  if (file_size == 0) return Error{"is empty"};
  if (file_size % 2 != 0) {
    return Error{formatted("ends at byte {}, within a token: expected two bytes each", file_size)};
  }
  return TokenLayout{0, file_size / 2};
}

TokenFile::TokenFile(const std::filesystem::path& path, TokenFormat format)
    : path_(path), file_(path) {
  const auto bytes = file_.bytes();
  const auto layout = token_layout(bytes.first(std::min<std::size_t>(bytes.size(), kFieldsSize)),
                                   bytes.size(), format);
  if (!layout) throw TrainError(path.string() + ": " + layout.error().message);
  tokens_ = {reinterpret_cast<const std::uint16_t*>(bytes.data() + layout->offset), layout->count};
  if (format != TokenFormat::kAuto || layout->offset != 0) return;
  if (const std::string width = other_width(tokens_); !width.empty()) {
    throw TrainError(
        formatted("{}: holds tokens of {}, expected two bytes each: write them as numpy.uint16{}",
                  path.string(), width,
                  width == kOneByte ? "; if they are, give the file llm.c's header" : ""));
  }
}

std::uint64_t TokenFile::byte_of(std::int64_t token) const {
  return reinterpret_cast<const std::uint8_t*>(tokens_.data() + token) - file_.bytes().data();
}

}  // namespace torchbridge::train
