// Headers of safetensors files: what is accepted lies inside the file, without gap or overlap.
// Where all types are known it is written again as it was.
#include <algorithm>

#include "tests/fuzz/programs/expect.h"
#include "trainer_template/runtime/formats/safetensors_header.h"

using namespace torchbridge;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file = text_of(data, size);
  const auto needed = train::header_size(file.substr(0, std::min<std::size_t>(size, 8)), size);
  if (!needed) {
    expect_presentable(needed.error());
    return 0;
  }
  expect(*needed <= size, "the header is inside the file");
  const auto header = train::parse_header(file, size);
  if (!header) {
    expect_presentable(header.error());
    return 0;
  }
  std::uint64_t at = 0;
  for (const auto& tensor : header->tensors) {
    expect(tensor.begin == at && tensor.end >= tensor.begin, "one tensor behind the other");
    at = tensor.end;
  }
  expect(header->size + at == size, "the file is full");
  if (std::ranges::any_of(header->tensors,
                          [](const auto& tensor) { return !train::is_known_type(tensor.dtype); })) {
    return 0;
  }
  auto tensors = header->tensors;
  const std::string again = train::make_header(tensors, header->metadata);
  const auto reread = train::parse_header(again, again.size() + at);
  expect(reread && reread->tensors == header->tensors && reread->metadata == header->metadata,
         "written and read it is the same");
  return 0;
}
