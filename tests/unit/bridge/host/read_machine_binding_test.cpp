// Which GPU and which CPUs the tasks of one node get on recorded machines.
#include <map>

#include <gtest/gtest.h>

#include "bridge/binding/binding.h"
#include "bridge/binding/closest_gpus.h"
#include "tests/support/machine_tree.h"

namespace torchbridge {
namespace {

using Cells = std::vector<std::string>;

std::string value_of(const Binding& binding, std::string_view name) {
  for (const auto& [set, value] : binding.variables) {
    if (set == name) return value;
  }
  return "-";
}

std::string numbers_below(std::size_t count) {
  std::string text;
  for (std::size_t n = 0; n < count; ++n) text += (n == 0 ? "" : ",") + std::to_string(n);
  return text;
}

// Expanding a machine makes hundreds of files: once is enough.
const Topology& recorded(const std::string& machine) {
  static std::map<std::string, Topology> read;
  const auto found = read.find(machine);
  return found != read.end() ? found->second
                             : read.emplace(machine, MachineTree(machine).topology()).first->second;
}

// One node of a srun step: all of the machine's GPUs visible to each task, and a list of CPUs for
// each.
class Step {
 public:
  Step(const char* machine, Cells cpus) : topology_(recorded(machine)), cpus_(std::move(cpus)) {
    environment_ = {{"SLURM_JOB_ID", "7"}};
    const auto gpus = topology_.usable_gpus().size();
    environment_.set("CUDA_VISIBLE_DEVICES", numbers_below(gpus));
    environment_.set("SLURM_GPUS_ON_NODE", std::to_string(gpus));
    set_masks();
  }

  void set(std::string_view name, std::string_view value) { environment_.set(name, value); }

  Result<Binding> bound(std::size_t rank, const std::string& options) const {
    const int tasks = static_cast<int>(cpus_.size());
    const Layout layout{.rank = static_cast<int>(rank),
                        .world_size = tasks,
                        .local_rank = static_cast<int>(rank),
                        .local_world_size = tasks};
    Machine machine{topology_, *parse_cpu_list(cpus_[rank]), {}};
    machine.task_cpus = slurm_task_cpus(environment_, layout, machine.cpus);
    return binding_of(environment_, layout, *parse_options("omp=keep," + options), machine);
  }

  // Variables that are the same for every task.
  std::string visible(const std::string& options) const {
    std::string first;
    for (std::size_t rank = 0; rank < cpus_.size(); ++rank) {
      const auto binding = bound(rank, options);
      if (!binding) return binding.error().message;
      const std::string mine = value_of(*binding, "CUDA_VISIBLE_DEVICES");
      if (rank == 0) first = mine;
      EXPECT_EQ(mine, first) << "task " << rank;
    }
    return first;
  }

  Cells placed(const std::string& options) const {
    Cells all;
    for (std::size_t rank = 0; rank < cpus_.size(); ++rank) {
      const auto binding = bound(rank, options);
      all.push_back(binding
                        ? cpu_list_text(binding->cpus) + "@" + std::to_string(binding->memory_node)
                        : binding.error().message);
    }
    return all;
  }

 private:
  // As task/affinity passes on: SLURM_CPU_BIND_LIST holds a mask for each task of the node.
  void set_masks() {
    std::string list;
    for (const auto& cpus : cpus_) {
      std::string digits(128, '0');
      const CpuSet set_bits = *parse_cpu_list(cpus);
      for (const int cpu : set_bits) {
        char& digit = digits[digits.size() - 1 - static_cast<std::size_t>(cpu / 4)];
        const int value = (digit <= '9' ? digit - '0' : digit - 'a' + 10) | 1 << cpu % 4;
        digit = "0123456789abcdef"[value];
      }
      list += (list.empty() ? "0x" : ",0x") + digits;
    }
    set("SLURM_CPU_BIND_TYPE", "mask_cpu:");
    set("SLURM_CPU_BIND_LIST", list);
  }

  const Topology& topology_;
  Cells cpus_;
  EnvMap environment_;
};

// Tasks bound to the NUMA nodes one after the other, as --cpus-per-task and --cpu-bind=cores do.
const Cells kPerlmutterTasks = {"0-15,64-79", "16-31,80-95", "32-47,96-111", "48-63,112-127"};

TEST(RecordedBinding, ClosestGivesEachTaskTheGpuOfItsNode) {
  const struct {
    const char* machine;
    Cells cpus;
    const char* visible;  // the GPU of local rank N is the Nth; "-": as Slurm gave them
  } kCases[] = {
      {"perlmutter-gpu", kPerlmutterTasks, "3,2,1,0"},
      {"perlmutter-gpu", {"48-63", "32-47", "16-31", "0-15"}, "-"},
      {"perlmutter-gpu", {"0-31", "32-63"}, "2,0,1,3"},
      {"perlmutter-gpu", {"0-63,64-127", "0-63,64-127"}, "-"},  // not bound: nothing to choose
      {"perlmutter-gpu", {"16-31"}, "2,0,1,3"},                 // alone: nearest first
      {"perlmutter-gpu",
       {"0-15", "0-15"},
       "0,3,1,2"},  // two tasks near one GPU: one of them must go far
      {"dgx-a100",
       {"0-15,128-143", "16-31,144-159", "32-47,160-175", "48-63,176-191", "64-79,192-207",
        "80-95,208-223", "96-111,224-239", "112-127,240-255"},
       "0,2,3,1,4,6,7,5"},
      {"dgx-a100",
       {"48-55", "56-63", "16-23", "24-31", "112-119", "120-127", "80-87", "88-95"},
       "-"},
      {"dgx-a100", {"0-63", "64-127"}, "0,4,1,2,3,5,6,7"},
      {"dgx-h100", {"56-83", "84-111", "0-27", "28-55"}, "4,5,0,1,2,3,6,7"},
      {"dgx-h100", {"0-13", "14-27", "28-41", "42-55", "56-69", "70-83", "84-97", "98-111"}, "-"},
      {"jedi-gh200", {"216-287", "0-71", "72-143", "144-215"}, "3,0,1,2"},
      {"five-gpus", {"0-3", "4-7", "8-11", "12-15"}, "1,2,0,3,4"},
      {"workstation-1gpu", {"2"}, "-"},
      {"vm-1gpu", {"0-7"}, "-"},
      {"two-gpus-driver", {"0", "1"}, "-"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Step(test.machine, test.cpus).visible("gpus=closest"), test.visible)
        << test.machine << " " << test.cpus[0];
  }
}

TEST(RecordedBinding, ClosestKeepsNamesVerbatim) {
  Step step("two-gpus-driver", {"0", "1"});
  step.set("CUDA_VISIBLE_DEVICES", "GPU-4ce175fe,GPU-e953c3c5");
  EXPECT_EQ(step.visible("gpus=closest"), "-");
  step.set("CUDA_VISIBLE_DEVICES",
           "MIG-11c29e81-e611-50b5-b5ef-609c0a0fe58b,MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f");
  // One NUMA node: it does not matter which GPU they are of.
  EXPECT_EQ(step.visible("gpus=closest"), "-");
}

TEST(RecordedBinding, ClosestCountsGpusByAddress) {
  Step step("perlmutter-gpu", kPerlmutterTasks);
  EXPECT_EQ(value_of(*step.bound(0, "gpus=closest"), "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  EXPECT_EQ(value_of(*step.bound(0, "cpus=gpu"), "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  step.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  EXPECT_EQ(value_of(*step.bound(0, "gpus=closest"), "CUDA_DEVICE_ORDER"), "-");
  step.set("CUDA_DEVICE_ORDER", "FASTEST_FIRST");
  EXPECT_EQ(step.visible("gpus=closest"),
            "gpus=closest: CUDA_DEVICE_ORDER='FASTEST_FIRST' is exported, but GPUs are counted by "
            "their PCI address: unset it, or give override=yes");
  EXPECT_EQ(step.visible("gpus=closest,override=yes"), "3,2,1,0");
}

TEST(RecordedBinding, ClosestRejectsUnknownCpusAndGpus) {
  Step unknown_others("perlmutter-gpu", kPerlmutterTasks);
  unknown_others.set("SLURM_CPU_BIND_TYPE", "rank");
  EXPECT_EQ(unknown_others.bound(0, "gpus=closest").error().message,
            "gpus=closest: this task may use CPUs 0-15,64-79, and the CPUs of the other tasks on "
            "this node are not "
            "known: bind the tasks with srun --cpu-bind=cores, or give gpus=auto");
  Step mig("perlmutter-gpu", kPerlmutterTasks);
  mig.set("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b,MIG-c,MIG-d");
  EXPECT_EQ(mig.bound(0, "gpus=closest").error().message,
            "gpus=closest: 'MIG-a' of CUDA_VISIBLE_DEVICES is not one of the 4 GPUs "
            "found on this machine: give gpus=auto");
  Step beyond("perlmutter-gpu", {"0-15"});
  beyond.set("CUDA_VISIBLE_DEVICES", "2,4");
  EXPECT_NE(beyond.visible("gpus=closest").find("'4' of CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(RecordedBinding, ClosestOrdersATasksOwnGpus) {
  Step step("perlmutter-gpu", kPerlmutterTasks);
  step.set("CUDA_VISIBLE_DEVICES", "2");  // --gpus-per-task=1
  const auto single = step.bound(1, "gpus=closest");
  ASSERT_TRUE(single);
  EXPECT_EQ(value_of(*single, "CUDA_VISIBLE_DEVICES"), "-");
  EXPECT_NE(single->note.find("4 tasks on this node, and each sees 1 GPU"), std::string::npos);

  Step two("perlmutter-gpu", {"0-15", "32-47"});
  two.set("CUDA_VISIBLE_DEVICES", "2,3");  // --gpus-per-task=2
  EXPECT_EQ(value_of(*two.bound(0, "gpus=closest"), "CUDA_VISIBLE_DEVICES"), "3,2");
}

TEST(RecordedBinding, GpuCpusAreThoseOfTheGpusNode) {
  const struct {
    const char* machine;
    Cells cpus;
    const char* options;
    Cells placed;  // CPUs @ memory node
  } kCases[] = {
      // Bound to nodes already, and given the GPU there.
      {"perlmutter-gpu",
       kPerlmutterTasks,
       "gpus=closest,cpus=gpu",
       {"0-15,64-79@0", "16-31,80-95@1", "32-47,96-111@2", "48-63,112-127@3"}},
      // Not bound: each goes to its GPU.
      {"perlmutter-gpu",
       {"0-127", "0-127", "0-127", "0-127"},
       "cpus=gpu",
       {"48-63,112-127@3", "32-47,96-111@2", "16-31,80-95@1", "0-15,64-79@0"}},
      {"perlmutter-gpu",
       {"0-127", "0-127", "0-127", "0-127"},
       "gpus=virtual,cpus=gpu",
       {"48-63,112-127@3", "32-47,96-111@2", "16-31,80-95@1", "0-15,64-79@0"}},
      {"perlmutter-gpu", {"0-127"}, "gpus=none,cpus=gpu", {"48-63,112-127@3"}},
      // Two GPUs a node: its cores are halved, threads of a core together.
      {"dgx-a100",
       Cells(8, "0-255"),
       "cpus=gpu",
       {"48-55,176-183@3", "56-63,184-191@3", "16-23,144-151@1", "24-31,152-159@1",
        "112-119,240-247@7", "120-127,248-255@7", "80-87,208-215@5", "88-95,216-223@5"}},
      {"dgx-h100",
       Cells(4, "0-223"),
       "cpus=gpu",
       {"0-13,112-125@0", "14-27,126-139@0", "28-41,140-153@0", "42-55,154-167@0"}},
      // Bound within the node: no need to divide.
      {"dgx-h100", {"0-3", "4-7"}, "cpus=gpu", {"0-3@0", "4-7@0"}},
      // One NUMA node: the cores are divided, memory is where it is.
      {"two-gpus-driver", {"0-9", "0-9"}, "cpus=gpu", {"0-4@-1", "5-9@-1"}},
      {"workstation-1gpu", {"0-7"}, "cpus=gpu", {"0-7@-1"}},
      {"workstation-1gpu", {"0-7", "0-7"}, "gpus=share,cpus=gpu", {"0-1,4-5@-1", "2-3,6-7@-1"}},
      {"jedi-gh200",
       Cells(4, "0-287"),
       "cpus=gpu",
       {"0-71@0", "72-143@1", "144-215@2", "216-287@3"}},
  };
  for (const auto& test : kCases)
    EXPECT_EQ(Step(test.machine, test.cpus).placed(test.options), test.placed) << test.machine;
}

TEST(RecordedBinding, CpusOfATasksOwnGpuAreNotDivided) {
  Step step("dgx-a100", Cells(2, "0-255"));
  step.set("CUDA_VISIBLE_DEVICES", "1");  // --gpus-per-task=1: the other task's GPU is not known
  step.set("SLURM_GPUS_ON_NODE", "2");
  EXPECT_EQ(step.placed("cpus=gpu"), (Cells{"48-63,176-191@3", "48-63,176-191@3"}));
}

TEST(RecordedBinding, CpusAreUnchangedWhereThoseNearTheGpuAreNotAllowed) {
  const Step away("perlmutter-gpu", {"0-15", "16-31"});
  const auto binding = away.bound(0, "cpus=gpu");
  ASSERT_TRUE(binding);
  EXPECT_EQ(binding->cpus, CpuSet());
  EXPECT_EQ(binding->memory_node, -1);
  EXPECT_EQ(binding->note,
            "cpus=gpu: CPUs 48-63,112-127 are near GPU 0, but this task may use 0-15 only: the "
            "task keeps its CPUs; see "
            "gpus=closest");

  Step unknown("perlmutter-gpu", {"0-15"});
  unknown.set("CUDA_VISIBLE_DEVICES", "MIG-a");
  EXPECT_EQ(
      unknown.bound(0, "cpus=gpu")->note,
      "cpus=gpu: the CPUs near GPU MIG-a are not known on this machine: the task keeps its CPUs");
}

}  // namespace
}  // namespace torchbridge
