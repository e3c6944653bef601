#include <torchbridge/core/launcher.h>

#include <torchbridge/core/launchers/openmpi.h>
#include <torchbridge/core/launchers/slurm.h>

namespace torchbridge {
namespace {

// Innermost first.
constexpr Launcher kLaunchers[] = {
    {"openmpi", detect_openmpi, read_openmpi},
    {"slurm", detect_slurm, read_slurm},
};

}  // namespace

const Launcher* innermost_launcher(const EnvMap& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.detect(environment)) return &launcher;
  }
  return nullptr;
}

}  // namespace torchbridge
