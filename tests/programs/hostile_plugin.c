// What a user can do to slurmstepd through what it shares with the user's tasks and reads of the
// step's environment, done by a plugin because that is the shortest way there. Arguments in
// plugstack.conf: NAME=VALUE, a variable of the step; `fill`: in task_init, with the user's rights,
// each byte that the task shares with slurmstepd becomes '/': flags are set, texts have no end;
// `dumpable`: a task may be traced by its user before it is a program, as with fs.suid_dumpable=1;
// `stop`: from the first task_exit on each process that slurmstepd forks stops itself.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include <slurm/spank.h>

SPANK_PLUGIN(hostile_plugin, 1)

int slurm_spank_user_init(spank_t spank, int argc, char** argv) {
  for (int i = 0; i < argc; ++i) {
    char name[64];
    const char* equals = strchr(argv[i], '=');
    if (equals == NULL) continue;
    snprintf(name, sizeof name, "%.*s", (int)(equals - argv[i]), argv[i]);
    if (spank_setenv(spank, name, equals + 1, 1) != ESPANK_SUCCESS) return ESPANK_ERROR;
  }
  return ESPANK_SUCCESS;
}

static void fill_shared_memory(void) {
  char line[512];
  FILE* maps = fopen("/proc/self/maps", "re");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    uintptr_t begin = 0, end = 0;
    const int is_shared = strstr(line, "/dev/zero (deleted)") != NULL;
    if (is_shared && sscanf(line, "%zx-%zx", &begin, &end) == 2)
      memset((void*)begin, '/', end - begin);
  }
  if (maps != NULL) fclose(maps);
}

int slurm_spank_task_init(spank_t spank, int argc, char** argv) {
  (void)spank;
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "fill") == 0) fill_shared_memory();
    if (strcmp(argv[i], "dumpable") == 0) prctl(PR_SET_DUMPABLE, 1);
  }
  return ESPANK_SUCCESS;
}

static void stop_itself(void) { raise(SIGSTOP); }

int slurm_spank_task_exit(spank_t spank, int argc, char** argv) {
  static int stops = 0;
  (void)spank;
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "stop") == 0 && !stops)
      stops = pthread_atfork(NULL, NULL, stop_itself) == 0;
  }
  return ESPANK_SUCCESS;
}
