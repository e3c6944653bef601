// The bytes that this rank writes of a checkpoint, in host memory, where training does not change
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torchbridge/model_tensors.h>

#include "trainer_template/runtime/checkpoint_format/file_shard.h"

namespace torchbridge::train {

// Call add() for each file (on all ranks with the same tensors for a file of several writers), then
// take(), copy() and wait(). Then shards() are valid until clear(). The memory is reused for the
// next snapshot. One thread, except for copy() and wait().
class Snapshot {
 public:
  enum class CopyMode {
    kCopy,      // training may change the tensors after copy()
    kReference  // the tensors must not change until clear(): those in host memory are not copied
  };

  // A safetensors file of these tensors, of which this rank is writer `index` of `count`.
  void add(const std::string& file, const NamedTensors& tensors, int index = 0, int count = 1,
           const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  // Copies tensors in host memory that are not contiguous. Starts the copies from a GPU (one for
  // all tensors) to pinned memory, on a separate stream after the work of the current stream.
  void take(CopyMode mode);
  // Copies the other tensors in host memory: nearly all if training is on the CPU. Any one thread.
  // Until it returns, other threads may read those tensors but not write to them. Throws
  // TrainError, which names a tensor that was written since take().
  void copy();
  // The end of the copies from a GPU that the latest take() started; null if there are none. Other
  // streams must not write to the tensors before it.
  const std::shared_ptr<const c10::Event>& copied() const { return copied_; }
  // Returns when the copies from the GPU have ended. Any one thread, after copy().
  void wait();
  // Calls wait(), then removes all files.
  void clear();

  const std::vector<FileShard>& shards() const { return shards_; }

 private:
  // A tensor's bytes that fill a piece of a shard.
  struct TensorPiece {
    std::string name;
    at::Tensor tensor;
    ByteRange bytes;
    std::size_t shard = 0, piece = 0;
    std::uint64_t offset = 0;   // of the bytes in the shard
    char* target = nullptr;     // where copy() writes the bytes; null: it does not copy them
    bool is_copying = false;    // on stream_
    std::uint32_t version = 0;  // autograd's version counter of the tensor at take()
  };
  // Memory for each shard that is copied, laid out like the file and aligned, so that it is written
  // without another copy. Undefined for the other shards.
  std::vector<at::Tensor> make_images(const std::vector<bool>& is_copied, bool pinned);
  void reserve_buffer(std::uint64_t size, bool pinned);
  void begin_copies(const std::vector<at::Tensor>& images);

  std::vector<FileShard> shards_;
  std::deque<std::string> headers_;  // a deque: shards_ refer to the strings
  std::vector<TensorPiece> sources_;
  at::Tensor buffer_;
  bool is_pinned_ = false;             // the buffer
  std::optional<c10::Stream> stream_;  // of the GPU
  std::shared_ptr<const c10::Event> copied_;
};

}  // namespace torchbridge::train
