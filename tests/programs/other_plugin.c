// A site's other plugin: sets the variables that are its arguments in plugstack.conf, in every
// task.
#include <string.h>

#include <slurm/spank.h>

SPANK_PLUGIN(other_plugin, 1)

int slurm_spank_task_init(spank_t spank, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    char* equals = strchr(argv[i], '=');
    if (equals == NULL) return ESPANK_BAD_ARG;
    *equals = '\0';
    const spank_err_t outcome = spank_setenv(spank, argv[i], equals + 1, 1);
    *equals = '=';
    if (outcome != ESPANK_SUCCESS) return outcome;
  }
  return ESPANK_SUCCESS;
}
