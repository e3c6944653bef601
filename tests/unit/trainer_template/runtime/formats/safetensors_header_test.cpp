#include "trainer_template/runtime/formats/safetensors_header.h"

#include "tests/support/growth.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

std::string file_of(const std::string& json, std::size_t data_bytes) {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json + std::string(data_bytes, 'x');
}

TEST(SafetensorsHeader, ReadsBackWhatItWrites) {
  std::vector<TensorEntry> tensors = {{.name = "a.weight", .dtype = "F32", .shape = {2, 3}},
                                      {.name = "scalar", .dtype = "F32", .shape = {}},
                                      {.name = "empty", .dtype = "I64", .shape = {0, 5}},
                                      {.name = "flag \"\n", .dtype = "BOOL", .shape = {3}}};
  const std::string text = make_header(tensors, {{"format", "pt"}});
  EXPECT_EQ(text.size() % 8, 0u);
  const auto header = parse_header(text + std::string(31, 'x'), text.size() + 31);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->size, text.size());
  EXPECT_EQ(header->metadata.at("format"), "pt");
  ASSERT_EQ(header->tensors.size(), 4u);
  for (const TensorEntry& tensor : tensors) {
    EXPECT_NE(std::find(header->tensors.begin(), header->tensors.end(), tensor),
              header->tensors.end())
        << tensor.name;
  }
}

TEST(SafetensorsHeader, RejectsMalformedHeaders) {
  const struct {
    std::string file, expected;
  } kCases[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "declares a header of"},
      {file_of("{}", 0).substr(0, 9), "declares a header of"},
      {file_of("", 0), "does not start with '{'"},
      {file_of("[]", 0), "does not start with '{'"},
      {file_of("{", 0), "has an invalid header"},
      {file_of("{}x", 0), "has an invalid header"},
      {file_of("{}", 1), "the tensors take 0 bytes, the file has 1"},
      {file_of(R"({"a":1})", 0), "has an invalid header"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "has an invalid header"},
      {file_of(R"({"a":{"dtype":"F7","shape":[3],"data_offsets":[0,4]}})", 4), "unknown type 'F7'"},
      {file_of(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,17]}})", 17),
       "unknown type 'F7'"},
      {file_of(R"({"a":{"dtype":"F7","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "unknown type"},
      {file_of(R"({"a":{"dtype":"F7\n","shape":[1],"data_offsets":[0,4]}})", 4),
       "unknown type 'F7"},
      {file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), "invalid shape"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
       "does not match its data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "bad shape"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), "bad shape"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})", 4),
       "bad data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4), "bad data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "leaves a gap"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8), "the file has 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4), "the file has 4"},
      {file_of(
           R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})",
           0),
       "invalid shape"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
               12),
       "'b' overlaps"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
               R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               8),
       "holds 'a' twice"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4),
       "holds 'shape' twice"},
  };
  for (const auto& c : kCases) {
    const auto header = parse_header(c.file, c.file.size());
    ASSERT_FALSE(header) << c.file;
    EXPECT_TRUE(contains(header.error().message, c.expected)) << c.file;
  }
}

TEST(SafetensorsHeader, ReadsAllTypesOfTheFormat) {
  const std::pair<const char*, int> kBytesOfEight[] = {
      {"F32", 32},    {"F64", 64},    {"F16", 16},    {"BF16", 16},   {"I64", 64},
      {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
      {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"C64", 64},    {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
  };
  for (const auto& [dtype, bytes] : kBytesOfEight) {
    const std::string file =
        file_of(std::string(R"({"a":{"dtype":")") + dtype +
                    R"(","shape":[2,4],"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
                bytes);
    const auto header = parse_header(file, file.size());
    ASSERT_TRUE(header) << dtype << " " << header.error().message;
    EXPECT_EQ(element_size(dtype), bytes % 8 == 0 ? bytes / 8 : 0) << dtype;
  }
}

TEST(SafetensorsHeader, ReadsTypesThatAreNotKnownWhereTheirSizeFits) {
  const std::string file =
      file_of(R"({"a":{"dtype":"F8_E5M2FNUZ","shape":[2,3],"data_offsets":[0,6]},)"
              R"("b":{"dtype":"C128","shape":[2],"data_offsets":[6,38]},)"
              R"("c":{"dtype":"C128","shape":[0],"data_offsets":[38,38]}})",
              38);
  const auto header = parse_header(file, file.size());
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].dtype, "F8_E5M2FNUZ");
  EXPECT_EQ(header->tensors[1].end, 38u);
  EXPECT_EQ(element_size("C128"), 0u);
}

TEST(SafetensorsHeader, IsParsedInLinearTime) {
  const auto parse = [](int tensors) {
    std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
    for (int i = 0; i < tensors; ++i) {
      const std::string at = std::to_string(i);
      json += ",\"" + at + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + at + "," +
              std::to_string(i + 1) + "]}";
    }
    const std::string file = file_of(json + "}", tensors);
    ASSERT_TRUE(parse_header(file, file.size()));
  };
  EXPECT_LT(growth(5'000, parse), kLinearGrowth);
}

TEST(SafetensorsHeader, RejectsEveryTruncatedFile) {
  std::vector<TensorEntry> tensors = {{.name = "a", .dtype = "F32", .shape = {2}}};
  const std::string file = make_header(tensors, {}) + "12345678";
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(parse_header(file.substr(0, size), size)) << size;
  EXPECT_TRUE(parse_header(file, file.size()));
}

}  // namespace
}  // namespace torchbridge::train
