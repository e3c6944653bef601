// A SPANK plugin by which slurmstepd ends before it has started a task, as it does by a fatal error of its own.
#include <slurm/spank.h>
#include <unistd.h>

SPANK_PLUGIN(ends_slurmstepd, 1)

int slurm_spank_user_init(spank_t spank, int argc, char** argv) {
  (void)spank, (void)argc, (void)argv;
  _exit(1);
}
