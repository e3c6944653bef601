// The records of TensorBoard's event files: numbers by name and step.
//
// Format: records of TFRecord (https://www.tensorflow.org/tutorials/load_data/tfrecord), each a
// protocol buffer "Event" (tensorflow/core/util/event.proto,
// tensorflow/core/framework/summary.proto).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace torchbridge::train {

// CRC-32C (Castagnoli), RFC 3720 appendix B.4.
std::uint32_t crc32c(std::string_view bytes);

// One record of the file: its length, the length's checksum, the bytes, their checksum.
std::string tf_record(std::string_view bytes);

// Events, each for one record. `wall_time`: seconds since 1970.
std::string scalar_event(double wall_time, std::int64_t step, const std::string& name, float value);
// The first one of a file.
std::string version_event(double wall_time);
// A start of the run at `first_step`: TensorBoard then drops that step and later ones of earlier
// files.
std::string start_event(double wall_time, std::int64_t first_step);

}  // namespace torchbridge::train
