// What an attacker puts into a container's image under the names of libraries that glibc opens by
// itself: those of nsswitch.conf's services, and libgcc_s.so.1. Its constructor leaves a line in
// the container's /tmp.
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((constructor)) static void leave_a_line(void) {
  char process[16] = "", line[64];
  const int file = open("/tmp/loaded", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  prctl(PR_GET_NAME, process);
  const int size = snprintf(line, sizeof line, "loaded by %s\n", process);
  if (file >= 0 && write(file, line, (size_t)size) == size) close(file);
}
