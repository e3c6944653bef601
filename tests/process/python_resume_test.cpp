// C++ resumes a training of Python, and Python a training of C++. The losses equal those of the run
// that was never stopped.
#include <cstdlib>
#include <map>
#include <sstream>

#include "tests/support/converter.h"
#include "tests/support/paths.h"

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
      for (std::string loss; words >> loss;)
        curves[kind + " " + name].push_back(std::strtod(loss.c_str(), nullptr));
    }
    return curves;
  }
  // Every rank's curves.
  std::vector<Curves> run_ours(const std::string& mode) {
    Ranks ranks(kRanks, {in_build("bin/python_resume"), mode, folder_.path()},
                {{"OMP_NUM_THREADS", "1"}});
    EXPECT_EQ(ranks.wait(std::chrono::seconds(200)), std::vector<int>(kRanks, 0)) << ranks.errors();
    std::vector<Curves> all;
    for (int rank = 0; rank < kRanks; ++rank) all.push_back(curves_in(ranks.out(rank)));
    return all;
  }
  std::vector<Curves> run_python(const std::string& mode) {
    Process process({python(), in_source("tests/reference/python_resume.py"), mode, folder_.path()},
                    {}, folder_ / "python");
    EXPECT_EQ(process.wait(std::chrono::seconds(200)), 0) << process.error();
    std::vector<Curves> all;
    for (int rank = 0; rank < kRanks; ++rank)
      all.push_back(curves_in(folder_.read(mode + "." + std::to_string(rank))));
    return all;
  }
  // The output of torchbridge-ckpt, which must end with that exit code.
  std::string tool(const Words& words, int code = 0) {
    Words command = {in_build("bin/torchbridge-ckpt")};
    command.insert(command.end(), words.begin(), words.end());
    Process process(command, {}, folder_ / "tool");
    EXPECT_EQ(process.wait(std::chrono::seconds(30)), code) << process.error();
    return process.out() + process.error();
  }
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
  EXPECT_TRUE(contains(tool({"verify", folder_ / "from-python-adam"}), "3 files with"));
  EXPECT_TRUE(contains(tool({"show", folder_ / "from-python-adam/step-00000003"}),
                       "optimizer adam, group python of 5 parameters"));
  const std::string file = folder_ / "adam.pt",
                    expected =
                        "adam.pt is a file of torch.save: convert it by python -m "
                        "torchbridge.convert " +
                        file + " " + std::string(folder_ / "adam.safetensors");
  for (const char* command : {"verify", "show"})
    EXPECT_TRUE(contains(tool({command, file}, 1), expected));
  tool({"list", folder_.path()}, 1);
  std::string damaged = folder_.read(shard);
  damaged[damaged.size() - 1] ^= 1;
  folder_.write(shard, damaged);
  EXPECT_TRUE(
      contains(tool({"verify", runs}, 1),
               "optimizer-00001-of-00002.safetensors is damaged: its checksum differs (tensor '"));
  const std::string errors = converted(
      folder_, {"sgd-whole/step-00000003 adam.pt", "adam.pt other.pt", "adam.pt from-python-adam",
                "adamw.pt x", "adam-zero/step-00000003 damaged.pt"});
  for (const char* error :
       {"adam.pt exists: give another name, or remove it",
        "expected a .pt file and a new .safetensors file", "step-00000003 exists: give another",
        "adamw.pt: its optimizer has groups of 2, 3 parameters without names",
        "optimizer-00001-of-00002.safetensors is damaged: its size or checksum differs"}) {
    EXPECT_TRUE(contains(errors, error));
  }
  tool({"frobnicate"}, 2);
}

TEST_F(PythonResume, EachSideResumesFromTheOther) {
  const auto whole = run_python("write");
  const auto begun = run_ours("begin");
  Words conversions;
  for (const std::string kind : kKinds) {
    for (const std::string name : {"-whole", "-zero"})
      conversions.push_back(kind + name + "/step-00000003 " + kind + name + ".pt");
    conversions.push_back(kind + ".pt " + kind + ".safetensors");
    // Its two groups have no names.
    const std::string like = kind == "adamw" ? " --like adamw-whole/step-00000003" : "";
    conversions.push_back(kind + ".pt from-python-" + kind + like);
  }
  EXPECT_FALSE(contains(converted(folder_, conversions), "torchbridge.convert: "));
  const auto resumed = run_ours("resume");
  const auto theirs = run_python("read");
  look_at_checkpoints();
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const std::string kind : kKinds) {
      SCOPED_TRACE(kind + ", rank " + std::to_string(rank));
      const auto& expected = whole[rank].at(kind + " whole");
      ASSERT_EQ(expected.size(), kLast);
      EXPECT_EQ(begun[rank].at(kind + " whole"), expected);
      EXPECT_EQ(begun[rank].at(kind + " zero"), expected);
      for (const std::string name :
           {" from_python", " from_python_named_once", " from_python_zero"}) {
        EXPECT_EQ(resumed[rank].at(kind + name), after_saving(expected)) << name;
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
