#include "spank_plugin/step_request.h"

#include <unistd.h>

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "bridge/core/agent_command.h"
#include "bridge/net/random_token.h"

namespace torchbridge {
namespace {

const std::string kToken(32, 'a');

constexpr const char* kReplaced[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "PET_NNODES"};

class StepRequestTest : public ::testing::Test {
 protected:
  StepRequestTest() { clear(); }
  ~StepRequestTest() override { clear(); }

  static void clear() {
    clear_outer_step();
    for (const char* name : kReplaced) unsetenv(name);
    for (const char* name : {kTokenVariable, kCarriedTokenVariable}) unsetenv(name);
  }
};

const MergedOptions kNoOptions;
const MergedOptions kOverride{.list = "override=yes", .options = {.override_user = true}};
const char* const kMark = "torch_env.so-is-not-loaded-on-this-node";

TEST_F(StepRequestTest, PassesListSecretAndPort) {
  EXPECT_FALSE(has_step_request());
  set_step_request({.list = "ranks=block,addr=n 1", .options = {}}, kToken, 20001);
  EXPECT_TRUE(has_step_request());
  EnvMap environment = EnvMap::from(environ);
  const auto request = StepRequest::from(environment);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->list, "ranks=block,addr=n 1");
  EXPECT_EQ(request->secret, kToken);
  EXPECT_EQ(listener_in(environment).port, 0);
  environment.set("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1");
  EXPECT_EQ(listener_in(environment).host, "10.0.0.1");
  EXPECT_EQ(listener_in(environment).port, 20001);
  EXPECT_EQ(listener_in(environment).key, report_key(kToken));
}

TEST_F(StepRequestTest, HasNoSecretWhereThatIsNoToken) {
  for (const char* value : {"6 1 - list", "6 1  list", "6 1 short list", "6 1 -", "6 1"}) {
    const EnvMap environment{{"SLURM_TORCH_ENV", value}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
    const auto request = StepRequest::from(environment);
    ASSERT_TRUE(request);
    EXPECT_EQ(request->secret, "") << value;
    EXPECT_EQ(listener_in(environment).port, 0) << "reports have no proof";
  }
}

TEST_F(StepRequestTest, HasNoPortWithoutAListener) {
  set_step_request(kNoOptions, "", 0);
  const auto request = StepRequest::from(EnvMap::from(environ));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->list, "");
  EXPECT_EQ(request->port, 0);
  EXPECT_FALSE(StepRequest::from({}));
}

TEST_F(StepRequestTest, AProgramWithoutThePluginFindsNoRank) {
  set_step_request(kNoOptions, "", 0);
  for (const char* name : kReplaced) EXPECT_STREQ(getenv(name), kMark) << name;
}

TEST_F(StepRequestTest, ExportedValuesStayUnlessOverridden) {
  setenv("WORLD_SIZE", "4", 1);
  set_step_request(kNoOptions, "", 0);
  EXPECT_STREQ(getenv("WORLD_SIZE"), "4");
  set_step_request(kOverride, "", 0);
  EXPECT_STREQ(getenv("WORLD_SIZE"), kMark);
}

TEST_F(StepRequestTest, ValuesOfAStepAroundThisOneAreNotTheUsers) {
  const char* const of_step[] = {"RANK", "MASTER_ADDR", "GROUP_RANK", "TORCHBRIDGE_LISTEN_FD",
                                 "TORCHBRIDGE_SET_BY"};
  setenv("PET_MAX_RESTARTS", "3", 1);
  for (const char* set_by : {"plugin slurm-5.0 ", "exec none ", "run none ", ""}) {
    for (const char* name : of_step) setenv(name, "1", 1);
    setenv("TORCHBRIDGE_SET_BY", set_by, 1);
    clear_outer_step();
    for (const char* name : of_step)
      EXPECT_EQ(getenv(name) != nullptr, *set_by == '\0') << set_by << name;
    EXPECT_STREQ(getenv("PET_MAX_RESTARTS"), "3");
  }
  for (const char* name : of_step) unsetenv(name);
  unsetenv("PET_MAX_RESTARTS");
}

TEST_F(StepRequestTest, PluginVariablesAreTheRequestAndTheMarks) {
  set_step_request(kNoOptions, "", 0);
  EnvMap given{{"GROUP_RANK", kMark}, {"SLURM_TORCH_ENV_STEP", "1 7.0 n0 0"}, {"OTHER", "3"}};
  const std::size_t count = static_cast<std::size_t>(std::distance(given.begin(), given.end()));
  for (const char* name : kReplaced) given.set(name, getenv(name));
  given.set("SLURM_TORCH_ENV", getenv("SLURM_TORCH_ENV"));
  const EnvMap rest = without_plugin_variables(given);
  EXPECT_EQ(static_cast<std::size_t>(std::distance(rest.begin(), rest.end())), count);
  for (const char* name : {"GROUP_RANK", "SLURM_TORCH_ENV_STEP", "OTHER"})
    EXPECT_TRUE(rest.has(name)) << name;
  EXPECT_EQ(without_plugin_variables({{"RANK", "3"}}).get("RANK"), "3");
}

// Slurm's --export keeps names that begin with SLURM_.
TEST_F(StepRequestTest, CarriesATokenThatExportRemoves) {
  carry_token();
  EXPECT_FALSE(EnvMap::from(environ).has(kCarriedTokenVariable));
  setenv(kTokenVariable, kToken.c_str(), 1);
  carry_token();
  const std::string carried = getenv(kCarriedTokenVariable);
  for (const char* name : {"SLURM_JOB_ID", "TORCHBRIDGE_RDZV_TOKEN"}) {
    const EnvMap rest = without_plugin_variables({{kCarriedTokenVariable, carried}, {name, ""}});
    EXPECT_EQ(rest.get("TORCHBRIDGE_RDZV_TOKEN"), kToken);
    EXPECT_FALSE(rest.has(kCarriedTokenVariable));
  }
  EXPECT_EQ(without_plugin_variables({{kCarriedTokenVariable, carried}, {kTokenVariable, "other"}})
                .get(kTokenVariable),
            "other");
}

// Requests of all versions have the listener's port.
TEST_F(StepRequestTest, AnotherVersionIsAnError) {
  for (const char* version : {"4", "99", "", "-2", "99999999999999999999", "%n%s"}) {
    const EnvMap environment = {
        {"SLURM_TORCH_ENV", std::string(version) + " 20001 " + kToken + " new=unknown"},
        {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};
    const auto options = requested_options({}, environment);
    ASSERT_FALSE(options) << version;
    EXPECT_NE(options.error().message.find(" and '" + std::string(version) +
                                           "' in srun: install the same torch_env.so on both"),
              std::string::npos)
        << options.error().message;
    EXPECT_EQ(listener_in(environment).port, 20001);
    EXPECT_EQ(listener_in(environment).key, report_key(kToken));
  }
}

TEST_F(StepRequestTest, AMalformedRequestHasNoListener) {
  for (const char* value : {"2", "2 ", "2 x", "2 70000 aaaa", "2 -1 aaaa", "2  "}) {
    EXPECT_EQ(
        listener_in({{"SLURM_TORCH_ENV", value}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}}).port, 0)
        << value;
  }
}

}  // namespace
}  // namespace torchbridge
