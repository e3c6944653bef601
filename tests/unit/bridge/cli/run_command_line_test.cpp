#include "bridge/cli/run_command_line.h"

#include <signal.h>

#include <algorithm>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "bridge/base/message_text.h"
#include "bridge/cli/command_line_end.h"
#include "bridge/cli/run_option_table.h"

namespace torchbridge {
namespace {

using Words = std::vector<std::string>;
using Check = std::function<bool(const RunOptions&)>;

// The error, or "" where there is none.
std::string complaint(const Words& words, const EnvMap& environment = {},
                      RunStyle style = RunStyle::kTorchrun) {
  try {
    parse_run_options(words, environment, style);
  } catch (const CommandLineEnd& end) {
    return end.exit_code == 0 ? "help" : end.text.substr(0, end.text.rfind(" (see "));
  }
  return "";
}

RunOptions parsed(Words words, const EnvMap& environment = {},
                  RunStyle style = RunStyle::kTorchrun) {
  try {
    return parse_run_options(words, environment, style);
  } catch (const CommandLineEnd& end) {
    ADD_FAILURE() << end.text;
    return {};
  }
}

// With a program after the options.
Words with_program(Words words) {
  words.push_back("train.py");
  return words;
}

WorkersPerNode workers(int count) { return {WorkersPerNode::Kind::kNumber, count}; }

TEST(RunCommandLine, WithoutOptionsHasTheDefaultsOfTheStruct) {
  const RunOptions options = parsed({"train.py"}), none;
  EXPECT_EQ(options.program, Words{"train.py"});
  EXPECT_EQ(options.signals_to_handle, (std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
  EXPECT_EQ(
      std::tie(options.min_nodes, options.max_nodes, options.nproc_per_node, options.rdzv_backend,
               options.rdzv_endpoint, options.rdzv_id, options.rdzv_conf, options.is_standalone),
      std::tie(none.min_nodes, none.max_nodes, none.nproc_per_node, none.rdzv_backend,
               none.rdzv_endpoint, none.rdzv_id, none.rdzv_conf, none.is_standalone));
  EXPECT_EQ(std::tie(options.node_rank, options.master_addr, options.master_port,
                     options.local_addr, options.program_kind, options.passes_local_rank,
                     options.role, options.has_virtual_local_rank, options.numa_binding),
            std::tie(none.node_rank, none.master_addr, none.master_port, none.local_addr,
                     none.program_kind, none.passes_local_rank, none.role,
                     none.has_virtual_local_rank, none.numa_binding));
  EXPECT_EQ(std::tie(options.max_restarts, options.restart_backoff, options.grace,
                     options.exit_barrier, options.health_check, options.health_check_interval,
                     options.uninterruptible_timeout),
            std::tie(none.max_restarts, none.restart_backoff, none.grace, none.exit_barrier,
                     none.health_check, none.health_check_interval, none.uninterruptible_timeout));
  EXPECT_EQ(std::tie(options.log_dir, options.redirects, options.tee, options.local_ranks_filter,
                     options.duplicate_stdout_filters, options.duplicate_stderr_filters,
                     options.log_format, options.json_summary),
            std::tie(none.log_dir, none.redirects, none.tee, none.local_ranks_filter,
                     none.duplicate_stdout_filters, none.duplicate_stderr_filters, none.log_format,
                     none.json_summary));
}

TEST(RunCommandLine, StoresEachOption) {
  using Program = RunOptions::Program;
  const std::pair<Words, Check> kCases[] = {
      {{"--nnodes", "4"}, [](auto& o) { return o.min_nodes == 4 && o.max_nodes == 4; }},
      {{"--nnodes=2:4"}, [](auto& o) { return o.min_nodes == 2 && o.max_nodes == 4; }},
      {{"--nproc-per-node", "8"}, [](auto& o) { return o.nproc_per_node == workers(8); }},
      {{"--nproc_per_node=gpu"},
       [](auto& o) { return o.nproc_per_node.kind == WorkersPerNode::Kind::kGpu; }},
      {{"--standalone"}, [](auto& o) { return o.is_standalone; }},
      {{"--rdzv-backend", "etcd-v2"},
       [](auto& o) { return o.rdzv_backend == RdzvBackend::kEtcdV2; }},
      {{"--active", "3"}, [](auto& o) { return o.active_nodes == 3; }},
      {{"--rdzv_endpoint", "n0:29400"},
       [](auto& o) {
         return o.rdzv_address == (Endpoint{"n0", 29400});
       }},
      {{"--rdzv-endpoint=[::1]"},
       [](auto& o) {
         return o.rdzv_address == (Endpoint{"::1", 0});
       }},
      {{"--rdzv-endpoint=[::1]:0"},
       [](auto& o) {
         return o.rdzv_address == (Endpoint{"::1", 0});
       }},
      {{"--rdzv-endpoint=/a b", "--rdzv-conf=store_type=file"},
       [](auto& o) { return o.rdzv_endpoint == "/a b"; }},
      {{"--rdzv-id", "job 7"}, [](auto& o) { return o.rdzv_id == "job 7"; }},
      {{"--rdzv-token-file", "/a b"}, [](auto& o) { return o.rdzv_token_file == "/a b"; }},
      {{"--rdzv-conf", " join_timeout = 5 ,is_host=True,etcd_prefix=a=b"},
       [](auto& o) {
         return o.rdzv_conf ==
                RendezvousConf{.join_timeout = 5, .is_host = true, .etcd_prefix = "a=b"};
       }},
      {{"--node-rank", "3"}, [](auto& o) { return o.node_rank == 3; }},
      {{"--master-addr", "n0"}, [](auto& o) { return o.master_addr == "n0"; }},
      {{"--master-port", "1"}, [](auto& o) { return o.master_port == 1; }},
      {{"--master-port", "0"}, [](auto& o) { return !o.master_port; }},
      {{"--local-addr", "10.0.0.1"}, [](auto& o) { return o.local_addr == "10.0.0.1"; }},
      {{"-m"}, [](auto& o) { return o.program_kind == Program::kModule; }},
      {{"--module"}, [](auto& o) { return o.program_kind == Program::kModule; }},
      {{"--no-python"}, [](auto& o) { return o.program_kind == Program::kNoPython; }},
      {{"--no_python", "--run_path", "-m"},
       [](auto& o) { return o.program_kind == Program::kRunPath; }},
      {{"--use-env"}, [](auto& o) { return !o.passes_local_rank; }},
      {{"--role", ""}, [](auto& o) { return o.role.empty(); }},
      {{"--role="}, [](auto& o) { return o.role.empty(); }},
      {{"--role=-x"}, [](auto& o) { return o.role == "-x"; }},
      {{"--role", "- x"}, [](auto& o) { return o.role == "- x"; }},
      {{"--role", "-1.5"}, [](auto& o) { return o.role == "-1.5"; }},
      {{"--role", "a=b"}, [](auto& o) { return o.role == "a=b"; }},
      {{"--virtual-local-rank"}, [](auto& o) { return o.has_virtual_local_rank; }},
      {{"--numa-binding", "node"}, [](auto& o) { return o.numa_binding == NumaMode::kNode; }},
      {{"--numa-binding=socket"}, [](auto& o) { return o.numa_binding == NumaMode::kSocket; }},
      {{"--numa_binding=exclusive"},
       [](auto& o) { return o.numa_binding == NumaMode::kExclusive; }},
      {{"--numa-binding=core-complex"},
       [](auto& o) { return o.numa_binding == NumaMode::kCoreComplex; }},
      {{"--start-method", "forkserver"}, [](auto& o) { return o.preload == Words{"torch"}; }},
      {{"--start-method", "fork", "--monitor-interval", "1e-3"},
       [](auto& o) { return o.preload.empty(); }},
      {{"--preload", "torch, a.b,\u00e9", "--start-method", "forkserver"},
       [](auto& o) {
         return o.preload == Words{"torch", "a.b", "\u00e9"};
       }},
      {{"--max-restarts", "3"}, [](auto& o) { return o.max_restarts == 3; }},
      {{"--restart-backoff", "0.5"}, [](auto& o) { return o.restart_backoff == 0.5; }},
      {{"--grace", "0"}, [](auto& o) { return o.grace == 0; }},
      {{"--shutdown-timeout", "2"}, [](auto& o) { return o.grace == 2; }},
      {{"--shutdown_timeout=3", "--grace=5"}, [](auto& o) { return o.grace == 3; }},
      {{"--exit-barrier", "7"}, [](auto& o) { return o.exit_barrier == 7; }},
      {{"--print-completion", "zsh"}, [](auto& o) { return o.print_completion == "zsh"; }},
      {{"--uninterruptible-timeout", "60"},
       [](auto& o) { return o.uninterruptible_timeout == 60; }},
      {{"--log-line-prefix-template", "${rank}: "},
       [](auto& o) { return o.log_line_prefix_template == "${rank}: "; }},
      {{"--health-check", "test -e f"}, [](auto& o) { return o.health_check == "test -e f"; }},
      {{"--health-check-interval", "2"}, [](auto& o) { return o.health_check_interval == 2; }},
      {{"--signals-to-handle", "USR1, SIGTERM,TERM"},
       [](auto& o) {
         return o.signals_to_handle == std::vector{SIGUSR1, SIGTERM};
       }},
      {{"--log-dir", "logs"}, [](auto& o) { return o.log_dir == "logs"; }},
      {{"-r3"},
       [](auto& o) {
         return o.redirects == StreamSelection{3, {}};
       }},
      {{"-r=3"}, [](auto& o) { return o.redirects.all == 3; }},
      {{"-mr3"},
       [](auto& o) { return o.redirects.all == 3 && o.program_kind == Program::kModule; }},
      {{"-t", "0:1,12:2"},
       [](auto& o) {
         return o.tee == StreamSelection{0, {{0, 1}, {12, 2}}};
       }},
      {{"--local-ranks-filter", "2, 0"},
       [](auto& o) {
         return o.local_ranks_filter == std::set<int>{0, 2};
       }},
      {{"--local-ranks-filter="}, [](auto& o) { return !o.local_ranks_filter; }},
      {{"--duplicate-stdout-filters", "a,b,,c,,,d"},
       [](auto& o) {
         return o.duplicate_stdout_filters == Words{"a", "b,c,", "d"};
       }},
      {{"--duplicate_stderr_filters="},
       [](auto& o) { return o.duplicate_stderr_filters == Words{""}; }},
      {{"--log-format", "json"}, [](auto& o) { return o.log_format == LogFormat::kJson; }},
      {{"--json-summary", "s.json"}, [](auto& o) { return o.json_summary == "s.json"; }},
      {{"--event-log-handler", "null"}, [](auto&) { return true; }},
      {{"--logs-specs", "default"}, [](auto&) { return true; }},
      // As Python's int() and float() take them.
      {{"--nproc-per-node", " 2"}, [](auto& o) { return o.nproc_per_node == workers(2); }},
      {{"--max-restarts= 3 "}, [](auto& o) { return o.max_restarts == 3; }},
      {{"--nnodes", " 1: 2 "}, [](auto& o) { return o.min_nodes == 1 && o.max_nodes == 2; }},
      {{"--master-port", " 80"}, [](auto& o) { return o.master_port == 80; }},
      {{"--grace", " 1.5"}, [](auto& o) { return o.grace == 1.5; }},
      {{"--rdzv-conf", "'timeout=5,mine=x'"},
       [](auto&
              o) { return o.rdzv_conf == RendezvousConf{.join_timeout = 5, .unread = {"'mine'"}}; }},
      {{"--rdzv-conf", "join_timeout=5,ssl_cert=a,timeout=6,cert=b"},
       [](auto& o) { return o.rdzv_conf == RendezvousConf{.join_timeout = 5, .ssl_cert = "a"}; }},
  };
  std::set<std::string> seen;
  for (const auto& [words, is_right] : kCases) {
    const RunOptions options = parsed(with_program(words));
    EXPECT_TRUE(is_right(options)) << joined(words, " ");
    EXPECT_EQ(options.program, Words{"train.py"}) << joined(words, " ");
    for (std::string word : words) {
      std::ranges::replace(word, '_', '-');
      seen.insert(word.substr(0, word.find('=')));
    }
  }
  for (const RunOption& option : run_options()) {
    const bool is_seen = seen.contains("--" + std::string(option.name)) ||
                         (option.letter && seen.contains(std::string("-") + option.letter));
    EXPECT_TRUE(is_seen) << option.name << " has no case";
  }
}

TEST(RunCommandLine, TheProgramIsPassedByteForByte) {
  const std::string all_bytes = [] {
    std::string text;
    for (int byte = 1; byte < 256; ++byte) text += static_cast<char>(byte);
    return text;
  }();
  const Words programs[] = {
      {"a.py", "--nnodes", "2", "-m", "--help", "--no-such-option"},
      {"a.py", "--", "a", "--"},
      {"a.py", "$$", "${local_rank}", "a b", "a\nb", "'", "\"", "\\", "[a,b]", "{}", "", "-", "%s"},
      {"a.py", std::string(100000, 'x'), all_bytes},
      {"-", "--nnodes"},
      {""},
  };
  for (const Words& program : programs) {
    Words words = {"--nnodes", "1"};
    words.insert(words.end(), program.begin(), program.end());
    EXPECT_EQ(parsed(words).program, program);
    words = {"--standalone", "--"};
    words.insert(words.end(), program.begin(), program.end());
    EXPECT_EQ(parsed(words).program, program);
  }
  EXPECT_EQ(parsed({"--", "--nnodes", "2"}).program, (Words{"--nnodes", "2"}));
  EXPECT_EQ(parsed({"--", "--", "a.py"}).program, (Words{"--", "a.py"}));
}

TEST(RunCommandLine, UniquePrefixesStandForOptions) {
  const std::pair<Words, Check> kCases[] = {
      {{"--nnode", "2"}, [](auto& o) { return o.max_nodes == 2; }},
      {{"--nproc=2"}, [](auto& o) { return o.nproc_per_node == workers(2); }},
      {{"--nproc_per", "2"}, [](auto& o) { return o.nproc_per_node == workers(2); }},
      {{"--stan"}, [](auto& o) { return o.is_standalone; }},
      // Options that torchrun does not have leave its abbreviations as they are.
      {{"--re", "3"}, [](auto& o) { return o.redirects.all == 3; }},
      {{"--v"}, [](auto& o) { return o.has_virtual_local_rank; }},
      {{"--gr", "3"}, [](auto& o) { return o.grace == 3; }},
      {{"--health-check-", "3"}, [](auto& o) { return o.health_check_interval == 3; }},
      {{"--health-check", "true"}, [](auto& o) { return o.health_check == "true"; }},
  };
  for (const auto& [words, is_right] : kCases) {
    EXPECT_TRUE(is_right(parsed(with_program(words)))) << joined(words, " ");
  }
  EXPECT_EQ(complaint({"--s", "fork", "train.py"}),
            "option '--s' is ambiguous: --standalone, --start-method, --shutdown-timeout, "
            "--signals-to-handle");
  EXPECT_EQ(complaint({"--log=x", "train.py"}),
            "option '--log' is ambiguous: --log-dir, --log-line-prefix-template, --logs-specs");
  EXPECT_EQ(complaint({"--health", "true", "train.py"}),
            "option '--health' is ambiguous: --health-check, --health-check-interval");
  for (const char* word : {"-h", "--help", "--he", "--h", "-mh"})
    EXPECT_EQ(complaint({word}), "help") << word;
}

TEST(RunCommandLine, OfRepeatedOptionsTheLastCounts) {
  EXPECT_EQ(parsed({"--role", "a", "--role=b", "--standalone", "--standalone", "x"}).role, "b");
  EXPECT_EQ(parsed({"-t", "3", "--tee", "1", "x"}).tee.all, kStdout);
}

TEST(RunCommandLine, VariablesAreDefaults) {
  struct Case {
    EnvMap environment;
    Words words;
    Check is_right;
  };
  const Case kCases[] = {
      {{{"PET_NNODES", "2:3"}}, {}, [](auto& o) { return o.min_nodes == 2 && o.max_nodes == 3; }},
      {{{"PET_NNODES", "2:3"}}, {"--nnodes", "5"}, [](auto& o) { return o.min_nodes == 5; }},
      {{{"PET_NNODES", "no number"}}, {"--nnodes", "5"}, [](auto& o) { return o.min_nodes == 5; }},
      {{{"PET_STANDALONE", "1"}}, {}, [](auto& o) { return o.is_standalone; }},
      {{{"PET_STANDALONE", " 1"}}, {}, [](auto& o) { return o.is_standalone; }},
      {{{"PET_STANDALONE", "0"}}, {}, [](auto& o) { return !o.is_standalone; }},
      {{{"PET_STANDALONE", "0"}}, {"--standalone"}, [](auto& o) { return o.is_standalone; }},
      {{{"PET_MODULE", "1"}},
       {},
       [](auto& o) { return o.program_kind == RunOptions::Program::kModule; }},
      {{{"PET_REDIRECTS", "3"}}, {"-r", "1"}, [](auto& o) { return o.redirects.all == 1; }},
      {{{"PET_LOG_DIR", ""}}, {}, [](auto& o) { return o.log_dir.empty(); }},
      {{{"PET_NUMA_BINDING", "node"}},
       {},
       [](auto& o) { return o.numa_binding == NumaMode::kNone; }},
      {{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}}, {}, [](auto& o) { return o.grace == 5; }},
      {{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}, {"PET_SHUTDOWN_TIMEOUT", "6"}},
       {},
       [](auto& o) { return o.grace == 6; }},
      {{{"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGUSR1"}},
       {},
       [](auto& o) { return o.signals_to_handle == std::vector{SIGUSR1}; }},
      {{{"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGUSR1"}, {"PET_SIGNALS_TO_HANDLE", "SIGUSR2"}},
       {},
       [](auto& o) { return o.signals_to_handle == std::vector{SIGUSR2}; }},
  };
  for (const Case& each : kCases) {
    EXPECT_TRUE(each.is_right(parsed(with_program(each.words), each.environment)))
        << each.environment.begin()->first << "=" << each.environment.begin()->second << " "
        << joined(each.words, " ");
  }
}

TEST(RunCommandLine, NamesTheVariableThatIsWrong) {
  for (const RunOption& option : run_options()) {
    if (option.variable.empty()) continue;
    EnvMap environment;
    environment.set(option.variable, "\x01");
    const std::string text = complaint({"train.py"}, environment);
    if (!text.empty()) {
      EXPECT_EQ(text.substr(0, text.find(':')), option.variable);
    }
    RunOptions options;
    if (text.empty()) {
      EXPECT_TRUE(option.store(options, "any text")) << option.name;
    }
  }
}

TEST(RunCommandLine, OfLaunchPassesTheLocalRankWithoutUseEnv) {
  EXPECT_TRUE(parsed({"a.py"}, {}, RunStyle::kTorchLaunch).passes_local_rank);
  EXPECT_FALSE(parsed({"--use_env", "a.py"}, {}, RunStyle::kTorchLaunch).passes_local_rank);
  EXPECT_FALSE(
      parsed({"--use-env", "--no-python", "a.py"}, {}, RunStyle::kTorchLaunch).passes_local_rank);
  EXPECT_EQ(complaint({"--no-python", "a"}, {}, RunStyle::kTorchLaunch),
            "--no-python: --local-rank=N is passed to scripts alone: give --use-env");
}

TEST(RunCommandLine, ReportsWhatIsWrong) {
  struct Case {
    Words words;
    std::string error;
  };
  const std::string kRange = ": expected the number of nodes, or MIN:MAX with 1 <= MIN <= MAX";
  const std::string kModules =
      ": expected names of Python modules with commas between them, as in torch,numpy";
  const std::string kStreams =
      ": expected 0 (no stream), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:NUMBER,...";
  const std::string kHost = ": expected HOST or HOST:PORT, with an IPv6 address in brackets";
  const std::string kHostAlone = ": expected a host name or an address, without a port";
  const Case kCases[] = {
      {{"--nnodes=0"}, "--nnodes: '0'" + kRange},
      {{"--nnodes", "3:2"}, "--nnodes: '3:2'" + kRange},
      {{"--nnodes", "1:2:3"}, "--nnodes: '1:2:3'" + kRange},
      {{"--nnodes", "2:"}, "--nnodes: '2:'" + kRange},
      {{"--nnodes="}, "--nnodes: ''" + kRange},
      {{"--nnodes"}, "--nnodes: 'train.py'" + kRange},
      {{"--nproc-per-node", "xpu"},
       "--nproc-per-node: 'xpu': xpu devices are not counted: give the number of workers"},
      {{"--nproc-per-node=cuda"},
       "--nproc-per-node: 'cuda': expected a number from 1, auto, cpu or gpu"},
      {{"--nproc-per-node=-1"},
       "--nproc-per-node: '-1': expected a number from 1, auto, cpu or gpu"},
      {{"--nproc-per-node=10000001"},
       "--nproc-per-node: '10000001': expected a number from 1, auto, cpu or gpu"},
      {{"--rdzv-backend", "etc"},
       "--rdzv-backend: 'etc': expected one of static, c10d, etcd, etcd-v2; did you mean 'etcd'?"},
      {{"--rdzv-endpoint", "a b"}, "--rdzv-endpoint: 'a b'" + kHost},
      {{"--rdzv-endpoint", "::1"}, "--rdzv-endpoint: '::1'" + kHost},
      {{"--rdzv-endpoint", "n0:"}, "--rdzv-endpoint: 'n0:'" + kHost},
      {{"--rdzv-endpoint", "n0:65536"}, "--rdzv-endpoint: 'n0:65536'" + kHost},
      {{"--rdzv-endpoint", ":1"}, "--rdzv-endpoint: ':1'" + kHost},
      {{"--rdzv-endpoint", "tcp://n0"}, "--rdzv-endpoint: 'tcp://n0'" + kHost},
      {{"--rdzv-endpoint", "[n0]"}, "--rdzv-endpoint: '[n0]'" + kHost},
      {{"--master-addr", "A B"}, "--master-addr: 'A B'" + kHostAlone},
      {{"--master-addr", "n0:29503"}, "--master-addr: 'n0:29503'" + kHostAlone},
      {{"--master-addr", "tcp://n0"}, "--master-addr: 'tcp://n0'" + kHostAlone},
      {{"--master-addr="}, "--master-addr: ''" + kHostAlone},
      {{"--local-addr", "n0:29503"}, "--local-addr: 'n0:29503'" + kHostAlone},
      {{"--rdzv-conf", "rank=0,"}, "--rdzv-conf: key '' has no value: expected KEY=VALUE,..."},
      {{"--rdzv-conf", "rank"}, "--rdzv-conf: key 'rank' has no value: expected KEY=VALUE,..."},
      {{"--rdzv-conf", "rank=-1"}, "--rdzv-conf: rank='-1': expected a whole number from 0"},
      {{"--rdzv-conf", "timeout=0"}, "--rdzv-conf: timeout='0': expected a whole number from 1"},
      {{"--rdzv-conf", "is_host=2"}, "--rdzv-conf: is_host='2': expected true or false"},
      {{"--node-rank", "-1"}, "--node-rank: '-1': expected a whole number from 0"},
      {{"--master-port", "65536"},
       "--master-port: '65536': expected a whole number from 0 to 65535"},
      {{"-m", "--no-python"},
       "--no-python: a module is run by Python: leave out --module or --no-python"},
      {{"--role", "--standalone"},
       "--role needs a value; one that begins with a dash is written --role=-VALUE"},
      {{"--role", "--"},
       "--role needs a value; one that begins with a dash is written --role=-VALUE"},
      {{"--standalone=1"}, "--standalone takes no value"},
      {{"--numa-binding", "Node"},
       "--numa-binding: 'Node': expected one of node, socket, exclusive, core-complex; did you "
       "mean 'node'?"},
      {{"--start-method", "thread"},
       "--start-method: 'thread': expected one of spawn, fork, forkserver"},
      {{"--monitor-interval", "fast"},
       "--monitor-interval: 'fast': expected a number of seconds from 0"},
      {{"--max-restarts", "1.5"}, "--max-restarts: '1.5': expected a whole number from 0"},
      {{"--grace", "nan"}, "--grace: 'nan': expected a number of seconds from 0"},
      {{"--grace="}, "--grace: '': expected a number of seconds from 0"},
      {{"--grace", "0x1"}, "--grace: '0x1': expected a number of seconds from 0"},
      {{"--grace", "1e"}, "--grace: '1e': expected a number of seconds from 0"},
      {{"--grace", "1e999"}, "--grace: '1e999': expected a number of seconds from 0"},
      {{"--grace", "inf"}, "--grace: 'inf': expected a number of seconds from 0"},
      {{"--grace", "5s"}, "--grace: '5s': expected a number of seconds from 0"},
      {{"--health-check-interval", "0"},
       "--health-check-interval: '0': expected a number of seconds above 0"},
      {{"--signals-to-handle", "SIGTERM,SIGUSR"},
       "--signals-to-handle: 'SIGUSR': expected names of signals; did you mean 'SIGUSR1'?"},
      {{"--signals-to-handle", "SIGTERM,"}, "--signals-to-handle: '': expected names of signals"},
      {{"--preload", "torch,,a"}, "--preload: 'torch,,a'" + kModules},
      {{"--preload", "a.py/b"}, "--preload: 'a.py/b'" + kModules},
      {{"--signals-to-handle", "KILL"},
       "--signals-to-handle: 'KILL': no program can handle it: leave it out"},
      {{"-r", "4"}, "--redirects: '4'" + kStreams},
      {{"-r4"}, "--redirects: '4'" + kStreams},
      {{"-t", "0:1,"}, "--tee: '0:1,'" + kStreams},
      {{"-t", "0:1,1"}, "--tee: '0:1,1'" + kStreams},
      {{"-t="}, "--tee: ''" + kStreams},
      {{"--local-ranks-filter", "0,"},
       "--local-ranks-filter: '0,': expected local ranks with commas between them, as in 0,1,2"},
      {{"--log-format", "xml"}, "--log-format: 'xml': expected one of prefix, json"},
      {{"--event-log-handler", "console"},
       "--event-log-handler: 'console': handlers of events are Python's, and no Python runs here: "
       "--log-format json "
       "and "
       "--json-summary FILE have the events"},
      {{"--logs-specs", "mine"},
       "--logs-specs: 'mine': an entry point of Python, and no Python runs here: --log-dir, "
       "--redirects and --tee set "
       "where logs go"},
      {{"--nodes", "1"}, "unknown option '--nodes'; did you mean '--nnodes'?"},
      {{"--num_processes=4"}, "unknown option '--num_processes'; did you mean '--nproc-per-node'?"},
      {{"-n", "4"}, "unknown option '-n'"},
      {{"-mx"}, "unknown option '-mx'"},
      {{"--=x"}, "unknown option '--'"},
      {{"--help=html"}, "--help: 'html': expected one of man, markdown, json"},
      {{"--print-completion", "ksh"},
       "--print-completion: 'ksh': expected one of bash, zsh, fish, tcsh; did you mean 'zsh'?"},
      {{"--shutdown-timeout", "-1"},
       "--shutdown-timeout: '-1': expected a number of seconds from 0"},
      {{"--rdzv-conf", "cas_backoff_max_seconds=inf"},
       "--rdzv-conf: cas_backoff_max_seconds='inf': expected a number of seconds from 0"},
  };
  for (const Case& each : kCases)
    EXPECT_EQ(complaint(with_program(each.words)), each.error) << joined(each.words, " ");
  EXPECT_EQ(complaint({"--tee"}), "--tee needs a value");
  for (const Words& words : {Words{}, Words{"--standalone"}, Words{"--"}}) {
    EXPECT_EQ(
        complaint(words),
        "expected a program after the options: torchbridge run [OPTIONS] PROGRAM [ARGUMENTS]");
  }
  EXPECT_EQ(complaint({"a"}, {{"PET_STANDALONE", ""}}), "") << "as not set";
  EXPECT_EQ(complaint({"a"}, {{"PET_STANDALONE", "x"}}), "PET_STANDALONE: 'x': expected 0 or 1");
  EXPECT_EQ(complaint({"a"}, {{"PET_NNODES", "x"}}), "PET_NNODES: 'x'" + kRange);
}

}  // namespace
}  // namespace torchbridge
