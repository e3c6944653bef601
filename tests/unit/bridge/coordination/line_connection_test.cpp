#include "bridge/coordination/line_connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <ctime>

#include <gtest/gtest.h>

using namespace torchbridge;

namespace {

using Lines = std::vector<std::string>;
constexpr std::size_t kLongest = 100;

class Connected : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    connection_ = LineConnection(Socket(ends[0]));
    peer_ = Socket(ends[1]);
  }
  void write(const std::string& text) {
    ASSERT_EQ(send(peer_.descriptor(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // What comes until nothing does.
  Lines all_lines(std::size_t longest = kLongest) {
    Lines all;
    for (;;) {
      const auto lines = connection_.receive(longest);
      if (!lines || lines->empty()) return all;
      all.insert(all.end(), lines->begin(), lines->end());
    }
  }

  LineConnection connection_;
  Socket peer_;
};

TEST_F(Connected, GivesWholeLinesInPieces) {
  write("a\nbc");
  EXPECT_EQ(all_lines(), Lines{"a"});
  EXPECT_EQ(connection_.unfinished(), "bc");
  write("d\n\ne");
  EXPECT_EQ(all_lines(), (Lines{"bcd", ""}));
  write("\n");
  peer_ = Socket();
  EXPECT_EQ(all_lines(), Lines{"e"});
  EXPECT_EQ(connection_.receive(kLongest).error().message, "closed its connection");
}

TEST_F(Connected, TakesNoLineThatIsTooLong) {
  write(std::string(kLongest, 'x') + "\n" + std::string(kLongest + 1, 'y') + "\n");
  EXPECT_EQ(all_lines(), Lines{std::string(kLongest, 'x')});
  EXPECT_EQ(connection_.receive(kLongest).error().message, "sent a line of more than 100 bytes");
  EXPECT_LE(connection_.unfinished().size(), kLongest + 1) << "no more of it is kept";
}

// A byte at a time costs no more behind a megabyte of the same line than at its begin.
TEST_F(Connected, SearchesWhatHasComeOnce) {
  constexpr std::size_t kLength = 1 << 20, kBytes = 10'000;
  const auto seconds_for_bytes = [&] {
    const std::clock_t begin = std::clock();
    for (std::size_t i = 0; i < kBytes; ++i) {
      write("x");
      EXPECT_TRUE(connection_.receive(2 * kLength)->empty());
    }
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  const double at_begin = seconds_for_bytes();
  for (std::size_t i = 0; i < kLength / 1024; ++i) {
    write(std::string(1024, 'x'));
    ASSERT_TRUE(connection_.receive(2 * kLength)->empty());
  }
  EXPECT_LT(seconds_for_bytes(), 3 * at_begin + 0.1);
}

TEST_F(Connected, KeepsABoundedTextForAPeerThatDoesNotRead) {
  const std::string line = std::string(kMostUnsent / 4 - 1, 'x') + "\n";
  for (int i = 0; i < 4; ++i) connection_.send(line);
  EXPECT_TRUE(connection_.receive(kLongest));
  connection_.send(line);
  connection_.send(line);
  EXPECT_EQ(connection_.receive(kLongest).error().message, "does not read what is sent to it");
}

TEST_F(Connected, SendsAllToAPeerThatReadsSlowly) {
  std::string text(4'000'000, 'x'), got;
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  text += '\n';
  connection_.send(text);
  std::string buffer(10'000, 0);
  while (got.size() < text.size()) {
    connection_.flush();
    const ssize_t size = read(peer_.descriptor(), buffer.data(), buffer.size());
    ASSERT_GT(size, 0);
    got.append(buffer.data(), static_cast<std::size_t>(size));
  }
  EXPECT_EQ(got, text);
  EXPECT_FALSE(connection_.has_unsent());
}

}  // namespace
