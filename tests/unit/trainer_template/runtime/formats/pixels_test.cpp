#include "trainer_template/runtime/formats/pixels.h"

#include <vector>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

TEST(Pixels, AreDividedBy255ToTheLastBit) {
  std::vector<std::uint8_t> bytes;
  for (int value = 0; value < 256; ++value) bytes.push_back(static_cast<std::uint8_t>(value));
  for (const std::size_t count : {0, 1, 7, 16, 33, 256}) {
    std::vector<float> values(count + 1, -1);
    unit_floats(std::span(bytes).first(count), values.data());
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(values[i], static_cast<float>(bytes[i]) / 255.0f);
    EXPECT_EQ(values[count], -1) << "nothing is written behind the last one";
  }
}

}  // namespace
}  // namespace torchbridge::train
