#include "ending.h"

#include <poll.h>
#include <slurm/slurm.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

// Slurm's own processes have it; found at run time, for the plugin links no libslurm.
extern "C" __attribute__((weak)) int slurm_kill_job_step(uint32_t job_id, uint32_t step_id, uint16_t signal);

namespace torchbridge {
namespace {

void wait_ms(int time) { poll(nullptr, 0, time); }

}  // namespace

void tell_task(const std::string& message) { dprintf(STDERR_FILENO, "torch-env: %s\n", message.c_str()); }

// proctrack/linuxproc spares whatever is called slurmstepd, also when the step is to end.
void let_slurm_end_us() { prctl(PR_SET_NAME, "torch_env"); }

void end_step(spank_t spank) {
  uint32_t job = 0, step = 0;
  if (slurm_kill_job_step == nullptr) return;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return;
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS) return;
  slurm_kill_job_step(job, step, SIGKILL);
}

void end_all_tasks(const EnvMap& environment, const Error& error) {
  if (environment.get("SLURM_PROCID").value_or("0") == "0") tell_task(error.message);
  _exit(EXIT_FAILURE);
}

void end_task(spank_t spank, const TaskBoard& board, const Error& error) {
  // srun drops what a task says if the step ends while other nodes are still being launched.
  constexpr int kForwardingMs = 500;
  if (!error.message.empty()) {
    if (board.may_speak()) tell_task(error.message);
    wait_ms(kForwardingMs);
  }
  end_step(spank);
  _exit(EXIT_FAILURE);
}

void end_task_of_wrong_node(spank_t spank, const TaskBoard& board, const EnvMap& environment, const Error& error) {
  constexpr int kTurnMs = 3000;  // a busy node takes a while to end the step
  let_slurm_end_us();
  if (environment.get("SLURM_NODEID").value_or("0") != "0") wait_ms(kTurnMs);
  end_task(spank, board, error);
}

}  // namespace torchbridge
