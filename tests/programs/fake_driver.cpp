// A libcuda.so.1 that shows one GPU, of the compute capability in FAKE_GPU_CAPABILITY ("7.0"), and can do nothing with
// it.
#include <cstdio>
#include <cstdlib>

extern "C" {

int cuInit(unsigned) { return 0; }

// CUDA 12.8.
int cuDriverGetVersion(int* version) { return *version = 12080, 0; }

int cuDeviceGetCount(int* count) { return *count = 1, 0; }

int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU");
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kMajor = 75, kInvalidValue = 1;
  const char* capability = std::getenv("FAKE_GPU_CAPABILITY");
  int major = 0, minor = 0;
  if (capability == nullptr || std::sscanf(capability, "%d.%d", &major, &minor) != 2) return kInvalidValue;
  *value = attribute == kMajor ? major : minor;
  return 0;
}
}
