#include "bridge/worker/record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/child_ending.h"
#include "tests/support/sanitizer.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge {
namespace {

struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A child process that records its failures, and what it leaves.
class Record : public ::testing::Test {
 protected:
  // In a thread, as GoogleTest catches the exceptions of a test.
  std::string run_in_thread(const std::function<int()>& body) {
    return run([&] {
      std::thread([&] { _exit(record(body)); }).join();
      return 0;
    });
  }

  // Its stderr is in error(), its error file in file().
  std::string run(const std::function<int()>& body) {
    return ending_of_child([&] {
      dup2(open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
      _exit(body());
    });
  }

  bool has_file() const { return std::filesystem::exists(folder_ / "error.json"); }
  std::string file() const { return folder_.read("error.json"); }
  std::string error() const { return folder_.read("stderr"); }
  static std::string begin_of(const std::string& message) {
    return R"({"message": {"message": ")" + message;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "error.json";
};

TEST_F(Record, ReturnsWhatTheBodyReturns) {
  EXPECT_EQ(run([] { return record([] { return 3; }); }), exited(3));
  EXPECT_FALSE(has_file());
  EXPECT_EQ(error(), "");
}

TEST_F(Record, WritesAnExceptionAndEndsAsWithoutIt) {
  const std::string ending = run_in_thread([]() -> int { throw OwnError("no \"data\""); });
  EXPECT_EQ(ending, killed(SIGABRT));
  EXPECT_TRUE(
      file().starts_with(begin_of(R"(torchbridge::(anonymous namespace)::OwnError: no \"data\"")")))
      << file();
  EXPECT_TRUE(contains(error(), "what():  no \"data\""));  // libstdc++'s own lines
  EXPECT_FALSE(contains(error(), "error file")) << error();
}

TEST_F(Record, NamesTheTypeOfWhatIsNoStdException) {
  const struct {
    std::function<int()> body;
    const char* message;
  } kCases[] = {
      {[]() -> int { throw 3; }, "int"},
      {[]() -> int { throw std::string("a text"); }, "std::string: a text"},
      {[]() -> int { throw "a text"; }, "const char*: a text"},
      {[]() -> int { std::terminate(); }, "std::terminate was called without an exception"},
      {[]() -> int {
         return std::thread([] { throw std::out_of_range("of a thread"); }).join(), 0;
       },
       "std::out_of_range: of a thread"},
      {[]() -> int { return [&]() noexcept { return std::stoi("no number"); }(); },
       "std::invalid_argument: stoi"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(run_in_thread(test.body), killed(SIGABRT)) << test.message;
    EXPECT_TRUE(file().starts_with(begin_of(test.message) + "\", ")) << file();
  }
}

TEST_F(Record, HasTheStackThatThrew) {
  run_in_thread([]() -> int { return std::stoi("no number"); });
  // std::stoi throws by a function of libstdc++'s, whose name is known; it is the first.
  const auto begin = file().find(R"("py_callstack": "std::invalid_argument: stoi\n)");
  const auto thrower = file().find("(std::__throw_invalid_argument(char const*)+0x");
  ASSERT_NE(thrower, std::string::npos) << file();
  EXPECT_EQ(std::ranges::count(file().substr(begin, thrower - begin), '\\'), 1) << file();
}

TEST_F(Record, LeavesOutWhatAHandlerAroundItCatches) {
  const std::string ending = run([] {
    try {
      return record([]() -> int { throw OwnError("caught"); });
    } catch (const OwnError&) {
      return 4;
    }
  });
  EXPECT_EQ(ending, exited(4));
  EXPECT_FALSE(has_file());
}

volatile int deepest = -1;  // the compiler does not know that it is never reached
volatile std::uintptr_t unmapped = 16;

int overflow(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth == deepest ? 0 : overflow(depth + 1) + frame[0];
}

int touch_beyond_a_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  auto* page =
      static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  return page[0];
}

TEST_F(Record, WritesASignalAndEndsByIt) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer ends the process itself";
  const std::string beyond = folder_ / "empty";
  const struct {
    std::function<int()> body;
    int signal;
    const char* message;
  } kCases[] = {
      {[] { return *reinterpret_cast<volatile int*>(unmapped); }, SIGSEGV,
       "SIGSEGV: Segmentation fault at address 0x10\""},
      {[] { return overflow(0); }, SIGSEGV, "SIGSEGV: Segmentation fault at address 0x7"},
      {[&] { return touch_beyond_a_file(beyond); }, SIGBUS, "SIGBUS: Bus error at address 0x"},
      {[]() -> int { std::abort(); }, SIGABRT, "SIGABRT: Aborted\""},
      {[] { return raise(SIGFPE); }, SIGFPE, "SIGFPE: Floating point exception\""},
      {[] { return raise(SIGILL); }, SIGILL, "SIGILL: Illegal instruction\""},
      {[] { return std::thread([] { raise(SIGSEGV); }).join(), 0; }, SIGSEGV,
       "SIGSEGV: Segmentation fault\""},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(run([&] { return record(test.body); }), killed(test.signal)) << test.message;
    EXPECT_TRUE(file().starts_with(begin_of(test.message))) << file();
    EXPECT_TRUE(contains(file(), "(+0x")) << "no frames: " << file();
    EXPECT_TRUE(file().ends_with("\"}}}")) << file();
  }
}

TEST_F(Record, NamesTheSenderOfASignal) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer ends the process itself";
  const auto killed_by_child = []() -> int {
    if (fork() == 0) _exit(kill(getppid(), SIGSEGV));
    for (;;) pause();
  };
  EXPECT_EQ(run([&] { return record(killed_by_child); }), killed(SIGSEGV));
  EXPECT_TRUE(file().starts_with(begin_of("SIGSEGV: Segmentation fault, sent by process ")))
      << file();
}

TEST_F(Record, KeepsTheFirstFailure) {
  const auto fail_and_abort = []() -> int {
    record_error("ValueError: the cause", "its stack");
    record_error("ValueError: a consequence");
    std::abort();
  };
  EXPECT_EQ(run([&] { return record(fail_and_abort); }), killed(SIGABRT));
  EXPECT_TRUE(file().starts_with(
      begin_of(R"(ValueError: the cause", "extraInfo": {"py_callstack": "its stack",)")))
      << file();
}

TEST_F(Record, WritesOneOfManyFailuresAtOnce) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer ends the process itself";
  const auto crash_together = [] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([i] { raise(i % 2 == 0 ? SIGSEGV : SIGFPE); });
    for (auto& thread : threads) thread.join();
    return 0;
  };
  const std::string ending = run([&] { return record(crash_together); });
  EXPECT_TRUE(ending == killed(SIGSEGV) || ending == killed(SIGFPE)) << ending;
  EXPECT_TRUE(file().starts_with(begin_of("SIG")) && file().ends_with("\"}}}")) << file();
}

TEST_F(Record, RunsTheHandlersThatWereThere) {
  struct sigaction action {};
  action.sa_handler = [](int) { _exit(7); };
  const std::string ending = run([&] {
    sigaction(SIGSEGV, &action, nullptr);
    return record([] { return raise(SIGSEGV); });
  });
  EXPECT_EQ(ending, exited(7));
  EXPECT_TRUE(file().starts_with(begin_of("SIGSEGV: "))) << file();
}

TEST_F(Record, IsNotForForkedProcesses) {
  const auto fork_and_go_on = [] {
    return ending_of_child([] { raise(SIGFPE); }) == killed(SIGFPE) ? 5 : 6;
  };
  EXPECT_EQ(run([&] { return record(fork_and_go_on); }), kIsSanitized ? exited(6) : exited(5));
  EXPECT_FALSE(has_file());
}

TEST_F(Record, OverwritesAnOlderFile) {
  folder_.write("error.json", std::string(100'000, 'x'));
  run([] { return record([]() -> int { std::abort(); }); });
  EXPECT_TRUE(file().starts_with(begin_of("SIGABRT: Aborted"))) << file();
  EXPECT_TRUE(file().ends_with("\"}}}")) << file();
}

TEST_F(Record, WritesWhereNoDescriptorIsFree) {
  const auto fail_without_descriptors = []() -> int {
    constexpr rlimit kFew{64, 64};
    setrlimit(RLIMIT_NOFILE, &kFew);
    while (dup(STDERR_FILENO) >= 0) continue;
    throw OwnError("too many files");
  };
  EXPECT_EQ(run_in_thread(fail_without_descriptors), killed(SIGABRT));
  EXPECT_TRUE(contains(file(), "OwnError: too many files"));
}

TEST_F(Record, AFileThatCannotBeWrittenIsALineOnStderr) {
  path_ = folder_ / "missing/error.json";
  const std::string line =
      "cannot write the error file '" + path_ + "': No such file or directory\n";
  EXPECT_EQ(run([] { return record([]() -> int { std::abort(); }); }), killed(SIGABRT));
  EXPECT_TRUE(error().ends_with(": " + line)) << error();
  EXPECT_EQ(run_in_thread([]() -> int { throw OwnError("x"); }), killed(SIGABRT));
  EXPECT_TRUE(contains(error(), ": " + line + "terminate called after throwing"));
}

TEST_F(Record, DoesNothingWithoutAnErrorFile) {
  for (const char* value : {"", "unset"}) {
    const std::string ending = ending_of_child([&] {
      setenv("TORCHELASTIC_ERROR_FILE", value, 1);
      if (*value != '\0') unsetenv("TORCHELASTIC_ERROR_FILE");
      struct sigaction now {};
      _exit(record([&] {
        record_error("nobody reads this");
        sigaction(SIGSEGV, nullptr, &now);
        return kIsSanitized || now.sa_handler == SIG_DFL ? 8 : 9;
      }));
    });
    EXPECT_EQ(ending, exited(8)) << value;
  }
}

}  // namespace
}  // namespace torchbridge
