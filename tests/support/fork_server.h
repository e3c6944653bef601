// Processes of one program that load its libraries once: a process of the program stops before
// main(), and a copy of it is made for each start. Loading libtorch takes 0.25 s of CPU time, of
// which a copy needs a tenth. (The technique is that of AFL's fork server,
// https://lcamtuf.blogspot.com/2014/10/fuzzing-binaries-without-execve.html.)
//
// A copy is a child of the test, with the arguments, the environment and the files that posix_spawn
// would give it. It differs in this: /proc/PID/cmdline and /proc/PID/environ are the server's, and
// what a process inherits besides (current folder, limits, signal mask) is that of the test when it
// first started the program. The test becomes a subreaper (prctl(2)), and the servers end with it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fork_server {

// Starts the program, with output in OUTPUT.out and OUTPUT.err. `command` and `environment`
// ("NAME=VALUE") as for posix_spawn. There is one server for each program and each value of the
// variables that libraries read. Returns -1 where posix_spawn is to be used: the program is not one
// of this build folder, or has a library preloaded; and, with a failure of the test, where the
// server does not answer. Not thread-safe.
pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
            const std::filesystem::path& output);

}  // namespace fork_server
