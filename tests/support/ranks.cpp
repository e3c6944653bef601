#include "tests/support/ranks.h"

#include <algorithm>
#include <csignal>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"

Ranks::Ranks(int world_size, const Words& command, const Variables& more) {
  port_ = free_port();
  std::vector<int> ranks(world_size);
  for (int i = 0; i < world_size; ++i) ranks[i] = i;
  start(ranks, world_size, command, more);
}

Ranks::Ranks(const std::vector<int>& ranks, int world_size, int port, const Words& command,
             const Variables& more)
    : port_(port) {
  start(ranks, world_size, command, more);
}

void Ranks::start(const std::vector<int>& ranks, int world_size, const Words& command,
                  const Variables& more) {
  for (int rank : ranks) {
    Variables variables = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(world_size)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port_)},
                           {"OMP_NUM_THREADS", "1"}};
    for (const auto& [name, value] : more) variables[name] = value;
    std::erase_if(variables, [](const auto& variable) { return variable.second == "unset"; });
    processes_.emplace_back(command, variables, folder_ / std::to_string(processes_.size()));
  }
}

std::vector<int> Ranks::wait(std::chrono::milliseconds time) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  time *= 4;  // programs with a sanitizer are that much slower
#endif
  // One limit for all, in machine time.
  (void)eventually([&] { return std::ranges::all_of(processes_, &Process::ended); }, time);
  std::vector<int> codes;
  for (Process& process : processes_) codes.push_back(process.wait(std::chrono::seconds(0)));
  return codes;
}

void Ranks::kill_rank(std::size_t index, int signal) { processes_[index].signal(signal); }

std::string Ranks::errors() const {
  std::string text;
  for (const Process& process : processes_) text += process.error();
  return text;
}

void expect_success(Ranks& ranks) {
  for (int code : ranks.wait()) EXPECT_EQ(code, 0) << ranks.errors();
}

void expect_error(Ranks& ranks, const std::string& expected) {
  for (int code : ranks.wait(std::chrono::seconds(20))) {
    EXPECT_NE(code, 0);
    EXPECT_NE(code, -1) << "hung";
    EXPECT_LT(code, 128) << "died by a signal";
  }
  EXPECT_TRUE(contains(ranks.errors(), expected));
}

void expect_one_line(Ranks& ranks, const std::string& expected) {
  expect_error(ranks, expected);
  EXPECT_EQ(lines_in(ranks.errors()), 1) << ranks.errors();
}

Words trainer(const Words& options) {
  Words command = {in_build("bin/trainer"), "--quiet"};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

std::vector<double> losses(const std::filesystem::path& metrics) {
  std::vector<double> values;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    values.push_back(record.at("loss"));
    EXPECT_EQ(record.at("step").get<std::size_t>(), values.size()) << metrics;
  }
  return values;
}

int lines_in(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}
