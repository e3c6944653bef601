// Included before all else in a plugin that Slurm is to take for one of another release.
#include <slurm/slurm_version.h>

#undef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER SLURM_VERSION_NUM(19, 5, 1)
#undef TORCH_ENV_SLURM_API
#define TORCH_ENV_SLURM_API 34
