#include "bridge/supervision/stream_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

// A relay from a pipe to a console that is a file, and to a log and a filter.
class Relay : public testing::Test {
 protected:
  Relay() {
    EXPECT_EQ(pipe(ends_), 0);
    for (const char* name : {"console", "log", "filtered"}) {
      files_.push_back(open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    }
  }
  ~Relay() override {
    close(files_[0]);
    close(files_[2]);
  }

  void start(LineStyle style, std::vector<std::string> filters = {}) {
    console_.emplace(files_[0]);
    relay_.emplace(Socket(ends_[0]), Socket(files_[1]), &*console_, style,
                   LineFilter{filters, files_[2]});
  }
  void put(const std::string& text) {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ASSERT_TRUE(relay_->carry());
    console_->flush();
  }
  void end() {
    close(ends_[1]);
    EXPECT_FALSE(relay_->carry());
    console_->flush();
  }
  std::string content(const char* name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TemporaryFolder folder_;
  int ends_[2];
  std::vector<int> files_;
  std::optional<ConsoleWriter> console_;
  std::optional<StreamRelay> relay_;
};

const LineStyle kPrefixed = {LogFormat::kPrefix, "[default0]:", 0, "stdout"};

TEST_F(Relay, PrintsWholeLinesAndLogsBytes) {
  start(kPrefixed);
  put("one\ntw");
  EXPECT_EQ(content("console"), "[default0]:one\n");
  put("o\nthree");
  EXPECT_EQ(content("console"), "[default0]:one\n[default0]:two\n");
  end();
  EXPECT_EQ(content("console"), "[default0]:one\n[default0]:two\n[default0]:three\n");
  EXPECT_EQ(content("log"), "one\ntwo\nthree");
}

TEST_F(Relay, PrintsEachStateOfAProgressBar) {
  start(kPrefixed);
  put("\r10%\r20%\r");
  put("\nend\r\n");
  end();
  EXPECT_EQ(content("console"), "[default0]:\n[default0]:10%\n[default0]:20%\n[default0]:end\n");
  EXPECT_EQ(content("log"), "\r10%\r20%\r\nend\r\n");
}

TEST_F(Relay, CopiesTheLinesThatAFilterNames) {
  start(kPrefixed, {"apple", "pear"});
  put("an apple\na plum\ntwo pears\n");
  end();
  EXPECT_EQ(content("filtered"), "[default0]:an apple\n[default0]:two pears\n");
}

TEST_F(Relay, PrintsJsonOfAnyBytes) {
  start({LogFormat::kJson, "", 3, "stderr"});
  put("a \"quote\" and \xff\n");
  end();
  const std::string line = content("console");
  EXPECT_EQ(line.find("{\"time\": "), 0u) << line;
  EXPECT_NE(line.find(R"("rank": 3, "stream": "stderr", "line": "a \"quote\" and )"),
            std::string::npos)
      << line;
}

TEST_F(Relay, KeepsManyLinesWhole) {
  start(kPrefixed);
  constexpr int kLines = 20000;
  std::string expected;
  for (int i = 0; i < kLines; ++i) {
    const std::string line =
        "line " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 100), '.');
    put(line + "\n");
    expected += "[default0]:" + line + "\n";
  }
  end();
  EXPECT_EQ(content("console"), expected);
}

}  // namespace
