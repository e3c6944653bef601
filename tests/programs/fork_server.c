// Preloaded into a program (LD_PRELOAD), makes a fork server of it (tests/support/fork_server.h):
// when all libraries are loaded it waits for packets in place of main(), and runs main() in a
// process that it forks for each.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/fork_server_protocol.h"

typedef int (*Main)(int, char**, char**);
static Main program_main;

static char packet[kForkServerPacketMax];
static char* words[kForkServerPacketMax + 2];

static void open_as(int descriptor, const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
  close(file);
}

// `words` then holds the command, NULL, the variables, NULL.
static int run_program(size_t size) {
  char* const out = packet;
  char* const error = out + strlen(out) + 1;
  char* const count = error + strlen(error) + 1;
  const int command_size = atoi(count);
  close(kForkServerSocket);
  open_as(STDOUT_FILENO, out);
  open_as(STDERR_FILENO, error);
  char** word = words;
  for (char* text = count + strlen(count) + 1; text < packet + size; text += strlen(text) + 1) {
    if (word == words + command_size) *word++ = NULL;
    *word++ = text;
  }
  *word = NULL;
  environ = words + command_size + 1;
  return program_main(command_size, words, environ);
}

// Returns 1 in the new process alone. The process between ends at once, so that the new one becomes
// a child of the test. The new one waits for that: the trainer asks for a signal when its parent
// ends.
static int fork_twice(pid_t* shared) {
  int orphaned[2];
  *shared = -1;
  if (pipe(orphaned) != 0) _exit(127);
  const pid_t between = fork();
  if (between == 0) {
    const pid_t process = fork();
    if (process == 0) {
      char byte;
      close(orphaned[1]);
      if (read(orphaned[0], &byte, 1) != 1) _exit(127);  // the server has ended
      close(orphaned[0]);
      return 1;
    }
    *shared = process;
    _exit(0);
  }
  while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR) continue;
  if (write(orphaned[1], "", 1) != 1) _exit(127);
  close(orphaned[0]);
  close(orphaned[1]);
  send(kForkServerSocket, shared, sizeof *shared, MSG_NOSIGNAL);
  return 0;
}

static int serve(int argc, char** argv, char** variables) {
  (void)argc, (void)argv, (void)variables;
  pid_t* const shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) _exit(127);
  for (;;) {
    const ssize_t size = recv(kForkServerSocket, packet, sizeof packet, 0);
    if (size <= 0) _exit(0);  // the test has ended
    if (fork_twice(shared)) return run_program((size_t)size);
  }
}

// Called by _start of the program, as the Linux Standard Base has it; this one stands before
// glibc's.
typedef int (*Start)(Main, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);

int __libc_start_main(Main main, int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  program_main = main;
  Start start;
  *(void**)&start = dlsym(RTLD_NEXT, "__libc_start_main");
  return start(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
