// Preloaded: from call number FAIL_AT of FAIL_CALL on, FAIL_TIMES of the plugin's calls fail. With
// FAIL_SIGNAL none fails, but the child that makes call number FAIL_AT gets that signal. The calls
// of a process and its children are counted together; those of other processes are not.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

extern void* __libc_malloc(size_t size);

static int fail_at, fail_times, signal_number;
static int* calls;  // of this process and its children
static const char* fail_call = "malloc";
static pid_t preloaded;

static int number_in(const char* name) {
  const char* text = getenv(name);
  return text == NULL ? 0 : atoi(text);
}

__attribute__((constructor)) static void read_environment(void) {
  fail_at = number_in("FAIL_AT");
  fail_times = number_in("FAIL_TIMES");
  signal_number = number_in("FAIL_SIGNAL");
  if (getenv("FAIL_CALL") != NULL) fail_call = strdup(getenv("FAIL_CALL"));
  preloaded = getpid();
  calls = (int*)syscall(SYS_mmap, NULL, sizeof *calls, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static int fails(const char* call, void* caller) {
  Dl_info from;
  if (fail_at == 0 || strcmp(call, fail_call) != 0) return 0;
  if (dladdr(caller, &from) == 0 || strstr(from.dli_fname, "torch_env") == NULL) return 0;
  if (signal_number != 0 && getpid() == preloaded) return 0;
  const int number = __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED);
  if (signal_number != 0 && number == fail_at) kill(getpid(), signal_number);
  return signal_number == 0 && number >= fail_at && number - fail_at < fail_times;
}

void* malloc(size_t size) {
  return fails("malloc", __builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

// FAILING(RESULT, NAME, PARAMETERS, ARGUMENTS, VALUE, ERROR): NAME returns VALUE with errno ERROR
// where it fails.
#define FAILING(RESULT, NAME, PARAMETERS, ARGUMENTS, VALUE, ERROR)          \
  RESULT NAME PARAMETERS {                                                  \
    static RESULT(*real) PARAMETERS;                                        \
    if (real == NULL) real = (RESULT(*) PARAMETERS)dlsym(RTLD_NEXT, #NAME); \
    if (!fails(#NAME, __builtin_return_address(0))) return real ARGUMENTS;  \
    errno = ERROR;                                                          \
    return VALUE;                                                           \
  }

FAILING(void*, mmap, (void* at, size_t size, int protection, int flags, int file, off_t offset),
        (at, size, protection, flags, file, offset), MAP_FAILED, ENOMEM)
FAILING(pid_t, fork, (void), (), -1, EAGAIN)
FAILING(int, pipe2, (int ends[2], int flags), (ends, flags), -1, EMFILE)
FAILING(int, socket, (int family, int type, int protocol), (family, type, protocol), -1, EMFILE)
FAILING(int, bind, (int socket, const struct sockaddr* address, socklen_t size),
        (socket, address, size), -1, EACCES)
FAILING(int, connect, (int socket, const struct sockaddr* address, socklen_t size),
        (socket, address, size), -1, ENETUNREACH)
FAILING(int, open, (const char* path, int flags, mode_t mode), (path, flags, mode), -1, EMFILE)
FAILING(int, mkdir, (const char* path, mode_t mode), (path, mode), -1, ENOSPC)
FAILING(int, setenv, (const char* name, const char* value, int overwrite), (name, value, overwrite),
        -1, ENOMEM)
FAILING(ssize_t, getrandom, (void* bytes, size_t size, unsigned flags), (bytes, size, flags), -1,
        ENOSYS)
FAILING(int, getifaddrs, (struct ifaddrs * *list), (list), -1, ENOMEM)
FAILING(int, getaddrinfo,
        (const char* node, const char* service, const struct addrinfo* hints,
         struct addrinfo** list),
        (node, service, hints, list), EAI_AGAIN, EAGAIN)
