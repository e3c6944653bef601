// What a process does at this moment, by the kernel.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <iterator>
#include <string>

// "PID (NAME) STATE ..." of /proc/PID/stat, proc(5): 'T' stopped, 'Z' ended and not waited for ...;
// 0 where there is no such process.
inline char process_state(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t end = stat.rfind(") ");  // a name may hold a parenthesis
  return end == std::string::npos || end + 2 >= stat.size() ? '\0' : stat[end + 2];
}

// Whether it has a handler for the signal.
inline bool catches_signal(pid_t process, int number) {
  std::ifstream file("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1) != 0;
  }
  return false;
}

// Its parent's id; 0 where there is no such process.
inline pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t end = stat.rfind(") ");
  return end == std::string::npos || end + 4 >= stat.size() ? 0 : std::stoi(stat.substr(end + 4));
}
