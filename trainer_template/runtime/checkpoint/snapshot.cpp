#include <torchbridge/train/checkpoint/snapshot.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <sys/mman.h>
#include <torchbridge/train/checkpoint/safetensors.h>
#include <torchbridge/train/failpoint.h>

#include <algorithm>
#include <cstring>

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::int64_t kGrain = std::int64_t{4} << 20;  // bytes a thread copies at least

std::uint64_t aligned(std::uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// What of the piece at `begin` of `size` bytes lies within the range, counted from the piece's begin.
ByteRange overlap(const ByteRange& range, std::uint64_t begin, std::uint64_t size) {
  const std::uint64_t from = std::clamp(range.begin, begin, begin + size), to = std::clamp(range.end, begin, begin + size);
  return {from - begin, to - begin};
}

bool is_plain(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.is_contiguous(); }

const char* bytes_of(const at::Tensor& tensor) { return static_cast<const char*>(tensor.const_data_ptr()); }

void copy_bytes(const at::Tensor& from, const ByteRange& range, const at::Tensor& into) {
  const auto size = static_cast<std::int64_t>(range.size());
  if (!is_plain(from)) {
    into.copy_(from.contiguous().reshape(-1).view(at::kByte).narrow(0, static_cast<std::int64_t>(range.begin), size));
    return;
  }
  const char* const source = bytes_of(from) + range.begin;
  char* const target = static_cast<char*>(into.mutable_data_ptr());
  at::parallel_for(0, size, kGrain, [&](std::int64_t begin, std::int64_t end) { std::memcpy(target + begin, source + begin, end - begin); });
}

}  // namespace

void Snapshot::add(const std::string& file, const NamedTensors& tensors, int index, int count, const std::map<std::string, std::string>& metadata) {
  const NamedTensors ordered = in_file_order(tensors);
  const std::string& header = headers_.emplace_back(header_for(ordered, metadata));
  FileShare share{.name = file, .file_size = header.size()};
  for (const auto& [name, tensor] : ordered) share.file_size += tensor.nbytes();
  share.range = range_of_writer(share.file_size, index, count);
  const ByteRange of_header = overlap(share.range, 0, header.size());
  if (of_header.size() > 0) share.pieces.push_back(std::string_view(header).substr(of_header.begin, of_header.size()));
  std::uint64_t begin = header.size();
  for (const auto& [name, tensor] : ordered) {
    const ByteRange bytes = overlap(share.range, begin, tensor.nbytes());
    begin += tensor.nbytes();
    if (bytes.size() == 0) continue;
    sources_.push_back({.tensor = tensor.detach(), .bytes = bytes, .share = shares_.size(), .piece = share.pieces.size()});
    share.pieces.emplace_back();
  }
  shares_.push_back(std::move(share));
}

bool Snapshot::must_copy(const Source& source, Way way) { return way == Way::kCopy || !is_plain(source.tensor); }

void Snapshot::take(Way way) {
  const at::NoGradGuard no_grad;
  std::uint64_t size = 0;
  bool pinned = false;
  for (const Source& source : sources_) {
    if (must_copy(source, way)) size += aligned(source.bytes.size());
    pinned = pinned || !source.tensor.is_cpu();
  }
  make_room(size, pinned);
  std::uint64_t position = 0;
  for (Source& source : sources_) {
    failpoint("snapshot");
    const char* bytes = nullptr;
    if (must_copy(source, way)) {
      const auto length = static_cast<std::int64_t>(source.bytes.size());
      const at::Tensor room = buffer_.narrow(0, static_cast<std::int64_t>(position), length);
      copy_bytes(source.tensor, source.bytes, room);
      bytes = bytes_of(room);
      source.tensor.reset();
      position += aligned(source.bytes.size());
    } else {
      bytes = bytes_of(source.tensor) + source.bytes.begin;
    }
    shares_[source.share].pieces[source.piece] = {bytes, source.bytes.size()};
  }
}

void Snapshot::make_room(std::uint64_t size, bool pinned) {
  if (size == 0) return;
  const auto needed = static_cast<std::int64_t>(size);
  if (buffer_.defined() && buffer_.numel() >= needed && is_pinned_ == pinned) return;
  buffer_.reset();  // before there is another one
  is_pinned_ = pinned;
  buffer_ = at::empty({needed}, at::TensorOptions(at::kByte).pinned_memory(pinned));
  // Fewer page faults in the first snapshot. The kernel wants whole pages.
  constexpr std::uintptr_t kPage = 4096;
  const auto begin = (reinterpret_cast<std::uintptr_t>(buffer_.data_ptr()) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(buffer_.data_ptr()) + size) / kPage * kPage;
  if (!pinned && end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

void Snapshot::clear() {
  shares_.clear();
  headers_.clear();
  sources_.clear();
}

}  // namespace torchbridge::train
