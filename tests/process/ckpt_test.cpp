// Errors of torchbridge-ckpt. python_resume_test.cpp tests its other commands.
#include <sys/stat.h>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

namespace fs = std::filesystem;

class Ckpt : public ::testing::Test {
 protected:
  // The command fails with one line, which contains `expected`.
  void expect_error(const Words& words, const std::string& expected) {
    Words command = {in_build("bin/torchbridge-ckpt")};
    command.insert(command.end(), words.begin(), words.end());
    // Process appends to its files.
    Process process(command, {}, folder_ / ("output-" + std::to_string(calls_++)));
    EXPECT_EQ(process.wait(std::chrono::seconds(30)), 1) << words[0];
    EXPECT_TRUE(contains(process.out() + process.error(), expected));
    EXPECT_EQ(lines_in(process.out() + process.error()), 1) << process.out() << process.error();
  }

  TemporaryFolder folder_;
  int calls_ = 0;
};

TEST_F(Ckpt, ListRejectsOtherPaths) {
  const std::string step = folder_ / "runs/step-00000003";
  fs::create_directories(step);
  fs::create_directory(folder_ / "empty");
  folder_.write("runs/step-00000003/manifest.json", "{}");
  folder_.write("runs/step-00000003/DONE", "");
  fs::create_symlink("step-00000003", folder_ / "runs/latest");
  const std::map<std::string, std::string> kCases = {
      {folder_ / "none", "none: cannot list checkpoints: No such file or directory"},
      {step + "/DONE", "DONE: cannot list checkpoints: Not a directory"},
      {folder_ / "empty",
       "empty contains no complete checkpoint (a folder such as step-00000001 with a file DONE)"},
      {step,
       "step-00000003 is a single checkpoint: give its parent folder, or use torchbridge-ckpt "
       "show"},
      {step + "/", "is a single checkpoint: give its parent folder"},
      {folder_ / "runs/latest", "latest is a single checkpoint: give its parent folder"},
  };
  for (const auto& [path, expected] : kCases) expect_error({"list", path}, expected);
}

TEST_F(Ckpt, ListShowsRenamedFolders) {
  fs::create_directories(folder_ / "runs/step-00000003.aside/more");
  folder_.write("runs/step-00000003.aside/model.safetensors", std::string(1500, 'x'));
  folder_.write("runs/step-00000003.aside/more/of-it", std::string(500, 'x'));
  fs::create_directory(folder_ / "runs/notes.aside");
  Process process({in_build("bin/torchbridge-ckpt"), "list", folder_ / "runs"}, {},
                  folder_ / "output");
  EXPECT_EQ(process.wait(std::chrono::seconds(30)), 1) << "there is no checkpoint beside it";
  EXPECT_EQ(process.out(),
            "step-00000003.aside  renamed by a later run, 2.0 kB: remove it with rm -r if you do "
            "not need it\n");
}

// Nothing writes to the pipe: opening it must not block.
TEST_F(Ckpt, RejectsAPipe) {
  const std::string pipe = folder_ / "pipe", expected = "pipe: is not a regular file";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_error({"verify", pipe}, expected);
  expect_error({"show", pipe}, expected);
}

std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return length + header + std::string(data_bytes, 'x');
}

TEST_F(Ckpt, ShowsAndVerifiesEveryTypeOfSafetensors) {
  folder_.write("a.safetensors",
                safetensors_file(R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},)"
                                 R"("b":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[3,5]},)"
                                 R"("c":{"dtype":"C64","shape":[1],"data_offsets":[5,13]},)"
                                 R"("d":{"dtype":"C128","shape":[1],"data_offsets":[13,29]}})",
                                 29));
  Process show({in_build("bin/torchbridge-ckpt"), "show", folder_ / "a.safetensors"}, {},
               folder_ / "shown");
  EXPECT_EQ(show.wait(std::chrono::seconds(30)), 0) << show.error();
  EXPECT_EQ(show.out(), "a  F4 [2, 3]\nb  F8_E4M3 [2]\nc  C64 [1]\nd  C128 [1]\n");
  Process verify({in_build("bin/torchbridge-ckpt"), "verify", folder_ / "a.safetensors"}, {},
                 folder_ / "verified");
  EXPECT_EQ(verify.wait(std::chrono::seconds(30)), 0) << verify.out();
  EXPECT_TRUE(contains(verify.out(), "4 tensors, format valid"));
}

TEST_F(Ckpt, ShowsHowARunBegan) {
  Ranks rank(
      1, trainer({"--max-steps", "1", "--checkpoint-dir", folder_ / "runs", "--resume", "none"}));
  expect_success(rank);
  Process show({in_build("bin/torchbridge-ckpt"), "show", folder_ / "runs/latest"}, {},
               folder_ / "shown");
  EXPECT_EQ(show.wait(std::chrono::seconds(30)), 0) << show.error();
  EXPECT_TRUE(contains(show.out(), "\nbegun by --resume none\n")) << show.out();
}

}  // namespace
