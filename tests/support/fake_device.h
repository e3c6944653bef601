// An accelerator of libtorch that is none: its memory is the host's, but copies from and to it wait
// in the queue of a stream, as on a GPU, until somebody waits for an event behind them. What a GPU
// would do wrong without a wait or a pin, it does too.
#pragma once

#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace fake_device {

inline const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};

// Copies that were begun, in order.
struct Copy {
  c10::StreamId stream = 0;
  bool pinned = false;  // from or to pinned memory, so that the caller did not have to wait
};
std::vector<Copy> copies();

// Copies that are still in a queue.
std::size_t waiting();

// Streams on which record_stream was called.
std::vector<c10::StreamId> recorded_streams();

// For events, made by this thread: of a stream, and of the thread itself.
struct Waits {
  int of_streams = 0, of_the_thread = 0;
};
Waits waits();

// From now on pinned memory is rejected, or given again.
void reject_pinned_memory(bool rejected);

// While it is broken, as a GPU is after an error of a kernel, each wait for an event and each new
// pinned memory throw.
void set_broken(bool broken);

void forget();

}  // namespace fake_device
