#include "bridge/core/launch_options.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(LaunchOptions, EmptyListKeepsTheBase) {
  LaunchOptions base;
  base.verbose = true;
  EXPECT_EQ(*parse_options("", base), base);
}

TEST(LaunchOptions, ReadsEveryKey) {
  const auto options = parse_options(
      "ranks=block,addr=suffix:-ib0,port=20000-20100,gpus=virtual,cpus=gpu,iface=ib0,omp=4,"
      "override=yes,verbose,"
      "explain,check,on_failure=30");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(*options, (LaunchOptions{.ranks = RankRule::kBlock,
                                     .addr = {AddressRule::Kind::kSuffix, "-ib0"},
                                     .port = {20000, 20100},
                                     .gpus = GpuRule::kVirtual,
                                     .cpus = CpuRule::kGpu,
                                     .iface = {InterfaceRule::Kind::kName, "ib0"},
                                     .omp = {OmpRule::Kind::kNumber, 4},
                                     .override_user = true,
                                     .verbose = true,
                                     .explain = true,
                                     .check = 10,
                                     .on_failure = 30}));
}

TEST(LaunchOptions, LaterEntriesWin) {
  const auto base = parse_options("ranks=block,verbose");
  const auto options = parse_options("ranks=slurm,port=1,port=auto,verbose=no", *base);
  ASSERT_TRUE(options);
  EXPECT_EQ(*options, LaunchOptions{});
}

TEST(LaunchOptions, TakesAddressesAndNames) {
  for (const char* host : {"node7.example.org", "10.0.0.1", "fd00::1"}) {
    const auto options = parse_options(std::string("addr=") + host);
    ASSERT_TRUE(options) << host;
    EXPECT_EQ(options->addr, (AddressRule{AddressRule::Kind::kHost, host}));
  }
}

TEST(LaunchOptions, TakesEveryDeviceRule) {
  const std::pair<const char*, GpuRule> kGpus[] = {
      {"auto", GpuRule::kAuto},       {"all", GpuRule::kAll},     {"virtual", GpuRule::kVirtual},
      {"closest", GpuRule::kClosest}, {"share", GpuRule::kShare}, {"none", GpuRule::kNone}};
  for (const auto& [name, rule] : kGpus)
    EXPECT_EQ(parse_options(std::string("gpus=") + name)->gpus, rule) << name;
  EXPECT_EQ(parse_options("cpus=keep")->cpus, CpuRule::kKeep);
  EXPECT_EQ(parse_options("cpus=gpu")->cpus, CpuRule::kGpu);
}

TEST(LaunchOptions, RejectsUnknownEntriesWithTheExpectedOnes) {
  const struct {
    std::string list;
    const char* part_of_message;
  } kCases[] = {
      {"rank=block", "unknown option 'rank': expected one of ranks, addr"},
      {"rank=block", "check, on_failure; did you mean 'ranks'?"},
      {"on-failure=3", "; did you mean 'on_failure'?"},
      {"ranks=cyclic", "option 'ranks=cyclic': expected ranks=slurm|block"},
      {"ranks", "option 'ranks' needs a value: ranks=slurm|block"},
      {"ranks=", "expected ranks=slurm|block"},
      {"port=0", "expected port="},
      {"port=65536", "expected port="},
      {"port=2-1", "expected port="},
      {"port=1-", "expected port="},
      {"port=-1", "expected port="},
      {"addr=", "expected addr="},
      {"addr=a b", "expected addr="},
      {"addr=$(id)", "expected addr="},
      {"addr=suffix:", "expected addr="},
      {"addr=iface:", "expected addr="},
      {"addr=iface:longer-than-linux-allows", "expected addr="},
      {"addr=iface:ib0/1", "expected addr="},
      {"addr=subnet:", "expected addr="},
      {"addr=subnet:10.1.0.0", "expected addr="},
      {"addr=subnet:10.1.0.0/33", "expected addr="},
      {"addr=" + std::string(254, 'a'), "expected addr="},
      {"gpus=some", "expected gpus=auto|all|virtual|closest|share|none"},
      {"gpus=2", "expected gpus="},
      {"cpus=all", "expected cpus=keep|gpu"},
      {"iface=", "expected iface="},
      {"iface=an-interface-too-long", "expected iface="},
      {"iface=a b", "expected iface="},
      {"omp=0", "expected omp="},
      {"omp=-4", "expected omp="},
      {"verbose=maybe", "expected verbose="},
      {"verbose,", "at the end of the list"},
      {",verbose", "an empty option"},
      {"verbose,,override=yes", "an empty option"},
      {"=x", "unknown option ''"},
      {"\x1b[31m", "unknown option '\\x1b[31m'"},
  };
  for (const auto& test : kCases) {
    const auto options = parse_options(test.list);
    ASSERT_FALSE(options) << test.list;
    EXPECT_NE(options.error().message.find(test.part_of_message), std::string::npos)
        << test.list << ": " << options.error().message;
  }
}

TEST(LaunchOptions, NoValueBreaksTheMessage) {
  const std::string kValues[] = {"",
                                 "-1",
                                 "99999999999999999999",
                                 "\xff\xfe",
                                 "a\nb\x1b[31m",
                                 "%n%s",
                                 std::string(100'000, 'x')};
  for (const std::string key : {"ranks", "addr", "port", "gpus", "cpus", "iface", "omp", "elastic",
                                "override", "verbose", "explain", "check", "on_failure"}) {
    for (const auto& value : kValues) {
      if ((key == "addr" || key == "iface") && (value == "-1" || value == kValues[2]))
        continue;  // a host may be called that
      const auto options = parse_options(key + "=" + value);
      ASSERT_FALSE(options) << key << "=" << value.substr(0, 40);
      const std::string& message = options.error().message;
      EXPECT_TRUE(message.starts_with("option '" + key + "=")) << message;
      EXPECT_LT(message.size(), 500u) << key;
      EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) {
        return c >= 0x20 && c < 0x7f;
      })) << message;
    }
  }
}

TEST(LaunchOptions, CheckIsAFlagOrSeconds) {
  EXPECT_EQ(parse_options("check=-1").error().message,
            "option 'check=-1': expected check=no|SECONDS|yes");
  EXPECT_EQ(parse_options("")->check, std::nullopt);
  EXPECT_EQ(parse_options("check")->check, 10);
  EXPECT_EQ(parse_options("check=600")->check, 600);
  EXPECT_EQ(parse_options("check=600,check=no")->check, 0);
}

TEST(LaunchOptions, OnFailureIsSecondsOrWait) {
  EXPECT_EQ(parse_options("on_failure=0").error().message,
            "option 'on_failure=0': expected on_failure=10|SECONDS|wait");
  EXPECT_EQ(parse_options("")->on_failure, 10);
  EXPECT_EQ(parse_options("on_failure=600")->on_failure, 600);
  EXPECT_EQ(parse_options("on_failure=600,on_failure=wait")->on_failure, std::nullopt);
}

TEST(LaunchOptions, ElasticIsYesOrNo) {
  EXPECT_TRUE(parse_options("")->elastic);
  EXPECT_FALSE(parse_options("elastic=no")->elastic);
  EXPECT_EQ(parse_options("elastic").error().message,
            "option 'elastic' needs a value: elastic=yes|no");
}

TEST(LaunchOptions, HelpNamesEveryKey) {
  const std::string help = options_help();
  for (const char* key :
       {"ranks=", "addr=", "port=", "gpus=", "cpus=", "iface=", "omp=", "elastic=", "override=",
        "verbose=", "explain=", "check=", "on_failure="}) {
    EXPECT_NE(help.find(key), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace torchbridge
