#include "bridge/core/exported_values.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

// Bytes that are no UTF-8, or no text: broken, overlong, a surrogate, beyond Unicode, C0 and C1
// controls.
const std::string kNoText[] = {"\xff\xfe",
                               "\x80",
                               "\xc3",
                               "\xc0\xaf",
                               "\xe0\x80\xaf",
                               "\xed\xa0\x80",
                               "\xf4\x90\x80\x80",
                               "\xf0\x80\x80\x80",
                               "a\nb",
                               "\x1b[31m",
                               "\x7f",
                               "\xc2\x85",
                               std::string(100'000, 'x')};
const char* const kText[] = {"ROLE_NAME",          "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE",
                             "PET_NNODES",         "PET_NPROC_PER_NODE",  "PET_RDZV_ID",
                             "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};
const char* const kTextOrEmpty[] = {"CUDA_VISIBLE_DEVICES", "PET_RDZV_ENDPOINT"};
const char* const kHosts[] = {"MASTER_ADDR", "PET_MASTER_ADDR"};
const char* const kNumbers[] = {"MASTER_PORT",
                                "PET_MASTER_PORT",
                                "PET_NODE_RANK",
                                "OMP_NUM_THREADS",
                                "SLURM_CPUS_PER_TASK",
                                "TORCHELASTIC_RESTART_COUNT",
                                "TORCHELASTIC_MAX_RESTARTS",
                                "TORCH_NCCL_ASYNC_ERROR_HANDLING"};

void expect_rejected(const std::string& name, const std::string& value) {
  const auto checked = check_exported({{name, value}}, false);
  ASSERT_FALSE(checked) << name << "=" << value.substr(0, 40);
  const std::string& message = checked.error().message;
  EXPECT_TRUE(message.starts_with(name + "='")) << message;
  EXPECT_LT(message.size(), 500u) << name;
  EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) {
    return c >= 0x20 && c < 0x7f;
  })) << message;
}

TEST(ExportedValues, AreAcceptedWhereTheyAreValid) {
  EXPECT_TRUE(check_exported({}, false));
  const EnvMap usual = {{"MASTER_ADDR", "fe80::1"},
                        {"MASTER_PORT", "29500"},
                        {"OMP_NUM_THREADS", "4,2"},
                        {"ROLE_NAME", "Läufer 🏃"},
                        {"TORCHELASTIC_RESTART_COUNT", "0"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"CUDA_VISIBLE_DEVICES", ""},
                        {"NCCL_SOCKET_IFNAME", "^docker,lo"},
                        {"PET_NNODES", "1:4"},
                        {"TORCHELASTIC_RUN_ID", "%n%s"}};
  const auto checked = check_exported(usual, false);
  EXPECT_TRUE(checked) << checked.error().message;
}

TEST(ExportedValues, ThatAreEmptyCountAsNotSet) {
  const EnvMap user = {{"OMP_NUM_THREADS", ""},     {"RANK", ""},          {"MASTER_ADDR", ""},
                       {"PET_LOG_DIR", ""},         {"ROLE_NAME", "mine"}, {"HOME", ""},
                       {"CUDA_VISIBLE_DEVICES", ""}};
  const auto names_of = [](const EnvMap& environment) {
    std::string names;
    for (const auto& [name, value] : environment) names += name + " ";
    return names;
  };
  const auto set = without_empty(user);
  EXPECT_EQ(names_of(set.environment), "CUDA_VISIBLE_DEVICES HOME ROLE_NAME ");
  EXPECT_EQ(set.note,
            "MASTER_ADDR, OMP_NUM_THREADS, PET_LOG_DIR, RANK: exported, but empty, which counts as "
            "not set");
  EXPECT_EQ(names_of(without_empty(user, /*is_by_hand=*/true).environment),
            "CUDA_VISIBLE_DEVICES HOME MASTER_ADDR RANK ROLE_NAME ");
  EXPECT_EQ(without_empty({{"RANK", "0"}}).note, "");
}

TEST(ExportedValues, AreRejectedWhereTheyAreInvalid) {
  for (const auto& value : kNoText) {
    for (const char* name : kText) expect_rejected(name, value);
    for (const char* name : kTextOrEmpty) expect_rejected(name, value);
    for (const char* name : kHosts) expect_rejected(name, value);
    for (const char* name : kNumbers) expect_rejected(name, value);
  }
  for (const char* value : {"", "-1", "99999999999999999999", "%n%s", "1 ", "0x1"}) {
    for (const char* name : kNumbers) expect_rejected(name, value);
  }
  for (const char* name : kText) expect_rejected(name, "");
  for (const char* name : kHosts) expect_rejected(name, "");
  for (const char* name : kHosts) expect_rejected(name, "%n%s");
  for (const char* value : {"", "true", "1"})
    expect_rejected("TORCHELASTIC_USE_AGENT_STORE", value);
  for (const char* value : {"1,", ",1", "0", "1,-1"}) expect_rejected("OMP_NUM_THREADS", value);
}

TEST(ExportedValues, ThatAreReplacedAreNotChecked) {
  EXPECT_TRUE(check_exported({{"MASTER_ADDR", "\xff"}, {"OMP_NUM_THREADS", ""}}, true));
  EXPECT_FALSE(check_exported({{"CUDA_VISIBLE_DEVICES", "\xff"}}, true));
}

}  // namespace
}  // namespace torchbridge
