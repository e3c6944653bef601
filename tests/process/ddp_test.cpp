// Our DistributedDataParallel against Python's, option by option and model by model: the same bits.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

// The output of a rank by its cases (ddp_cases.cpp).
std::map<std::string, Words> by_case(const std::string& text) {
  std::map<std::string, Words> cases;
  Words* lines = nullptr;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("case ")) {
      lines = &cases[line.substr(5)];
    } else if (lines) {
      lines->push_back(line);
    }
  }
  return cases;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The first line that differs; empty when none does.
std::string difference(const Words& ours, const Words& pythons) {
  for (std::size_t i = 0; i < std::max(ours.size(), pythons.size()); ++i) {
    const std::string own = i < ours.size() ? ours[i] : "(nothing)",
                      other = i < pythons.size() ? pythons[i] : "(nothing)";
    if (own != other)
      return "line " + std::to_string(i + 1) + ": ours " + own + ", Python's " + other;
  }
  return {};
}

// Without the cases for a newer libtorch. Some world sizes of a case are for TORCHBRIDGE_COMPLETE=1
// only, to keep the tests short.
nlohmann::json read_table(const std::string& path) {
  nlohmann::json table = nlohmann::json::parse(std::ifstream(path)), kept = nlohmann::json::array();
  for (auto& c : table.at("cases")) {
    if (c.value("since", 0) > LIBTORCH_MINOR_VERSION) continue;
    if (getenv("TORCHBRIDGE_COMPLETE")) {
      for (int world_size : c.value("complete", std::vector<int>()))
        c["worlds"].push_back(world_size);
    }
    kept.push_back(std::move(c));
  }
  table["cases"] = std::move(kept);
  return table;
}

std::set<int> worlds_of(const nlohmann::json& table) {
  std::set<int> worlds;
  for (const auto& c : table.at("cases")) {
    for (int world_size : c.at("worlds")) worlds.insert(world_size);
  }
  return worlds;
}

void expect_pythons_bits(const std::string& table_name) {
  const nlohmann::json table = read_table(in_source("tests/reference/") + table_name);
  TemporaryFolder folder, output;
  folder.write("table.json", table.dump());
  const std::string file = folder / "table.json", path = folder.path();
  Process reference(
      {python(), "-W", "ignore", in_source("tests/reference/ddp_cases.py"), file, path}, {},
      output / "python");
  ASSERT_EQ(reference.wait(std::chrono::minutes(4)), 0) << reference.error();
  for (int world_size : worlds_of(table)) {
    Ranks ranks(world_size, {in_build("bin/ddp_cases"), file, path});
    ASSERT_EQ(ranks.wait(std::chrono::minutes(2)), std::vector<int>(world_size, 0))
        << ranks.errors();
    for (int rank = 0; rank < world_size; ++rank) {
      const auto expected =
          by_case(contents(folder / (std::to_string(world_size) + "." + std::to_string(rank))));
      auto ours = by_case(ranks.out(rank));
      EXPECT_GT(expected.size(), 0u);
      for (const auto& [name, lines] : expected) {
        EXPECT_GT(lines.size(), 5u) << name;
        EXPECT_EQ(difference(ours[name], lines), "")
            << name << ", rank " << rank << " of " << world_size;
      }
    }
  }
}

TEST(Ddp, EachOptionGivesPythonsBits) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  expect_pythons_bits("ddp_features.json");
}

TEST(Ddp, EachModelAndOptimizerGivesPythonsBits) {
  if (python().empty()) GTEST_SKIP() << "no .venv with torch: run scripts/setup";
  expect_pythons_bits("ddp_equality.json");
}

// Sizes of the ranks' batches; the expectations are in sync_batch_norm_cases.cpp.
TEST(SyncBatchNorm, EqualsBatchNormOverTheBatchesOfAllRanks) {
  for (const char* sizes : {"4,4", "5,2", "3,0,4", "1,1,1"}) {
    SCOPED_TRACE(sizes);
    const int world_size = static_cast<int>(std::count(sizes, sizes + strlen(sizes), ',')) + 1;
    Ranks ranks(world_size, {in_build("bin/sync_batch_norm_cases"), sizes});
    EXPECT_EQ(ranks.wait(), std::vector<int>(world_size, 0)) << ranks.errors();
    for (int rank = 0; rank < world_size; ++rank)
      EXPECT_EQ(lines_in(ranks.out(rank)), 10) << ranks.out(rank);
  }
}

TEST(Ddp, NamesTheParameterThatDiffersBetweenRanks) {
  Ranks ranks(3, {in_build("bin/sync_batch_norm_cases"), "other shape on rank 1"});
  EXPECT_EQ(ranks.wait(), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(ranks.errors().find("sync_batch_norm_cases: rank "), 0u) << ranks.errors();
  EXPECT_TRUE(contains(ranks.errors(),
                       "parameter 'weight' is Float [3, 2] on rank 0, but Float [4, 2] on rank 1"));
  EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
}

}  // namespace
