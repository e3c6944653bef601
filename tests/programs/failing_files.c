// Preloaded, as a file system that cannot do everything: flock, symlink, and fsync of files and of
// folders fail with the errno in FAIL_FLOCK, FAIL_SYMLINK, FAIL_FSYNC and FAIL_FOLDER_FSYNC. The
// first FSYNC_WORKS calls of fsync succeed, and with FSYNC_FAILS all but so many behind them.
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int number_in(const char* name) {
  const char* text = getenv(name);
  return text == NULL ? 0 : atoi(text);
}

static int fails(const char* name) {
  const int error = number_in(name);
  if (error != 0) errno = error;
  return error != 0;
}

int flock(int file, int operation) {
  return fails("FAIL_FLOCK") ? -1 : (int)syscall(SYS_flock, file, operation);
}

int symlink(const char* target, const char* path) {
  return fails("FAIL_SYMLINK") ? -1 : (int)syscall(SYS_symlinkat, target, -100, path);
}

int fsync(int file) {
  static int calls;
  const int works = number_in("FSYNC_WORKS"), fail = number_in("FSYNC_FAILS");
  struct stat status;
  const int is_folder = fstat(file, &status) == 0 && S_ISDIR(status.st_mode);
  const int call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  if (call >= works && (fail == 0 || call < works + fail) &&
      fails(is_folder ? "FAIL_FOLDER_FSYNC" : "FAIL_FSYNC"))
    return -1;
  return (int)syscall(SYS_fsync, file);
}
