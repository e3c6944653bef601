#include "trainer_template/runtime/rendezvous/file_store.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/host/own_file.h"
#include "bridge/net/socket.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// FileStore writes the length of a text before it.
std::string written(std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size).append(text);
}

// The keys in which FileStores of libtorch 2.11 count who uses the file, their first one, and who
// has left it.
const std::string kUsers = written("refcount/"), kLeft = written("cleanup/");

bool may_be_store(int descriptor) {
  std::string begin(kUsers.size(), '\0');
  const ssize_t size = pread(descriptor, begin.data(), begin.size(), 0);
  return size == 0 || (size == static_cast<ssize_t>(begin.size()) && begin == kUsers);
}

// Waits for the other ranks that are writing the file. A file system without locks is FileStore's
// error.
bool can_lock(const Socket& file, milliseconds timeout) {
  constexpr milliseconds kRetry{5};
  const auto deadline = Clock::now() + timeout;
  while (flock(file.descriptor(), LOCK_SH | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) break;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kRetry);
  }
  return true;
}

// Why the file cannot be a store; empty: it can. FileStore would wait forever for a missing folder,
// and search forever in a file that is not a store. It opens the file by its name again and again,
// so that nobody else may exchange it.
std::string file_error(const std::string& path, milliseconds timeout) {
  const auto opened = open_own_file(path);
  if (!opened) return opened.error().message;
  const Socket file(*opened);
  if (!can_lock(file, timeout)) {
    return formatted(
        "another process has held its lock for {}; end that process (fuser lists it), or name "
        "another file",
        seconds(timeout));
  }
  return may_be_store(file.descriptor())
             ? ""
             : "it is not a store file; name another file, or remove this one";
}

// Removes the file when all ranks have been here and nobody uses it.
struct FileRemover {
  std::string path;
  int world_size;

  ~FileRemover() {
    const std::string content =
        (std::ostringstream() << std::ifstream(path, std::ios::binary).rdbuf()).str();
    const bool have_all_left =
        content.find(kLeft + written(std::to_string(world_size))) != content.npos;
    if (have_all_left && content.ends_with(kUsers + written("0"))) unlink(path.c_str());
  }
};

// FileStore leaves the file where the last rank that counts itself as left is not the last that
// uses it: the counts change one after the other. The remover, as the first base, follows
// FileStore's last change.
struct RemovedFileStore : private FileRemover, public c10d::FileStore {
  RemovedFileStore(const std::string& file, int ranks)
      : FileRemover{file, ranks}, FileStore(file, ranks) {}
};

}  // namespace

// Where only one rank has an error here, rank 0 reports that this rank did not join.
c10::intrusive_ptr<c10d::Store> open_file_store(const std::string& path, const Layout& layout,
                                                milliseconds timeout) {
  const std::string error = file_error(path, timeout);
  if (!error.empty() && layout.rank != 0) throw PeerFailed();
  if (!error.empty()) throw TrainError(formatted("file://{}: {}", path, error));
  return c10::make_intrusive<RemovedFileStore>(path, layout.world_size);
}

}  // namespace torchbridge::train
