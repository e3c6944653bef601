// Between a test and its fork server (C and C++). A packet starts a process: strings that end with
// 0, which are the path of its stdout, that of its stderr, the number of words of its command,
// these, and its variables as NAME=VALUE. The answer is its pid_t, or -1.
#pragma once

enum {
  kForkServerSocket = 3,              // of the server: SOCK_SEQPACKET
  kForkServerPacketMax = 128 * 1024,  // bytes
};
