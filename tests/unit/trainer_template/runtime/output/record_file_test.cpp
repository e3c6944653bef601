#include "trainer_template/runtime/output/record_file.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>

#include <torchbridge/errors.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

// While it lives no file grows beyond the limit: like a full disk, in the middle of a record.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(RecordFile, HasWholeRecordsOnly) {
  TemporaryFolder folder;
  RecordFile file(folder / "curve", "--metrics");
  const std::string one = std::string(2000, '1') + "one\n";
  file.append(one);
  file.check_complete();
  {
    // Larger than the messages on stderr, which is a file too.
    const SizeLimit limit(one.size() + 2);
    testing::internal::CaptureStderr();
    file.append("two two\n");
    file.append("three\n");
    const std::string errors = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(errors,
                         "curve': File too large; training continues, and records are lost until "
                         "writing succeeds again\n"));
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
    EXPECT_EQ(folder.read("curve"), one);
    file.replace_end("e\n", "e and more\n");
    EXPECT_EQ(folder.read("curve"), one);
  }
  file.append("four\n");
  EXPECT_EQ(folder.read("curve"), one + "four\n");
  EXPECT_TRUE(contains(error_of([&] { file.check_complete(); }), "curve' is incomplete"));
}

TEST(RecordFile, WritesADescriptorOfThisProcessAtItsOwnPosition) {
  TemporaryFolder folder;
  const int file = open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(file, "one\n", 4), 4);
  RecordFile records("/dev/fd/" + std::to_string(file), "--metrics");
  records.append("two\n");
  ASSERT_EQ(write(file, "three\n", 6), 6);
  records.append("four\n");
  close(file);
  EXPECT_EQ(folder.read("out"), "one\ntwo\nthree\nfour\n");
}

TEST(RecordFile, AppendsToAnExistingFile) {
  TemporaryFolder folder;
  folder.write("curve", "before\n");
  RecordFile file(folder / "curve", "--metrics");
  file.replace_end("re\n", "re, and now\n");
  file.append("then\n");
  EXPECT_EQ(folder.read("curve"), "before, and now\nthen\n");
}

// As logrotate does with copytruncate: no bytes of 0 in front of what comes next.
TEST(RecordFile, GoesOnInAFileThatWasTruncated) {
  TemporaryFolder folder;
  folder.write("curve", "before\n");
  RecordFile file(folder / "curve", "--metrics");
  file.replace_end("re\n", "re, and now\n");
  for (const char* record : {"one\n", "two\n"}) {
    std::filesystem::resize_file(folder / "curve", 0);
    file.append(record);
    EXPECT_EQ(folder.read("curve"), record);
  }
  std::filesystem::resize_file(folder / "curve", 0);
  EXPECT_FALSE(file.replace_end("two\n", "two, and now\n"));
  file.append("three\n");
  EXPECT_EQ(folder.read("curve"), "three\n");
}

}  // namespace
}  // namespace torchbridge::train
