#include "trainer_template/runtime/checkpoint/snapshot.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/checkpoint/safetensors.h"
#include "trainer_template/runtime/tensors/pinned_memory.h"

namespace torchbridge::train {
namespace {

std::uint64_t aligned(std::uint64_t size) {
  return (size + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

// The part of a piece of `size` bytes at `begin` that is in the range, relative to the begin of the
// piece.
ByteRange overlap(const ByteRange& range, std::uint64_t begin, std::uint64_t size) {
  const std::uint64_t from = std::clamp(range.begin, begin, begin + size),
                      to = std::clamp(range.end, begin, begin + size);
  return {from - begin, to - begin};
}

bool is_plain(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.is_contiguous(); }

const char* bytes_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

bool must_copy(const at::Tensor& tensor, Snapshot::CopyMode mode) {
  return mode == Snapshot::CopyMode::kCopy || !is_plain(tensor);
}

// The tensor's bytes in the order of the file: a view if the tensor is contiguous, else a copy.
at::Tensor flat_bytes(const at::Tensor& tensor, const ByteRange& range) {
  const auto begin = static_cast<std::int64_t>(range.begin),
             size = static_cast<std::int64_t>(range.size());
  return tensor.contiguous().reshape(-1).view(at::kByte).narrow(0, begin, size);
}

// Inference tensors have no version counter.
std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::uint32_t>(tensor._version());
}

}  // namespace

void Snapshot::add(const std::string& file, const NamedTensors& tensors, int index, int count,
                   const std::map<std::string, std::string>& metadata) {
  const NamedTensors ordered = in_file_order(tensors);
  const std::string& header = headers_.emplace_back(header_for(ordered, metadata));
  FileShard shard{.name = file, .file_size = header.size()};
  for (const auto& [name, tensor] : ordered) shard.file_size += tensor.nbytes();
  shard.range = range_of_writer(shard.file_size, index, count);
  const ByteRange of_header = overlap(shard.range, 0, header.size());
  if (of_header.size() > 0)
    shard.pieces.push_back(std::string_view(header).substr(of_header.begin, of_header.size()));
  std::uint64_t begin = header.size(), offset = of_header.size();
  for (const auto& [name, tensor] : ordered) {
    const ByteRange bytes = overlap(shard.range, begin, tensor.nbytes());
    begin += tensor.nbytes();
    if (bytes.size() == 0) continue;
    sources_.push_back({.name = name,
                        .tensor = tensor.detach(),
                        .bytes = bytes,
                        .shard = shards_.size(),
                        .piece = shard.pieces.size(),
                        .offset = offset});
    shard.pieces.emplace_back();
    offset += bytes.size();
  }
  shards_.push_back(std::move(shard));
}

void Snapshot::take(CopyMode mode) {
  const at::NoGradGuard no_grad;
  std::vector<bool> is_copied(shards_.size());
  bool pinned = false;
  for (const TensorPiece& source : sources_) {
    if (must_copy(source.tensor, mode)) is_copied[source.shard] = true;
    pinned = pinned || !source.tensor.is_cpu();
  }
  const std::vector<at::Tensor> images = make_images(is_copied, pinned);
  for (TensorPiece& source : sources_) {
    failpoint("snapshot");
    std::string_view& piece = shards_[source.shard].pieces[source.piece];
    if (!must_copy(source.tensor, mode)) {
      piece = {bytes_of(source.tensor) + source.bytes.begin, source.bytes.size()};
      continue;
    }
    const auto size = static_cast<std::int64_t>(source.bytes.size());
    const at::Tensor target =
        images[source.shard].narrow(0, static_cast<std::int64_t>(source.offset), size);
    piece = {bytes_of(target), source.bytes.size()};
    if (is_plain(source.tensor)) {
      source.target = static_cast<char*>(target.mutable_data_ptr());
      source.version = version_of(source.tensor);
    } else if (source.tensor.is_cpu()) {
      target.copy_(flat_bytes(source.tensor, source.bytes));
      source.tensor.reset();
    } else {
      source.is_copying = true;
    }
  }
  begin_copies(images);
}

void Snapshot::begin_copies(const std::vector<at::Tensor>& images) {
  const auto first = std::ranges::find(sources_, true, &TensorPiece::is_copying);
  if (first == sources_.end()) return;
  const c10::Device device = first->tensor.device();
  const c10::impl::VirtualGuardImpl gpu(device.type());
  if (!stream_) stream_ = gpu.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  c10::Event written(device.type());
  written.record(gpu.getStream(device));
  written.block(*stream_);
  const c10::StreamGuard guard(*stream_);
  for (const TensorPiece& source : sources_) {
    if (!source.is_copying) continue;
    TORCH_CHECK(source.tensor.device() == device, "'", source.name, "' is on ",
                source.tensor.device(), ", other tensors on ", device);
    const auto offset = static_cast<std::int64_t>(source.offset),
               size = static_cast<std::int64_t>(source.bytes.size());
    images[source.shard]
        .narrow(0, offset, size)
        .copy_(flat_bytes(source.tensor, source.bytes), /*non_blocking=*/true);
  }
  const auto copied = std::make_shared<c10::Event>(device.type());
  copied->record(*stream_);
  copied_ = copied;
}

void Snapshot::copy() {
  for (const TensorPiece& source : sources_) {
    if (source.target == nullptr) continue;
    failpoint("snapshot");
    std::copy_n(bytes_of(source.tensor) + source.bytes.begin, source.bytes.size(), source.target);
  }
  for (TensorPiece& source : sources_) {
    if (source.target == nullptr) continue;
    if (version_of(source.tensor) != source.version) {
      throw TrainError(
          formatted("'{}' was changed between the save and the optimizer's step: change it after "
                    "that step, or save without --async-save",
                    source.name));
    }
    source.tensor.reset();
  }
}

void Snapshot::wait() {
  if (!copied_) return;
  copied_->synchronize();
  for (TensorPiece& source : sources_) {
    if (source.is_copying) source.tensor.reset();
  }
}

std::vector<at::Tensor> Snapshot::make_images(const std::vector<bool>& is_copied, bool pinned) {
  std::vector<std::uint64_t> begins(shards_.size());
  std::uint64_t size = kDirectAlignment;  // for the alignment of the first image
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    begins[i] = size - kDirectAlignment;
    if (is_copied[i]) size += aligned(shards_[i].range.size());
  }
  std::vector<at::Tensor> images(shards_.size());
  if (size == kDirectAlignment) return images;
  reserve_buffer(size, pinned);
  const std::uint64_t address = reinterpret_cast<std::uintptr_t>(buffer_.const_data_ptr()),
                      skipped = aligned(address) - address;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (!is_copied[i]) continue;
    FileShard& shard = shards_[i];
    images[i] = buffer_.narrow(0, static_cast<std::int64_t>(skipped + begins[i]),
                               static_cast<std::int64_t>(shard.range.size()));
    std::string_view& header = shard.pieces.front();  // empty: the shard begins with a tensor
    std::ranges::copy(header, static_cast<char*>(images[i].mutable_data_ptr()));
    if (!header.empty()) header = {bytes_of(images[i]), header.size()};
  }
  return images;
}

void Snapshot::reserve_buffer(std::uint64_t size, bool pinned) {
  const auto needed = static_cast<std::int64_t>(size);
  if (buffer_.defined() && buffer_.numel() >= needed && is_pinned_ == pinned) return;
  buffer_.reset();  // frees the old buffer before the new one is allocated
  is_pinned_ = pinned;
  buffer_ = pinned ? empty_pinned({needed}, at::kByte) : at::empty({needed}, at::kByte);
}

void Snapshot::clear() {
  wait();
  copied_.reset();
  shards_.clear();
  headers_.clear();
  sources_.clear();
}

}  // namespace torchbridge::train
