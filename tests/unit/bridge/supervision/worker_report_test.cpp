#include "bridge/supervision/worker_report.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "tests/support/growth.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

const system_clock::time_point kBegin{};

class ErrorRecordFile : public ::testing::Test {
 protected:
  std::optional<ErrorRecord> read(const std::string& content,
                                  system_clock::time_point not_before = kBegin) {
    folder_.write("error.json", content);
    return read_error_record(path_, not_before);
  }
  // MESSAGE | CALLSTACK
  std::string texts(const std::string& content) {
    const auto record = read(content);
    return record ? record->message + " | " + record->callstack : "-";
  }
  void set_time(std::time_t seconds, long nanoseconds) const {
    const timespec times[] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
    ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "error.json", other_ = folder_ / "other.json";
};

TEST_F(ErrorRecordFile, IsReadInAllItsForms) {
  const std::string brackets(1000, '[');
  const struct {
    std::string content, expected;
  } kCases[] = {
      {R"({"message": {"message": "A: b", "extraInfo": {"py_callstack": "line\n", "timestamp": "1"}}})",
       "A: b | line\n"},
      {R"({"message": {"message": "A: b", "extraInfo": {"timestamp": "1"}}})", "A: b | A: b"},
      {R"({"message": {"extraInfo": {"py_callstack": "line"}}})", "line | line"},
      {R"({"message": "A: b", "timestamp": 1})", "A: b | A: b"},
      {R"({"message": "A: b", "extraInfo": {"py_callstack": "line"}})", "A: b | line"},
      {R"({"message": "\u00e9\u0000", "errorTraits": {"category": "x"}})",
       std::string("é\0 | é\0", 9)},
      // What is of another form is the message itself.
      {"a reason\n", "a reason\n | a reason\n"},
      {"{}", "{} | {}"},
      {"null", "null | null"},
      {R"({"message": 3})", R"({"message": 3} | {"message": 3})"},
      {R"({"message": {"message": ["x"]}})",
       R"({"message": {"message": ["x"]}} | {"message": {"message": ["x"]}})"},
      {R"({"message": "cut)", R"({"message": "cut | {"message": "cut)"},
      {"\xff\xfe", "\xff\xfe | \xff\xfe"},
      {"{\"message\": \"\xff\"}", "{\"message\": \"\xff\"} | {\"message\": \"\xff\"}"},
      {brackets, brackets + " | " + brackets},
      {R"({"message": "deep", "rest": )" + brackets + std::string(1000, ']') + "}", "deep | deep"},
      {"", "-"},
  };
  for (const auto& test : kCases) EXPECT_EQ(texts(test.content), test.expected) << test.content;
}

TEST_F(ErrorRecordFile, IsReadUpToOneMebibyte) {
  const auto record = read(std::string(3 << 20, 'x'));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->message.size(), 1u << 20);
}

TEST_F(ErrorRecordFile, OfMoreThanOneMebibyteIsTheBeginningOfItsMessage) {
  const std::string megabyte(1 << 20, 'x');
  EXPECT_EQ(texts(R"({"message": {"message": "A: \"b\"\n", "extraInfo": {"py_callstack": ")" +
                  megabyte + R"("}}})"),
            "A: \"b\"\n... | A: \"b\"\n...");
  const std::string beginning = "A: " + std::string(4092, 'x') + "...";
  EXPECT_EQ(
      texts(R"({"message": "A: )" + std::string(4092, 'x') + R"(\u00e9)" + megabyte + R"("})"),
      beginning + " | " + beginning)
      << "without half of an escape";
  EXPECT_EQ(texts(R"({"other": ")" + megabyte).size(), 2 * (1u << 20) + 3);
}

TEST_F(ErrorRecordFile, HasTheTimeAtWhichItWasWritten) {
  ASSERT_TRUE(read("x"));
  set_time(1700000000, 123456789);
  const auto written = system_clock::time_point(std::chrono::nanoseconds(1700000000123456789));
  EXPECT_EQ(read_error_record(path_, kBegin)->time, written);
  // The kernel's clock ticks every 10 ms.
  EXPECT_TRUE(read_error_record(path_, written + milliseconds(9)));
  EXPECT_FALSE(read_error_record(path_, written + milliseconds(10)));
}

TEST_F(ErrorRecordFile, IsReadWhereTheWorkerFailsAtOnce) {
  for (int i = 0; i < 100; ++i) {
    const auto start = system_clock::now();
    ASSERT_TRUE(read("x", start)) << i;
  }
}

TEST_F(ErrorRecordFile, IsARegularFileOfItsOwn) {
  folder_.write("secret", "somebody else's");
  std::filesystem::create_symlink(folder_ / "secret", folder_ / "link");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "pipe", "missing", "", "secret/below"}) {
    EXPECT_FALSE(read_error_record(folder_ / name, kBegin)) << name;
  }
  EXPECT_FALSE(read_error_record("/dev/zero", kBegin));
}

TEST_F(ErrorRecordFile, IsReadInLinearTime) {
  const auto read_members = [&](int members) {
    std::string json = R"({"message": "A")";
    for (int i = 0; i < members; ++i) json += ",\"" + std::to_string(i) + "\":{}";
    EXPECT_EQ(texts(json + "}"), "A | A");
  };
  EXPECT_LT(growth(10'000, read_members), kLinearGrowth);
}

TEST_F(ErrorRecordFile, IsCopiedWithTheExitCode) {
  const struct {
    std::string content;
    int exit_code;
    std::string expected;  // the begin
  } kCases[] = {
      {R"({"message": {"message": "A", "extraInfo": {"timestamp": "1"}}})", 3,
       R"({"message":{"errorCode":3,"extraInfo":{"timestamp":"1"},"message":"A"}})"},
      {R"({"message": {"message": "\u00e9"}, "own": [1, 2]})", -11,
       R"({"message":{"errorCode":-11,"message":"\u00e9"},"own":[1,2]})"},
      {R"({"message": {"message": "A", "errorCode": 1}})", 0,
       R"({"message":{"errorCode":1,"message":"A"}})"},
      {R"({"message": "A", "timestamp": 1})", 3, R"({"message":"A","timestamp":1})"},
      {"no JSON\n", 3,
       R"({"message": {"message": "no JSON\n", "extraInfo": {"py_callstack": "no JSON\n", )"},
      {"{}", 3, R"({"message": {"message": "{}", )"},
      {R"({"message": "A", "rest": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
       3, R"({"message": {"message": "{\"message\": \"A\", \"rest\": [[[)"},
  };
  for (const auto& test : kCases) {
    folder_.write("error.json", test.content);
    folder_.write("other.json", std::string(1000, 'x'));
    const auto copied = copy_error_record(path_, other_, test.exit_code);
    EXPECT_TRUE(copied) << test.content;
    EXPECT_TRUE(folder_.read("other.json").starts_with(test.expected))
        << folder_.read("other.json");
    EXPECT_TRUE(folder_.read("other.json").ends_with("}")) << folder_.read("other.json");
  }
}

TEST_F(ErrorRecordFile, ThatCannotBeCopiedIsNamed) {
  folder_.write("error.json", "x");
  const std::string below_a_file = path_ + "/below";
  const struct {
    std::string from, to, expected;
  } kCases[] = {
      {other_, path_, "cannot read the error file '" + other_ + "': No such file or directory"},
      {folder_.path(), other_,
       "cannot read the error file '" + folder_.path().string() + "': it is not a regular file"},
      {path_, below_a_file, "cannot write the error file '" + below_a_file + "': Not a directory"},
  };
  for (const auto& test : kCases) {
    const auto copied = copy_error_record(test.from, test.to, 1);
    ASSERT_FALSE(copied) << test.expected;
    EXPECT_EQ(copied.error().message, test.expected);
  }
}

}  // namespace
}  // namespace torchbridge
