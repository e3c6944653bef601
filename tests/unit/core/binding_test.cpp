#include <torchbridge/core/binding.h>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Variables = std::vector<Variable>;

Layout second_of(int tasks) { return {.rank = 1, .world_size = tasks, .local_rank = 1, .local_world_size = tasks}; }

Result<Binding> bind(const EnvMap& environment, const char* options, int tasks = 2) {
  return binding_of(environment, second_of(tasks), *parse_options(std::string("omp=keep") + (*options ? "," : "") + options));
}

TEST(Binding, LeavesTasksWithoutGpusAlone) {
  for (const char* rule : {"gpus=auto", "gpus=all", "gpus=virtual", "gpus=none"}) {
    EXPECT_EQ(bind({}, rule)->variables, Variables{}) << rule;
    EXPECT_EQ(bind({}, rule)->note, "") << rule;
    EXPECT_EQ(bind({{"CUDA_VISIBLE_DEVICES", ""}}, rule)->variables, Variables{}) << rule;
  }
}

TEST(Binding, KeepsAGpuForEachTask) {
  const auto binding = bind({{"CUDA_VISIBLE_DEVICES", "0,1"}}, "gpus=auto");
  EXPECT_EQ(binding->variables, Variables{});
  EXPECT_EQ(binding->note, "");
}

TEST(Binding, SaysWhenEachTaskSeesOneGpuOnly) {
  const auto binding = bind({{"CUDA_VISIBLE_DEVICES", "1"}}, "gpus=auto");
  EXPECT_EQ(binding->variables, Variables{});
  EXPECT_NE(binding->note.find("2 tasks on this node, and each sees 1 GPU"), std::string::npos) << binding->note;
}

TEST(Binding, VirtualGivesOneDeviceAsLocalRankZero) {
  const Variables second = {{"CUDA_VISIBLE_DEVICES", "GPU-b"}, {"LOCAL_RANK", "0"}};
  EXPECT_EQ(bind({{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"}}, "gpus=virtual")->variables, second);
  EXPECT_EQ(bind({{"CUDA_VISIBLE_DEVICES", "GPU-b"}}, "gpus=virtual")->variables, second);
  const auto shortage = bind({{"CUDA_VISIBLE_DEVICES", "0,1"}}, "gpus=virtual", 3);
  ASSERT_FALSE(shortage);
  EXPECT_EQ(shortage.error().message, "gpus=virtual: 3 tasks on this node, and each sees 2 GPUs");
}

TEST(Binding, AllShowsTheStepsGpus) {
  EXPECT_EQ(bind({{"CUDA_VISIBLE_DEVICES", "1"}, {"SLURM_STEP_GPUS", "0,1"}}, "gpus=all")->variables,
            (Variables{{"CUDA_VISIBLE_DEVICES", "0,1"}}));
  EXPECT_EQ(bind({{"CUDA_VISIBLE_DEVICES", "0,1"}}, "gpus=all")->variables, Variables{});
  EXPECT_FALSE(bind({{"CUDA_VISIBLE_DEVICES", "1"}, {"SLURM_STEP_GPUS", "1"}}, "gpus=all"));
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
    EXPECT_EQ(binding_of(test.environment, layout, *parse_options(test.options))->variables, test.expected) << test.options;
  }
}

}  // namespace
}  // namespace torchbridge
