// What this rank writes of a run's state, as bytes in host memory that stay as they are.
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

#include "trainer_template/runtime/checkpoint_format/file_shard.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// First add() for each file, on all ranks with the same tensors for a file of several writers; then take(), copy() and
// wait(); then shards() are good until clear(). The memory is kept for the next snapshot: there never is more than one.
// One thread, but for copy() and wait().
class Snapshot {
 public:
  enum class Way {
    kCopy,      // training may change the tensors after copy()
    kReference  // they stay as they are until clear(): those in host memory are not copied
  };

  // A safetensors file of these tensors, of which this rank is writer `index` of `count`.
  void add(const std::string& file, const NamedTensors& tensors, int index = 0, int count = 1,
           const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  // Copies what is in host memory and not contiguous, and begins to copy what is on a GPU, of which all must be on one:
  // into pinned memory, on a stream of its own, behind what the current stream has to do.
  void take(Way way);
  // The rest in host memory, which is nearly all where training is on the CPU. Any one thread: until it returns, those
  // tensors may be read by others. Throws TrainError, which names a tensor that was written since take().
  void copy();
  // Of the latest take(): the end of its copies from a GPU, before which other streams must not write the tensors; null
  // without any.
  const std::shared_ptr<const c10::Event>& copied() const { return copied_; }
  // Returns when they have ended. Any one thread, after copy().
  void wait();
  // Waits as well.
  void clear();

  const std::vector<FileShard>& shards() const { return shards_; }

 private:
  // A tensor's bytes that fill a piece of a shard.
  struct Source {
    std::string name;
    at::Tensor tensor;
    ByteRange bytes;
    std::size_t shard = 0, piece = 0;
    std::uint64_t offset = 0;   // of the bytes in the shard
    char* target = nullptr;     // where copy() puts the bytes; null: it leaves them alone
    bool is_copying = false;    // on stream_
    std::uint32_t version = 0;  // that autograd gives to the tensor's values
  };
  // Room for all of each shard that is copied, as the file will have it: it is written from there without another copy.
  // Undefined for the others.
  std::vector<at::Tensor> make_images(const std::vector<bool>& is_copied, bool pinned);
  void reserve_buffer(std::uint64_t size, bool pinned);
  void begin_copies(const std::vector<at::Tensor>& images);

  std::vector<FileShard> shards_;
  std::deque<std::string> headers_;  // which do not move
  std::vector<Source> sources_;
  at::Tensor buffer_;
  bool is_pinned_ = false;             // the buffer
  std::optional<c10::Stream> stream_;  // of the GPU
  std::shared_ptr<const c10::Event> copied_;
};

}  // namespace torchbridge::train
