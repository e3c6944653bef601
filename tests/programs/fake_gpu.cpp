// Preloaded, it takes the place of the functions of CUDA's runtime and of NCCL that a process group
// needs, so that libtorch's own ProcessGroupNCCL runs where there is no GPU: with its watchdog, its
// flight recorder and its allocators. Memory of the GPU is the host's, streams are done at once,
// kernels compute nothing, and a collective leaves this rank's values. FAKE_GPU says what happens
// in which all-reduce, "stuck 21", or to which rank as it connects, "init 1":
//   stuck    it, and what is queued behind it, is done after ncclCommAbort() alone
//   hangs    so too, and ncclCommAbort() never returns
//   stalls   as "stuck", and so is who asks whether it is done: libtorch's watchdog
//   slow     as "stuck", or done twelve seconds later, for which the end of a group does not wait
//   blocks   as "stuck", and the call itself returns after ncclCommAbort() alone: NCCL connects to
//            its peers in the first collective of each algorithm
//   network  as "stuck", and NCCL has an asynchronous error
//   broken   every call of CUDA fails from then on but those for the current device, as after a
//            device-side assert
//   seen     as "stuck", and who asks whether it is done finds a device-side assert: libtorch's
//            watchdog, before the thread that trains
//   fails    NCCL returns an error of CUDA
//   ends     so too, and ncclCommAbort() never returns
//   init     NCCL cannot connect this rank, and the others wait for it forever
//   split    so too, as a subgroup is split from all
//   destroy  ncclCommDestroy() never returns, in each rank that has this variable
// As NCCL does, ranks listen while they connect, on the loopback interface, and wait for each
// other; and the end of a communicator, also ncclCommAbort(), waits until the other ranks of the
// node end theirs, or their processes (ncclProxyService() in NCCL's proxy.cc). An abort says on
// stderr that it has ended an all-reduce, whose values are wrong then.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#define FAKE extern "C" __attribute__((visibility("default")))

struct CUevent_st {
  std::atomic<bool> is_behind{false};  // behind the collective that is stuck
};
struct CUstream_st {};
struct ncclComm {
  int rank, size;
  std::vector<int> peers{};  // connections to other ranks: of rank 0 to all, of the others to it
  bool is_ended = false;
};

namespace {

struct Plan {
  char what[16] = "";
  int in = 0;
  Plan() {
    const char* text = std::getenv("FAKE_GPU");
    if (text != nullptr) std::sscanf(text, "%15s %d", what, &in);
  }
};
const Plan plan;
std::atomic<int> all_reduces{0};
std::atomic<bool> is_stuck{false}, is_broken{false}, has_network_error{false}, abort_hangs{false},
    query_stalls{false}, query_fails{false};

// FAKE_GPUS: how many the process sees; and NCCL says on stderr which of them it connects.
const char* const number_of_gpus = std::getenv("FAKE_GPUS");
const int gpus = number_of_gpus == nullptr ? 1 : std::atoi(number_of_gpus);
thread_local int gpu = 0;

cudaError_t state() { return is_broken ? cudaErrorAssert : cudaSuccess; }

cudaError_t wait() {
  while (is_stuck) std::this_thread::yield();
  return state();
}

int listen_on_loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, SOMAXCONN) != 0)
    std::abort();
  return listener;
}

sockaddr_in address_of(int listener) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

// Each other rank connects to the first, and goes on when all have. `listener`: of the first, which
// is closed; else -1.
ncclResult_t meet(int listener, sockaddr_in root, ncclComm& comm) {
  if (listener < 0) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte = 0;
    const bool has_met =
        connect(connection, reinterpret_cast<sockaddr*>(&root), sizeof root) == 0 &&
        read(connection, &byte, 1) == 1;
    comm.peers = {connection};
    return has_met ? ncclSuccess : ncclRemoteError;
  }
  while (static_cast<int>(comm.peers.size()) + 1 < comm.size)
    comm.peers.push_back(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  for (const int peer : comm.peers) (void)send(peer, "!", 1, MSG_NOSIGNAL);
  close(listener);
  return ncclSuccess;
}

// What a rank says as a communicator is split, and hears of all others.
struct Share {
  int rank, color;
  sockaddr_in address;
};

bool receive(int peer, Share& share) {
  return recv(peer, &share, sizeof share, MSG_WAITALL) == sizeof share;
}

std::vector<Share> gather(const ncclComm& comm, const Share& own) {
  std::vector<Share> all = {own};
  Share share{};
  if (comm.rank > 0) {
    (void)send(comm.peers[0], &own, sizeof own, MSG_NOSIGNAL);
    while (static_cast<int>(all.size()) < comm.size && receive(comm.peers[0], share))
      all.push_back(share);
    return all;
  }
  for (const int peer : comm.peers) {
    if (receive(peer, share)) all.push_back(share);
  }
  // Each gets as many as there are others, in whose place its own comes again.
  for (const int peer : comm.peers) {
    for (std::size_t i = 1; i < all.size(); ++i)
      (void)send(peer, &all[comm.peers[i - 1] == peer ? 0 : i], sizeof share, MSG_NOSIGNAL);
  }
  return all;
}

// The listener of the rank that made the id, which has its address.
int root_listener = -1;

// NCCL frees it.
void part(ncclComm& comm) {
  if (std::exchange(comm.is_ended, true)) std::abort();
  const std::vector<int>& peers = comm.peers;
  for (const int peer : peers) shutdown(peer, SHUT_WR);
  char byte = 0;
  for (const int peer : peers) {
    while (read(peer, &byte, 1) > 0) continue;
    close(peer);
  }
}

void wait_forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

template <class Pointer>
cudaError_t set(Pointer* value, Pointer to) {
  *value = to;
  return state();
}

cudaError_t copy(void* to, const void* from, std::size_t size) {
  if (wait() == cudaSuccess) std::memcpy(to, from, size);
  return state();
}

}  // namespace

// --- CUDA's runtime

FAKE cudaError_t cudaGetDeviceCount(int* count) { return *count = gpus, cudaSuccess; }
FAKE cudaError_t cudaGetDevice(int* device) { return *device = gpu, cudaSuccess; }
FAKE cudaError_t cudaSetDevice(int device) { return gpu = device, cudaSuccess; }
FAKE cudaError_t cudaGetLastError() { return state(); }
FAKE cudaError_t cudaPeekAtLastError() { return state(); }
FAKE cudaError_t cudaDriverGetVersion(int* version) { return set(version, CUDART_VERSION); }
FAKE cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return set(value, 1); }
FAKE cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = *greatest = 0, state();
}
FAKE cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  return std::snprintf(id, static_cast<std::size_t>(size), "0000:00:00.0"), state();
}
FAKE cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
  *found = {};
  std::strcpy(found->name, "Fake GPU");
  found->major = 9;
  found->multiProcessorCount = 1;
  found->warpSize = 32;
  found->maxThreadsPerBlock = found->maxThreadsDim[0] = 1024;
  found->maxThreadsPerMultiProcessor = 2048;
  found->maxGridSize[0] = found->maxGridSize[1] = found->maxGridSize[2] = 65535;
  found->totalGlobalMem = std::size_t{1} << 34;
  return state();
}
FAKE cudaError_t cudaDeviceSynchronize() { return wait(); }

FAKE cudaError_t cudaStreamCreate(cudaStream_t* stream) { return set(stream, new CUstream_st); }
FAKE cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return set(stream, new CUstream_st);
}
FAKE cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return set(stream, new CUstream_st);
}
FAKE cudaError_t cudaStreamDestroy(cudaStream_t) { return state(); }
FAKE cudaError_t cudaStreamQuery(cudaStream_t) { return is_stuck ? cudaErrorNotReady : state(); }
FAKE cudaError_t cudaStreamSynchronize(cudaStream_t) { return wait(); }
FAKE cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return state(); }
FAKE cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return set(status, cudaStreamCaptureStatusNone);
}
FAKE cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                          unsigned long long*, cudaGraph_t*,
                                          const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                          std::size_t*) {
  return set(status, cudaStreamCaptureStatusNone);
}
FAKE cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return state(); }

FAKE cudaError_t cudaEventCreate(cudaEvent_t* event) { return set(event, new CUevent_st); }
FAKE cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return set(event, new CUevent_st);
}
FAKE cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, state(); }
FAKE cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return event->is_behind = is_stuck.load(), state();
}
FAKE cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
FAKE cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->is_behind && query_stalls) return wait();
  if (event->is_behind && query_fails) return cudaErrorAssert;
  return event->is_behind && is_stuck ? cudaErrorNotReady : state();
}
FAKE cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->is_behind ? wait() : state();
}
FAKE cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return set(ms, 1.0F); }

FAKE cudaError_t cudaMalloc(void** memory, std::size_t size) {
  return set(memory, std::calloc(size, 1));
}
FAKE cudaError_t cudaFree(void* memory) { return std::free(memory), state(); }
FAKE cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned) {
  return set(memory, std::calloc(size, 1));
}
FAKE cudaError_t cudaFreeHost(void* memory) { return std::free(memory), state(); }
FAKE cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return *free = *total = std::size_t{1} << 34, state();
}
FAKE cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind) {
  return copy(to, from, size);
}
FAKE cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                                 cudaStream_t) {
  return copy(to, from, size);
}
FAKE cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t size, cudaStream_t) {
  return std::memset(memory, value, size), state();
}
FAKE cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void*) {
  return *found = {}, state();
}
FAKE cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return state();
}

// --- NCCL

FAKE ncclResult_t ncclGetVersion(int* version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }
FAKE const char* ncclGetErrorString(ncclResult_t) { return "a fake error"; }
FAKE const char* ncclGetLastError(ncclComm_t) { return "a fake error"; }
FAKE ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  root_listener = listen_on_loopback();
  const sockaddr_in address = address_of(root_listener);
  std::memcpy(id->internal, &address, sizeof address);
  return ncclSuccess;
}
FAKE ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                         ncclConfig_t*) {
  listen_on_loopback();
  if (gpus > 1) std::fprintf(stderr, "fake_gpu: rank %d connects GPU %d\n", rank, gpu);
  if (plan.what == std::string("init")) {
    if (rank == plan.in) return ncclSystemError;
    wait_forever();
  }
  *comm = new ncclComm{rank, size};
  sockaddr_in root{};
  std::memcpy(&root, id.internal, sizeof root);
  return meet(std::exchange(root_listener, -1), root, **comm);
}
FAKE ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part,
                                ncclConfig_t*) {
  if (plan.what == std::string("split")) {
    if (comm->rank == plan.in) return ncclSystemError;
    wait_forever();
  }
  const int listener = listen_on_loopback();
  const std::vector<Share> all = gather(*comm, {comm->rank, color, address_of(listener)});
  const Share* first = nullptr;
  int size = 0;
  for (const Share& share : all) {
    if (share.color != color) continue;
    ++size;
    if (first == nullptr || share.rank < first->rank) first = &share;
  }
  const bool is_first = first->rank == comm->rank;
  if (!is_first || color == NCCL_SPLIT_NOCOLOR) close(listener);
  if (color == NCCL_SPLIT_NOCOLOR) return *part = nullptr, ncclSuccess;
  *part = new ncclComm{key, size};
  return meet(is_first ? listener : -1, first->address, **part);
}
FAKE ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  return *error = has_network_error ? ncclRemoteError : ncclSuccess, ncclSuccess;
}
FAKE ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (abort_hangs) wait_forever();
  if (is_stuck.exchange(false)) std::fputs("fake_gpu: aborted an all-reduce\n", stderr);
  return part(*comm), ncclSuccess;
}
FAKE ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (plan.what == std::string("destroy")) wait_forever();
  return part(*comm), ncclSuccess;
}
FAKE ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
FAKE ncclResult_t ncclCommRegister(ncclComm_t, void*, std::size_t, void** handle) {
  return *handle = nullptr, ncclSuccess;
}
FAKE ncclResult_t ncclCommDeregister(ncclComm_t, void*) { return ncclSuccess; }
FAKE ncclResult_t ncclGroupStart() { return ncclSuccess; }
FAKE ncclResult_t ncclGroupEnd() { return ncclSuccess; }
FAKE ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t, ncclDataType_t,
                                ncclRedOp_t, ncclComm_t, cudaStream_t) {
  if (from != to) std::abort();  // libtorch's are in place
  if (++all_reduces != plan.in) return ncclSuccess;
  const std::string what = plan.what;
  const bool is_error = what == "fails" || what == "ends";
  is_stuck = what != "broken" && !is_error;
  abort_hangs = what == "hangs" || what == "ends";
  query_stalls = what == "stalls";
  query_fails = what == "seen";
  has_network_error = what == "network";
  is_broken = what == "broken";
  if (what == "slow")
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::seconds(12));
      is_stuck = false;
    }).detach();
  if (what == "blocks") {
    while (is_stuck) std::this_thread::yield();
    return ncclInternalError;  // of its sockets after an abort
  }
  return is_error ? ncclUnhandledCudaError : ncclSuccess;
}
