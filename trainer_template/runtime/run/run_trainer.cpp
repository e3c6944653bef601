#include <optional>

#include <ATen/Context.h>
#include <torchbridge/options.h>
#include <torchbridge/preemption.h>
#include <torchbridge/process_group.h>
#include <torchbridge/training.h>

#include "bridge/launch/launch_origin.h"
#include "trainer_template/runtime/run/agreement.h"
#include "trainer_template/runtime/run/inference.h"
#include "trainer_template/runtime/run/numerics.h"

namespace torchbridge::train {

int run_trainer(int argc, char** argv, char** environ_of_process,
                std::span<const TaskRegistration> kinds, const Train& train) {
  const LaunchOrigin origin(EnvMap::from(environ_of_process));
  Options options;
  std::optional<Preemption> preemption;
  return run_job(
      origin,
      [&] {
        options = parse_command_line(argc, argv, kinds);
        if (!options.is_inference())
          options.preemption = &preemption.emplace(options.stopping(origin));
        set_numerics(options);
        return options.group();
      },
      [&](ProcessGroup& group) {
        check_same_options(options, group);
        if (!preemption) return run_inference(options, group), ExitCode::kDone;
        preemption->begin_work();
        at::manual_seed(options.seed);  // of the CPU's generator and of the GPU's
        const ExitCode code = train(group, options);
        code == ExitCode::kDone ? preemption->complete() : preemption->stopped();
        return code;
      });
}

}  // namespace torchbridge::train
