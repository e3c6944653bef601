// File layers of disks that fail: by a power cut, by being full, by being slow. None of them really
// syncs, which a test has no time for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <torchbridge/errors.h>

#include "trainer_template/runtime/checkpoint_format/file_layer.h"

namespace torchbridge::train {

// Calls before(OPERATION) ahead of each operation, which may throw instead: "folder" "open" "write"
// "sync" "close" "sync folder" "rename" "link" "remove".
class WatchedFiles : public FileLayer {
 public:
  void make_folder(const std::filesystem::path& path) override;
  std::unique_ptr<OutputFile> open(const std::filesystem::path& path, Owner owner) override;
  void sync_folder(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  bool link(const std::filesystem::path& target, const std::filesystem::path& path) override;
  void remove(const std::filesystem::path& path) override;

 protected:
  class File;
  virtual void before(const std::string& operation) = 0;
  // What happened, for a layer that wants to undo it. Of a write: the bytes that were there before.
  virtual void wrote(const std::filesystem::path&, std::uint64_t /*offset*/,
                     std::string_view /*bytes*/) {}
  virtual void synced(const std::filesystem::path&) {}
};

struct PowerCut : std::runtime_error {
  PowerCut() : std::runtime_error("power cut") {}
};

// Cuts the power at operation number `lives`; a write is torn then. What was not synced may be lost
// after that, as a disk may do it.
class FragileFiles final : public WatchedFiles {
 public:
  enum class Loss { kEverything, kNothing, kAtRandom };

  explicit FragileFiles(int lives) : lives_(lives) {}

  void make_folder(const std::filesystem::path& path) override;
  std::unique_ptr<OutputFile> open(const std::filesystem::path& path, Owner owner) override;
  void sync_folder(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  bool link(const std::filesystem::path& target, const std::filesystem::path& path) override;
  void remove(const std::filesystem::path& path) override;

  // The power is back. Once.
  void lose_what_was_not_synced(Loss loss, unsigned seed);

 private:
  enum class Kind { kWrite, kName, kRemoval, kRename };  // in the order in which they are undone
  // Something that is not on the disk yet.
  struct Unsynced {
    Kind kind;
    std::filesystem::path path;  // where it is now: a rename of its folder moves it
    std::filesystem::path from;  // of a rename: the old name; of a removal: where it is kept
    std::uint64_t offset = 0;    // of a write
    std::size_t size = 0;
  };
  static void undo(const Unsynced& one, std::mt19937& random, Loss loss);
  void before(const std::string& operation) override;
  void wrote(const std::filesystem::path& path, std::uint64_t offset,
             std::string_view bytes) override;
  void synced(const std::filesystem::path& path) override;

  int lives_;
  std::vector<Unsynced> unsynced_;  // in their order
};

// Operations that want room on the disk fail with this error from number `good` on, counted from
// the constructor or from fill(): once, or until free() is called.
class FullDisk final : public WatchedFiles {
 public:
  FullDisk(int good, int error, bool once) : good_(good), error_(error), once_(once) {}
  FullDisk(int error, bool once) : FullDisk(-1, error, once) {}  // has room until fill() is called
  void fill(int good) { good_ = good; }
  void free() { good_ = -1; }
  bool has_failed() const { return failed_; }

 private:
  void before(const std::string& operation) override;
  int good_, error_;
  bool once_, failed_ = false;
};

// A path whose name has this part is not removed.
class KeepingFiles final : public WatchedFiles {
 public:
  explicit KeepingFiles(std::string part) : part_(std::move(part)) {}
  void remove(const std::filesystem::path& path) override;

 private:
  void before(const std::string&) override {}
  const std::string part_;
};

// Writes wait from hold() until go_on().
class SlowDisk final : public WatchedFiles {
 public:
  void hold();
  void go_on();
  // Waits until a write waits; false where none comes.
  bool has_begun();

 private:
  void before(const std::string& operation) override;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool waits_ = false, may_go_on_ = true;
};

}  // namespace torchbridge::train
