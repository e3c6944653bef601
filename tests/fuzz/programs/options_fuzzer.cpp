// The option list of --torch-env: whatever the text, it is rejected with a message, or the same
// list given twice has the same result.
#include "bridge/core/launch_options.h"
#include "tests/fuzz/programs/expect.h"

using namespace torchbridge;

namespace {

void expect_within_limits(const LaunchOptions& options) {
  const PortRule& port = options.port;
  expect(port.automatic() ? port.high == 0
                          : port.low >= 1 && port.low <= port.high && port.high <= 65535,
         "a port is automatic or from 1 to 65535");
  expect(options.addr.text.size() <= 253, "an address is as long as a DNS name at most");
  expect(options.omp.kind != OmpRule::Kind::kNumber || options.omp.number >= 1,
         "a number of threads is at least 1");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string list(text_of(data, size));
  const auto options = parse_options(list);
  if (!options) {
    expect_presentable(options.error());
    return 0;
  }
  expect_within_limits(*options);
  const auto on_top = parse_options(list, *options);
  expect(static_cast<bool>(on_top) && *on_top == *options,
         "a list on top of itself changes nothing");
  if (list.empty()) return 0;
  const auto twice = parse_options(list + "," + list);
  expect(static_cast<bool>(twice) && *twice == *options, "a list said twice says the same");
  return 0;
}
