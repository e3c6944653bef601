// What torchbridge-ckpt says where there is nothing to look at. python_resume_test.cpp has the rest of it.
#include <sys/stat.h>

#include "tests/process/ranks.h"

namespace {

namespace fs = std::filesystem;

class Ckpt : public ::testing::Test {
 protected:
  // It fails with one line, which says this.
  void expect_refusal(const Words& words, const std::string& expected) {
    Words command = {CKPT_PROGRAM};
    command.insert(command.end(), words.begin(), words.end());
    Process process(command, {}, folder_ / ("output-" + std::to_string(calls_++)));  // to which it appends
    EXPECT_EQ(process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(30)), 1) << words[0];
    EXPECT_TRUE(contains(process.out() + process.error(), expected));
    EXPECT_EQ(lines_in(process.out() + process.error()), 1) << process.out() << process.error();
  }

  TemporaryFolder folder_;
  int calls_ = 0;
};

TEST_F(Ckpt, ListSaysWhatItHasNotFound) {
  const std::string step = folder_ / "runs/step-00000003";
  fs::create_directories(step);
  fs::create_directory(folder_ / "empty");
  folder_.write("runs/step-00000003/manifest.json", "{}");
  folder_.write("runs/step-00000003/DONE", "");
  fs::create_symlink("step-00000003", folder_ / "runs/latest");
  const std::map<std::string, std::string> kCases = {
      {folder_ / "none", "none: no checkpoints can be looked for there: No such file or directory"},
      {step + "/DONE", "DONE: no checkpoints can be looked for there: Not a directory"},
      {folder_ / "empty",
       "empty holds no complete checkpoint, which is a folder step-00000001 or the like with a file DONE"},
      {step,
       "step-00000003 is one checkpoint: give the folder that it is in, or look at it with torchbridge-ckpt show"},
      {step + "/", "is one checkpoint: give the folder that it is in"},
      {folder_ / "runs/latest", "latest is one checkpoint: give the folder that it is in"},
  };
  for (const auto& [path, expected] : kCases) expect_refusal({"list", path}, expected);
}

TEST_F(Ckpt, ListShowsWhatWasPutAside) {
  fs::create_directories(folder_ / "runs/step-00000003.aside/more");
  folder_.write("runs/step-00000003.aside/model.safetensors", std::string(1500, 'x'));
  folder_.write("runs/step-00000003.aside/more/of-it", std::string(500, 'x'));
  fs::create_directory(folder_ / "runs/notes.aside");
  Process process({CKPT_PROGRAM, "list", folder_ / "runs"}, {}, folder_ / "output");
  EXPECT_EQ(process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(30)), 1)
      << "there is no checkpoint beside it";
  EXPECT_EQ(process.out(), "step-00000003.aside  put aside, 2.0 kB: yours to remove (rm -r)\n");
}

// Nobody ever writes into it.
TEST_F(Ckpt, APipeIsRefused) {
  for (const std::string name : {"pipe", "pipe.pt"}) {
    const std::string pipe = folder_ / name, expected = name + ": is not a regular file";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    expect_refusal({"verify", pipe}, expected);
    expect_refusal({"show", pipe}, expected);
    expect_refusal({"convert", pipe, folder_ / "new.safetensors"}, expected);
  }
}

}  // namespace
