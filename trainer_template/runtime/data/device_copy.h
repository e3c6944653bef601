// Copies batches to a GPU on a stream of its own, while the training stream computes.
#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torchbridge/data.h>

namespace torchbridge::train {

// Uses c10's guard of the device type, which libtorch_cuda registers when it is opened: nothing
// here links libtorch_cuda.
class DeviceCopy {
 public:
  // `device` names a GPU with its index; a CPU: batches stay as they are. Throws c10::Error where
  // libtorch has no such device.
  explicit DeviceCopy(c10::Device device);

  // A batch whose copy may still be in progress.
  struct CopyingBatch {
    Batch batch;
    std::optional<c10::Event> copied;
  };

  // Starts the copy; does not wait if the batch is in pinned memory. One thread at a time.
  CopyingBatch begin(Batch batch) const;

  // The batch for the thread that trains: its current stream, not the thread, waits for the copy,
  // and the memory is kept until that stream is done with it, whoever drops the batch when. A
  // program that uses it on another stream calls record_stream() too.
  static Batch finish(CopyingBatch copying);

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace torchbridge::train
