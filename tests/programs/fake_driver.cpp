// A libcuda.so.1 that shows one GPU, of the compute capability in FAKE_GPU_CAPABILITY ("7.0"), and
// can do nothing with it.
#include <cstdio>
#include <cstdlib>

extern "C" {

static bool is_initialized = false;

int cuInit(unsigned) { return is_initialized = true, 0; }

// CUDA 12.8.
int cuDriverGetVersion(int* version) { return *version = 12080, 0; }

int cuDeviceGetCount(int* count) {
  constexpr int kNotInitialized = 3;
  if (!is_initialized) return kNotInitialized;
  return *count = 1, 0;
}

int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU");
  return 0;
}

int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
  *flags = 0;
  return *is_active = 1, 0;
}

// The GPU of each rank is another one, but for FAKE_GPU_OF_ALL.
static int number_of_gpu() {
  const char* rank = std::getenv("RANK");
  return rank && !std::getenv("FAKE_GPU_OF_ALL") ? std::atoi(rank) : 0;
}

int cuDeviceGetPCIBusId(char* id, int size, int) {
  std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", number_of_gpu());
  return 0;
}

int cuDeviceGetUuid(unsigned char* uuid, int) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(17 * i);
  uuid[15] = static_cast<unsigned char>(number_of_gpu());
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kMajor = 75, kInvalidValue = 1;
  const char* capability = std::getenv("FAKE_GPU_CAPABILITY");
  int major = 0, minor = 0;
  if (capability == nullptr || std::sscanf(capability, "%d.%d", &major, &minor) != 2)
    return kInvalidValue;
  *value = attribute == kMajor ? major : minor;
  return 0;
}
}
