// Containers as pyxis makes them (NVIDIA/pyxis, pyxis_slurmstepd.c): one a node, started with the
// user's rights; in task_init each task gets the image's environment, RANK and LOCAL_RANK where
// that has PYTORCH_VERSION, and enters the container's namespaces. Until March 2020 (its commit
// 05c61ae) a task entered the mount namespace as root in task_init_privileged, before any plugin's
// task_init: the argument `privileged` does the same. Here the container is the node's own files
// with a /tmp and a /run of its own, so that neither munged nor files of the node's /tmp are found
// in it. Other arguments in plugstack.conf are hosts=FILE, which becomes its /etc/hosts,
// root=FOLDER, which is its root instead of the node's files, and variables of the image.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(container_plugin, 1)

static pid_t container = 0;  // the process that holds its namespaces
static const char kHosts[] = "hosts=", kRoot[] = "root=", kPrivileged[] = "privileged";

// The rest of the argument that begins with `prefix`; null where there is none.
static const char* argument(int argc, char** argv, const char* prefix) {
  for (int i = 0; i < argc; ++i) {
    if (strncmp(argv[i], prefix, strlen(prefix)) == 0) return argv[i] + strlen(prefix);
  }
  return NULL;
}

static int write_text(const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t size = write(file, text, strlen(text));
  close(file);
  return size == (ssize_t)strlen(text) ? 0 : -1;
}

// An unprivileged user may mount in a user namespace of his own.
static int enter_own_user_namespace(uid_t user, gid_t group) {
  char users[64], groups[64];
  snprintf(users, sizeof users, "%u %u 1", user, user);
  snprintf(groups, sizeof groups, "%u %u 1", group, group);
  if (unshare(CLONE_NEWUSER) != 0 || write_text("/proc/self/setgroups", "deny") != 0) return -1;
  return write_text("/proc/self/uid_map", users) != 0 ||
                 write_text("/proc/self/gid_map", groups) != 0
             ? -1
             : 0;
}

// As enroot does: the node's kernel file systems, and nothing else of the node.
static int enter_root(const char* root) {
  static const char* const kKernels[] = {"proc", "sys", "dev"};
  if (mount(root, root, NULL, MS_BIND | MS_REC, NULL) != 0 || chdir(root) != 0) return -1;
  for (int i = 0; i < 3; ++i) {
    char from[8];
    snprintf(from, sizeof from, "/%s", kKernels[i]);
    if (mount(from, kKernels[i], NULL, MS_BIND | MS_REC, NULL) != 0) return -1;
  }
  return syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 ? -1 : chdir("/");
}

static int make_container(int argc, char** argv) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (setresgid(group, group, group) != 0 || setresuid(user, user, user) != 0) return -1;
  if (prctl(PR_SET_DUMPABLE, 1) != 0) return -1;  // or its files in /proc are root's
  if (user != 0 && enter_own_user_namespace(user, group) != 0) return -1;
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
    return -1;
  const char* root = argument(argc, argv, kRoot);
  if (root != NULL && enter_root(root) != 0) return -1;
  const char* hosts = argument(argc, argv, kHosts);
  if (hosts != NULL && mount(hosts, "/etc/hosts", NULL, MS_BIND, NULL) != 0) return -1;
  if (mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777") != 0 ||
      mount("tmpfs", "/run", "tmpfs", 0, NULL) != 0)
    return -1;
  return mkdir("/tmp/image", 0700);
}

static int is_remote_step(spank_t spank) {
  unsigned step = 0;
  return spank_remote(spank) == 1 && spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
         step < 0xfffffff0;
}

int slurm_spank_user_init(spank_t spank, int argc, char** argv) {
  int ready[2];
  char byte = 0;
  if (!is_remote_step(spank) || pipe2(ready, O_CLOEXEC) != 0) return ESPANK_SUCCESS;
  container = fork();
  if (container == 0) {
    if (make_container(argc, argv) != 0 || write(ready[1], &byte, 1) != 1) _exit(1);
    for (int file = sysconf(_SC_OPEN_MAX); file >= 0; --file)
      close(file);  // the tasks' pipes among them
    while (1) pause();
  }
  close(ready[1]);
  const ssize_t size = read(ready[0], &byte, 1);
  close(ready[0]);
  return size == 1 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

static int copy_variable(spank_t spank, const char* from, const char* to) {
  char value[256];
  if (spank_getenv(spank, from, value, sizeof value) != ESPANK_SUCCESS) return -1;
  return spank_setenv(spank, to, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

static int import_environment(spank_t spank, int argc, char** argv) {
  char version[64];
  for (int i = 0; i < argc; ++i) {
    char* equals = strchr(argv[i], '=');
    const int is_ours =
        argument(1, argv + i, kHosts) != NULL || argument(1, argv + i, kRoot) != NULL;
    if (equals == NULL || is_ours) continue;
    *equals = '\0';
    const spank_err_t outcome = spank_setenv(spank, argv[i], equals + 1, 1);
    *equals = '=';
    if (outcome != ESPANK_SUCCESS) return -1;
  }
  if (spank_getenv(spank, "PYTORCH_VERSION", version, sizeof version) != ESPANK_SUCCESS) return 0;
  return copy_variable(spank, "SLURM_PROCID", "RANK") != 0 ||
                 copy_variable(spank, "SLURM_LOCALID", "LOCAL_RANK") != 0
             ? -1
             : 0;
}

static int enter(const char* name, int kind) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)container, name);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const int outcome = setns(file, kind);
  close(file);
  return outcome;
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char** argv) {
  if (!is_remote_step(spank) || argument(argc, argv, kPrivileged) == NULL) return ESPANK_SUCCESS;
  return enter("mnt", CLONE_NEWNS) != 0 || chdir("/") != 0 ? ESPANK_ERROR : ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int argc, char** argv) {
  if (!is_remote_step(spank)) return ESPANK_SUCCESS;
  if (import_environment(spank, argc, argv) != 0) return ESPANK_ERROR;
  if (argument(argc, argv, kPrivileged) != NULL) return ESPANK_SUCCESS;
  if (geteuid() != 0 && enter("user", CLONE_NEWUSER) != 0) return ESPANK_ERROR;
  if (enter("mnt", CLONE_NEWNS) != 0 || chdir("/") != 0) return ESPANK_ERROR;
  return ESPANK_SUCCESS;
}

int slurm_spank_exit(spank_t spank, int argc, char** argv) {
  (void)spank, (void)argc, (void)argv;
  if (container <= 0) return ESPANK_SUCCESS;
  kill(container, SIGKILL);
  waitpid(container, NULL, 0);
  container = 0;
  return ESPANK_SUCCESS;
}
