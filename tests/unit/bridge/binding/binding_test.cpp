#include "bridge/binding/binding.h"

#include <gtest/gtest.h>

#include "tests/support/recorded_environment.h"

namespace torchbridge {
namespace {

using Variables = std::vector<Variable>;
using Cells = std::vector<std::string>;

constexpr const char* kRules[] = {"gpus=auto",    "gpus=all",   "gpus=virtual",
                                  "gpus=closest", "gpus=share", "gpus=none"};

Result<Binding> bound(const EnvMap& environment, const std::string& options, int rank = 1,
                      int tasks = 2, const Machine& machine = {}) {
  const Layout layout{
      .rank = rank, .world_size = tasks, .local_rank = rank, .local_world_size = tasks};
  return binding_of(environment, layout,
                    *parse_options("omp=keep" + std::string(options.empty() ? "" : ",") + options),
                    machine);
}

std::string value_of(const Binding& binding, std::string_view name) {
  for (const auto& [set, value] : binding.variables) {
    if (set == name) return value;
  }
  return "-";
}

// What each task of a node is given as CUDA_VISIBLE_DEVICES, "-" where it keeps its own; an error
// as its message.
Cells devices(const std::vector<EnvMap>& environments, const std::string& options,
              const Machine& machine = {}) {
  Cells cells;
  for (std::size_t rank = 0; rank < environments.size(); ++rank) {
    const auto binding = bound(environments[rank], options, static_cast<int>(rank),
                               static_cast<int>(environments.size()), machine);
    cells.push_back(binding ? value_of(*binding, "CUDA_VISIBLE_DEVICES") : binding.error().message);
  }
  return cells;
}

// The environments of a node's tasks, as Slurm 22.05 was seen to set them: SLURM_STEP_GPUS is as
// CUDA_VISIBLE_DEVICES.
std::vector<EnvMap> tasks_seeing(const Cells& visible, const char* on_node,
                                 const char* job_gpus = nullptr) {
  std::vector<EnvMap> environments;
  for (const auto& names : visible) {
    EnvMap environment = {{"SLURM_JOB_ID", "7"}};
    if (on_node != nullptr) environment.set("SLURM_GPUS_ON_NODE", on_node);
    if (job_gpus != nullptr) environment.set("SLURM_JOB_GPUS", job_gpus);
    if (names != "unset") {
      environment.set("CUDA_VISIBLE_DEVICES", names);
      environment.set("SLURM_STEP_GPUS", names);
    }
    environments.push_back(environment);
  }
  return environments;
}

Machine machine_with(unsigned gpus, unsigned hidden = 0) {
  Machine machine;
  for (unsigned bus = 0; bus < gpus; ++bus) {
    Gpu gpu;
    gpu.address.bus = bus;
    gpu.uuid = "GPU-" + std::to_string(bus);
    gpu.usable = bus >= hidden;
    machine.topology.gpus.push_back(gpu);
  }
  return machine;
}

TEST(Binding, LeavesTasksWithoutGpusAlone) {
  const EnvMap environments[] = {
      {},
      {{"CUDA_VISIBLE_DEVICES", ""}},
      {{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}},
      {{"CUDA_VISIBLE_DEVICES", "-1"}},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_GPUS_ON_NODE", "0"}},
      {{"SLURM_JOB_ID", "7"}, {"CUDA_VISIBLE_DEVICES", ""}, {"SLURM_GPUS_ON_NODE", "0"}},
  };
  for (const auto& environment : environments) {
    for (const char* rule : kRules) {
      const auto binding = bound(environment, std::string(rule) + ",cpus=gpu", 1, 64);
      ASSERT_TRUE(binding) << rule << ": " << binding.error().message;
      EXPECT_EQ(binding->variables, Variables{}) << rule;
      EXPECT_EQ(binding->cpus, CpuSet{}) << rule;
      EXPECT_EQ(binding->memory_node, -1) << rule;
      EXPECT_EQ(binding->note, "") << rule;
    }
  }
}

TEST(Binding, AJobWithoutGpusDoesNotGetTheMachines) {
  for (const char* rule : kRules) {
    const auto binding =
        bound({{"SLURM_JOB_ID", "7"}}, std::string(rule) + ",cpus=gpu", 1, 64, machine_with(4));
    ASSERT_TRUE(binding) << rule << ": " << binding.error().message;
    EXPECT_EQ(binding->variables, Variables{}) << rule;
  }
}

TEST(Binding, NamesNoRuleThatIsNotAsked) {
  const auto binding =
      bound({{"CUDA_VISIBLE_DEVICES", "0,0"}, {"SLURM_GPUS_ON_NODE", "x"}}, "gpus=none");
  ASSERT_TRUE(binding);
  EXPECT_EQ(binding->variables, Variables{});
}

TEST(Binding, AutoKeepsWhatIsCoherent) {
  const std::vector<EnvMap> kCases[] = {
      tasks_seeing({"0,1", "0,1"}, "2"),          // --gres=gpu:2
      tasks_seeing({"0, 1", " 0,1 "}, "2"),       // blanks, which CUDA drops
      tasks_seeing({"0,1,2,3", "0,1,2,3"}, "4"),  // more than tasks
      tasks_seeing({"0,1", "2,3"}, "4"),          // --gpus-per-task=2
      tasks_seeing({"unset", "unset"}, "2"),      // --gpu-bind=none
      tasks_seeing({"MIG-a,MIG-b", "MIG-a,MIG-b"}, "2"),
      {EnvMap{{"CUDA_VISIBLE_DEVICES", "1,0"}}, EnvMap{{"CUDA_VISIBLE_DEVICES", "1,0"}}},
  };
  for (const auto& environments : kCases) {
    EXPECT_EQ(devices(environments, "gpus=auto"), (Cells{"-", "-"}));
    EXPECT_EQ(bound(environments[1], "gpus=auto")->note, "");
  }
}

TEST(Binding, AutoNotesThatLocalRankIsNoIndex) {
  const struct {
    std::vector<EnvMap> environments;
    const char* note;
  } kCases[] = {
      {tasks_seeing({"0", "1"}, "2"),
       "2 tasks on this node, and each sees 1 GPU: programs that use the GPU of number LOCAL_RANK "
       "will not find it; see gpus=virtual and gpus=all"},
      {tasks_seeing({"0", "1"}, nullptr), "2 tasks on this node, and each sees 1 GPU:"},
      {tasks_seeing({"0,1", "2,3", "4,5", "6,7"}, "8"),
       "4 tasks on this node, and each sees 2 GPUs:"},
      {tasks_seeing({"0,1", "2,3", "0,1", "2,3"}, "4"),
       "4 tasks on this node, and each sees 2 GPUs:"},  // mask_gpu
  };
  for (const auto& test : kCases) {
    const int tasks = static_cast<int>(test.environments.size());
    const auto binding = bound(test.environments[1], "gpus=auto", 1, tasks);
    ASSERT_TRUE(binding) << test.note;
    EXPECT_EQ(binding->variables, Variables{}) << test.note;
    EXPECT_TRUE(binding->note.starts_with(test.note)) << binding->note;
  }
}

TEST(Binding, RejectsMoreTasksThanGpusUnlessTheyShare) {
  const std::vector<EnvMap> kCases[] = {
      tasks_seeing({"0", "0"}, "1"),                 // --gres=gpu:1
      tasks_seeing({"0,1", "0,1", "0,1"}, "2"),      // --gres=gpu:2
      tasks_seeing({"0", "0", "1", "1"}, "2"),       // --ntasks-per-gpu=2
      tasks_seeing({"unset", "unset"}, "1"),         // --gpu-bind=none
      tasks_seeing({"0,1", "0,1", "0,1"}, nullptr),  // exported, under another launcher
  };
  for (const auto& environments : kCases) {
    const int tasks = static_cast<int>(environments.size());
    for (const char* rule : {"gpus=all", "gpus=virtual", "gpus=closest"}) {
      const auto binding = bound(environments[1], rule, 1, tasks);
      ASSERT_FALSE(binding) << rule;
      EXPECT_TRUE(binding.error().message.starts_with(
          std::string(rule) + ": " + std::to_string(tasks) + " tasks on this node for "))
          << binding.error().message;
      EXPECT_NE(binding.error().message.find("gpus=share"), std::string::npos);
    }
    EXPECT_EQ(bound(environments[1], "gpus=none", 1, tasks)->note, "");
    EXPECT_EQ(bound(environments[1], "gpus=share", 1, tasks)->note, "");
    const auto automatic = bound(environments[1], "gpus=auto", 1, tasks);
    ASSERT_TRUE(automatic);
    EXPECT_EQ(automatic->variables, Variables{});
    EXPECT_TRUE(automatic->note.starts_with(std::to_string(tasks) + " tasks on this node for "))
        << automatic->note;
  }
  const std::string advice =
      "give gpus=share if several may use one, or gpus=none if the program uses none";
  const auto environment = tasks_seeing({"0", "0"}, "1")[0];
  EXPECT_EQ(bound(environment, "gpus=virtual").error().message,
            "gpus=virtual: 2 tasks on this node for 1 GPU: ask for one GPU a task, " + advice);
  EXPECT_EQ(bound(environment, "gpus=auto")->note,
            "2 tasks on this node for 1 GPU: some have no GPU of number LOCAL_RANK; " + advice);
}

TEST(Binding, AcceptsFewerGpusThanTasksWithoutARule) {
  // mpirun -np 4 on a workstation.
  const auto binding = bound({}, "gpus=auto,cpus=gpu", 1, 4, machine_with(1));
  ASSERT_TRUE(binding) << binding.error().message;
  EXPECT_FALSE(bound({}, "gpus=virtual", 1, 4, machine_with(1)));
}

TEST(Binding, NotesThatACgroupHidesTheGpusOfPeers) {
  const std::string note =
      "2 tasks on this node, and each may open 1 of the step's 2 GPUs: NCCL's peer-to-peer access "
      "fails "
      "(NVIDIA/nccl#1948); ask for them with --gpus-per-node=2 --gpu-bind=none";
  // --gpus-per-task=1: each counts from 0 within its cgroup.
  const auto own = tasks_seeing({"0", "0"}, "2");
  for (const char* rule : {"gpus=auto", "gpus=virtual", "gpus=closest"}) {
    EXPECT_EQ(bound(own[0], rule, 0, 2, machine_with(4, 3))->note, note) << rule;
  }
  EXPECT_EQ(bound(own[0], "gpus=none", 0, 2, machine_with(4, 3))->note, "");
  // All of the machine's GPUs, or of the step's; an unknown machine; two MIG devices of one GPU;
  // one task.
  const auto whole = tasks_seeing({"0,1", "0,1"}, "2");
  EXPECT_EQ(bound(whole[0], "gpus=auto", 0, 2, machine_with(4, 2))->note, "");
  for (const auto& machine :
       {machine_with(4), machine_with(4, 2), machine_with(0), machine_with(1)}) {
    EXPECT_EQ(bound(own[0], "gpus=auto", 0, 2, machine)->note.find("NCCL"), std::string::npos);
  }
  EXPECT_EQ(bound(tasks_seeing({"0"}, "2")[0], "gpus=auto", 0, 1, machine_with(4, 3))->note, "");
}

TEST(Binding, ReadsTheMachineForANoteWhereRank0SeesAPartOfTheNodesGpus) {
  const EnvMap own = tasks_seeing({"0", "0"}, "2")[0], whole = tasks_seeing({"0,1", "0,1"}, "2")[0];
  const Layout first{.world_size = 2, .local_world_size = 2};
  EXPECT_TRUE(notes_need_machine(own, first, {}));
  EXPECT_FALSE(notes_need_machine(whole, first, {}));
  EXPECT_FALSE(notes_need_machine({}, first, {}));
  EXPECT_FALSE(notes_need_machine(
      own, {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2}, {}));
  EXPECT_FALSE(notes_need_machine(own, {}, {}));
  EXPECT_FALSE(notes_need_machine(own, first, *parse_options("gpus=none")));
}

TEST(Binding, VirtualGivesOneDeviceAsLocalRankZero) {
  EXPECT_EQ(devices(tasks_seeing({"GPU-a,GPU-b", "GPU-a,GPU-b"}, "2"), "gpus=virtual"),
            (Cells{"GPU-a", "GPU-b"}));
  EXPECT_EQ(devices(tasks_seeing({"0,1,2,3", "0,1,2,3"}, "4"), "gpus=virtual"), (Cells{"0", "1"}));
  EXPECT_EQ(devices(tasks_seeing({"0", "1"}, "2"), "gpus=virtual"), (Cells{"0", "1"}));
  EXPECT_EQ(devices(tasks_seeing({"0", "1"}, nullptr), "gpus=virtual"), (Cells{"0", "1"}));
  EXPECT_EQ(devices(tasks_seeing({"0,1", "2,3"}, "4"), "gpus=virtual"), (Cells{"0", "2"}));
  EXPECT_EQ(
      devices(tasks_seeing({"MIG-GPU-a/1/0,MIG-GPU-a/2/0", "MIG-GPU-a/1/0,MIG-GPU-a/2/0"}, "2"),
              "gpus=virtual"),
      (Cells{"MIG-GPU-a/1/0", "MIG-GPU-a/2/0"}));
  EXPECT_EQ(devices({{}, {}}, "gpus=virtual", machine_with(2)), (Cells{"0", "1"}));
  EXPECT_EQ(value_of(*bound(tasks_seeing({"0", "1"}, "2")[1], "gpus=virtual"), "LOCAL_RANK"), "0");

  const auto unclear =
      bound(tasks_seeing({"0,1", "2,3", "0,1", "2,3"}, "4")[1], "gpus=virtual", 1, 4);
  ASSERT_FALSE(unclear);
  EXPECT_NE(unclear.error().message.find(
                "each sees 2 GPUs of 4, and which of them are its own is not known"),
            std::string::npos);
}

TEST(Binding, ShareGivesNeighboursTheSameDevice) {
  EXPECT_EQ(devices(tasks_seeing({"0,1", "0,1", "0,1", "0,1"}, "2"), "gpus=share"),
            (Cells{"0", "0", "1", "1"}));
  EXPECT_EQ(devices(tasks_seeing({"0,1", "0,1", "0,1"}, "2"), "gpus=share"),
            (Cells{"0", "0", "1"}));
  EXPECT_EQ(devices(tasks_seeing({"0", "0", "1", "1"}, "2"), "gpus=share"),
            (Cells{"0", "0", "1", "1"}));  // as Slurm gave
  // Enough for all.
  EXPECT_EQ(devices(tasks_seeing({"0,1", "0,1"}, "2"), "gpus=share"), (Cells{"0", "1"}));
  EXPECT_EQ(devices(tasks_seeing({"0,1", "2,3", "0,1", "2,3"}, "4"), "gpus=share"),
            (Cells{"0", "3", "0", "3"}));
  EXPECT_EQ(value_of(*bound(tasks_seeing({"0,1", "0,1"}, "2")[1], "gpus=share"), "LOCAL_RANK"),
            "0");
}

TEST(Binding, AllShowsTheStepsGpusToEachTask) {
  EXPECT_EQ(devices(tasks_seeing({"0,1", "0,1"}, "2"), "gpus=all"), (Cells{"-", "-"}));
  // The whole machine.
  EXPECT_EQ(devices(tasks_seeing({"0", "1"}, "2"), "gpus=all", machine_with(2)),
            (Cells{"0,1", "0,1"}));
  EXPECT_EQ(devices(tasks_seeing({"0,1", "2,3"}, "4"), "gpus=all", machine_with(4)),
            (Cells{"0,1,2,3", "0,1,2,3"}));
  EXPECT_EQ(devices(tasks_seeing({"GPU-0", "GPU-1"}, "2"), "gpus=all", machine_with(2)),
            (Cells{"GPU-0,GPU-1", "GPU-0,GPU-1"}));
  // All that a device cgroup leaves of it, counted from 0.
  EXPECT_EQ(devices(tasks_seeing({"0", "1"}, "2"), "gpus=all", machine_with(4, 2)),
            (Cells{"0,1", "0,1"}));
  // --gpu-bind=map_gpu:1,0: LOCAL_RANK still indexes the GPU that the user chose.
  EXPECT_EQ(devices(tasks_seeing({"1", "0"}, "2"), "gpus=all", machine_with(2)),
            (Cells{"1,0", "1,0"}));
  // A part of the machine: SLURM_JOB_GPUS, or the numbers themselves, where each task finds its own
  // at its index.
  EXPECT_EQ(devices(tasks_seeing({"1", "3"}, "2", "1,3"), "gpus=all", machine_with(4)),
            (Cells{"1,3", "1,3"}));
  EXPECT_EQ(devices(tasks_seeing({"0", "1"}, "2"), "gpus=all"), (Cells{"0,1", "0,1"}));
  // No task confirms 2.
  EXPECT_EQ(devices(tasks_seeing({"0", "1"}, "3", "0,1,2"), "gpus=all"), (Cells{"0,1", "0,1"}));
  EnvMap old = {{"CUDA_VISIBLE_DEVICES", "1"}, {"SLURM_STEP_GPUS", "0,1"}};
  EXPECT_EQ(value_of(*bound(old, "gpus=all"), "CUDA_VISIBLE_DEVICES"), "0,1");
}

TEST(Binding, AllFindsTheGpusOfARecordedStep) {
  const char* const recorded = "slurm-22.05-1n2t-gpus-per-task";
  EXPECT_EQ(
      devices({recorded_environment(recorded, 0), recorded_environment(recorded, 1)}, "gpus=all"),
      (Cells{"0,1", "0,1"}));
  EXPECT_EQ(devices({recorded_environment(recorded, 0), recorded_environment(recorded, 1)},
                    "gpus=virtual"),
            (Cells{"0", "1"}));
}

TEST(Binding, AllRejectsUnknownGpusOfTheStep) {
  const struct {
    std::vector<EnvMap> environments;
    Machine machine;
    const char* message;
  } kCases[] = {
      {tasks_seeing({"0", "0"}, "2"), machine_with(4, 3),
       "gpus=all: this task may open 1 GPU of the 2 that the step has on this node: the others are "
       "hidden from it: ask "
       "for them with "
       "--gpus-per-node or --gres instead of --gpus-per-task, or give gpus=virtual"},
      {tasks_seeing({"1", "3"}, "2"), machine_with(4),
       "gpus=all: this task sees GPU 3, and the other GPUs of the step on this node are not "
       "known:"},
      {tasks_seeing({"2", "3"}, "2", "0,1"), machine_with(4),
       "gpus=all: this task sees GPU 3, and the other GPUs"},  // another node's
      {tasks_seeing({"GPU-a", "GPU-b"}, "2"), machine_with(2),
       "gpus=all: this task sees GPU GPU-b, and the other GPUs"},
      {tasks_seeing({"MIG-a", "MIG-b"}, "2"), machine_with(2),
       "gpus=all: this task sees GPU MIG-b, and the other GPUs"},
      {tasks_seeing({"0", "1"}, nullptr), {}, "gpus=all: this task sees GPU 1, and the other GPUs"},
      {tasks_seeing({"unset", "unset"}, "2"), machine_with(4),
       "gpus=all: CUDA_VISIBLE_DEVICES is not set, the step has 2 GPUs on this node, and the task "
       "may open 4: leave "
       "--gpu-bind=none out"},
  };
  for (const auto& test : kCases) {
    const auto binding = bound(test.environments[1], "gpus=all", 1, 2, test.machine);
    ASSERT_FALSE(binding) << test.message;
    EXPECT_TRUE(binding.error().message.starts_with(test.message)) << binding.error().message;
  }
}

TEST(Binding, RejectsListsThatCudaWouldTruncate) {
  for (const char* rule : {"gpus=auto", "gpus=all", "gpus=virtual", "gpus=closest", "gpus=share"}) {
    EXPECT_EQ(bound({{"CUDA_VISIBLE_DEVICES", "0,,1"}}, rule).error().message,
              "CUDA_VISIBLE_DEVICES='0,,1': an empty name");
    EXPECT_EQ(bound({{"CUDA_VISIBLE_DEVICES", "1,1"}}, rule).error().message,
              "CUDA_VISIBLE_DEVICES='1,1': a GPU is named twice: name each GPU once");
    EXPECT_NE(bound({{"CUDA_VISIBLE_DEVICES", std::string(600, ',')}}, rule)
                  .error()
                  .message.find("more GPUs than a node has"),
              std::string::npos);
    EXPECT_EQ(bound({{"SLURM_GPUS_ON_NODE", "two"}}, rule).error().message,
              "SLURM_GPUS_ON_NODE='two': expected an integer from 0 to 256");
  }
}

TEST(Binding, ReadsTheMachineOnlyForRulesThatNeedIt) {
  const struct {
    const char* options;
    bool needed;
  } kCases[] = {{"", false},        {"gpus=none", false},
                {"gpus=all", true}, {"gpus=closest", true},
                {"cpus=gpu", true}, {"gpus=none,cpus=gpu", true}};
  for (const auto& test : kCases)
    EXPECT_EQ(needs_machine(*parse_options(test.options)), test.needed) << test.options;
}

TEST(Binding, SetsThreadsAsTorchrunDoes) {
  const struct {
    const char* options;
    int tasks;
    EnvMap environment;
    Variables expected;
  } kCases[] = {
      {"", 2, {}, {{"OMP_NUM_THREADS", "1"}}},
      {"", 1, {}, {}},
      {"", 2, {{"OMP_NUM_THREADS", "6"}}, {}},
      {"override=yes", 2, {{"OMP_NUM_THREADS", "6"}}, {{"OMP_NUM_THREADS", "1"}}},
      {"omp=keep", 2, {}, {}},
      {"omp=3", 1, {}, {{"OMP_NUM_THREADS", "3"}}},
      {"omp=cpus", 2, {{"SLURM_CPUS_PER_TASK", "4"}}, {{"OMP_NUM_THREADS", "4"}}},
      {"omp=cpus", 2, {}, {{"OMP_NUM_THREADS", "1"}}},
  };
  for (const auto& test : kCases) {
    const Layout layout{.world_size = test.tasks, .local_world_size = test.tasks};
    EXPECT_EQ(binding_of(test.environment, layout, *parse_options(test.options))->variables,
              test.expected)
        << test.options;
  }
}

}  // namespace
}  // namespace torchbridge
