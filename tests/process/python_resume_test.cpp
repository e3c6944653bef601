// C++ resumes a training of Python, and Python a training of C++. The losses equal those of the run that was never
// stopped.
#include <cstdlib>
#include <map>
#include <sstream>

#include "tests/support/ranks.h"

namespace {

using Curves = std::map<std::string, std::vector<double>>;  // "sgd whole"

constexpr const char* kKinds[] = {"sgd", "adam", "adamw"};
constexpr std::size_t kSaved = 3, kLast = 6;
constexpr int kRanks = 2;

class PythonResume : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  }

  static Curves curves_in(const std::string& text) {
    Curves curves;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string kind, name;
      words >> kind >> name;
      for (std::string loss; words >> loss;) curves[kind + " " + name].push_back(std::strtod(loss.c_str(), nullptr));
    }
    return curves;
  }
  // Every rank's curves.
  std::vector<Curves> run_ours() {
    Ranks ranks(kRanks, {PYTHON_RESUME, folder_.path()}, {{"OMP_NUM_THREADS", "1"}});
    EXPECT_EQ(ranks.wait(std::chrono::seconds(200)), std::vector<int>(kRanks, 0)) << ranks.errors();
    std::vector<Curves> all;
    for (int rank = 0; rank < kRanks; ++rank) all.push_back(curves_in(ranks.out(rank)));
    return all;
  }
  std::vector<Curves> run_python(const std::string& mode) {
    Process process({python(), SOURCE_DIR "/tests/reference/python_resume.py", mode, folder_.path()}, {},
                    folder_ / "python");
    EXPECT_EQ(process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(200)), 0) << process.error();
    std::vector<Curves> all;
    for (int rank = 0; rank < kRanks; ++rank) all.push_back(curves_in(folder_.read(mode + "." + std::to_string(rank))));
    return all;
  }
  // The output of torchbridge-ckpt, which must end with that exit code.
  std::string tool(const Words& words, int code = 0) {
    Words command = {CKPT_PROGRAM};
    command.insert(command.end(), words.begin(), words.end());
    Process process(command, {}, folder_ / "tool");
    EXPECT_EQ(process.wait(std::chrono::steady_clock::now() + std::chrono::seconds(30)), code) << process.error();
    return process.out() + process.error();
  }
  void convert(const std::string& from, const std::string& to) { tool({"convert", folder_ / from, folder_ / to}); }
  void look_at_checkpoints();
  static std::vector<double> after_saving(const std::vector<double>& whole) {
    return {whole.begin() + kSaved, whole.end()};
  }

  TemporaryFolder folder_;
};

void PythonResume::look_at_checkpoints() {
  const std::string runs = folder_ / "adam-zero", step = runs + "/step-00000003",
                    shard = "adam-zero/step-00000003/optimizer-00001-of-00002.safetensors";
  EXPECT_TRUE(contains(tool({"list", runs}), "step-00000003  epoch 0  0 samples  2 ranks"));
  EXPECT_TRUE(contains(tool({"verify", runs}), "5 files with"));
  EXPECT_TRUE(contains(tool({"show", step}), "optimizer adam, group "));
  EXPECT_TRUE(contains(tool({"show", folder_ / "adam.pt"}), "lm_head.weight  F32 [24, 8]"));
  EXPECT_TRUE(contains(tool({"verify", folder_ / "adam.pt"}), "all CRC-32 checksums match"));
  EXPECT_TRUE(contains(tool({"convert", folder_ / "sgd-whole/step-00000003", folder_ / "adam.pt"}, 1), "File exists"));
  EXPECT_TRUE(contains(tool({"convert", folder_ / "adam.pt", folder_ / "other.pt"}, 1), "convert reads"));
  EXPECT_TRUE(contains(
      tool({"convert", folder_ / "adamw.pt", folder_ / "x.safetensors", "--optimizer", folder_ / "y.safetensors"}, 1),
      "cannot be matched"));
  tool({"list", folder_.path()}, 1);
  std::string damaged = folder_.read(shard);
  damaged[damaged.size() - 1] ^= 1;
  folder_.write(shard, damaged);
  EXPECT_TRUE(contains(tool({"verify", runs}, 1),
                       "optimizer-00001-of-00002.safetensors is damaged: its checksum differs (tensor '"));
  EXPECT_TRUE(contains(tool({"convert", step, folder_ / "damaged.pt"}, 1), "is damaged"));
  tool({"frobnicate"}, 2);
}

TEST_F(PythonResume, EachSideResumesFromTheOther) {
  const auto whole = run_python("write");
  const auto ours = run_ours();
  for (const std::string kind : kKinds) {
    for (const std::string name : {"-whole", "-zero"}) convert(kind + name + "/step-00000003", kind + name + ".pt");
  }
  for (const std::string kind : {"sgd", "adam"}) {
    tool({"convert", folder_ / (kind + ".pt"), folder_ / (kind + ".safetensors"), "--optimizer",
          folder_ / (kind + "-state.safetensors")});
  }
  const auto theirs = run_python("read");
  look_at_checkpoints();
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const std::string kind : kKinds) {
      SCOPED_TRACE(kind + ", rank " + std::to_string(rank));
      const auto& expected = whole[rank].at(kind + " whole");
      ASSERT_EQ(expected.size(), kLast);
      EXPECT_EQ(ours[rank].at(kind + " whole"), expected);
      EXPECT_EQ(ours[rank].at(kind + " zero"), expected);
      for (const std::string name : {" from_python", " from_python_named_once", " from_python_zero"}) {
        EXPECT_EQ(ours[rank].at(kind + name), after_saving(expected)) << name;
      }
      for (const std::string name : {" from_ours", " converted_whole", " converted_zero"}) {
        EXPECT_EQ(theirs[rank].at(kind + name), after_saving(expected)) << name;
      }
      // The tensors that torch.distributed.checkpoint has read, each compared there.
      for (const std::string name : {" dcp_whole", " dcp_zero"})
        EXPECT_GE(theirs[rank].at(kind + name).at(0), 13) << name;
    }
  }
}

}  // namespace
