// The error file of torch.distributed.elastic as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace torchbridge {

// The largest size of an error file whose message and callstack have together `size` bytes.
constexpr std::size_t error_json_bound(std::size_t size) { return 128 + 6 * size; }

// Writes {"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": "SECONDS"}}}
// to `buffer`, which has error_json_bound bytes, and returns the size. The JSON is ASCII, as
// Python's is, so that it can be read in every locale; a byte that is not UTF-8 becomes U+FFFD.
// `seconds` since 1970. For signal handlers too: nothing is allocated.
std::size_t put_error_json(std::string_view message, std::string_view callstack,
                           std::int64_t seconds, char* buffer);

}  // namespace torchbridge
